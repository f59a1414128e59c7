#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include "hako/dbm/hash_dbm.h"

hako::Status Run() {
  // A hash table in a file, created on first use.
  HAKO_ASSIGN_OR_RETURN(auto db, hako::HashDBM<>::Open("capitals.hkh"));

  HAKO_RETURN_IF_ERROR(db->Set("France", "Paris"));
  HAKO_RETURN_IF_ERROR(db->Set("Japan", "Tokyo"));
  HAKO_ASSIGN_OR_RETURN(std::string capital, db->Get("Japan"));
  std::cout << "Japan: " << capital << "\n";

  // Read, decide and write in one atomic step.
  std::string runs;
  HAKO_RETURN_IF_ERROR(db->Process("runs", [&runs](std::optional<std::string_view> value) {
    runs = std::to_string(value ? std::stoi(std::string(*value)) + 1 : 1);
    return hako::Action::Set(runs);
  }));

  auto it = db->MakeIterator();
  for (it.First(); it.Valid(); it.Next()) std::cout << it.key() << " -> " << it.value() << "\n";
  HAKO_RETURN_IF_ERROR(it.status());

  return db->Close();
}

int main() {
  const hako::Status status = Run();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
