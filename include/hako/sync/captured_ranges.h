// The records of an ordered database as they were at one moment, while writers continue.
//
// At the moment the writers are stopped. From then on each writer that has locked a leaf calls
// Capture before it changes anything there, and the records of the leaf are copied, unless they
// were before. So a record that a reader finds in the database has the value of the moment, unless
// its key lies in a captured range when the reader has read it; the copy then has that value.
// Captured ranges are ranges of keys, so leaves may be split and joined meanwhile.
//
// A reader reads the database first, and looks for a captured range afterwards. version() tells
// without a lock that nothing was captured since.
//
// Thread-safe, except CapturedLeaf::Add.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/sync/mutex.h"

namespace hako::sync {

// The records of one leaf. KeyView is a std::string_view or a number. Less compares keys; Less::Head(key), a number that
// never falls as keys rise, spares most of these comparisons.
template <class KeyView, class Less>
class CapturedLeaf {
  static constexpr bool kHasNumbers = !std::is_same_v<KeyView, std::string_view>;

 public:
  // Makes room for this number of records, and of bytes of their keys and values together.
  void Reserve(std::size_t num_records, std::size_t bytes) {
    entries_.reserve(num_records);
    heads_.reserve(num_records);
    bytes_.reserve(bytes);
  }
  // Adds a record whose key is above those of the others.
  void Add(KeyView key, std::string_view value) {
    const Entry entry{bytes_.size(), kHasNumbers ? 0 : static_cast<std::uint32_t>(SizeOf(key)), value.size()};
    if constexpr (!kHasNumbers) bytes_.append(key);
    bytes_.append(value);
    entries_.push_back(entry);
    heads_.push_back(Less::Head(key));
  }

  std::size_t size() const { return entries_.size(); }
  KeyView key(std::size_t i) const {
    if constexpr (kHasNumbers)
      return heads_[i];
    else
      return std::string_view(bytes_).substr(entries_[i].begin, entries_[i].key_size);
  }
  std::string_view value(std::size_t i) const {
    const Entry& entry = entries_[i];
    return std::string_view(bytes_).substr(entry.begin + entry.key_size, entry.value_size);
  }
  // Returns the index of the first record whose key is not below this one.
  std::size_t LowerBound(const KeyView& key) const {
    const std::uint64_t head = Less::Head(key);
    std::size_t begin = 0, end = size();
    while (begin < end) {
      const std::size_t middle = (begin + end) / 2;
      const bool is_below = heads_[middle] != head ? heads_[middle] < head : Less()(this->key(middle), key);
      is_below ? begin = middle + 1 : end = middle;
    }
    return begin;
  }
  // The first error of reading the records: the leaf has those that can be read.
  const Status& unread() const { return unread_; }
  void NoteUnread(const Status& error) { unread_.Update(error); }
  // The memory that the leaf takes.
  std::size_t bytes() const {
    return sizeof(*this) + bytes_.capacity() + entries_.capacity() * sizeof(Entry) + heads_.capacity() * sizeof(heads_[0]);
  }

 private:
  struct Entry {
    std::size_t begin;       // of the key, which the value follows
    std::uint32_t key_size;  // 0 if keys are numbers, which are their heads
    std::size_t value_size;
  };
  static std::size_t SizeOf(std::string_view key) { return key.size(); }
  static std::size_t SizeOf(std::uint64_t) { return 0; }

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<std::uint64_t> heads_;
  Status unread_;
};

template <class KeyT, class KeyViewT, class Less>
class CapturedRanges {
 public:
  using Key = KeyT;          // of a stored key
  using KeyView = KeyViewT;  // of a view of one
  using LessKey = Less;      // compares both
  using Leaf = CapturedLeaf<KeyView, Less>;
  using Bound = std::optional<KeyView>;  // low or high of [low, high); nullopt: no bound
  // A captured range. The leaf may have records beyond it, which count for nothing.
  struct Range {
    std::optional<Key> low, high;
    std::shared_ptr<const Leaf> leaf;
  };
  using Copied = std::shared_ptr<const Leaf>;

  // `is_bounded`: CaptureList may cancel it to bound the memory of all.
  explicit CapturedRanges(bool is_bounded) : is_bounded_(is_bounded) {}
  CapturedRanges(const CapturedRanges&) = delete;

  bool is_bounded() const { return is_bounded_; }

  // Captures the leaf of [low, high). copy() returns its records, or fails; it is called unless all were captured before.
  // REQUIRES: the calling writer has locked the leaf, and not yet changed it (checked in LeafCaptures::CaptureIfAsked)
  template <class Copy>
  void Capture(const Bound& low, const Bound& high, Copy&& copy) noexcept {
    MutexLock lock(mutex_);
    if (!error_.ok() || (high && passed_ && !Less()(*passed_, *high)) || IsCaptured(low, high)) return;
    const Status status = CatchNoMemory([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS -> Status {
      const std::vector<Gap> gaps = GapsIn(low, high);
      HAKO_ASSIGN_OR_RETURN(const Copied copied, copy());
      for (const Gap& gap : gaps) {
        auto held = std::make_unique<const Held>(Held{gap.first, gap.second, copied});
        const Place place(BoundOf(held->low));
        ranges_.emplace(place, std::move(held));
        bytes_.fetch_add(copied->bytes() + kRangeBytes, std::memory_order_relaxed);
      }
      return absl::OkStatus();
    });
    error_.Update(status);
    version_.fetch_add(1, std::memory_order_release);
  }
  // From now on reads fail: the moment can no longer be shown.
  void Fail(const Status& why) noexcept {
    MutexLock lock(mutex_);
    error_.Update(why);
    ranges_.clear();
    bytes_.store(0, std::memory_order_relaxed);
    version_.fetch_add(1, std::memory_order_release);
  }
  // The only reader has passed all keys up to this one, and needs none of them any more.
  void Pass(const KeyView& key) {
    MutexLock lock(mutex_);
    passed_.emplace(key);
    while (!ranges_.empty() && ranges_.begin()->second->high && !Less()(key, *ranges_.begin()->second->high)) {
      bytes_.fetch_sub(ranges_.begin()->second->leaf->bytes() + kRangeBytes, std::memory_order_relaxed);
      ranges_.erase(ranges_.begin());
    }
  }

  // Changes with each capture; 0 while nothing was captured.
  std::uint64_t version() const { return version_.load(std::memory_order_acquire); }
  // The memory of the captured records.
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // OK, or why reads fail.
  Status error() const {
    MutexLock lock(mutex_);
    return error_;
  }

  // Returns the leaf of the captured range that has the key; nullptr if there is none.
  StatusOr<std::shared_ptr<const Leaf>> LeafOf(const KeyView& key) const {
    MutexLock lock(mutex_);
    HAKO_RETURN_IF_ERROR(error_);
    const auto range = LastFrom(Bound(key));
    if (range == ranges_.end() || (range->second->high && !Less()(key, *range->second->high))) return std::shared_ptr<const Leaf>();
    return range->second->leaf;
  }
  // Returns the first captured range that has keys at or above `from`; or the last one that has keys below `from`, or
  // at it if `inclusive`. nullopt = from the end of all keys on.
  StatusOr<std::optional<Range>> FirstFrom(const Bound& from) const {
    MutexLock lock(mutex_);
    HAKO_RETURN_IF_ERROR(error_);
    auto range = from ? LastFrom(from) : ranges_.begin();
    if (from && (range == ranges_.end() || (range->second->high && !Less()(*from, *range->second->high))))
      range = range == ranges_.end() ? ranges_.begin() : std::next(range);
    return range == ranges_.end() ? std::optional<Range>() : std::optional(RangeAt(range));
  }
  StatusOr<std::optional<Range>> LastBelow(const Bound& to, bool inclusive) const {
    MutexLock lock(mutex_);
    HAKO_RETURN_IF_ERROR(error_);
    auto end = !to ? ranges_.end() : inclusive ? ranges_.upper_bound(Place(to)) : ranges_.lower_bound(Place(to));
    return end == ranges_.begin() ? std::optional<Range>() : std::optional(RangeAt(std::prev(end)));
  }

 private:
  static constexpr std::size_t kRangeBytes = 128;  // of a range in the map, about
  using Low = std::optional<Key>;
  using Gap = std::pair<Low, std::optional<Key>>;
  struct Held {
    Low low;
    std::optional<Key> high;
    std::shared_ptr<const Leaf> leaf;
  };
  // The low bound of a range in the order of the map: first by its head.
  struct Place {
    explicit Place(const Bound& bound) : head(bound ? Less::Head(*bound) : 0), low(bound) {}
    std::uint64_t head;
    Bound low;  // of the Held, or of the caller
  };
  struct LessPlace {
    bool operator()(const Place& a, const Place& b) const {
      if (a.head != b.head) return a.head < b.head;
      return b.low.has_value() && (!a.low.has_value() || Less()(*a.low, *b.low));
    }
  };
  using Ranges = absl::btree_map<Place, std::unique_ptr<const Held>, LessPlace>;  // disjoint
  using At = typename Ranges::const_iterator;

  static Bound BoundOf(const std::optional<Key>& key) { return key ? Bound(*key) : Bound(); }
  static Range RangeAt(At at) { return {at->second->low, at->second->high, at->second->leaf}; }
  // Returns the last range that does not begin above `low`; end() = none.
  At LastFrom(const Bound& low) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto next = ranges_.upper_bound(Place(low));
    return next == ranges_.begin() ? ranges_.end() : std::prev(next);
  }
  bool IsCaptured(const Bound& low, const Bound& high) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (At range = LastFrom(low); range != ranges_.end();) {
      const std::optional<Key>& end = range->second->high;
      if (!end || (high && !Less()(*end, *high))) return true;
      if (++range == ranges_.end() || Less()(*end, *range->second->low)) return false;
    }
    return false;
  }
  // Returns the parts of [low, high) that were not captured yet.
  std::vector<Gap> GapsIn(const Bound& low, const Bound& high) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<Gap> gaps;
    Low from = low ? Low(Key(*low)) : Low();
    At next = LastFrom(low);
    if (next == ranges_.end()) next = ranges_.begin();
    for (;; ++next) {
      const bool is_behind = next == ranges_.end() || (high && next->second->low && !Less()(*next->second->low, *high));
      const std::optional<Key> to = !is_behind ? next->second->low : high ? std::optional(Key(*high)) : std::nullopt;
      // `to` of a range without a low bound is where all keys begin, so there is no gap before it.
      if ((is_behind || to) && (!from || !to || Less()(*from, *to))) gaps.emplace_back(from, to);
      if (is_behind || !next->second->high) return gaps;
      if (!from || Less()(*from, *next->second->high)) from = next->second->high;
      if (high && !Less()(*from, *high)) return gaps;
    }
  }

  const bool is_bounded_;
  mutable Mutex mutex_;
  Ranges ranges_ ABSL_GUARDED_BY(mutex_);
  std::optional<Key> passed_ ABSL_GUARDED_BY(mutex_);
  Status error_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> version_{0}, bytes_{0};
};

// The captures of an engine. While there are any, each writer passes a leaf to them before it changes the leaf.
//
// Thread-safe, except SetLimit, Begin and End.
template <class Capture>
class CaptureList {
 public:
  using Copied = typename Capture::Copied;

  // The memory that the bounded captures may take together; 0 = no limit. Beyond it the oldest one fails.
  void SetLimit(std::uint64_t bytes) { limit_ = bytes == 0 ? ~std::uint64_t{0} : bytes; }

  // REQUIRES: no writers (checked in LeafCaptures::Begin and PageArray::BeginCapture), for both
  void Begin(Capture* capture) {
    captures_.push_back(capture);
    ++num_begun_;
    num_bounded_.fetch_add(capture->is_bounded() ? 1 : 0, std::memory_order_relaxed);
  }
  void End(Capture* capture) {
    std::erase(captures_, capture);
    num_bounded_.fetch_sub(capture->is_bounded() ? 1 : 0, std::memory_order_relaxed);
    std::uint64_t bytes = 0;
    for (const Capture* const other : captures_) bytes += other->is_bounded() ? other->bytes() : 0;
    bytes_.store(bytes, std::memory_order_relaxed);
  }
  bool empty() const { return captures_.empty(); }
  std::uint32_t num_begun() const { return num_begun_; }  // how many captures have ever begun

  // Passes a leaf of [low, high) to all. copy() returns its records as Copied.
  template <class Copy>
  void Pass(const typename Capture::Bound& low, const typename Capture::Bound& high, Copy&& copy) const noexcept {
    std::optional<Copied> copied;  // by the first that needs them
    std::uint64_t bytes = 0;
    for (Capture* const capture : captures_) {
      capture->Capture(low, high, [&]() -> StatusOr<Copied> {
        if (!copied) copied = copy();
        return *copied;
      });
      if (capture->is_bounded()) bytes += capture->bytes();
    }
    for (auto oldest = captures_.begin(); bytes > limit_ && oldest != captures_.end(); ++oldest) {
      if (!(*oldest)->is_bounded()) continue;
      bytes -= std::min(bytes, (*oldest)->bytes());
      (*oldest)->Fail(TooLargeSnapshotError());
    }
    bytes_.store(bytes, std::memory_order_relaxed);
  }
  void Fail(const Status& why) const {
    for (Capture* const capture : captures_) capture->Fail(why);
  }
  // How many bounded captures there are, and the memory that they took when the last leaf was passed to them.
  std::uint64_t num_bounded() const { return num_bounded_.load(std::memory_order_relaxed); }
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  [[gnu::cold]] Status TooLargeSnapshotError() const noexcept {
    return CatchNoMemory([this]() -> Status {
      return absl::ResourceExhaustedError(
          absl::StrCat("the snapshot was cancelled: what writers have changed since takes more than snapshot_bytes, ", limit_));
    });
  }

  std::uint64_t limit_ = ~std::uint64_t{0};
  std::vector<Capture*> captures_;  // oldest first; changes without writers
  std::uint32_t num_begun_ = 0;
  std::atomic<std::uint64_t> num_bounded_{0};
  mutable std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace hako::sync
