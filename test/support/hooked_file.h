// An unmapped file in memory that calls a function of the test before each transfer and each sync.
// The function may wait, as a slow device would. Counts reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/file/memory_file.h"

namespace hako {

enum class Access { kRead, kWrite, kSync };

class HookedFile {
 public:
  using Hook = std::function<void(Access)>;  // called by any thread

  HookedFile(MemoryFile file, Hook hook) : file_(std::move(file)), hook_(std::make_unique<Hook>(std::move(hook))) {}

  std::uint64_t Size() const { return file_.Size(); }
  bool IsWritable() const { return true; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
    (*hook_)(Access::kRead);
    return Read(offset, out);
  }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) {
    (*hook_)(Access::kWrite);
    return file_.WriteAt(offset, in);
  }
  Status ReadMulti(std::span<const ReadRequest> reads) {
    (*hook_)(Access::kRead);
    for (const ReadRequest& read : reads) HAKO_RETURN_IF_ERROR(Read(read.offset, read.out));
    return absl::OkStatus();
  }
  Status WriteMulti(std::span<const WriteRequest> writes) {
    (*hook_)(Access::kWrite);
    for (const WriteRequest& write : writes) HAKO_RETURN_IF_ERROR(file_.WriteAt(write.offset, write.in));
    return absl::OkStatus();
  }
  Status Resize(std::uint64_t size) { return file_.Resize(size); }
  Status Sync() {
    (*hook_)(Access::kSync);
    return file_.Sync();
  }
  Status Close() { return file_.Close(); }
  FileCounters counters() const { return {.reads = reads_->reads, .read_bytes = reads_->bytes}; }

 private:
  struct Reads {
    std::atomic<std::uint64_t> reads{0}, bytes{0};
  };
  Status Read(std::uint64_t offset, std::span<std::byte> out) const {
    ++reads_->reads;
    reads_->bytes += out.size();
    return file_.ReadAt(offset, out);
  }

  MemoryFile file_;
  std::unique_ptr<Hook> hook_;
  std::unique_ptr<Reads> reads_ = std::make_unique<Reads>();
};

static_assert(BatchFile<HookedFile> && CountingFile<HookedFile> && !MappedFile<HookedFile>);

}  // namespace hako
