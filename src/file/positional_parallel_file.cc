#include "hako/file/positional_parallel_file.h"

#include <limits>

#include "hako/file/positional_io.h"

namespace hako {

StatusOr<PositionalParallelFile> PositionalParallelFile::Open(const std::string& path, const FileOptions& options) {
  // Nothing is mapped, so nothing is reserved: FileOptions::reserve_bytes does not count.
  HAKO_ASSIGN_OR_RETURN(auto posix, PosixFile::Open(path, options, std::numeric_limits<std::int64_t>::max()));
  return PositionalParallelFile(std::move(posix));
}

Status PositionalParallelFile::ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
  HAKO_RETURN_IF_ERROR(CheckInside(offset, out.size(), Size()));
  if (out.empty()) return absl::OkStatus();
  counters_->reads.fetch_add(1, std::memory_order_relaxed);
  if (const int error = ReadFully(posix_->fd(), offset, out); error != 0) [[unlikely]] {
    return SystemError(error, absl::StrCat("cannot read ", out.size(), " bytes at offset ", offset, " of ", path()));
  }
  return absl::OkStatus();
}

Status PositionalParallelFile::WriteAt(std::uint64_t offset, std::span<const std::byte> in) {
  if (!IsWritable()) return posix_->ReadOnlyError();
  HAKO_RETURN_IF_ERROR(CheckInside(offset, in.size(), Size()));
  if (in.empty()) return absl::OkStatus();
  counters_->writes.fetch_add(1, std::memory_order_relaxed);
  if (const int error = WriteFully(posix_->fd(), offset, in); error != 0) [[unlikely]] {
    return SystemError(error, absl::StrCat("cannot write ", in.size(), " bytes at offset ", offset, " of ", path()));
  }
  return absl::OkStatus();
}

}  // namespace hako
