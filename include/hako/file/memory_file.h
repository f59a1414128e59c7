// A file in memory of this process, mapped at a fixed address. For tests, and for databases without
// a device.
//
// All handles made by Share() have the same content, which lives while one of them is open, so a
// test can close a database and open another on the same bytes. There is no lock: the caller must
// not open two databases on one content. Nothing survives the process, and Sync does nothing.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/per_byte_copy.h"
#include "hako/base/status.h"
#include "hako/file/bounds.h"
#include "hako/file/file.h"

namespace hako {

// Models MappedFile (file/file.h).
class MemoryFile {
 public:
  static constexpr std::uint64_t kReserveBytes = std::uint64_t{1} << 36;  // 64 GiB

  // Makes an empty file that can grow to `reserve_bytes` bytes. Reserves that address space now,
  // and takes memory as bytes are written. Growth beyond it is ResourceExhausted.
  explicit MemoryFile(std::uint64_t reserve_bytes = kReserveBytes) : content_(std::make_shared<Content>(reserve_bytes)) {}

  // Returns a file with a copy of `bytes`.
  static MemoryFile Of(std::span<const std::byte> bytes) {
    MemoryFile file;
    const Status status = file.Resize(bytes.size());
    HAKO_ASSERT(status.ok());
    if (!bytes.empty()) {
#ifdef MADV_POPULATE_WRITE  // a hint: one call instead of a fault for each page
      (void)madvise(file.content_->base, bytes.size(), MADV_POPULATE_WRITE);
#endif
      std::memcpy(file.content_->base, bytes.data(), bytes.size());
    }
    return file;
  }

  // Returns another handle of the same content.
  MemoryFile Share() const { return MemoryFile(content_); }

  // Movable; Share makes a second handle.
  MemoryFile(MemoryFile&&) noexcept = default;
  MemoryFile& operator=(MemoryFile&&) noexcept = default;

  // See File and MappedFile.
  std::uint64_t Size() const { return content_->size.load(std::memory_order_acquire); }
  bool IsWritable() const { return true; }
  std::span<const std::byte> View(std::uint64_t offset, std::size_t size) const {
    HAKO_DCHECK(IsInside(offset, size, Size()));
    return {content_->base + offset, size};
  }
  std::span<std::byte> MutableView(std::uint64_t offset, std::size_t size) {
    HAKO_DCHECK(IsInside(offset, size, Size()));
    return {content_->base + offset, size};
  }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
    HAKO_RETURN_IF_ERROR(CheckInside(offset, out.size(), Size()));
    LoadPerByte(out.data(), content_->base + offset, out.size());
    return absl::OkStatus();
  }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) {
    HAKO_RETURN_IF_ERROR(CheckInside(offset, in.size(), Size()));
    StorePerByte(content_->base + offset, in.data(), in.size());
    return absl::OkStatus();
  }
  Status Resize(std::uint64_t size) {
    if (size > content_->reserve) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a memory file that reserves ", content_->reserve, " bytes cannot grow to ", size, " bytes"));
    }
    const std::uint64_t old_size = content_->size.exchange(size, std::memory_order_acq_rel);
    if (size < old_size) content_->Zero(size, old_size);
    return absl::OkStatus();
  }
  Status Sync() { return absl::OkStatus(); }
  Status SyncRange(std::uint64_t offset, std::size_t size) { return CheckInside(offset, size, Size()); }
  Status Close() {
    content_.reset();
    return absl::OkStatus();
  }

 private:
  struct Content {
    static constexpr std::uint64_t kPageSize = 4096;  // the smallest page size; larger ones are multiples

    explicit Content(std::uint64_t reserve_bytes) : reserve(std::max(reserve_bytes, kPageSize)) {
      void* map = mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      HAKO_ASSERT(map != MAP_FAILED);  // out of address space
      base = static_cast<std::byte*>(map);
    }
    Content(const Content&) = delete;
    Content& operator=(const Content&) = delete;
    ~Content() { munmap(base, reserve); }

    // Zeroes [begin, end) and gives its whole pages back to the system.
    void Zero(std::uint64_t begin, std::uint64_t end) {
      const std::uint64_t page = std::min((begin + kPageSize - 1) / kPageSize * kPageSize, end);
      std::memset(base + begin, 0, page - begin);
      if (page < end && madvise(base + page, end - page, MADV_DONTNEED) != 0) std::memset(base + page, 0, end - page);
    }

    const std::uint64_t reserve;
    std::byte* base;
    std::atomic<std::uint64_t> size{0};
  };

  explicit MemoryFile(std::shared_ptr<Content> content) : content_(std::move(content)) {}

  std::shared_ptr<Content> content_;
};

static_assert(MappedFile<MemoryFile> && !KernelBackedFile<MemoryFile>);

}  // namespace hako
