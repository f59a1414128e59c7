// The iterator of a snapshot (dbm/snapshot.h): shows the records of one moment, in key order, both ways, while writers
// continue.
//
// It moves an iterator of the database, and shows the records that it finds there unless their keys lie in a captured
// range (sync/captured_ranges.h), whose records it shows instead. Not thread-safe. It
// holds the moment, so the snapshot may end before it; the database must outlive it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/array/record_key.h"
#include "hako/base/assert.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/cursor_operations.h"
#include "hako/dbm/expiry.h"

namespace hako {

// Iterator is that of the database, which shows values in their stored form; Capture its sync::CapturedRanges.
//
// Inherits CursorReads (dbm/cursor_operations.h)
//   Step        copies the current record and moves to the next one
//   PassDamage  report and skip damage
template <class Iterator, class Capture>
class SnapshotCursor : public CursorReads<SnapshotCursor<Iterator, Capture>> {
  using Key = typename Capture::Key;
  using Bound = typename Capture::Bound;
  using Range = typename Capture::Range;
  static constexpr bool kHasNumbers = requires(const Iterator& it) { it.id(); };

 public:
  // Call MakeIterator of the snapshot instead. With `expiry`, shows the records that had not expired at `now`, in their
  // live form; with nullptr, all records, in their stored form.
  SnapshotCursor(Iterator live, std::shared_ptr<Capture> captured, const Expiry* expiry, std::uint64_t now)
      : live_(std::move(live)), captured_(std::move(captured)), expiry_(expiry), now_(now) {}

  // Moves to the first or the last record.
  void First() { Seek(std::nullopt, true, true); }
  void Last() { Seek(std::nullopt, true, false); }
  // Moves to the first record at or after `key`.
  void Jump(StringArg key) { JumpUpper(key, true); }
  // Moves to the first record after `key`, or at `key` if inclusive; or to the last one before it, or at it. For an array,
  // the empty key is below all others, and any other that is no number is InvalidArgument.
  void JumpUpper(StringArg key, bool inclusive = false) { JumpTo(key, inclusive, true); }
  void JumpLower(StringArg key, bool inclusive = false) { JumpTo(key, inclusive, false); }

  // Moves to the next or the previous record. Does nothing if the cursor is at no record.
  void Next() { Move(true); }
  void Previous() { Move(false); }

  // Whether the cursor is at a record.
  bool Valid() const { return is_valid_; }
  // The current record, until the next move. REQUIRES: Valid()
  std::string_view key() const {
    HAKO_DCHECK(Valid());
    if (leaf_ == nullptr) return live_.key();
    if constexpr (kHasNumbers)
      return (number_ = RecordKey(leaf_->key(at_))).view();
    else
      return leaf_->key(at_);
  }
  std::uint64_t id() const requires kHasNumbers {
    HAKO_DCHECK(Valid());
    return KeyHere();
  }
  std::string_view value() const {
    HAKO_DCHECK(Valid());
    return value_;
  }
  std::uint64_t expire_at() const {  // when the record expires; 0 = never
    HAKO_DCHECK(Valid());
    return time_;
  }
  // Returns about how many records from the current one on are below `key`, by those that are there now. REQUIRES: Valid()
  std::uint64_t CountAbout(StringArg key) requires requires(Iterator& it, std::string_view bound) { it.CountAbout(bound); }
  {
    HAKO_DCHECK(Valid());
    if (leaf_ != nullptr) live_.JumpUpper(KeyHere(), true);  // the next move from a captured record jumps anyway
    return live_.Valid() ? live_.CountAbout(key) : 0;
  }
  // OK at the end; otherwise the error that stopped the iterator.
  const Status& status() const { return has_moved_ ? status_ : internal::UnmovedError(); }
  // Makes the captured ranges drop the records below the current one, if no other reader needs it. REQUIRES: Valid()
  void Pass() {
    HAKO_DCHECK(Valid());
    captured_->Pass(KeyHere());
  }
  // After DataLoss: continues after the damage, in the direction of the last move. More damage may follow. The damage of a
  // captured leaf is shown once after each jump, also if the cursor turns. Returns false if there is nothing to skip.
  bool SkipDamage() HAKO_TRY {
    if (!absl::IsDataLoss(status_)) return false;
    const bool was_captured = std::exchange(is_at_damaged_, false);
    const bool is_of_live = !was_captured && absl::IsDataLoss(live_.status()) && live_.SkipDamage();
    if (!was_captured && !is_of_live && !is_malformed_) return false;
    if (std::exchange(is_malformed_, false)) {  // the record itself is skipped
      is_valid_ = true;
      Move(is_upwards_);
      return true;
    }
    Show([&] { Find(is_of_live); });
    return true;
  }
  HAKO_CATCH_NO_MEMORY(End(NoMemoryError()); return true;)

 private:
  typename Capture::KeyView KeyHere() const {
    if (leaf_ != nullptr) return leaf_->key(at_);
    if constexpr (kHasNumbers)
      return live_.id();
    else
      return live_.key();
  }
  static bool IsBelow(const auto& a, const auto& b) { return typename Capture::LessKey()(a, b); }
  Bound From() const { return from_ ? Bound(*from_) : Bound(); }

  void SetFrom(const typename Capture::KeyView& key) {
    if (!from_) from_.emplace();
    *from_ = key;
  }
  void JumpTo(std::string_view key, bool inclusive, bool upwards) {
    if constexpr (kHasNumbers) {
      if (key.empty()) return upwards ? First() : End(absl::OkStatus());
      const StatusOr<std::uint64_t> id = CatchNoMemory([&] { return RecordKey::Parse(key); });
      id.ok() ? Seek(*id, inclusive, upwards) : End(id.status());
    } else {
      Seek(key, inclusive, upwards);
    }
  }
  void Seek(Bound from, bool inclusive, bool upwards) HAKO_TRY {
    from ? SetFrom(*from) : from_.reset();
    is_inclusive_ = inclusive;
    is_upwards_ = upwards;
    damaged_.clear();
    is_malformed_ = false;
    Show([&] { Find(false); });
  }
  HAKO_CATCH_NO_MEMORY(End(NoMemoryError());)

  // Moves one record further, and further yet while the record had expired.
  void Move(bool upwards) HAKO_TRY {
    if (!is_valid_) return;
    Show([&] { StepOnce(upwards); });
  }
  HAKO_CATCH_NO_MEMORY(End(NoMemoryError());)
  template <class Move>
  void Show(Move&& move) {
    move();
    if (expiry_ != nullptr) {
      while (is_valid_ && !TakeLive()) StepOnce(is_upwards_);
    }
  }
  // Takes the live form of the record. Returns false if it had expired.
  bool TakeLive() {
    const std::optional<Expiry::Record> record = Expiry::Split(value_);
    if (!record) {
      is_malformed_ = true;
      is_valid_ = false;
      status_ = Expiry::MalformedError();
      return true;
    }
    value_ = record->value;
    time_ = record->time;
    return !expiry_->WasPast(time_, now_);
  }
  void StepOnce(bool upwards) {
    if (upwards != is_upwards_) {
      is_upwards_ = upwards;
      version_ = kNoVersion;
    }
    if constexpr (requires { live_.StepInCopy(true); }) {
      // The copy of the leaf was made before the captures had version_, so its records below limit_ are of the moment.
      if (leaf_ == nullptr && captured_->version() == version_ && live_.StepInCopy(is_upwards_)) {
        if (limit_ && IsBeyondLimit()) {  // the captured range comes next
          from_ = limit_;
          is_inclusive_ = is_upwards_;
          return Find(true);
        }
        value_ = live_.value();
        return;
      }
    }
    if (leaf_ != nullptr && (is_upwards_ ? at_ + 1 < end_ : at_ > begin_)) {
      is_upwards_ ? ++at_ : --at_;
      value_ = leaf_->value(at_);
      return;
    }
    SetFrom(KeyHere());
    is_inclusive_ = false;
    if (leaf_ != nullptr) return Find(false);
    is_upwards_ ? live_.Next() : live_.Previous();
    if (live_.Valid() && captured_->version() == version_ && (!limit_ || !IsBeyondLimit())) {
      value_ = live_.value();
      return;
    }
    Find(true);
  }

  // Finds the next record from from_ on. `has_live`: the live iterator is at the next live record, or at the end.
  void Find(bool has_live) {
    is_valid_ = false;
    has_moved_ = true;
    is_at_damaged_ = false;
    leaf_ = nullptr;
    status_ = live_.database().CheckReads();
    if (!status_.ok()) return;
    for (;;) {
      StatusOr<std::optional<Range>> range = NextRange();
      if (!range.ok()) return End(range.status());
      if (!*range || !HasFrom(**range)) {
        if (!has_live) MoveLive();
        // Whether the live record is that of the moment is looked up after it was read.
        version_ = captured_->version();
        range = NextRange();
        if (!range.ok()) return End(range.status());
        if (!live_.Valid() && !live_.status().ok() && !(*range && HasFrom(**range))) return End(live_.status());
        if (live_.Valid() && (!*range || IsBefore(**range))) return ShowLive(*range);
        if (!*range) return End(live_.status());
        if (!HasFrom(**range)) BeginAt(**range);
      }
      if (Take(std::move(**range))) return;
      if (!from_) return End(absl::OkStatus());
      has_live = false;
    }
  }
  // The first captured range that may have the next record.
  StatusOr<std::optional<Range>> NextRange() const {
    return is_upwards_ ? captured_->FirstFrom(From()) : captured_->LastBelow(From(), is_inclusive_);
  }
  // Whether the range has the keys next to from_, in the direction of the move.
  bool HasFrom(const Range& range) const {
    if (is_upwards_) return !range.low || (from_ && !IsBelow(*from_, *range.low));
    if (!range.high) return true;
    return from_ && (IsBelow(*from_, *range.high) || (!is_inclusive_ && !IsBelow(*range.high, *from_)));
  }
  // Whether the live record comes before the range.
  bool IsBefore(const Range& range) const {
    const auto key = KeyHere();
    return is_upwards_ ? range.low && IsBelow(key, *range.low) : range.high && !IsBelow(key, *range.high);
  }
  bool IsBeyondLimit() const { return is_upwards_ ? !IsBelow(KeyHere(), *limit_) : IsBelow(KeyHere(), *limit_); }
  void BeginAt(const Range& range) {
    if (is_upwards_) {
      from_ = range.low;
      is_inclusive_ = true;
    } else {
      from_ = range.high;
      is_inclusive_ = false;
    }
  }
  // Shows the next record of a range that has from_, if there is one, or first the damage of its leaf. Otherwise sets from_
  // to the end of the range; to nothing, if there are no keys beyond.
  bool Take(Range range) {
    const typename Capture::Leaf& leaf = *range.leaf;
    if (!leaf.unread().ok() && std::find(damaged_.begin(), damaged_.end(), range.leaf) == damaged_.end()) {
      damaged_.push_back(range.leaf);
      status_ = leaf.unread();
      is_at_damaged_ = true;
      return true;
    }
    if (is_upwards_) {
      std::size_t at = from_ ? leaf.LowerBound(*from_) : 0;
      if (from_ && !is_inclusive_ && at < leaf.size() && !IsBelow(*from_, leaf.key(at))) ++at;
      if (at < leaf.size() && (!range.high || IsBelow(leaf.key(at), *range.high))) return ShowCaptured(std::move(range), at);
      from_ = std::move(range.high);
      is_inclusive_ = true;
      return false;
    }
    std::size_t end = from_ ? leaf.LowerBound(*from_) : leaf.size();
    if (from_ && is_inclusive_ && end < leaf.size() && !IsBelow(*from_, leaf.key(end))) ++end;
    if (range.high) end = std::min(end, leaf.LowerBound(*range.high));
    if (end > 0 && (!range.low || !IsBelow(leaf.key(end - 1), *range.low))) return ShowCaptured(std::move(range), end - 1);
    from_ = std::move(range.low);
    is_inclusive_ = false;
    return false;
  }
  void MoveLive() {
    if (!from_) return is_upwards_ ? live_.First() : live_.Last();
    is_upwards_ ? live_.JumpUpper(*from_, is_inclusive_) : live_.JumpLower(*from_, is_inclusive_);
  }
  void ShowLive(const std::optional<Range>& next) {
    if (!next)
      limit_.reset();
    else
      limit_ = is_upwards_ ? next->low : next->high;
    value_ = live_.value();
    is_valid_ = true;
  }
  bool ShowCaptured(Range range, std::size_t at) {
    leaf_ = std::move(range.leaf);
    begin_ = range.low ? leaf_->LowerBound(*range.low) : 0;
    end_ = range.high ? leaf_->LowerBound(*range.high) : leaf_->size();
    at_ = at;
    value_ = leaf_->value(at);
    is_valid_ = true;
    return true;
  }
  void End(Status status) {
    has_moved_ = true;
    is_valid_ = false;
    leaf_ = nullptr;
    status_ = std::move(status);
  }

  static constexpr std::uint64_t kNoVersion = ~std::uint64_t{0};

  Iterator live_;
  std::shared_ptr<Capture> captured_;
  const Expiry* expiry_;
  std::uint64_t now_;
  // The move goes on from this key, or from the end of all keys.
  std::optional<Key> from_;
  bool is_inclusive_ = false, is_upwards_ = true;
  bool is_valid_ = false, has_moved_ = false, is_malformed_ = false;
  // The captured leaf of the current record, and its place there; nullptr = the record is that of the live iterator, and
  // there is no captured range before limit_ as long as the captures have this version.
  std::shared_ptr<const typename Capture::Leaf> leaf_;
  std::vector<std::shared_ptr<const typename Capture::Leaf>> damaged_;  // whose damage was shown since the last jump
  bool is_at_damaged_ = false;                                          // that of the last one was not yet skipped
  std::size_t at_ = 0, begin_ = 0, end_ = 0;                            // the range has the records [begin_, end_)
  std::optional<Key> limit_;
  std::uint64_t version_ = kNoVersion;
  std::string_view value_;
  std::uint64_t time_ = Expiry::kNever;
  mutable RecordKey number_;
  Status status_;
};

}  // namespace hako
