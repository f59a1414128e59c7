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
#include "hako/sync/spin_lock.h"
#include "hako/table/catalogue.h"
#include "hako/table/table_store.h"

namespace hako::table {

// A row's key as a record of the database, without an allocation.
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

inline Status CheckKey(std::string_view key) {
  return key.size() <= TableLimits::kKeySize ? absl::OkStatus() : TooLargeError("a primary key", key.size(), TableLimits::kKeySize);
}

// The bytes of a row, without an allocation if they are few.
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

struct TableCore {
  TableCore(std::unique_ptr<TableStore> database, std::uint64_t most_sort_bytes)
      : store(std::move(database)), catalogue(*store), sort_bytes(most_sort_bytes) {}

  // Copies a row's bytes. NotFound if there is none.
  Status FetchRow(std::string_view key, std::string* bytes);
  Status FetchRow(std::string_view key, RowBuffer* bytes);
  // The number of rows; exact while none is changed. Counts them if the file does not have it.
  StatusOr<std::uint64_t> CountRows();

  // A cursor that is not in use, and back.
  std::unique_ptr<StoreCursor> TakeCursor();
  void ReturnCursor(std::unique_ptr<StoreCursor> cursor);

  std::unique_ptr<TableStore> store;
  Catalogue catalogue;
  WriterGate gate;
  const std::uint64_t sort_bytes;
  // Less the rows that the gate has counted; kUnknown until they are counted.
  static constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::min();
  std::atomic<std::int64_t> rows_at_open{kUnknown};

 private:
  sync::SpinLock cursors_lock_;
  std::vector<std::unique_ptr<StoreCursor>> cursors_;
};

// A cursor of the core for a scope.
class PooledCursor {
 public:
  explicit PooledCursor(TableCore& core) : core_(&core), cursor_(core.TakeCursor()) {}
  PooledCursor(PooledCursor&&) = default;
  ~PooledCursor() {
    if (cursor_ != nullptr) core_->ReturnCursor(std::move(cursor_));
  }
  StoreCursor* operator->() const { return cursor_.get(); }
  StoreCursor& operator*() const { return *cursor_; }

 private:
  TableCore* core_;
  std::unique_ptr<StoreCursor> cursor_;
};

enum class ChangeKind : std::uint8_t { kPut, kPutKeep, kUpdate, kAppend, kRemove };

// A change of one row.
struct Change {
  ChangeKind kind;
  std::string_view key;
  std::span<const Cell> cells;
  // With it, an absent row, or one that does not match, is left as it is.
  const class Filter* only_if = nullptr;
};

// Makes all changes in one atomic step, or none. *num_changed receives the number of rows changed.
Status MakeChanges(TableCore& core, std::span<const Change> changes, std::uint64_t* num_changed = nullptr);

// The key of the first row; nullopt if there is none.
StatusOr<std::optional<std::string>> FirstRow(TableCore& core);

// Makes the entries of an index that is being built.
Status BuildIndex(TableCore& core, Index& index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core.catalogue.mutex());
// Drops an index whose creation has failed. The catalogue is as before.
void UndoIndex(TableCore& core, const Catalogue::AddedIndex& added) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core.catalogue.mutex());
// Drops an index: see Index. Once it is marked nothing fails; what is left of it is removed later.
Status DropIndex(TableCore& core, Index& index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core.catalogue.mutex());
// Completes or removes what is left of indices that were being built or dropped when the table was closed by a crash.
Status CompleteIndices(TableCore& core) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core.catalogue.mutex());
// Removes what steps that failed have left behind. An error leaves it for the next call.
Status RemoveLeftovers(TableCore& core) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core.catalogue.mutex());
// Proves that the entries are those of the rows.
Status VerifyTable(TableCore& core);

}  // namespace hako::table
