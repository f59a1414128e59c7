// A long value in a file that is copied into another record piece by piece, so that only one piece
// is in memory.
#pragma once

#include <cstdint>

#include "hako/base/assert.h"
#include "hako/base/hash_stream.h"
#include "hako/base/status.h"
#include "hako/hash/file/extent_file.h"

namespace hako::hash {

// Not thread-safe. The bytes must not change meanwhile.
template <File FileT>
class StoredValue {
 public:
  // The value begins `value_at` bytes after the beginning of the record at `record`. The other
  // arguments are the record's check and its seed.
  StoredValue(const ExtentFile<FileT>& file, std::uint64_t record, std::uint64_t value_at, std::uint64_t size, std::uint64_t seed,
              std::uint32_t check)
      : file_(&file), record_(record), next_(record + value_at), end_(next_ + size), size_(size), check_(check), hash_(seed) {}

  std::uint64_t size() const { return size_; }
  // Reads the next `size` bytes.
  Status Read(char* out, std::uint64_t size) {
    HAKO_RETURN_IF_ERROR(file_->Read(next_, out, size));
    hash_.Add(out, size);
    next_ += size;
    return absl::OkStatus();
  }
  // REQUIRES: all bytes have been read
  Status Verify() const {
    HAKO_DCHECK(next_ == end_);
    return static_cast<std::uint32_t>(hash_.Get()) == check_ ? absl::OkStatus() : DataLossError("a record fails its checksum", record_);
  }

 private:
  const ExtentFile<FileT>* file_;
  std::uint64_t record_, next_, end_, size_;
  std::uint32_t check_;
  HashStream hash_;
};

}  // namespace hako::hash
