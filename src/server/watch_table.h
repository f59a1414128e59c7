// WatchTable: the keys that clients watch (WATCH). An update of a watched key makes their EXEC fail.
//
// Invariants
//   1. Touch is called after the update. So if a client watches a key and then reads the value from before
//      an update, that update sets its `is_touched`.
//   2. While no client watches a key, Touch is one load.
//
// Thread-safe. The WatchState of a client belongs to its thread, except `is_touched`.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "hako/sync/mutex.h"

namespace hako::server {

// The keys that one client watches.
struct WatchState {
  std::map<std::string, bool, std::less<>> keys;  // whether the record existed when it was watched
  std::atomic<bool> is_touched{false};
};

class WatchTable {
 public:
  // Makes the client watch one more key.
  void Add(WatchState* client, std::string_view key) {
    sync::MutexLock lock(mutex_);
    watchers_.emplace(key, client);
    count_.fetch_add(1);
  }
  // Makes the client watch no key.
  void Remove(WatchState* client) {
    if (!client->keys.empty()) {
      sync::MutexLock lock(mutex_);
      for (const auto& [key, exists] : client->keys) {
        for (auto [at, end] = watchers_.equal_range(key); at != end; ++at) {
          if (at->second != client) continue;
          watchers_.erase(at);
          count_.fetch_sub(1);
          break;
        }
      }
    }
    client->keys.clear();
    client->is_touched = false;
  }
  // Call when a record was changed.
  void Touch(std::string_view key) {
    if (count_.load() == 0) [[likely]]
      return;
    sync::MutexLock lock(mutex_);
    for (auto [at, end] = watchers_.equal_range(key); at != end; ++at) at->second->is_touched = true;
  }
  // Call before all records are removed. bool exists(key) tells whether a record exists.
  template <class F>
  void TouchAll(F exists) {
    if (count_.load() == 0) return;
    sync::MutexLock lock(mutex_);
    for (const auto& [key, client] : watchers_) {
      if (exists(key)) client->is_touched = true;
    }
  }

 private:
  sync::Mutex mutex_;
  std::multimap<std::string, WatchState*, std::less<>> watchers_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::size_t> count_{0};
};

}  // namespace hako::server
