// The bytes of heap extents, for a scan. They are read in place if the file is mapped, otherwise
// through a window, so that a long record needs no more memory.
//
// Three classes with one interface; offsets count from the start of the extent:
//   kWhole                a record of up to this many bytes is in memory as a whole
//   Get(at, size)         the address of some bytes, of at most kWhole; valid until the next call
//   Hash(at, size, seed)  Hash64 of any number of bytes
//   status() the first failed read; from then on results mean nothing
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hako/base/aligned_buffer.h"
#include "hako/base/hash.h"
#include "hako/base/hash_stream.h"
#include "hako/base/inline.h"
#include "hako/base/status.h"
#include "hako/hash/file/extent_file.h"

namespace hako::hash {

// The bytes of an extent that is in memory.
class LoadedBytes {
 public:
  static constexpr std::uint64_t kWhole = std::numeric_limits<std::uint64_t>::max();

  explicit LoadedBytes(const char* bytes) : bytes_(bytes) {}
  const char* Get(std::uint64_t at, std::uint64_t) const { return bytes_ + at; }
  std::uint64_t Hash(std::uint64_t at, std::uint64_t size, std::uint64_t seed) const { return Hash64(bytes_ + at, size, seed); }
  static Status status() { return absl::OkStatus(); }

 private:
  const char* bytes_;
};

// The bytes of an extent in a map. Writers may change them meanwhile; the caller validates what it
// computes from them.
template <File FileT>
class MappedBytes {
 public:
  static constexpr std::uint64_t kWhole = std::numeric_limits<std::uint64_t>::max();

  explicit MappedBytes(ExtentFile<FileT>& file) : file_(file) {}
  Status Enter(Extent extent) {
    extent_ = extent;
    bytes_ = reinterpret_cast<const char*>(file_.base()) + extent.offset;
    prefetched_ = 0;
    return absl::OkStatus();
  }
  HAKO_INLINE const char* Get(std::uint64_t at, std::uint64_t) {
    if (at >= prefetched_) [[unlikely]]
      Prefetch(at);
    return bytes_ + at;
  }
  std::uint64_t Hash(std::uint64_t at, std::uint64_t size, std::uint64_t seed) {
    if (at + size <= prefetched_) [[likely]]
      return Hash64(bytes_ + at, size, seed);
    HashStream hash(seed);
    for (std::uint64_t end = at + size, piece; at < end; at += piece) {
      piece = std::min(kPiece, end - at);
      hash.Add(Get(at, piece), piece);
    }
    return hash.Get();
  }
  static Status status() { return absl::OkStatus(); }

 private:
  static constexpr std::uint64_t kPiece = 1 << 20;

  [[gnu::noinline]] void Prefetch(std::uint64_t at) {
    const std::uint64_t size = std::min(2 * kPiece, extent_.bytes - at);
    if constexpr (requires { file_.file().Prefetch(at, size); }) file_.file().Prefetch(extent_.offset + at, size);
    prefetched_ = at + size;
  }

  ExtentFile<FileT>& file_;
  Extent extent_{};
  const char* bytes_ = nullptr;
  std::uint64_t prefetched_ = 0;
};

// The bytes of an extent in any file.
template <File FileT>
class WindowBytes {
 public:
  static constexpr std::uint64_t kWhole = 1 << 20;

  explicit WindowBytes(const ExtentFile<FileT>& file)
      : file_(file), buffer_(MakeAlignedBuffer(kRoom + kPiece, HugePagesFor(file.file().Size(), kWhole))) {}
  Status Enter(Extent extent) {
    extent_ = extent;
    Load(0);
    return status_;
  }
  HAKO_INLINE const char* Get(std::uint64_t at, std::uint64_t size) {
    if (at < begin_ || at + size > end_) [[unlikely]]
      Load(at);
    return window() + (at - begin_);
  }
  std::uint64_t Hash(std::uint64_t at, std::uint64_t size, std::uint64_t seed) {
    if (size <= kWhole) [[likely]]
      return Hash64(Get(at, size), size, seed);
    HashStream hash(seed);  // leaves the window as it is, because the scan continues in it if the check fails
    char* const out = window() + kRoom;
    for (std::uint64_t end = at + size, piece; at < end && status_.ok(); at += piece) {
      piece = std::min(kPiece, end - at);
      status_ = file_.Read(extent_.offset + at, out, piece);
      hash.Add(out, piece);
    }
    return hash.Get();
  }
  const Status& status() const { return status_; }

 private:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kRoom = kWhole + kPage, kPiece = (2 << 20) - kRoom;

  char* window() const { return reinterpret_cast<char*>(buffer_.get()); }
  [[gnu::noinline]] void Load(std::uint64_t at) {
    begin_ = at & ~(kPage - 1);
    end_ = std::min(begin_ + kRoom, extent_.bytes);
    if (status_.ok()) status_ = file_.Read(extent_.offset + begin_, window(), end_ - begin_);
    if (!status_.ok()) std::memset(window(), 0, end_ - begin_);
  }

  const ExtentFile<FileT>& file_;
  AlignedBuffer buffer_;
  Extent extent_{};
  std::uint64_t begin_ = 0, end_ = 0;  // of the window
  Status status_;
};

#ifdef HAKO_TSAN
template <File FileT>
using ExtentBytes = WindowBytes<FileT>;
#else
template <File FileT>
using ExtentBytes = std::conditional_t<MappedFile<FileT>, MappedBytes<FileT>, WindowBytes<FileT>>;
#endif

}  // namespace hako::hash
