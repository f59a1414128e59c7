#include "hako/file/positional_parallel_file.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "hako/base/no_memory.h"
#include "hako/file/bounds.h"

namespace hako {
namespace {

iovec PartOf(std::span<const std::byte> bytes) { return {const_cast<std::byte*>(bytes.data()), bytes.size()}; }

// Turns each request into a transfer by `part_of`, and calls run(transfers) for groups that fit on
// the stack.
template <class Request, class PartOfRequest, class Run>
Status InTurns(std::span<const Request> requests, PartOfRequest part_of, Run run) {
  constexpr std::size_t kAtOnce = 256;
  while (!requests.empty()) {
    std::array<iovec, kAtOnce> parts;
    std::array<Transfer, kAtOnce> transfers;
    const std::size_t count = std::min(requests.size(), kAtOnce);
    for (std::size_t i = 0; i < count; ++i) {
      parts[i] = PartOf(part_of(requests[i]));
      transfers[i] = {requests[i].offset, std::span(parts).subspan(i, 1)};
    }
    HAKO_RETURN_IF_ERROR(run(std::span<const Transfer>(transfers).first(count)));
    requests = requests.subspan(count);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<PositionalParallelFile> PositionalParallelFile::Open(const std::string& path, const FileOptions& options, bool batches) {
  if (!options.direct && (options.block_size != 0 || options.padding)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": FileOptions::", options.padding ? "padding" : "block_size", " requires FileOptions::direct"));
  }
  // Nothing is mapped, so FileOptions::reserve_bytes does not matter.
  HAKO_ASSIGN_OR_RETURN(auto posix, PosixFile::Open(path, options, std::numeric_limits<std::int64_t>::max()));
  PositionalParallelFile file(std::move(posix));
  if (options.direct) {
    HAKO_ASSIGN_OR_RETURN(const std::size_t block_size, file.device_->StartDirect(options));
    const BlockCacheLimits limits = {.block_size = block_size,
                                     .bytes = options.cache_bytes,
                                     .memory_alignment = file.device_->memory_alignment(),
                                     .batches = batches,
                                     .writes_behind = true};
    if (options.cache_bytes / block_size > BlockCache<PositionalDevice>::kFramesMax) {
      return absl::InvalidArgumentError(absl::StrCat("FileOptions::cache_bytes of ", path, " exceeds the limit of a block cache"));
    }
    HAKO_TRY { file.cache_ = std::make_unique<BlockCache<PositionalDevice>>(*file.device_, limits); }
    HAKO_CATCH_NO_MEMORY(
        return absl::ResourceExhaustedError(absl::StrCat("out of memory for a block cache of ", options.cache_bytes, " bytes for ", path));)
  }
  HAKO_RETURN_IF_ERROR(file.posix_->DropContent());
  if (options.direct) HAKO_RETURN_IF_ERROR(file.posix_->AllocateWhole(file.block_size()));
  file.posix_->set_take_back(TakeBack::kNothing);
  return file;
}

PositionalParallelFile& PositionalParallelFile::operator=(PositionalParallelFile&& other) noexcept {
  if (this != &other) {
    (void)Close();
    posix_ = std::move(other.posix_);
    cache_ = std::move(other.cache_);
    device_ = std::move(other.device_);
  }
  return *this;
}

Status PositionalParallelFile::ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
  HAKO_RETURN_IF_ERROR(CheckInside(offset, out.size(), Size()));
  if (out.empty()) return absl::OkStatus();
  if (cache_ != nullptr) return cache_->Read(offset, out);
  const iovec part = PartOf(out);
  return device_->Read({offset, std::span(&part, 1)});
}

Status PositionalParallelFile::ReadDevice(std::uint64_t offset, std::span<std::byte> out) const {
  HAKO_RETURN_IF_ERROR(CheckInside(offset, out.size(), Size()));
  if (out.empty()) return absl::OkStatus();
  if (cache_ != nullptr) return cache_->ReadDevice(offset, out);
  HAKO_ASSIGN_OR_RETURN(const bool is_read, posix_->ReadDevice(offset, out));
  return is_read ? absl::OkStatus() : ReadAt(offset, out);
}

Status PositionalParallelFile::WriteAt(std::uint64_t offset, std::span<const std::byte> in) {
  if (!IsWritable()) return posix_->ReadOnlyError();
  HAKO_RETURN_IF_ERROR(CheckInside(offset, in.size(), Size()));
  if (in.empty()) return absl::OkStatus();
  if (cache_ != nullptr) return cache_->Write(offset, in);
  const iovec part = PartOf(in);
  return device_->Write({offset, std::span(&part, 1)});
}

Status PositionalParallelFile::ReadMulti(std::span<const ReadRequest> reads) const {
  for (const ReadRequest& read : reads) HAKO_RETURN_IF_ERROR(CheckInside(read.offset, read.out.size(), Size()));
  if (cache_ != nullptr) return cache_->ReadMulti(reads);
  return InTurns(
      reads, [](const ReadRequest& read) { return read.out; }, [this](auto transfers) { return device_->ReadMulti(transfers); });
}

Status PositionalParallelFile::WriteMulti(std::span<const WriteRequest> writes) {
  if (!IsWritable()) return posix_->ReadOnlyError();
  for (const WriteRequest& write : writes) HAKO_RETURN_IF_ERROR(CheckInside(write.offset, write.in.size(), Size()));
  if (cache_ != nullptr) return cache_->WriteMulti(writes);
  return InTurns(
      writes, [](const WriteRequest& write) { return write.in; }, [this](auto transfers) { return device_->WriteMulti(transfers); });
}

Status PositionalParallelFile::Resize(std::uint64_t size) {
  if (cache_ == nullptr) return posix_->Resize(size);
  const bool is_cut = size < Size();
  if (is_cut) HAKO_RETURN_IF_ERROR(cache_->Flush());  // in case the file cannot be cut
  const std::uint64_t before = posix_->allocated();
  HAKO_RETURN_IF_ERROR(posix_->Resize(size));
  if (is_cut) return CutCache(size);
  cache_->AddFresh(before, posix_->allocated());
  return absl::OkStatus();
}

// Call when the file was truncated to `size`: bytes beyond it read as zeros from now on.
Status PositionalParallelFile::CutCache(std::uint64_t size) {
  const std::uint64_t block = block_size(), rest = (block - size % block) % block;
  cache_->Drop(size + rest);
  const std::vector<std::byte> zeros(rest);
  return rest == 0 ? absl::OkStatus() : cache_->Write(size, zeros);
}

Status PositionalParallelFile::Sync() {
  if (cache_ != nullptr) HAKO_RETURN_IF_ERROR(cache_->Flush());
  return posix_->Sync();
}

Status PositionalParallelFile::Close() {
  if (posix_ == nullptr || posix_->fd() < 0) return absl::OkStatus();
  Status status;
  if (posix_->is_inherited()) {
    (void)cache_.release();  // threads of the parent process may hold its locks
  } else if (cache_ != nullptr) {
    status = cache_->Flush();
    cache_->Stop();
  }
  Status closed = posix_->Close();
  return status.ok() ? closed : status;
}

}  // namespace hako
