#include <iostream>
#include <string>

#include "hako/dbm/hash_dbm.h"

hako::Status Run() {
  // A hash table in a file, created on first use.
  HAKO_ASSIGN_OR_RETURN(auto db, hako::HashDBM<>::Open("capitals.hkh"));
  HAKO_RETURN_IF_ERROR(db->Set("Japan", "Tokyo"));
  HAKO_ASSIGN_OR_RETURN(std::string capital, db->Get("Japan"));
  std::cout << "Japan: " << capital << "\n";
  return db->Close();
}

int main() { return Run().ok() ? 0 : 1; }
