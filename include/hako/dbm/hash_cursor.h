// The iterator of the hash DBMs. It scans the buckets in an internal order and copies one bucket's
// records at a time, so it holds no lock between moves and stops no writer.
//
// A record that exists from First() to the end is visited exactly once, regardless of the table's
// growth. A record added or removed meanwhile, also by the iterator's own thread, is visited at most
// once. Each record is shown with the value that it had when its bucket was copied. Not
// thread-safe; the database must outlive the iterator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "hako/base/assert.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/cursor_operations.h"
#include "hako/dbm/expiry.h"
#include "hako/hash/bucket_scan.h"

namespace hako {

// A cursor over a HashDBM or TinyDBM.
//
// Inherits CursorOperations (dbm/cursor_operations.h)
//   Process, Set, Remove, Step  operate on the current record
//   PassDamage                  report and skip damage
template <class D, class Index, class Space>
class HashCursor : public CursorOperations<HashCursor<D, Index, Space>> {
 public:
  // Call MakeIterator of the database instead.
  HashCursor(D& database, Index& index, Space& space, const Expiry* expiry)
      : database_(&database), space_(&space), expiry_(expiry), scan_(index) {}

  // Moves to the first record.
  void First();

  // Moves to the record of `key`. The cursor is not Valid if the record is absent. Next continues
  // in the internal order.
  void Jump(StringArg key);

  // Moves to the next record. Does nothing at the end.
  void Next() {
    if (!Valid()) [[unlikely]]
      return;
    if (++record_ >= scan_.size()) FillBucket();
    if (expiry_ != nullptr) [[unlikely]]
      PassExpired();
  }

  // Whether the cursor is at a record.
  bool Valid() const { return record_ < scan_.size(); }
  std::string_view key() const {  // REQUIRES: Valid(); until the next move
    HAKO_DCHECK(Valid());
    return scan_.key(record_);
  }
  std::string_view value() const {  // REQUIRES: Valid(); until the next move
    HAKO_DCHECK(Valid());
    return expiry_ != nullptr ? live_.value : scan_.value(record_);
  }
  std::uint64_t expire_at() const {  // when the record expires (dbm/expiry.h); 0 = never. REQUIRES: Valid()
    HAKO_DCHECK(Valid());
    return live_.time;
  }
  // Returns OK at the end; otherwise the error that stopped the scan.
  const Status& status() const { return has_moved_ ? status_ : internal::UnmovedError(); }
  // After DataLoss: continues after the damaged record. More damage may follow. Returns false if
  // there is nothing to skip.
  bool SkipDamage();
  // The database of the cursor.
  D& database() { return *database_; }

 private:
  StatusOr<bool> NextBucket() {
    HAKO_RETURN_IF_ERROR(database_->CheckReads());
    HAKO_RETURN_IF_ERROR(database_->FlushPending());
    return scan_.Step();
  }
  void FillBucket();
  // Moves from the current record to the first one from there on that has not expired.
  [[gnu::noinline]] void PassExpired();
  void Finish(Status status) {
    status_ = std::move(status);
    if (status_.ok()) scan_.Stop();
    record_ = scan_.size();
  }

  D* database_;
  Space* space_;
  const Expiry* expiry_;  // nullptr = shows values in their stored form
  Expiry::Record live_;   // the live form of the current record
  hash::BucketScan<Space> scan_;
  std::size_t record_ = 0;
  bool has_moved_ = false;
  Status status_;
};

template <class D, class Index, class Space>
void HashCursor<D, Index, Space>::First() HAKO_TRY {
  has_moved_ = true;
  if (status_ = database_->CheckReads(); !status_.ok()) return Finish(status_);
  scan_.Start();
  record_ = 0;
  FillBucket();
  PassExpired();
}
HAKO_CATCH_NO_MEMORY(Finish(NoMemoryError());)

template <class D, class Index, class Space>
void HashCursor<D, Index, Space>::Jump(StringArg key) HAKO_TRY {
  has_moved_ = true;
  if (status_ = database_->CheckReads(); !status_.ok()) return Finish(status_);
  scan_.StartAt(space_->KeyHash(key));
  if (StatusOr<bool> more = NextBucket(); !more.ok()) return Finish(more.status());
  record_ = 0;
  while (record_ < scan_.size() && scan_.key(record_) != key) ++record_;
  if (record_ == scan_.size()) return Finish(status_);
  if (expiry_ == nullptr) return;
  const std::optional<Expiry::Record> record = Expiry::Split(scan_.value(record_));
  if (!record) return Finish(Expiry::MalformedError());
  live_ = *record;
  if (expiry_->IsPast(record->time)) Finish(status_);
}
HAKO_CATCH_NO_MEMORY(Finish(NoMemoryError());)

template <class D, class Index, class Space>
bool HashCursor<D, Index, Space>::SkipDamage() {
  if (Valid() || !absl::IsDataLoss(status_) || !scan_.SkipDamage()) return false;
  status_ = absl::OkStatus();
  FillBucket();
  PassExpired();
  return true;
}

template <class D, class Index, class Space>
void HashCursor<D, Index, Space>::PassExpired() HAKO_TRY {
  if (expiry_ == nullptr) return;
  while (Valid()) {
    const std::optional<Expiry::Record> record = Expiry::Split(scan_.value(record_));
    if (!record) return Finish(Expiry::MalformedError());
    live_ = *record;
    if (!expiry_->IsPast(record->time)) return;
    if (++record_ >= scan_.size()) FillBucket();
  }
}
HAKO_CATCH_NO_MEMORY(Finish(NoMemoryError());)

template <class D, class Index, class Space>
void HashCursor<D, Index, Space>::FillBucket() HAKO_TRY {
  while (record_ >= scan_.size()) {
    StatusOr<bool> more = NextBucket();
    if (!more.ok()) return Finish(more.status());
    if (!*more) return Finish(absl::OkStatus());
    record_ = 0;
  }
}
HAKO_CATCH_NO_MEMORY(Finish(NoMemoryError());)

}  // namespace hako
