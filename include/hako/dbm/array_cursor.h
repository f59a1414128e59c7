// The iterator of the array DBMs: by number, both ways.
//
// It copies one record at each move, so it holds no lock and stops no writer. It skips absent
// records by the presence bits of their leaves. Each move goes to the next record that exists at
// that moment. A record that exists from the first move to the last is visited exactly once, in
// order; id() and value() stay unchanged until the next move. One thread; the database must outlive
// the iterator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hako/array/record_key.h"
#include "hako/base/assert.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/cursor_operations.h"

namespace hako {

// A cursor over an ArrayDBM or MemoryArrayDBM.
//
// Inherits CursorOperations (dbm/cursor_operations.h)
//   Process, Set, Remove, Step  operate on the current record
//   PassDamage                  report and skip damage
template <class D, class Array>
class ArrayCursor : public CursorOperations<ArrayCursor<D, Array>> {
 public:
  // Call MakeIterator of the database instead.
  ArrayCursor(D& database, Array& array) : database_(&database), array_(&array) {}

  // Moves to the first record.
  void First() { Move(0, true); }
  // Moves to the last record.
  void Last() { Move(kRecordIdMax, false); }
  // Moves to the first record after `id`, or at `id` if inclusive. A negative number is OutOfRange.
  void JumpUpper(RecordId id, bool inclusive = false) { inclusive || id > kRecordIdMax ? Move(id, true) : Move(id + 1, true); }
  // Moves to the last record before `id`, or at `id` if inclusive.
  void JumpLower(RecordId id, bool inclusive = false);
  // Moves to the first record at or after `id`.
  void Jump(RecordId id) { JumpUpper(id, true); }
  // The same jumps by key (array/record_key.h). The empty key is below all others. Any other key
  // that is not a number is InvalidArgument.
  void Jump(StringArg key) { JumpUpper(key, true); }
  void JumpUpper(StringArg key, bool inclusive = false);
  void JumpLower(StringArg key, bool inclusive = false);

  // Moves to the next or the previous record. Does nothing if the cursor is at no record.
  void Next() {
    if (valid_) Move(id_ + 1, true);
  }
  void Previous() {
    if (valid_) id_ == 0 ? End(absl::OkStatus()) : Move(id_ - 1, false);
  }

  // Whether the cursor is at a record.
  bool Valid() const { return valid_; }
  std::uint64_t id() const {  // REQUIRES: Valid()
    HAKO_DCHECK(Valid());
    return id_;
  }
  // The id as a key, valid until the next move. REQUIRES: Valid()
  std::string_view key() const {
    HAKO_DCHECK(Valid());
    if (key_of_ != id_) key_ = RecordKey(key_of_ = id_);
    return key_.view();
  }
  std::string_view value() const {  // REQUIRES: Valid(); until the next move
    HAKO_DCHECK(Valid());
    return value_;
  }
  static std::uint64_t expire_at() { return Expiry::kNever; }  // records do not expire
  // Returns OK at the end; otherwise the error that stopped the iterator.
  const Status& status() const { return has_moved_ ? status_ : internal::UnmovedError(); }
  // After DataLoss: continues after the damaged page, in the direction of the last move. More
  // damage may follow. Returns false if there is nothing to skip.
  bool SkipDamage();
  // The database of the cursor.
  D& database() { return *database_; }

 private:
  void Move(std::uint64_t from, bool upwards);
  void End(Status status) {
    valid_ = false;
    has_moved_ = true;
    status_ = std::move(status);
  }

  D* database_;
  Array* array_;
  std::uint64_t id_ = 0;
  bool valid_ = false, has_moved_ = false, upwards_ = true;
  mutable std::uint64_t key_of_ = 0;  // the id whose text key_ holds
  mutable RecordKey key_;
  std::string value_;
  Status status_;
  std::optional<std::uint64_t> beyond_;  // the position of the damage that status_ reports
};

template <class D, class Array>
void ArrayCursor<D, Array>::Move(std::uint64_t from, bool upwards) HAKO_TRY {
  valid_ = false;
  has_moved_ = true;
  upwards_ = upwards;
  beyond_.reset();
  status_ = database_->CheckReads();
  if (status_.ok() && RecordId(from).IsNegative()) status_ = RecordIdError(from);
  if (!status_.ok() || from > kRecordIdMax) return;
  if (value_.size() != array_->width()) value_.resize(array_->width());
  typename Array::Sought sought;
  status_ = array_->Seek(from, upwards, &sought, [this](std::size_t) { return value_.data(); });
  beyond_ = sought.beyond;
  valid_ = sought.id.has_value();
  if (valid_) id_ = *sought.id;
}
HAKO_CATCH_NO_MEMORY(End(NoMemoryError());)

template <class D, class Array>
void ArrayCursor<D, Array>::JumpLower(RecordId id, bool inclusive) {
  if (!inclusive && id == 0) return End(database_->CheckReads());
  const std::uint64_t from = id;
  Move(id.IsNegative() ? from : std::min(inclusive ? from : from - 1, kRecordIdMax), false);
}

template <class D, class Array>
void ArrayCursor<D, Array>::JumpUpper(StringArg key, bool inclusive) {
  if (key.empty()) return First();
  const StatusOr<std::uint64_t> id = CatchNoMemory([&] { return RecordKey::Parse(key); });
  id.ok() ? JumpUpper(*id, inclusive) : End(id.status());
}

template <class D, class Array>
void ArrayCursor<D, Array>::JumpLower(StringArg key, bool inclusive) {
  if (key.empty()) return End(database_->CheckReads());
  const StatusOr<std::uint64_t> id = CatchNoMemory([&] { return RecordKey::Parse(key); });
  id.ok() ? JumpLower(*id, inclusive) : End(id.status());
}

template <class D, class Array>
bool ArrayCursor<D, Array>::SkipDamage() {
  if (valid_ || !absl::IsDataLoss(status_)) return false;
  const std::optional<std::uint64_t> beyond = beyond_;
  beyond ? Move(*beyond, upwards_) : End(absl::OkStatus());
  return true;
}

}  // namespace hako
