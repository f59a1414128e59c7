// A file mapped into memory, for concurrent access: reads and writes are memory accesses, without
// system calls, locks or copies.
//
// Address space for the largest size (FileOptions::reserve_bytes) is mapped once at Open, as LMDB
// does. Growth allocates blocks after it and moves nothing, so views stay valid. By default each
// file gets a share of the address space (base/address_space.h), so that tens of thousands can be
// open; a file that has outgrown its share gets a larger one at the next Open. Access to a page
// beyond the file's end raises SIGBUS; so does access through a view above the new size after
// Resize has shrunk the file. A full disk never raises SIGBUS: Resize allocates the blocks first
// (posix_file.h).
//
// Crashes: stores of a killed process are in the page cache and thus in the file. Unsynchronized
// stores may be lost in a power cut, page by page in any order. A read-only file is mapped
// privately: stores to it are visible to this handle alone.
//
// Threads: as File and MappedFile (file/file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "hako/base/address_space.h"
#include "hako/base/assert.h"
#include "hako/base/per_byte_copy.h"
#include "hako/base/status.h"
#include "hako/file/bounds.h"
#include "hako/file/file.h"
#include "hako/file/map_paging.h"
#include "hako/file/posix_file.h"

namespace hako {

// Models MappedFile, KernelBackedFile, DeviceFile and PathFile (file/file.h).
class MemoryMapParallelFile {
 public:
  // See PathFile.
  static StatusOr<MemoryMapParallelFile> Open(const std::string& path, const FileOptions& options = {});

  // Movable, not copyable. The destructor closes the file if the owner has not.
  MemoryMapParallelFile(MemoryMapParallelFile&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        reads_by_call_(other.reads_by_call_),
        map_(other.map_),
        posix_(std::move(other.posix_)),
        paging_(std::move(other.paging_)) {}
  MemoryMapParallelFile& operator=(MemoryMapParallelFile&& other) noexcept {
    if (this != &other) {
      (void)Close();
      base_ = std::exchange(other.base_, nullptr);
      reads_by_call_ = other.reads_by_call_;
      map_ = other.map_;
      posix_ = std::move(other.posix_);
      paging_ = std::move(other.paging_);
    }
    return *this;
  }
  ~MemoryMapParallelFile() { (void)Close(); }

  // The path that was given to Open.
  const std::string& path() const { return posix_->path(); }

  // See File, MappedFile and KernelBackedFile.
  std::uint64_t Size() const { return posix_->size(); }
  bool IsWritable() const { return posix_->writable(); }
  FileIdentity Identity() const { return posix_->identity(); }
  // See UndoableFile.
  bool WasCreated() const { return posix_->was_created(); }
  void SetTakeBack(TakeBack what) { posix_->set_take_back(what); }
  FileLock::Key lock_key() const { return posix_->lock_key(); }  // key of this handle's lock
  void NoteRenamed(std::string&& path) { posix_->NoteRenamed(std::move(path)); }
  std::span<const std::byte> View(std::uint64_t offset, std::size_t size) const {
    HAKO_DCHECK(IsInside(offset, size, Size()));
    return {base_ + offset, size};
  }
  std::span<std::byte> MutableView(std::uint64_t offset, std::size_t size) {
    HAKO_DCHECK(IsInside(offset, size, Size()));
    return {base_ + offset, size};
  }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
    HAKO_RETURN_IF_ERROR(CheckInside(offset, out.size(), Size()));
    if (reads_by_call_) [[unlikely]]
      return ReadByCall(offset, out);
    LoadPerByte(out.data(), base_ + offset, out.size());
    return absl::OkStatus();
  }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) {
    if (!IsWritable()) return posix_->ReadOnlyError();
    HAKO_RETURN_IF_ERROR(CheckInside(offset, in.size(), Size()));
    HAKO_RETURN_IF_ERROR(posix_->FillHolesOnce());
    if (in.size() >= kLongWrite) return WriteLong(offset, in);
    StorePerByte(base_ + offset, in.data(), in.size());
    return absl::OkStatus();
  }
  // See DeviceFile.
  Status ReadDevice(std::uint64_t offset, std::span<std::byte> out) const {
    HAKO_RETURN_IF_ERROR(CheckInside(offset, out.size(), Size()));
    HAKO_ASSIGN_OR_RETURN(const bool is_read, posix_->ReadDevice(offset, out));
    return is_read ? absl::OkStatus() : ReadAt(offset, out);
  }
  Status Resize(std::uint64_t size) { return posix_->Resize(size); }
  // Returns the size to which the file can grow while open.
  std::uint64_t SizeMax() const { return map_.size; }
  Status Sync();
  Status SyncRange(std::uint64_t offset, std::size_t size);
  Status Close();

  // A hint: maps the pages of a range writable by one system call instead of a fault for each page.
  // The range may exceed the file. Does nothing where the system cannot do so (before Linux 5.14).
  void Prefault(std::uint64_t offset, std::size_t size);

  // A hint that a long range will be read.
  // REQUIRES: the range is inside Size()
  void Prefetch(std::uint64_t offset, std::size_t size) const;

 private:
  static constexpr std::size_t kLongWrite = 32 << 10;

  MemoryMapParallelFile(const AddressRange& map, std::unique_ptr<PosixFile> posix, std::uint64_t size, bool huge_pages)
      : base_(map.base), map_(map), posix_(std::move(posix)), paging_(std::make_unique<MapPaging>(map.base, map.size, size, huge_pages)) {}

  // Reads a file that its writer may cut: see FileOptions::beside_readers.
  Status ReadByCall(std::uint64_t offset, std::span<std::byte> out) const;
  // Writes by a system call, which neither clears pages before filling them nor faults on each.
  Status WriteLong(std::uint64_t offset, std::span<const std::byte> in);

  std::byte* base_;             // nullptr = closed
  bool reads_by_call_ = false;  // nothing in the map may be used
  AddressRange map_;
  std::unique_ptr<PosixFile> posix_;
  std::unique_ptr<MapPaging> paging_;
};

static_assert(MappedFile<MemoryMapParallelFile> && KernelBackedFile<MemoryMapParallelFile> && DeviceFile<MemoryMapParallelFile> &&
              PathFile<MemoryMapParallelFile> && UndoableFile<MemoryMapParallelFile>);

}  // namespace hako
