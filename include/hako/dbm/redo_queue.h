// A queue of log entries to replay, in order. It lets a replay prefetch the memory of several
// updates at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "hako/format/log_format.h"
#include "hako/log/log_segments.h"

namespace hako {

class RedoQueue {
 public:
  static constexpr std::size_t kEntries = 512, kBytes = 64 << 10;

  // Appends a copy of the entry; `end` is the log position after it. Returns false if there is no
  // room for it.
  bool Push(const format::LogEntry& entry, log::Position end) {
    const std::size_t size = entry.key.size() + entry.value.size();
    if (size_ == kEntries || size > kBytes - used_) return false;
    char* const bytes = bytes_.get() + used_;
    if (!entry.key.empty()) std::memcpy(bytes, entry.key.data(), entry.key.size());
    if (!entry.value.empty()) std::memcpy(bytes + entry.key.size(), entry.value.data(), entry.value.size());
    keys_[size_] = {bytes, entry.key.size()};
    entries_[size_] = {entry.op, keys_[size_], {bytes + entry.key.size(), entry.value.size()}};
    ends_[size_] = end;
    ++size_;
    used_ += size;
    return true;
  }
  void Clear() { size_ = used_ = 0; }

  std::size_t size() const { return size_; }
  std::span<const std::string_view> keys() const { return std::span(keys_).first(size_); }
  const format::LogEntry& entry(std::size_t i) const { return entries_[i]; }
  log::Position end(std::size_t i) const { return ends_[i]; }

 private:
  const std::unique_ptr<char[]> bytes_ = std::make_unique_for_overwrite<char[]>(kBytes);
  std::size_t size_ = 0, used_ = 0;
  std::array<std::string_view, kEntries> keys_;
  std::array<format::LogEntry, kEntries> entries_;
  std::array<log::Position, kEntries> ends_;
};

}  // namespace hako
