// Not in a README: each database in a program that is compiled with the warnings that others switch on, and without exceptions
// (test/consumer/CMakeLists.txt, test/house/consumer_test.cmake).
#include <iostream>
#include <memory>
#include <string>

#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/positional_parallel_file.h"

template <class D>
hako::Status Use(hako::StatusOr<std::unique_ptr<D>> opened) {
  HAKO_ASSIGN_OR_RETURN(auto db, std::move(opened));
  HAKO_RETURN_IF_ERROR(db->Set("key", "value"));
  HAKO_RETURN_IF_ERROR(db->Append("key", "another", ", "));
  HAKO_ASSIGN_OR_RETURN(const std::string value, db->Get("key"));
  auto it = db->MakeIterator();
  for (it.First(); it.Valid(); it.Next()) std::cout << it.key() << ": " << it.value() << "\n";
  HAKO_RETURN_IF_ERROR(it.status());
  HAKO_RETURN_IF_ERROR(db->Remove("key"));
  return value == "value, another" ? hako::Status() : hako::Status(absl::StatusCode::kInternal, "not what was set");
}

hako::Status UseAll() {
  HAKO_RETURN_IF_ERROR(Use(hako::HashDBM<>::Open("strict.hkh")));
  HAKO_RETURN_IF_ERROR(Use(hako::HashDBM<hako::PositionalParallelFile>::Open("strict.hkh")));
  HAKO_RETURN_IF_ERROR(Use(hako::TreeDBM<>::Open("strict.hkt")));
  HAKO_RETURN_IF_ERROR(Use(hako::TinyDBM<>::Open()));
  return Use(hako::BabyDBM<>::Open());
}

int main() {
  const hako::Status status = UseAll();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
