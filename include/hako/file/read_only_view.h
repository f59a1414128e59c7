// A read-only view of another file object, which must stay open and must not be moved while the
// view exists. Used to read one state of a file that is being written.
//
// Writes and Resize return FailedPrecondition; Sync and Close do nothing. Threads: as the file's
// reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hako/base/status.h"
#include "hako/file/file.h"

namespace hako {

template <File FileT>
class ReadOnlyView {
 public:
  explicit ReadOnlyView(FileT& file) : file_(&file) {}

  std::uint64_t Size() const { return file_->Size(); }
  bool IsWritable() const { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const { return file_->ReadAt(offset, out); }
  Status ReadMulti(std::span<const ReadRequest> reads) requires BatchFile<FileT> { return file_->ReadMulti(reads); }
  Status WriteMulti(std::span<const WriteRequest>) requires BatchFile<FileT> { return Refuse(); }
  Status WriteAt(std::uint64_t, std::span<const std::byte>) { return Refuse(); }
  Status Resize(std::uint64_t) { return Refuse(); }
  Status Sync() { return absl::OkStatus(); }
  Status Close() { return absl::OkStatus(); }
  std::size_t block_size() const requires requires(const FileT& file) { file.block_size(); }
  { return file_->block_size(); }

 private:
  static Status Refuse() { return absl::FailedPreconditionError("the view of the file is read-only"); }
  FileT* file_;
};

}  // namespace hako
