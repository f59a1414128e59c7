// The list of pending Sets (hash/file/pending_sets.h): their keys, hashes and records.
//
// Any thread may call IsEmpty and MayHold, whose results may be outdated. The other functions
// require the mutex that PendingSets holds.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hako/base/assert.h"
#include "hako/base/language.h"

namespace hako::hash {

class PendingList {
 public:
  static constexpr std::size_t kMax = 64;
  static constexpr std::size_t kKeyMax = 256;  // bytes; Sets of longer keys do not become pending

  struct Record {
    std::uint32_t handle;
    std::size_t value_size;
  };

  bool IsEmpty() const { return count_.load(std::memory_order_acquire) == 0; }
  // Whether one of the keys may have this hash. Keys move only towards the front, and the search
  // runs from the end, so it finds every key that stays in the list.
  bool MayHold(std::uint64_t hash) const {
    for (std::size_t i = count_.load(std::memory_order_seq_cst); i-- > 0;) {
      if (hashes_[i].load(std::memory_order_acquire) == hash) return true;
    }
    return false;
  }

  bool IsFull() const { return size() == kMax; }
  std::span<const std::string_view> keys() const { return std::span(keys_).first(size()); }
  std::span<const std::uint32_t> handles() const { return std::span(handles_).first(size()); }
  std::uint64_t first_hash() const { return hashes_[0].load(std::memory_order_relaxed); }

  // Adds a key, or replaces its record; returns the previous record, with handle 0 if there was
  // none. REQUIRES: there is room, or the key is pending
  Record Put(std::uint64_t hash, std::string_view key, const Record& record) {
    const std::size_t count = size();
    const auto found = static_cast<std::size_t>(std::ranges::find(keys(), key) - keys().begin());
    HAKO_DCHECK(key.size() <= kKeyMax && (found < count || count < kMax));
    const Record before = found < count ? Record{handles_[found], value_sizes_[found]} : Record{0, 0};
    handles_[found] = record.handle;
    value_sizes_[found] = record.value_size;
    if (found < count) return before;
    key.copy(bytes_[found].data(), kKeyMax);
    keys_[found] = {bytes_[found].data(), key.size()};
    hashes_[found].store(hash, std::memory_order_release);
    count_.store(count + 1, std::memory_order_seq_cst);  // see invariant 3 of hash/file/pending_sets.h
    return before;
  }
  // REQUIRES: the last Put added a key
  void TakeBack() {
    HAKO_DCHECK(size() != 0);
    count_.store(size() - 1, std::memory_order_release);
  }

  // Keeps only the Sets for which keep(i) is true, in their order.
  template <class F>
  void Retain(F&& keep) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < size(); ++i) {
      if (!keep(i)) continue;
      if (kept != i) {
        bytes_[kept] = bytes_[i];
        keys_[kept] = {bytes_[kept].data(), keys_[i].size()};
        handles_[kept] = handles_[i];
        value_sizes_[kept] = value_sizes_[i];
        hashes_[kept].store(hashes_[i].load(std::memory_order_relaxed), std::memory_order_release);
      }
      ++kept;
    }
    count_.store(kept, std::memory_order_release);
  }

 private:
  std::size_t size() const { return count_.load(std::memory_order_relaxed); }

  std::atomic<std::size_t> count_{0};
  std::array<std::atomic<std::uint64_t>, kMax> hashes_{};
  std::array<std::uint32_t, kMax> handles_;
  std::array<std::size_t, kMax> value_sizes_;
  std::array<std::string_view, kMax> keys_;
  std::array<std::array<char, kKeyMax>, kMax> bytes_;  // of the keys
};

}  // namespace hako::hash
