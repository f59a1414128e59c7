// The buckets of several hashes, locked in ascending order and unlocked at the end of the scope. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "hako/base/assert.h"
#include "hako/base/prefetch.h"
#include "hako/base/status.h"
#include "hako/hash/line_table.h"
#include "hako/hash/table_shape.h"
#include "hako/sync/version_lock.h"

namespace hako::hash {

template <class Space>
class LockedHomes {
 public:
  // Reserves room for `count` hashes, so that Lock does not allocate.
  LockedHomes(const LineTable<Space>& lines, std::size_t count) : lines_(lines) { homes_.reserve(count); }
  LockedHomes(const LockedHomes&) = delete;
  ~LockedHomes() { Unlock(); }

  // Locks the buckets of hash_of(i) for each i < count. Starts over only if a hash belongs to
  // another bucket by the time its bucket is locked; a locked bucket is not split. REQUIRES: no
  // bucket is locked
  template <class HashOf>
  void Lock(std::size_t count, HashOf&& hash_of) {
    HAKO_DCHECK(IsEmpty());
    for (;;) {
      shape_ = lines_.shape();
      for (std::size_t i = 0; i < count; ++i) homes_.push_back({shape_.IndexOf(hash_of(i))});
      std::ranges::sort(homes_, {}, &Home::index);
      const auto same = [](const Home& a, const Home& b) { return a.index == b.index; };
      homes_.erase(std::unique(homes_.begin(), homes_.end(), same), homes_.end());
      for (std::size_t i = 0; i < homes_.size(); ++i) {
        if (i + kAhead < homes_.size()) Prefetch(&lines_.Home(homes_[i + kAhead].index));
        sync::VersionLock(lines_.Home(homes_[i].index).header).Lock();
      }
      const TableShape before = std::exchange(shape_, lines_.shape());
      std::size_t i = shape_.word() == before.word() ? count : 0;
      while (i < count && shape_.IndexOf(hash_of(i)) == before.IndexOf(hash_of(i))) ++i;
      if (i == count) return;
      Unlock();
    }
  }
  void Unlock() {
    for (const Home& home : homes_) sync::VersionLock(lines_.Home(home.index).header).Unlock(changed_);
    // clear() would free the memory that the next Lock relies on.
    homes_.erase(homes_.begin(), homes_.end());
    changed_ = false;
  }
  bool IsEmpty() const { return homes_.empty(); }
  template <class F>
  void ForEach(F&& visit) const {
    for (const Home& home : homes_) visit(home.index);
  }
  bool Has(std::uint64_t index) const {
    const auto found = std::ranges::lower_bound(homes_, index, {}, &Home::index);
    return found != homes_.end() && found->index == index;
  }
  // REQUIRES: the hash's bucket is locked
  Place PlaceOf(std::uint64_t hash) const {
    HAKO_DCHECK(Has(shape_.IndexOf(hash)));
    return Locate(hash, shape_);
  }
  // Makes the unlock advance the versions of the buckets, so that a reader that began before it
  // tries again.
  void MarkChanged() { changed_ = true; }
  void CountInsertion(std::uint64_t hash) { ++std::ranges::lower_bound(homes_, shape_.IndexOf(hash), {}, &Home::index)->insertions; }
  // Calls Status visit(index, insertions) for each bucket with counted insertions.
  template <class F>
  Status ForEachInsertion(F&& visit) const {
    for (const Home& home : homes_) {
      if (home.insertions != 0) HAKO_RETURN_IF_ERROR(visit(home.index, home.insertions));
    }
    return absl::OkStatus();
  }

 private:
  struct Home {
    std::uint64_t index;
    std::uint32_t insertions = 0;
  };
  static constexpr std::size_t kUsual = 16;  // more need an allocation
  static constexpr std::size_t kAhead = 8;   // lines that are prefetched

  const LineTable<Space>& lines_;
  // The shape at the last Lock. A later shape does not change the locked buckets.
  TableShape shape_{0};
  bool changed_ = false;
  absl::InlinedVector<Home, kUsual> homes_;  // locked, ascending
};

}  // namespace hako::hash
