#include <chrono>
#include <iostream>
#include <utility>

#include "hako/dbm/tree_dbm.h"

hako::Status Run() {
  // A B+ tree in a file, with 64 MiB of memory for its pages and a checkpoint once a second.
  const hako::TreeOptions options = {.cache_bytes = 64 << 20, .sync_interval = std::chrono::seconds(1)};
  HAKO_ASSIGN_OR_RETURN(auto db, hako::TreeDBM<>::Open("weather.hkt", options));
  for (const auto& [day, sky] : {std::pair("2024-02-29", "fog"), {"2024-03-01", "rain"}, {"2024-03-02", "sun"}, {"2024-04-01", "hail"}}) {
    HAKO_RETURN_IF_ERROR(db->Set(day, sky));
  }
  HAKO_RETURN_IF_ERROR(db->Synchronize(hako::SyncMode::kHard));  // survives a power cut from here on

  auto march = db->Range("2024-03", "2024-04");
  for (auto [day, sky] : march) std::cout << day << ": " << sky << "\n";  // 03-01, 03-02
  HAKO_RETURN_IF_ERROR(march.status());                                   // the scan may have failed

  return db->Close();
}

int main() {
  const hako::Status status = Run();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
