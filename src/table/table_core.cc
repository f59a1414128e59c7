#include "hako/table/table_core.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/text/text_encoding.h"

namespace hako::table {

std::string PrintableKey(std::string_view key) {
  std::string text;
  text::AppendPrintable(key.substr(0, 64), &text);
  return text;
}

Status TableCore::FetchRow(std::string_view key, std::string* bytes) {
  HAKO_RETURN_IF_ERROR(CheckKey(key));
  return store->FetchTo(RowKeyBuffer(key).view(), bytes);
}

Status TableCore::FetchRow(std::string_view key, RowBuffer* bytes) {
  HAKO_RETURN_IF_ERROR(CheckKey(key));
  return store->Fetch(RowKeyBuffer(key).view(), [bytes](std::size_t size) { return bytes->Resize(size); });
}

Status TableCore::CheckWhole(std::string_view function) const {
  if (!IsInTransaction()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(ToAbsl(function), " is not part of a transaction: call it on the table itself"));
}

StatusOr<std::uint64_t> TableCore::CountRows() {
  HAKO_RETURN_IF_ERROR(store->CheckOpen());
  if (IsInTransaction()) return store->CountRange({&kRowSpace, 1}, std::string{kRowSpace + 1});
  std::int64_t known = rows_at_open.load(std::memory_order_acquire);
  if (known == kUnknown) {
    const auto count = [&]() -> Status {
      if (rows_at_open.load(std::memory_order_relaxed) != kUnknown) return absl::OkStatus();
      HAKO_ASSIGN_OR_RETURN(const std::uint64_t found, store->CountRange({&kRowSpace, 1}, std::string{kRowSpace + 1}));
      rows_at_open.store(static_cast<std::int64_t>(found) - gate.num_rows(), std::memory_order_release);
      return absl::OkStatus();
    };
    HAKO_RETURN_IF_ERROR(gate.RunExclusive(count));
    known = rows_at_open.load(std::memory_order_acquire);
  }
  return static_cast<std::uint64_t>(known + gate.num_rows());
}

std::unique_ptr<internal::AnyCursor> TableCore::TakeCursor() {
  {
    cursors_lock_.Lock();
    std::unique_ptr<internal::AnyCursor> cursor;
    if (!cursors_.empty()) {
      cursor = std::move(cursors_.back());
      cursors_.pop_back();
    }
    cursors_lock_.Unlock();
    if (cursor != nullptr) return cursor;
  }
  return store->MakeCursor();
}

void TableCore::DropCursors() {
  cursors_lock_.Lock();
  cursors_.clear();
  cursors_lock_.Unlock();
}

void TableCore::ReturnCursor(std::unique_ptr<internal::AnyCursor> cursor) {
  cursors_lock_.Lock();
  if (cursors_.size() < kCursorsKept) cursors_.push_back(std::move(cursor));
  cursors_lock_.Unlock();
}

}  // namespace hako::table
