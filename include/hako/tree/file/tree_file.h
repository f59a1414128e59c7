// The device of a tree file: its transfers and their counters, and whether it can still be written.
//
// Read, ReadAt, ReadMulti, Health and the counters are thread-safe. Only one thread at a time
// writes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/file/readers_file.h"
#include "hako/format/tree_file_format.h"
#include "hako/sync/sticky_status.h"

namespace hako::tree {

template <File FileT>
class TreeFile {
 public:
  using Entry = format::PageEntry;

  explicit TreeFile(FileT device) : device_(std::move(device)) {}
  TreeFile(const TreeFile&) = delete;
  TreeFile& operator=(const TreeFile&) = delete;

  FileT& device() { return device_; }
  std::uint64_t size() const { return device_.Size(); }

  // The reader that reads this file beside its writer, if there is one. The caller owns it.
  // REQUIRES: no other thread uses the file (unchecked: Open has not returned the database yet)
  void set_reader(const ReaderSlot* reader) { reader_ = reader; }
  // Replaces the error of a read if the reader is cut off.
  [[gnu::cold]] Status Explain(Status status) const { return reader_ != nullptr ? reader_->Explain(std::move(status)) : status; }

  bool Has(const Entry& entry) const { return entry.place() + entry.units() <= size() / format::kTreeUnit; }
  // Reads the image or node that `entry` names.
  Status Read(const Entry& entry, std::span<std::byte> out) const {
    CountReads(1, out.size());
    return device_.ReadAt(entry.place() * format::kTreeUnit, out);
  }
  // Not counted, because the caller counts several such reads as one.
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const { return device_.ReadAt(offset, out); }
  Status ReadMulti(std::span<const ReadRequest> reads) requires BatchFile<FileT> {
    for (const ReadRequest& read : reads) CountReads(1, read.out.size());
    return device_.ReadMulti(reads);
  }
  void CountReads(std::uint64_t count, std::uint64_t bytes) const {
    reads_.fetch_add(count, std::memory_order_relaxed);
    read_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

  Status WriteAt(std::uint64_t offset, std::span<const std::byte> bytes) {
    CountWrite(bytes.size());
    return NoteFailure(device_.WriteAt(offset, bytes));
  }
  Status WriteMulti(std::span<const WriteRequest> writes) {
    if constexpr (BatchFile<FileT>) {
      for (const WriteRequest& write : writes) CountWrite(write.in.size());
      return NoteFailure(device_.WriteMulti(writes));
    } else {
      for (const WriteRequest& write : writes) HAKO_RETURN_IF_ERROR(WriteAt(write.offset, write.in));
      return absl::OkStatus();
    }
  }
  Status Resize(std::uint64_t size) { return device_.Resize(size); }
  Status Sync() { return NoteSync(device_.Sync()); }
  // As Sync, for the first bytes of the file only: see SyncPart.
  Status SyncFirst(std::uint64_t size) { return NoteSync(SyncPart(device_, 0, size)); }

  // OK, or FailedPrecondition after a failed write or sync. A write that finds the device full is
  // not such a failure.
  Status Health() const { return failure_.Get(); }
  void Poison(const Status& why) { failure_.Set(NoMoreWritesError(why)); }
  // Whether the device has become full, until the reserve of free space is complete again.
  bool is_short() const { return is_short_; }
  void set_short(bool value) { is_short_ = value; }

  FileCounters counters() const {
    return {reads_.load(std::memory_order_relaxed), read_bytes_.load(std::memory_order_relaxed), writes_.load(std::memory_order_relaxed),
            written_bytes_.load(std::memory_order_relaxed)};
  }

 private:
  void CountWrite(std::size_t size) {
    writes_.fetch_add(1, std::memory_order_relaxed);
    written_bytes_.fetch_add(size, std::memory_order_relaxed);
  }
  Status NoteSync(Status status) {
    if (!status.ok()) Poison(status);
    return status;
  }
  Status NoteFailure(Status status) {
    if (absl::IsResourceExhausted(status))
      is_short_ = true;
    else if (!status.ok())
      Poison(status);
    return status;
  }

  FileT device_;
  const ReaderSlot* reader_ = nullptr;
  bool is_short_ = false;
  sync::StickyStatus failure_;
  mutable std::atomic<std::uint64_t> reads_{0}, read_bytes_{0};
  std::atomic<std::uint64_t> writes_{0}, written_bytes_{0};
};

}  // namespace hako::tree
