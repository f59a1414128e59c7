// Counters of a server, for INFO, LATENCY and SLOWLOG.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/sync/mutex.h"

namespace hako::server {

// A number that one thread changes and others read.
class Counter {
 public:
  void Add(std::uint64_t n) { value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
  void Reset() { value_.store(0, std::memory_order_relaxed); }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// The calls of one command. Bucket i of the histogram counts the calls that took up to 2^i - 1
// microseconds.
struct CommandCounters {
  static constexpr std::size_t kBuckets = 32;
  Counter calls, nanoseconds, failed, rejected;
  std::array<Counter, kBuckets> histogram;

  void Note(std::uint64_t took) {
    calls.Add(1);
    nanoseconds.Add(took);
    histogram[std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(took / 1000)), kBuckets - 1)].Add(1);
  }
  void Reset() {
    for (Counter* counter : {&calls, &nanoseconds, &failed, &rejected}) counter->Reset();
    for (Counter& counter : histogram) counter.Reset();
  }
};

// The counters of one loop thread.
struct ThreadCounters {
  explicit ThreadCounters(std::size_t num_commands) : commands(num_commands) {}
  Counter connections, rejected_connections, tls_failures, hits, misses, errors, input_bytes, output_bytes, commits;
  std::vector<CommandCounters> commands;

  void Reset() {
    for (Counter* counter :
         {&connections, &rejected_connections, &tls_failures, &hits, &misses, &errors, &input_bytes, &output_bytes, &commits})
      counter->Reset();
    for (CommandCounters& command : commands) command.Reset();
  }
};

// The most recent slow commands. Thread-safe.
class SlowLog {
 public:
  struct Entry {
    std::int64_t id = 0, time = 0, microseconds = 0;
    std::vector<std::string> words;  // shortened as in Redis
    std::string address, name;
  };
  static constexpr std::size_t kWordsMax = 32, kWordMax = 128;

  void Add(Entry entry, std::size_t size_max) {
    sync::MutexLock lock(mutex_);
    entry.id = next_id_++;
    entries_.push_front(std::move(entry));
    while (entries_.size() > size_max) entries_.pop_back();
  }
  // Returns at most `count` entries, the newest first.
  std::vector<Entry> Get(std::size_t count) const {
    sync::MutexLock lock(mutex_);
    return {entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(std::min(count, entries_.size()))};
  }
  std::size_t size() const {
    sync::MutexLock lock(mutex_);
    return entries_.size();
  }
  void Reset() {
    sync::MutexLock lock(mutex_);
    entries_.clear();
  }

 private:
  mutable sync::Mutex mutex_;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hako::server
