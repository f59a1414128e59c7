// Measures how long single Gets and Sets take beside a longer operation on the same database.
//
// One thread gets and another one sets random records while the calling thread runs the operation.
// The last Get and the last Set end after the operation, so a wait that it causes is never cut off.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "hako/base/hash.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "tool/latency.h"

namespace hako::tool {

// The records of a measurement: numbered keys, and values of random bytes, which no codec
// compresses and no copy skips as zeros.
class StallRecords {
 public:
  using Key = std::array<char, 12>;

  StallRecords(std::uint64_t num_records, std::size_t value_size, std::size_t longest_value)
      : num_records_(num_records), value_size_(value_size), bytes_(std::max(longest_value, value_size) + kSlack, '\0') {
    for (std::size_t i = 0; i + sizeof(std::uint64_t) <= bytes_.size(); i += sizeof(std::uint64_t)) {
      const std::uint64_t word = MixBits(i + 1);
      std::memcpy(bytes_.data() + i, &word, sizeof(word));
    }
  }

  std::uint64_t size() const { return num_records_; }
  static Key KeyOf(std::uint64_t number) {
    Key key;
    for (std::size_t i = key.size(); i-- > 0; number /= 10) key[i] = static_cast<char>('0' + number % 10);
    return key;
  }
  static std::string_view ViewOf(const Key& key) { return {key.data(), key.size()}; }
  // Returns one of many values of the usual size, chosen by `seed`.
  std::string_view Value(std::uint64_t seed) const { return Value(seed, value_size_); }
  std::string_view Value(std::uint64_t seed, std::size_t size) const { return {bytes_.data() + MixBits(seed) % kSlack, size}; }

 private:
  static constexpr std::size_t kSlack = 64 << 10;
  const std::uint64_t num_records_;
  const std::size_t value_size_;
  std::string bytes_;
};

struct StallReport {
  double elapsed = 0;  // duration of the operation, in seconds
  LatencyHistogram gets, sets;
  Status status;  // the first error of the three threads
};

// Runs operation(), which returns a Status, beside Gets and Sets. With `is_durable` each Set
// survives a power cut when it returns.
template <class D, class Operation>
StallReport MeasureStalls(D& db, const StallRecords& records, bool is_durable, Operation&& operation) {
  using Clock = std::chrono::steady_clock;
  StallReport report;
  std::atomic<bool> is_done{false};
  std::atomic<int> num_started{0};
  std::mutex status_mutex;
  const auto repeat = [&](std::uint64_t stream, LatencyHistogram* latency, auto&& step) {
    Status status;
    for (std::uint64_t i = 0; status.ok() && (i == 0 || !is_done.load(std::memory_order_acquire)); ++i) {
      const std::uint64_t draw = MixBits(stream << 32 | i);
      const StallRecords::Key key = StallRecords::KeyOf(draw % records.size());
      const auto start = Clock::now();
      status = step(StallRecords::ViewOf(key), draw);
      latency->Add(static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count()));
      if (i == 0) num_started.fetch_add(1, std::memory_order_release);
    }
    const std::lock_guard lock(status_mutex);
    report.status.Update(status);
  };
  std::thread getter([&] {
    std::string value;
    repeat(1, &report.gets, [&](std::string_view key, std::uint64_t) { return db.Get(key, &value); });
  });
  std::thread setter([&] {
    const SetOptions options{.durability = is_durable ? Durability::kPower : Durability::kNone};
    repeat(2, &report.sets, [&](std::string_view key, std::uint64_t draw) {
      return is_durable ? db.Set(key, records.Value(draw), options) : db.Set(key, records.Value(draw));
    });
  });
  while (num_started.load(std::memory_order_acquire) < 2) std::this_thread::yield();
  const auto start = Clock::now();
  const Status status = operation();
  report.elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  is_done.store(true, std::memory_order_release);
  getter.join();
  setter.join();
  report.status.Update(status);
  return report;
}

}  // namespace hako::tool
