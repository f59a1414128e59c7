// Where the index of a HashDBM is: in extents of the file, which a table at the start of the file
// lists; or in memory, if the file is not mapped or has no room.
//
// Invariants
//   1. An entry of the table is stored before the number of entries, so a process that finds the
//      table of a killed one finds whole entries.
//   2. No extent of the table is used for anything else (ExtentFile::IndexHas).
//
// Thread-safe for AllocateIndexExtent, index_base, index_end and index_bytes. The rest requires that
// no other thread uses the index.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hako/base/hash.h"
#include "hako/base/status.h"
#include "hako/format/hash_file_format.h"
#include "hako/hash/file/extent_file.h"
#include "hako/hash/file/index_arena.h"
#include "hako/hash/lock_order.h"
#include "hako/hash/record_view.h"

namespace hako::hash {

template <File FileT>
class HeapIndex {
 public:
  // Allocates a zero-filled extent of at least `bytes` bytes, and returns its offset.
  StatusOr<std::uint64_t> AllocateIndexExtent(std::uint64_t bytes, IndexExtent kind);
  std::byte* index_base() const { return arena_ != nullptr ? arena_->base() : file_.base(); }
  std::uint64_t index_end() const { return arena_ != nullptr ? arena_->end() : file_.tail(); }
  void StoreLineCount(std::uint64_t n) { file_.StoreSealed(&format::LiveState::num_lines, n); }

  std::uint64_t index_bytes() const { return bytes_.load(std::memory_order_relaxed); }
  void AddIndexBytes(std::uint64_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  // Makes the index use memory instead of the file.
  Status UseIndexArena();
  bool index_is_in_memory() const { return arena_ != nullptr; }
  // Returns the extents of the index, in the file or in memory.
  std::vector<format::IndexExtentEntry> IndexExtents() const { return arena_ != nullptr ? arena_->extents() : Table(); }
  // At a clean close, writes an index that is in memory to the file, from `end` on, where
  // everything else ends. Returns the check of the written bytes; 0 if nothing was written.
  StatusOr<std::uint64_t> SaveIndex(std::uint64_t end) { return arena_->Save(file_, end, file_.super().secret); }
  StatusOr<bool> LoadIndex(std::uint64_t end, std::uint64_t check) { return arena_->Load(file_, end, file_.super().secret, check); }

  // ---- the index in a mapped file ----
  std::uint64_t num_index_extents() const { return num_extents_; }
  void set_num_index_extents(std::uint64_t n) {
    num_extents_ = n;
    file_.StoreSealed(&format::LiveState::index_extents, n);
  }
  // Forgets the index extents and returns them; the caller frees them.
  std::vector<Extent> TakeIndexExtents();
  // Whether all extents in the table lie inside the file.
  bool IndexTableIsInside() const;
  // Returns the XXH3 of the index extents in the file and their table.
  // REQUIRES: the file is mapped (unchecked: only the type tells)
  std::uint64_t IndexCheck() const;

 protected:
  explicit HeapIndex(ExtentFile<FileT>& file) : file_(file) {}
  ~HeapIndex() = default;

 private:
  std::vector<format::IndexExtentEntry> Table() const {
    std::vector<format::IndexExtentEntry> entries;
    for (std::uint64_t i = 0; i < num_extents_; ++i) entries.push_back(format::IndexExtentEntry::Unpack(file_.index_extents()[i]));
    return entries;
  }

  ExtentFile<FileT>& file_;
  std::unique_ptr<IndexArena> arena_;  // the index, if it is not in the file
  std::atomic<std::uint64_t> bytes_{0};
  std::uint64_t num_extents_ = 0;
  sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kIndexLocks) ABSL_ACQUIRED_BEFORE(kPoolLocks);  // held while an extent is added
};

template <File FileT>
StatusOr<std::uint64_t> HeapIndex<FileT>::AllocateIndexExtent(std::uint64_t bytes, IndexExtent kind) {
  if (arena_ != nullptr) {
    AddIndexBytes(bytes);
    return arena_->Allocate(bytes, kind);
  }
  sync::MutexLock lock(mutex_);
  if (num_extents_ == format::kIndexExtentsMax) return absl::ResourceExhaustedError("the hash index has reached its maximum size");
  HAKO_ASSIGN_OR_RETURN(const std::uint64_t offset, file_.Allocate(bytes));
  const format::IndexExtentEntry entry{offset, bytes, kind == IndexExtent::kOverflowLines};
  file_.AddIndexExtent({offset, bytes});
  std::atomic_ref(file_.index_extents()[num_extents_]).store(entry.Pack(), std::memory_order_release);
  set_num_index_extents(num_extents_ + 1);
  AddIndexBytes(bytes);
  return offset;
}

template <File FileT>
Status HeapIndex<FileT>::UseIndexArena() {
  HAKO_ASSIGN_OR_RETURN(arena_, IndexArena::Create());
  bytes_.store(0, std::memory_order_relaxed);
  file_.ForgetIndexExtents();
  set_num_index_extents(0);
  return absl::OkStatus();
}

template <File FileT>
std::vector<Extent> HeapIndex<FileT>::TakeIndexExtents() {
  std::vector<Extent> taken;
  for (const format::IndexExtentEntry& entry : Table()) taken.push_back({entry.offset, entry.bytes});
  set_num_index_extents(0);
  file_.ForgetIndexExtents();
  bytes_.store(0, std::memory_order_relaxed);
  return taken;
}

template <File FileT>
bool HeapIndex<FileT>::IndexTableIsInside() const {
  for (const format::IndexExtentEntry& entry : Table()) {
    if (entry.offset < format::kFirstExtent || entry.offset > file_.tail() || entry.bytes > file_.tail() - entry.offset) return false;
  }
  return true;
}

template <File FileT>
std::uint64_t HeapIndex<FileT>::IndexCheck() const {
  std::uint64_t check = num_extents_;
  for (const format::IndexExtentEntry& entry : Table()) {
    check = Hash64(file_.base() + entry.offset, entry.bytes, MixBits(check ^ entry.Pack()));
  }
  return check;
}

}  // namespace hako::hash
