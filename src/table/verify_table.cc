// Checking that the indices of a table are those of its rows.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/table/posting_writer.h"
#include "hako/table/table_core.h"
#include "hako/table/typed_value.h"

namespace hako::table {
namespace {

// Compares rows and entries. A mismatch that is found beside writers is checked again while writers
// are excluded and no index is built or dropped.
class Verifier {
 public:
  explicit Verifier(TableCore& core) : core_(core), names_(&core.catalogue.names()) {}

  Status Run() {
    std::uint64_t num_rows = 0;
    HAKO_RETURN_IF_ERROR(ForEach(kRowSpace, [&](std::string_view key, std::string_view value) {
      ++num_rows;
      return CheckRow(key, value);
    }));
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t count, core_.CountRows());
    if (count != num_rows) HAKO_RETURN_IF_ERROR(CheckCount());
    HAKO_RETURN_IF_ERROR(ForEach(kEntrySpace, [this](std::string_view key, std::string_view value) { return CheckEntry(key, value); }));
    if (CheckTexts().ok()) return absl::OkStatus();
    const sync::MutexLock lock(core_.catalogue.mutex());
    return core_.gate.RunExclusive([this] { return CheckTexts(); });
  }

 private:
  template <class Check>
  Status ForEach(char space, Check&& check) {
    PooledCursor cursor(core_);
    for (cursor->Jump({&space, 1}); cursor->Valid() && cursor->key()[0] == space; cursor->Next()) {
      if (check(cursor->key(), cursor->value()).ok()) continue;
      const std::string key(cursor->key());
      const sync::MutexLock lock(core_.catalogue.mutex());
      const Status again = core_.gate.RunExclusive([&]() -> Status {
        core_.catalogue.mutex().AssertHeld();
        std::string value;
        const Status read = core_.store->FetchTo(key, &value);
        if (absl::IsNotFound(read) || IsLeftByDrop(key)) return absl::OkStatus();
        return read.ok() ? check(key, value) : read;
      });
      HAKO_RETURN_IF_ERROR(again);
    }
    return cursor->status();
  }

  // Whether this is an entry of an index whose drop has begun and failed.
  bool IsLeftByDrop(std::string_view key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.catalogue.mutex()) {
    return std::ranges::any_of(core_.catalogue.all_indices(), [key](const std::unique_ptr<Index>& index) {
      return index->state() == IndexState::kDropped && key.starts_with(index->prefix());
    });
  }

  // Checks the number of rows, while writers are excluded.
  Status CheckCount() {
    return core_.gate.RunExclusive([&]() -> Status {
      HAKO_ASSIGN_OR_RETURN(const std::uint64_t found, core_.store->CountRange({&kRowSpace, 1}, std::string{kRowSpace + 1}));
      const auto known = static_cast<std::uint64_t>(core_.rows_at_open.load() + core_.gate.num_rows());
      return found == known ? absl::OkStatus()
                            : absl::DataLossError(absl::StrCat("the table has ", found, " rows, and ", known, " are noted"));
    });
  }

  // Returns the index with its names looked up again, so that it makes the entries of a new index.
  StatusOr<const Index*> Resolved(const Index& index) {
    std::unique_ptr<Index>& resolved = resolved_[index.number()];
    if (resolved == nullptr) {
      HAKO_ASSIGN_OR_RETURN(resolved, Index::Make(index.number(), index.options(), IndexState::kReady,
                                                  [this](std::string_view name) { return names_->Find(name); }));
    }
    return resolved.get();
  }

  // Checks that a row has all its entries.
  Status CheckRow(std::string_view row_key, std::string_view bytes) {
    const std::string_view key = row_key.substr(1);
    const RowView row(bytes, names_);
    if (const Status status = row.Check(); !status.ok())
      return absl::DataLossError(absl::StrCat("row '", PrintableKey(key), "': ", status.message()));
    for (std::size_t i = 0; i < row.size(); ++i) {  // conditions rely on the types of columns
      const StatusOr<Value> typed = TypedValue(*names_->Get(row.column(i)), row.value(i));
      if (!typed.ok() || typed->kind() != row.value(i).kind())
        return absl::DataLossError(
            absl::StrCat("row '", PrintableKey(key), "' has a value of another type than column '", ToAbsl(row.name(i)), "'"));
    }
    for (const Index* const listed : core_.catalogue.indices()) {
      if (listed->state() != IndexState::kReady || listed->is_text()) continue;
      HAKO_ASSIGN_OR_RETURN(const Index* const index, Resolved(*listed));
      entries_.Clear();
      HAKO_RETURN_IF_ERROR(index->AddEntries(key, row, &entries_));
      for (std::size_t i = 0; i < entries_.size(); ++i) {
        const Status read = core_.store->FetchTo(entries_.key(i), &value_);
        if (!read.ok() && !absl::IsNotFound(read)) return read;
        if (!read.ok() || value_ != entries_.value(i))
          return absl::DataLossError(absl::StrCat("row '", PrintableKey(key), "' has no entry in index ", index->name()));
      }
    }
    return absl::OkStatus();
  }

  // Checks that an entry leads to a row that has it.
  Status CheckEntry(std::string_view entry_key, std::string_view entry_value) {
    const Index* const listed = core_.catalogue.IndexOf(entry_key);
    if (listed == nullptr) return absl::DataLossError("an entry belongs to no index");
    if (listed->state() != IndexState::kReady || listed->is_text()) return absl::OkStatus();
    HAKO_ASSIGN_OR_RETURN(const Index* const index, Resolved(*listed));
    const Index::RowOfEntry entry = index->Row(entry_key, entry_value);
    if (!entry.ok || entry.key.size() > TableLimits::kKeySize)
      return absl::DataLossError(absl::StrCat("an entry of index ", index->name(), " is damaged"));
    const std::string key(entry.key);
    const Status read = core_.FetchRow(key, &value_);
    if (!read.ok() && !absl::IsNotFound(read)) return read;
    entries_.Clear();
    if (read.ok()) HAKO_RETURN_IF_ERROR(index->AddEntries(key, RowView(value_, names_), &entries_));
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_.key(i) == entry_key && entries_.value(i) == entry_value) return absl::OkStatus();
    }
    return absl::DataLossError(absl::StrCat("index ", index->name(), " has an entry for row '", PrintableKey(key), "', which ",
                                            read.ok() ? "has another value" : "does not exist"));
  }

  // Checks the posting lists and the numbers of rows. Each list has the numbers that the rows demand, and
  // all lists of an index together have no more.
  Status CheckTexts() {
    num_numbers_ = 0;
    num_postings_.clear();
    HAKO_RETURN_IF_ERROR(CheckTextRows());
    HAKO_RETURN_IF_ERROR(CheckKeyBlocks());
    return CheckLists();
  }

  struct Lists {  // of some rows
    const Index* index;
    PostingWriter postings;
  };
  Status CheckTextRows() {
    static constexpr std::size_t kRowsAtOnce = 8192, kBytesAtOnce = 1 << 20;
    std::deque<Lists> lists;
    for (const Index* const listed : core_.catalogue.indices()) {
      if (listed->state() != IndexState::kReady || !listed->is_text()) continue;
      HAKO_ASSIGN_OR_RETURN(const Index* const index, Resolved(*listed));
      lists.push_back({index, {}});
    }
    std::size_t num_rows = 0, bytes = 0;
    PooledCursor cursor(core_);
    for (cursor->Jump({&kRowSpace, 1}); cursor->Valid() && cursor->key()[0] == kRowSpace; cursor->Next()) {
      const std::string_view key = cursor->key().substr(1), row = cursor->value();
      HAKO_RETURN_IF_ERROR(CheckNumber(key, row));
      const std::optional<RowNumber> number = NumberOfRow(row);
      for (Lists& of : lists) {
        if (!number) return absl::DataLossError(absl::StrCat("row '", PrintableKey(key), "' has no number for index ", of.index->name()));
        of.index->ForEachList(key, RowView(row, names_),
                              [&](std::string_view list, std::uint32_t position) { of.postings.Add(list, *number, position); });
      }
      bytes += row.size();
      if (++num_rows < kRowsAtOnce && bytes < kBytesAtOnce) continue;
      for (Lists& of : lists) HAKO_RETURN_IF_ERROR(CheckPostings(*of.index, of.postings));
      num_rows = bytes = 0;
    }
    HAKO_RETURN_IF_ERROR(cursor->status());
    for (Lists& of : lists) HAKO_RETURN_IF_ERROR(CheckPostings(*of.index, of.postings));
    return absl::OkStatus();
  }

  // Checks that the lists have these numbers, and counts them.
  Status CheckPostings(const Index& index, PostingWriter& postings) {
    const Status planned = postings.Plan(core_);
    const bool is_mismatch = absl::IsAborted(planned) && planned.message().empty();  // else a reader was cut off
    if (is_mismatch) return absl::DataLossError(absl::StrCat("a posting list of index ", index.name(), " lacks a block"));
    HAKO_RETURN_IF_ERROR(planned);
    if (postings.HasChanges())
      return absl::DataLossError(absl::StrCat("a row lacks a word or q-gram",
                                              index.has_positions() ? ", or has it at other positions," : "", " in index ", index.name()));
    num_postings_[index.number()] += postings.num_numbers();
    postings.Clear();
    return absl::OkStatus();
  }

  Status CheckNumber(std::string_view key, std::string_view row) {
    const std::optional<RowNumber> number = NumberOfRow(row);
    if (!number) return absl::OkStatus();
    ++num_numbers_;
    const Status read = core_.store->FetchTo(KeyBlockKey(*number / kKeysOfBlock), &value_);
    if (!read.ok() && !absl::IsNotFound(read)) return read;
    const unsigned slot = *number % kKeysOfBlock;
    if (read.ok() && key_block_.Decode(value_) && key_block_.has(slot) && key_block_.key(slot) == key) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("row '", PrintableKey(key), "' has a number that does not lead to it"));
  }

  Status CheckKeyBlocks() {
    PooledCursor cursor(core_);
    for (cursor->Jump({&kNumberSpace, 1}); cursor->Valid() && cursor->key()[0] == kNumberSpace; cursor->Next()) {
      if (cursor->key().size() != kKeyBlockKeySize || !key_block_.Decode(cursor->value())) return DamagedKeyBlockError();
      for (unsigned slot = 0; slot < kKeysOfBlock; ++slot) num_numbers_ -= key_block_.has(slot) ? 1u : 0u;
    }
    HAKO_RETURN_IF_ERROR(cursor->status());
    return num_numbers_ == 0 ? absl::OkStatus() : absl::DataLossError("a number of a row leads to no row");
  }

  Status CheckLists() {
    std::string list;
    std::vector<RowNumber> numbers;
    std::uint64_t end = PostingBlock::kNoEnd;  // of the block before
    PooledCursor cursor(core_);
    for (cursor->Jump({&kEntrySpace, 1}); cursor->Valid() && cursor->key()[0] == kEntrySpace; cursor->Next()) {
      const Index* const index = core_.catalogue.IndexOf(cursor->key());
      if (index == nullptr || !index->is_text() || index->state() != IndexState::kReady) continue;
      const auto damaged = [index] { return absl::DataLossError(absl::StrCat("a posting list of index ", index->name(), " is damaged")); };
      const std::optional<BlockKey> key = ParseBlockKey(cursor->key());
      if (!key) return damaged();
      if (end == PostingBlock::kNoEnd) {
        list = key->list;
        end = 0;
      }
      numbers.clear();
      std::string_view positions;
      const std::optional<PostingBlock> block =
          DecodePostings(cursor->value(), key->end, &numbers, index->has_positions() ? &positions : nullptr);
      if (!block || key->list != list || block->begin != end) return damaged();
      for (std::size_t i = 0; index->has_positions() && i < block->count; ++i) {
        if (TakePositions(&positions).empty()) return damaged();
      }
      if (!positions.empty()) return damaged();
      end = key->end;
      num_postings_[index->number()] -= block->count;
    }
    HAKO_RETURN_IF_ERROR(cursor->status());
    if (end != PostingBlock::kNoEnd) return absl::DataLossError("a posting list has no end");
    for (const Index* const index : core_.catalogue.indices()) {
      if (num_postings_[index->number()] != 0)
        return absl::DataLossError(absl::StrCat("index ", index->name(), " has a word or q-gram of a row that lacks it"));
    }
    return absl::OkStatus();
  }

  TableCore& core_;
  const ColumnNames* names_;
  std::map<std::uint16_t, std::unique_ptr<Index>> resolved_;  // by number; numbers are not reused
  Entries entries_;
  std::string value_;
  KeyBlock key_block_;
  std::uint64_t num_numbers_ = 0;                        // of rows, minus those in key blocks
  std::map<std::uint16_t, std::uint64_t> num_postings_;  // of rows, minus those in lists, by index
};

}  // namespace

Status VerifyTable(TableCore& core) { return Verifier(core).Run(); }

}  // namespace hako::table
