// The common part of the engines that are maps of strings in memory. They differ in how a record is
// set, found and visited.
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

// A map with the interface of the standard's and with no lock at all: one thread only. ViewT is
// the type by which it finds a key without making a string.
template <class MapT, class ViewT>
class UnlockedMapEngine : public MapEngine<MapT> {
 public:
  static constexpr bool kConcurrent = false;

  bool Set(std::string_view key, std::string_view value) {
    if constexpr (requires { map_.try_emplace(View(key)); }) {
      map_.try_emplace(View(key)).first->second.assign(value);
    } else {  // the standard's make a string for a key that is there, too, unless it is found first
      const auto found = map_.find(View(key));
      if (found == map_.end()) return map_.emplace(key, value).second;
      found->second.assign(value);
    }
    return true;
  }
  bool Get(std::string_view key, std::string* value) {
    const auto found = map_.find(View(key));
    if (found == map_.end()) return false;
    value->assign(found->second);
    return true;
  }
  bool Remove(std::string_view key) {
    const auto found = map_.find(View(key));
    if (found == map_.end()) return false;
    map_.erase(found);
    return true;
  }
  bool Close() {
    MapT().swap(map_);
    return true;
  }

 protected:
  static ViewT View(std::string_view key) { return {key.data(), key.size()}; }
  using MapEngine<MapT>::map_;
};

}  // namespace hako::compare
