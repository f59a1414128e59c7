// What the engines share that are hash maps of strings in memory; they differ in how a record is set, found and visited.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "driver.h"

namespace hako::compare {

template <class MapT>
class MapEngine {
 public:
  static constexpr bool kOnDisk = false, kWritable = true;

  bool Open(const std::string&, std::uint64_t) { return true; }
  bool Remove(std::string_view key) { return map_.erase(key); }
  template <class Visit>
  bool Scan(Visit visit) {
    for (const auto& [key, value] : map_) visit(key, value);
    return true;
  }
  std::uint64_t Count() { return map_.size(); }
  bool Close() {
    map_.clear();
    return true;
  }

 protected:
  MapT map_;
};

}  // namespace hako::compare
