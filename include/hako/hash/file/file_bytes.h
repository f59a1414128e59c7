// The bytes of a file: read and written in place if it is mapped, otherwise by ReadAt and WriteAt.
//
// Thread-safe for ranges that no other thread writes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/hash_file_format.h"
#include "hako/sync/atomic_bytes.h"

namespace hako::hash {

template <File FileT>
class FileBytes {
 public:
  static constexpr bool kMapped = MappedFile<FileT>;

  FileT& file() { return file_; }
  const FileT& file() const { return file_; }
  // Returns the address of the first byte of the map. REQUIRES: kMapped
  std::byte* base() const {
    HAKO_DCHECK(kMapped);
    return base_;
  }

  Status Read(std::uint64_t offset, char* out, std::uint64_t size) const {
    if constexpr (kMapped) {
      if (offset > file_.Size() || size > file_.Size() - offset)
        return absl::OutOfRangeError(absl::StrCat("a read beyond the end of the file at offset ", offset));
      if constexpr (requires { file_.Prefetch(offset, size); }) {
        if (size >= format::kExtentAlignment) file_.Prefetch(offset, size);
      }
      sync::LoadShared(out, reinterpret_cast<const char*>(base_) + offset, size);
      return absl::OkStatus();
    } else {
      return file_.ReadAt(offset, {reinterpret_cast<std::byte*>(out), size});
    }
  }
  // As Read, but from the device, if the file supports that (file/file.h).
  Status ReadDevice(std::uint64_t offset, char* out, std::uint64_t size) const {
    if constexpr (DeviceFile<FileT>) {
      return file_.ReadDevice(offset, {reinterpret_cast<std::byte*>(out), size});
    } else {
      return Read(offset, out, size);
    }
  }
  Status Write(std::uint64_t offset, std::string_view bytes) {
    if constexpr (kMapped) {
      sync::StoreShared(reinterpret_cast<char*>(base_) + offset, bytes.data(), bytes.size());
      return absl::OkStatus();
    } else {
      return file_.WriteAt(offset, {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
    }
  }

  // Makes the range read as zero.
  Status FillZero(std::uint64_t offset, std::uint64_t bytes) {
    static constexpr std::array<char, 4096> kZeros{};
    for (std::uint64_t at = offset; at < offset + bytes; at += kZeros.size()) {
      HAKO_RETURN_IF_ERROR(Write(at, {kZeros.data(), kZeros.size()}));
    }
    return absl::OkStatus();
  }

 protected:
  explicit FileBytes(FileT file) : file_(std::move(file)) {
    if constexpr (kMapped) base_ = file_.MutableView(0, 0).data();
  }

  FileT file_;
  std::byte* base_ = nullptr;
};

}  // namespace hako::hash
