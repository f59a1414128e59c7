// TableCore: the parts of an open table, which the rows (src/table/change_set.cc), the indices
// (src/table/index_builder.cc) and the queries (src/table/query*.cc) share.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/function_ref.h"
#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/any_model.h"
#include "hako/sync/spin_lock.h"
#include "hako/table/catalogue.h"
#include "hako/table/row_numbers.h"

namespace hako::table {

// The key of a row's record in the database, made without an allocation.
class RowKeyBuffer {
 public:
  explicit RowKeyBuffer(std::string_view key) : size_(key.size() + 1) {
    bytes_[0] = kRowSpace;
    key.copy(bytes_ + 1, TableLimits::kKeySize);
  }
  // REQUIRES: the key was not longer than its limit
  std::string_view view() const {
    HAKO_DCHECK(size_ <= sizeof(bytes_));
    return {bytes_, size_};
  }

 private:
  std::size_t size_;
  char bytes_[1 + TableLimits::kKeySize];
};

// The key of a row, or its beginning, as errors show it.
std::string PrintableKey(std::string_view key);

inline Status CheckKey(std::string_view key) {
  return key.size() <= TableLimits::kKeySize ? absl::OkStatus() : TooLargeError("a primary key", key.size(), TableLimits::kKeySize);
}

// A buffer for the bytes of a row, which allocates nothing for short rows.
class RowBuffer {
 public:
  RowBuffer() = default;
  RowBuffer(const RowBuffer&) = delete;
  RowBuffer& operator=(const RowBuffer&) = delete;
  char* Resize(std::size_t size) {
    if (size > sizeof(few_)) many_.resize(size);
    char* const out = size > sizeof(few_) ? many_.data() : few_;
    view_ = {out, size};
    return out;
  }
  std::string_view view() const { return view_; }

 private:
  std::string_view view_;
  std::string many_;
  char few_[1024];
};

class ChangesInTransaction;

struct TableCore {
  TableCore(std::unique_ptr<internal::AnyDatabase> database, std::uint64_t most_sort_bytes, std::uint64_t most_build_bytes)
      : store(std::move(database)),
        any_store(internal::AnyAccess::Borrow(*store)),
        own_(std::make_unique<Own>(*store)),
        catalogue(own_->catalogue),
        numbers(own_->numbers),
        gate(own_->gate),
        sort_bytes(most_sort_bytes),
        build_bytes(most_build_bytes) {
    cursors_.reserve(kCursorsKept);  // ReturnCursor must not fail
  }
  // The table of `whole` as a transaction sees it, whose records are in `database`.
  TableCore(TableCore& whole, std::unique_ptr<internal::AnyDatabase> database, std::shared_ptr<ChangesInTransaction> changes_of_it)
      : store(std::move(database)),
        catalogue(whole.catalogue),
        numbers(whole.numbers),
        gate(whole.gate),
        sort_bytes(whole.sort_bytes),
        build_bytes(whole.build_bytes),
        changes(std::move(changes_of_it)),
        whole_(&whole) {
    cursors_.reserve(kCursorsKept);
  }

  // Whether this is the table as a transaction sees it. Then records of one moment are known to nobody before the commit:
  // all that a query uses must be read from the records, so that the commit compares it.
  bool IsInTransaction() const { return changes != nullptr; }
  // See WriterGate.
  std::optional<std::uint64_t> Moment() const { return IsInTransaction() ? std::nullopt : gate.Moment(); }
  // FailedPrecondition in a transaction.
  Status CheckWhole(std::string_view function) const;

  // Copies a row's bytes. Returns NotFound if there is no row.
  Status FetchRow(std::string_view key, std::string* bytes);
  Status FetchRow(std::string_view key, RowBuffer* bytes);
  // Returns the number of rows, which is exact while none is added or removed. Counts the rows if
  // the file does not have the number.
  StatusOr<std::uint64_t> CountRows();
  // The same, or about as many: for plans. Reads nothing in a transaction.
  StatusOr<std::uint64_t> EstimateRows() { return IsInTransaction() ? whole_->CountRows() : CountRows(); }

  // Take an unused cursor, and give it back.
  std::unique_ptr<internal::AnyCursor> TakeCursor();
  void ReturnCursor(std::unique_ptr<internal::AnyCursor> cursor);
  void DropCursors();

  std::unique_ptr<internal::AnyDatabase> store;
  std::unique_ptr<AnyDBM> any_store;  // the same, for Transaction; nullptr in a transaction

 private:
  struct Own {
    explicit Own(internal::AnyDatabase& database) : catalogue(database), numbers(database) {}
    Catalogue catalogue;
    RowNumbers numbers;
    WriterGate gate;
  };
  std::unique_ptr<Own> own_;  // nullptr in a transaction

 public:
  Catalogue& catalogue;
  RowNumbers& numbers;
  WriterGate& gate;
  const std::uint64_t sort_bytes, build_bytes;
  // The number of rows minus the number that the gate has counted; kUnknown until the rows were
  // counted.
  static constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::min();
  std::atomic<std::int64_t> rows_at_open{kUnknown};
  // Whether writers obey a column that is not stored yet (TableDBM::SetColumn). Changes while the gate excludes writers.
  bool is_changing_column = false;
  // For a transaction: see table/table_transaction.h.
  const std::shared_ptr<ChangesInTransaction> changes;

 private:
  TableCore* const whole_ = nullptr;
  static constexpr std::size_t kCursorsKept = 16;
  sync::SpinLock cursors_lock_;
  std::vector<std::unique_ptr<internal::AnyCursor>> cursors_;
};

// Takes a cursor of the core until the end of the scope.
class PooledCursor {
 public:
  explicit PooledCursor(TableCore& core) : core_(&core), cursor_(core.TakeCursor()) {}
  PooledCursor(PooledCursor&&) = default;
  ~PooledCursor() {
    if (cursor_ != nullptr) core_->ReturnCursor(std::move(cursor_));
  }
  internal::AnyCursor* operator->() const { return cursor_.get(); }
  internal::AnyCursor& operator*() const { return *cursor_; }

 private:
  TableCore* core_;
  std::unique_ptr<internal::AnyCursor> cursor_;
};

enum class ChangeKind : std::uint8_t { kPut, kPutKeep, kUpdate, kAppend, kRemove };

// A change of one row.
struct Change {
  ChangeKind kind;
  std::string_view key;
  std::span<const Cell> cells;
  // If not nullptr, a row that is absent or does not match is left unchanged.
  const class Filter* only_if = nullptr;
};

// Makes all changes in one atomic step, or none. *num_changed receives the number of rows changed.
Status MakeChanges(TableCore& core, std::span<const Change> changes, std::uint64_t* num_changed = nullptr);

// Returns the key of the first row; nullopt if there is none.
StatusOr<std::optional<std::string>> FirstRow(TableCore& core);

// Makes the entries of an index that is being built. Calls progress with the number of rows that were read so far.
Status BuildIndex(
    TableCore& core, Index& index, FunctionRef<void(std::uint64_t num_rows)> progress = [](std::uint64_t) {})
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(core.catalogue.mutex());
// Drops an index whose creation has failed, and restores the catalogue.
void UndoIndex(TableCore& core, const Catalogue::AddedIndex& added) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core.catalogue.mutex());
// Drops an index (see Index). Once the index is marked, the drop cannot fail: records that cannot
// be removed now are removed later.
Status DropIndex(TableCore& core, Index& index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core.catalogue.mutex());
// After a crash: completes the indices that were being built, and removes those that were being
// dropped.
Status CompleteIndices(TableCore& core) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core.catalogue.mutex());
// Removes the records that failed steps have left. After an error the next call tries again.
Status RemoveLeftovers(TableCore& core) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core.catalogue.mutex());
// Checks that the entries are exactly those of the rows.
Status VerifyTable(TableCore& core);

}  // namespace hako::table
