#include <iostream>
#include <string_view>
#include <utility>

#include "hako/dbm/baby_dbm.h"

hako::Status Run() {
  // A B+ tree in memory: records are ordered by key.
  HAKO_ASSIGN_OR_RETURN(auto db, hako::BabyDBM<>::Open());
  for (const auto& [day, sky] : {std::pair("2024-02-29", "fog"), {"2024-03-01", "rain"}, {"2024-03-02", "sun"}, {"2024-04-01", "hail"}}) {
    HAKO_RETURN_IF_ERROR(db->Set(day, sky));
  }

  for (auto [day, sky] : db->PrefixRange("2024-03")) std::cout << day << ": " << sky << "\n";              // 03-01, 03-02
  for (auto [day, sky] : db->ReverseRange("2024-03", "2024-05")) std::cout << day << ": " << sky << "\n";  // 04-01, 03-02, 03-01

  auto it = db->MakeIterator();
  it.JumpLower("2024-04-01");  // the last record below
  if (it.Valid()) std::cout << "before April: " << it.key() << "\n";

  HAKO_ASSIGN_OR_RETURN(const auto num_removed, db->RemoveRange("2024-03", "2024-04"));
  std::cout << num_removed << " removed, " << db->CountRange("2024").value() << " left\n";
  return it.status();
}

int main() {
  const hako::Status status = Run();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
