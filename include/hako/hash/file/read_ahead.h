// Records of a file that is not mapped, read together before they are used one by one.
//
// Take returns the bytes of each record once; they stay valid as long as the object. They are as of
// the call of Read, so the caller either tolerates older bytes or holds a lock that keeps the
// record from changing. An object serves the reads of the thread that made it, which find it by a
// thread-local pointer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "hako/base/scratch_buffer.h"
#include "hako/base/status.h"
#include "hako/file/file.h"

namespace hako::hash {

class ReadAhead {
 public:
  static constexpr std::size_t kRecordsMax = 64;

  ReadAhead() : before_(std::exchange(current_, this)) {}
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead() {
    current_ = before_;
    room_.Trim();
  }

  // Requests beyond kRecordsMax are ignored: those records are read later, one by one.
  void Want(std::uint32_t handle, std::uint64_t offset, std::uint64_t size) {
    if (count_ == kRecordsMax || Find(handle) != count_) return;
    handles_[count_] = handle;
    reads_[count_].offset = offset;
    sizes_[count_] = static_cast<std::size_t>(size);
    bytes_ += size;
    ++count_;
  }

  // If reading fails, all requests are dropped, and the later single reads report the error.
  template <BatchFile FileT>
  void Read(FileT& file) {
    file_ = &file;
    auto* at = reinterpret_cast<std::byte*>(room_.Take(bytes_));
    if (at == nullptr) count_ = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      reads_[i].out = {at, sizes_[i]};
      at += sizes_[i];
    }
    if (count_ != 0 && !file.ReadMulti(std::span<const ReadRequest>(reads_).first(count_)).ok()) count_ = 0;
  }

  // Returns the first bytes of a record of that file; none if they were not read ahead.
  static std::span<const std::byte> Take(const void* file, std::uint32_t handle) {
    if (current_ == nullptr || current_->file_ != file) return {};
    const std::size_t i = current_->Find(handle);
    if (i == current_->count_) return {};
    current_->handles_[i] = 0;
    return current_->reads_[i].out;
  }

 private:
  std::size_t Find(std::uint32_t handle) const {
    std::size_t i = 0;
    while (i < count_ && handles_[i] != handle) ++i;
    return i;
  }

  static inline constinit thread_local ReadAhead* current_ = nullptr;

  ReadAhead* const before_;  // the previous object of the thread, which uses another database while it uses this one
  // The thread's buffer, unless it is in use already.
  OwnedScratch own_room_;
  ScratchBuffer& room_ = before_ == nullptr ? ThreadScratch<ReadAhead>::Get() : own_room_;
  const void* file_ = nullptr;
  std::size_t count_ = 0, bytes_ = 0;
  std::array<std::uint32_t, kRecordsMax> handles_;
  std::array<std::size_t, kRecordsMax> sizes_;
  std::array<ReadRequest, kRecordsMax> reads_;
};

}  // namespace hako::hash
