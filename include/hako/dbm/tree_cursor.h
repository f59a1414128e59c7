// The iterator of the tree DBMs: in key order, both ways.
//
// It copies one leaf at a time and reads the copy, so it holds no lock and stops no writer. Unlike
// LevelDB's iterator it shows the database as it is at each move; the iterator of a snapshot
// (dbm/snapshot.h) shows one moment.
//   - A record that exists from the first move to the last is visited exactly once, in order.
//   - A record that another thread adds or removes meanwhile, in the direction of the iterator, may
//     be visited or not.
//   - A move sees all earlier changes by the iterator's own thread, whichever call made them and
//     whatever happened to the leaf: an added record is visited, a removed one is not, and a new
//     value is shown.
//   - key() and value() stay unchanged until the next move, even after Set and Remove.
// To this end each move checks whether the leaf has changed since it was copied, and if so copies
// it again. A leaf that is only locked by another thread, or was evicted, does not count as
// changed. Not thread-safe; the database must outlive the iterator. A moved iterator keeps its
// key() and value(), which lie on the heap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/comparator.h"
#include "hako/base/no_memory.h"
#include "hako/base/prefetch.h"
#include "hako/base/scratch_buffer.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/cursor_operations.h"
#include "hako/dbm/expiry.h"
#include "hako/format/page_format.h"
#include "hako/tree/page_tree.h"

namespace hako {

// A cursor over a TreeDBM or BabyDBM.
//
// Inherits CursorOperations (dbm/cursor_operations.h)
//   Process, Set, Remove, Step  operate on the current record
//   PassDamage                  report and skip damage
template <class D, class Tree, Comparator Compare>
class TreeCursor : public CursorOperations<TreeCursor<D, Tree, Compare>> {
  using View = typename Tree::View;
  static constexpr std::size_t kAheadMax = 512;  // bytes per record
  static constexpr unsigned kMovesInPlace = 2;   // moves in a leaf before it is copied

 public:
  // Call MakeIterator of the database instead.
  TreeCursor(D& database, Tree& tree, const Expiry* expiry) : database_(&database), tree_(&tree), expiry_(expiry) {}

  // Moves to the first record.
  void First();
  // Moves to the last record.
  void Last();

  // Moves to the first record at or after `key` (LevelDB's Seek).
  void Jump(StringArg key) { JumpUpper(key, true); }
  // Moves to the first record after `key`, or at `key` if inclusive.
  void JumpUpper(StringArg key, bool inclusive = false);
  // As Jump, for a caller that makes few moves after it: the first calls of Next and JumpAhead read
  // the leaf in place, and only later ones copy it. For many moves Jump is faster, because a copy
  // loads the cache lines of the leaf together.
  void JumpBriefly(StringArg key);
  // Calls Jump or JumpBriefly, whichever was called last, for a key that is not before the current
  // record. Faster than that if both are in one leaf.
  // REQUIRES: Valid()
  void JumpAhead(StringArg key);
  // Returns about how many records from the current one on are below `key`. REQUIRES: Valid()
  std::uint64_t CountAbout(StringArg key) const {
    HAKO_DCHECK(Valid());
    return tree_->CountAbout(key_, key);
  }
  // Moves to the last record before `key`, or at `key` if inclusive (RocksDB's SeekForPrev).
  void JumpLower(StringArg key, bool inclusive = false);

  // Moves to the next or the previous record. Does nothing if the cursor is at no record.
  void Next();
  void Previous();

  // For snapshots (dbm/snapshot_cursor.h). Moves to the neighbour record if the copy of the leaf has it, with a value that
  // is not long, and returns true. It may have changed since the leaf was copied.
  HAKO_INLINE bool StepInCopy(bool upwards) {
    if (!valid_ || copy_.is_in_place || (upwards ? at_ + 1 >= page_.count() : at_ == 0)) return false;
    const unsigned next = upwards ? at_ + 1 : at_ - 1;
    if (View::Decode(page_.cell(next)).is_long) [[unlikely]]
      return false;
    at_ = next;
    return Take();
  }

  // Whether the cursor is at a record.
  bool Valid() const { return valid_; }
  std::string_view key() const {  // REQUIRES: Valid(); until the next move
    HAKO_DCHECK(Valid());
    return key_;
  }
  std::string_view value() const {  // REQUIRES: Valid(); until the next move
    HAKO_DCHECK(Valid());
    return value_;
  }
  std::uint64_t expire_at() const {  // when the record expires (dbm/expiry.h); 0 = never. REQUIRES: Valid()
    HAKO_DCHECK(Valid());
    return time_;
  }
  // Returns OK at the end; otherwise the error that stopped the iterator.
  const Status& status() const { return has_moved_ ? status_ : internal::UnmovedError(); }
  // After DataLoss: continues after the damaged value or pages, in the direction of the last move.
  // More damage may follow. Returns false if there is nothing to skip.
  bool SkipDamage();
  // The database of the cursor.
  D& database() { return *database_; }

 private:
  // Whether the key is below the end of the copied leaf, so that it cannot be in a later leaf.
  bool IsBelowLeafEnd(std::string_view key) const {
    const format::PageTail tail = page_.tail();
    return (tail.edges & format::PageTail::kNoHigh) != 0 || Compare::Compare(key, page_.high(tail)) < 0;
  }

  [[gnu::noinline]] bool Load(tree::Seek seek, std::string_view key, bool goes_on = false, bool in_place = false) {
    has_moved_ = true;
    if (!goes_on) status_ = absl::OkStatus();
    if (long_value_.capacity() > ScratchBuffer::kKeptMax) std::string().swap(long_value_);
    if (Status open = database_->CheckReads(); !open.ok()) [[unlikely]] {
      status_ = std::move(open);
      return false;
    }
    copy_.is_in_place = in_place;
    if (Status status = tree_->ReadLeaf(seek, key, &copy_, goes_on); !status.ok()) {
      status_ = std::move(status);
      return false;
    }
    page_ = copy_.view();
    sync::LoadShared(Room(page_.prefix_size()), page_.prefix().data(), page_.prefix_size());
    return true;
  }
  // Shows the record at or after bound_ in place in its leaf. Returns false if the leaf must be
  // copied instead, because a writer interferes or only the fences tell whether the leaf has the
  // key.
  bool JumpInPlace() {
    if (!View::kBytewise || expiry_ != nullptr) return false;
    if (!Load(tree::Seek::kAt, bound_, false, true)) return false;
    const auto place = page_.FindByCall(bound_);
    at_ = place.index;
    moves_in_place_ = 0;
    return (at_ > 0 || place.found) && TakeInPlace();
  }
  // Shows slot at_ of a leaf in place. If it cannot do so reliably, returns false, and key() is
  // lost.
  [[gnu::noinline]] bool TakeInPlace() {
    if (at_ >= page_.count()) return false;
    const char* const cell = page_.cell(at_);
    if (cell < page_.base() || cell + sizeof(std::uint64_t) > page_.end()) return false;
    const format::Cell sizes = View::Decode(cell);
    if (sizes.is_long || cell + sizes.Size(View::kInlined) > page_.end()) return false;
    char* const bytes = Room(page_.prefix_size() + sizes.suffix + sizes.value);
    key_ = {bytes, page_.CopyKeyAfterPrefix(at_, cell, sizes, bytes)};
    value_ = {bytes + key_.size(), sizes.value};
    sync::LoadShared(bytes + key_.size(), cell + sizes.header + sizes.Rest(View::kInlined), sizes.value);
    valid_ = copy_.IsCurrent();
    return valid_;
  }
  void JumpFar(std::string_view key) { jumps_briefly_ ? JumpBriefly(key) : JumpUpper(key, true); }
  // Ends the reads in place of the present leaf, and copies it.
  bool CopyFromPlace() {
    const bool good = copy_.CopyFromPlace();
    page_ = copy_.view();
    LookAhead(page_.count() - at_);
    return good;
  }
  // Moves to slot at_ of a leaf in place. Returns false if the leaf was copied, or must be loaded
  // again.
  [[gnu::noinline]] bool NextInPlace() {
    if (++moves_in_place_ > kMovesInPlace || at_ >= page_.count()) {
      (void)CopyFromPlace();
      return false;
    }
    bound_.assign(key_);
    if (TakeInPlace()) return true;
    key_ = bound_;
    return false;
  }

  // Copies the leaf again, or its successor after a split or merge, for a move from the current
  // record. kAt sets at_ to the slot after its key; kBefore to the slot of its key, before which
  // the move begins.
  [[gnu::noinline]] bool Reload(tree::Seek seek) {
    bound_.assign(key_);
    if (!Load(seek, bound_, true)) return false;
    const auto place = page_.FindByCall(bound_);
    at_ = place.index + (place.found && seek == tree::Seek::kAt ? 1 : 0);
    LookAhead(seek == tree::Seek::kAt ? page_.count() - at_ : at_);
    return true;
  }

  // Prepares to prefetch the neighbour leaf, which is needed after this many records. The move to
  // each of these records prefetches a part of it.
  void LookAhead(unsigned records) {
    ahead_ = copy_.neighbour.base;
    ahead_step_ = records == 0 ? 0 : std::min<std::size_t>(copy_.neighbour.size / records, kAheadMax);
  }

  // Moves to the first readable record at or after slot at_. Next inlines it.
  [[gnu::noinline]] void StepForward() { StepForwardInline(); }
  HAKO_INLINE void StepForwardInline() {
    for (;; ++at_) {
      while (at_ >= page_.count()) [[unlikely]] {
          if (!LoadNextLeaf()) return;
        }
      if (Take()) return;
      if (!status_.ok()) return Fail(std::nullopt, false);
    }
  }
  // Copies the leaf after the copied one. Returns false at the end of the tree, or after an error.
  [[gnu::noinline]] bool LoadNextLeaf() {
    const format::PageTail tail = page_.tail();
    if ((tail.edges & format::PageTail::kNoHigh) != 0) return End(), false;
    bound_.assign(page_.high(tail));
    if (!Load(tree::Seek::kAt, bound_, true)) return Fail(tree::Seek::kAt, false), false;
    at_ = page_.FindByCall(bound_).index;
    LookAhead(page_.count() - at_);
    return true;
  }

  // Moves to the last readable record before slot at_.
  void StepBack() {
    for (;;) {
      while (at_ == 0) {
        const format::PageTail tail = page_.tail();
        if ((tail.edges & format::PageTail::kNoLow) != 0) return End();
        bound_.assign(page_.low(tail));
        if (!Load(tree::Seek::kBefore, bound_, true)) return Fail(tree::Seek::kBefore, true);
        at_ = page_.FindByCall(bound_).index;
        LookAhead(at_);
      }
      --at_;
      if (Take()) return;
      if (!status_.ok()) return Fail(std::nullopt, true);
    }
  }

  // Shows slot at_. Returns false if its long value could not be read or its record is gone.
  HAKO_INLINE bool Take() {
    for (std::size_t i = 0; i < ahead_step_; i += 64) Prefetch(ahead_ + i);
    ahead_ += ahead_step_;
    const char* const cell = page_.cell(at_);
    const format::Cell sizes = View::Decode(cell);
    char* const bytes = Room(page_.prefix_size() + sizes.suffix);
    key_ = {bytes, page_.CopyKeyAfterPrefix(at_, cell, sizes, bytes)};
    if (sizes.is_long) [[unlikely]] {
      if (long_value_.capacity() > ScratchBuffer::kKeptMax) std::string().swap(long_value_);
      long_value_.reserve(64);  // more than the string's internal buffer
      const Status status = database_->GetStored(key_, &long_value_);
      if (!status.ok() && !absl::IsNotFound(status)) status_ = status;
      value_ = long_value_;
      valid_ = status.ok();
    } else {
      value_ = {cell + sizes.header + sizes.Rest(View::kInlined), sizes.value};
      valid_ = true;
    }
    if (expiry_ != nullptr) [[unlikely]]
      TakeLive();
    return valid_;
  }
  // Converts value_ to its live form. An expired record is not shown.
  [[gnu::noinline]] void TakeLive() {
    if (!valid_) return;
    const std::optional<Expiry::Record> record = Expiry::Split(value_);
    if (!record) {
      status_ = Expiry::MalformedError();
    } else {
      value_ = record->value;
      time_ = record->time;
    }
    valid_ = record && !expiry_->IsPast(record->time);
  }
  HAKO_INLINE char* Room(std::size_t size) {
    if (size + 8 > key_bytes_.size()) [[unlikely]]
      key_bytes_.resize(2 * size + 64);
    return key_bytes_.data();
  }
  // Ends the scan: the copied leaf was the last one. Checks whether the database was closed since.
  void End() { EndFor(database_->CheckReads()); }
  [[gnu::cold]] void EndFor(Status status) {
    has_moved_ = true;
    status_ = std::move(status);
    valid_ = false;
    at_ = 0;
  }
  // Registers that the leaf of a seek could not be read or, without a seek, that the long value of
  // slot at_ could not be read.
  [[gnu::cold]] void Fail(std::optional<tree::Seek> seek, bool downwards) {
    valid_ = false;
    failed_ = seek;
    failed_downwards_ = downwards;
  }

  D* database_;
  Tree* tree_;
  const Expiry* expiry_;                 // nullptr = shows values in their stored form
  std::uint64_t time_ = Expiry::kNever;  // expiry time of the current record
  typename Tree::Copy copy_;
  View page_;
  unsigned at_ = 0;
  bool valid_ = false, has_moved_ = false;
  const char* ahead_ = nullptr;  // next part of the neighbour leaf to prefetch
  std::size_t ahead_step_ = 0;
  unsigned moves_in_place_ = 0;
  bool jumps_briefly_ = false;
  std::string_view key_, value_;
  std::string key_bytes_;  // begins with the page's prefix
  std::string long_value_;
  std::string bound_;
  Status status_;
  std::optional<tree::Seek> failed_;  // the seek that failed with status_
  bool failed_downwards_ = false;
};

}  // namespace hako

#include "hako/dbm/tree_cursor-inl.h"
