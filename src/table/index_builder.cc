// Building, dropping and verifying the indices of a table.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/no_memory.h"
#include "hako/base/varint.h"
#include "hako/table/posting_writer.h"
#include "hako/table/table_core.h"
#include "hako/table/typed_value.h"
#include "hako/table/words.h"
#include "hako/text/text_encoding.h"

namespace hako::table {
namespace {

// The most rows of a step and, for words or q-grams, the most bytes of rows.
constexpr std::size_t kRowsAtOnce = 256, kTextRowsAtOnce = 8192, kTextBytesAtOnce = 1 << 20;

std::string Printable(std::string_view key) {
  std::string text;
  text::AppendPrintable(key.substr(0, 64), &text);
  return text;
}

struct Rows {                             // some rows, as they were read
  std::vector<std::string> keys, values;  // keys of records
  std::size_t size = 0, bytes = 0;

  void Clear() { size = bytes = 0; }

  void Add(std::string_view key, std::string_view value) {
    if (size == keys.size()) {
      keys.emplace_back();
      values.emplace_back();
    }
    keys[size].assign(key);
    values[size++].assign(value);
    bytes += value.size();
  }
};

class Builder {
 public:
  Builder(TableCore& core, const Index& index) : core_(core), index_(index) {}

  Status Run() {
    PooledCursor cursor(core_);
    std::string next(1, kRowSpace);
    const std::size_t rows_max = index_.is_text() ? kTextRowsAtOnce : kRowsAtOnce;
    for (bool at_end = false; !at_end;) {
      rows_.Clear();
      at_end = true;
      for (cursor->Jump(next); cursor->Valid() && cursor->key()[0] == kRowSpace; cursor->Next()) {
        if (rows_.size == rows_max || (index_.is_text() && rows_.bytes >= kTextBytesAtOnce)) {
          at_end = false;
          break;
        }
        rows_.Add(cursor->key(), cursor->value());
      }
      HAKO_RETURN_IF_ERROR(cursor->status());
      if (!at_end) next.assign(rows_.keys[rows_.size - 1]).push_back('\0');
      if (rows_.size != 0) HAKO_RETURN_IF_ERROR(AddRows(0, rows_.size));
    }
    return absl::OkStatus();
  }

 private:
  std::string_view KeyOf(std::size_t row) const { return std::string_view(rows_.keys[row]).substr(1); }

  // Adds the entries of rows in one step, or in smaller ones if any of the rows has changed.
  Status AddRows(std::size_t begin, std::size_t end) {
    static constexpr int kTriesMax = 1000;  // no row changes as often as that between two reads
    for (int tries = 0;; ++tries) {
      const Status status = AddTogether(begin, end);
      if (!absl::IsAborted(status)) return status;
      if (end - begin > 1) break;
      if (tries == kTriesMax) return absl::DataLossError("the posting lists of a text index do not fit together: Verify says more");
      const Status read = core_.FetchRow(KeyOf(begin), &rows_.values[begin]);
      if (absl::IsNotFound(read)) return absl::OkStatus();  // the row was removed, and its writer had no entry to remove
      HAKO_RETURN_IF_ERROR(read);
    }
    const std::size_t middle = begin + (end - begin) / 2;
    HAKO_RETURN_IF_ERROR(AddRows(begin, middle));
    return AddRows(middle, end);
  }

  Status AddTogether(std::size_t begin, std::size_t end) { return index_.is_text() ? AddPostings(begin, end) : AddEntries(begin, end); }

  Status AddPostings(std::size_t begin, std::size_t end) {
    postings_.Clear();
    numbered_.clear();
    keys_.clear();
    TakenNumbers taken(core_.numbers);
    for (std::size_t i = begin; i < end; ++i) {
      keys_.push_back(rows_.keys[i]);
      std::optional<RowNumber> number = NumberOfRow(rows_.values[i]);
      numbered_.emplace_back();
      if (!number) {
        HAKO_ASSIGN_OR_RETURN(number, taken.Take(KeyOf(i)));
        numbered_.back() = rows_.values[i];
        SetNumberOfRow(*number, &numbered_.back());
        postings_.AddKey(*number, KeyOf(i));
      }
      const std::size_t before = postings_.num_changes();
      index_.ForEachList(KeyOf(i), RowView(rows_.values[i], &core_.catalogue.names()),
                         [&](std::string_view list, std::uint32_t position) { postings_.Add(list, *number, position); });
      HAKO_RETURN_IF_ERROR(index_.CheckNumWords(postings_.num_changes() - before));
    }
    HAKO_RETURN_IF_ERROR(postings_.Plan(core_));
    for (std::size_t i = 0; i < postings_.size(); ++i) keys_.push_back(postings_.key(i));
    const std::size_t num_rows = end - begin;
    const auto visit = [&](std::size_t i, std::optional<std::string_view> found) -> std::optional<Action> {
      if (i >= num_rows) return postings_.Visit(i - num_rows, found);
      if (!found || *found != rows_.values[begin + i]) return std::nullopt;
      return numbered_[i].empty() ? Action::Keep() : Action::Set(numbered_[i]);
    };
    WriterGate::Writer writer(core_.gate);
    HAKO_RETURN_IF_ERROR(core_.store->ProcessMulti(Batch<Action>{keys_, visit, keys_.size()}, nullptr));
    taken.Keep();
    return absl::OkStatus();
  }

  Status AddEntries(std::size_t begin, std::size_t end) {
    entries_.Clear();
    keys_.clear();
    row_of_.clear();
    for (std::size_t i = begin; i < end; ++i) {
      keys_.push_back(rows_.keys[i]);
      HAKO_RETURN_IF_ERROR(index_.AddEntries(KeyOf(i), RowView(rows_.values[i], &core_.catalogue.names()), &entries_));
      row_of_.resize(entries_.size(), i);
    }
    if (entries_.size() == 0) return absl::OkStatus();
    for (std::size_t i = 0; i < entries_.size(); ++i) keys_.push_back(entries_.key(i));
    const std::size_t num_rows = end - begin;
    Status taken;
    const auto visit = [&](std::size_t i, std::optional<std::string_view> found) -> std::optional<Action> {
      if (i < num_rows) return found && *found == rows_.values[begin + i] ? std::optional(Action::Keep()) : std::nullopt;
      const std::size_t entry = i - num_rows;
      if (entries_.is_unique(entry) && found && index_.Row(entries_.key(entry), *found).key != KeyOf(row_of_[entry])) {
        taken = absl::AlreadyExistsError(absl::StrCat("index ", index_.name(), " cannot be unique: row '", Printable(KeyOf(row_of_[entry])),
                                                      "' has the value of another one"));
        return std::nullopt;
      }
      return Action::Set(entries_.value(entry));
    };
    WriterGate::Writer writer(core_.gate);
    const Status status = core_.store->ProcessMulti(Batch<Action>{keys_, visit, index_.is_unique() ? keys_.size() : num_rows}, nullptr);
    return taken.ok() ? status : taken;
  }

  TableCore& core_;
  const Index& index_;
  Rows rows_;
  Entries entries_;
  std::vector<std::string_view> keys_;
  std::vector<std::size_t> row_of_;
  PostingWriter postings_;
  std::vector<std::string> numbered_;  // the rows that get a number in this step, with it
};

}  // namespace

StatusOr<std::optional<std::string>> FirstRow(TableCore& core) {
  PooledCursor cursor(core);
  cursor->Jump({&kRowSpace, 1});
  HAKO_RETURN_IF_ERROR(cursor->status());
  if (!cursor->Valid() || cursor->key()[0] != kRowSpace) return std::nullopt;
  return std::string(cursor->key().substr(1));
}

Status BuildIndex(TableCore& core, Index& index) { return Builder(core, index).Run(); }

namespace {

Status RemoveEntries(TableCore& core, const Index& index) {
  const std::string from = index.prefix(), to = EntryPrefix(static_cast<std::uint16_t>(index.number() + 1));
  return core.store->RemoveRange(from, index.number() == 0xffff ? std::string{kEntrySpace + 1} : to).status();
}

// Ends the use of an index by queries and writers, and removes its records.
void RemoveIndex(TableCore& core, Index& index, const IndexList* list) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core.catalogue.mutex()) {
  index.set_state(IndexState::kDropped);
  core.catalogue.List(list, core.gate);
  while (index.users().load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  core.catalogue.set_has_leftovers(true);
  (void)RemoveLeftovers(core);
}

}  // namespace

void UndoIndex(TableCore& core, const Catalogue::AddedIndex& added) { RemoveIndex(core, *added.index, added.before); }

Status DropIndex(TableCore& core, Index& index) HAKO_TRY {
  const IndexList* const list = core.catalogue.ListWithout(index);
  const Catalogue::Record record = Catalogue::RecordOf(index, IndexState::kDropped);
  HAKO_RETURN_IF_ERROR(core.catalogue.Store({&record, 1}));
  RemoveIndex(core, index, list);
  return absl::OkStatus();
}
HAKO_OR_NO_MEMORY

// Entries that a failed step has left may not match the rows any more. An outdated index is marked
// before they are removed: the hako of its version would still take it for ready.
Status CompleteIndices(TableCore& core) {
  for (const auto& index : core.catalogue.all_indices()) {
    if (index->state() == IndexState::kDropped) core.catalogue.set_has_leftovers(true);
    if (index->state() != IndexState::kBuilding) continue;
    if (index->IsOutdated()) {
      const Catalogue::Record mark = Catalogue::RecordOf(*index, IndexState::kBuilding);
      HAKO_RETURN_IF_ERROR(core.catalogue.Store({&mark, 1}));
    }
    HAKO_RETURN_IF_ERROR(RemoveEntries(core, *index));
    const Status built = BuildIndex(core, *index);
    if (absl::IsAlreadyExists(built) && index->IsOutdated())
      return absl::FailedPreconditionError(
          absl::StrCat(built.message(), " by the words of ", WordTables(), ": drop it with the hako that has made it"));
    if (absl::IsAlreadyExists(built)) {  // it should have been unique
      HAKO_RETURN_IF_ERROR(DropIndex(core, *index));
      continue;
    }
    HAKO_RETURN_IF_ERROR(built);
    index->MakePresent();
    const Catalogue::Record record = Catalogue::RecordOf(*index, IndexState::kReady);
    HAKO_RETURN_IF_ERROR(core.catalogue.Store({&record, 1}));
    index->set_state(IndexState::kReady);
  }
  return RemoveLeftovers(core);
}

// A failed creation of an index may leave the record of a column that the index should have added.
// Another column may have that number by now.
Status RemoveLeftovers(TableCore& core) HAKO_TRY {
  if (!core.catalogue.has_leftovers()) return absl::OkStatus();
  std::vector<Catalogue::Record> records;
  std::string unused;
  for (const auto& index : core.catalogue.all_indices()) {
    if (index->state() != IndexState::kDropped) continue;
    const std::string key = CatalogueKey('i', index->number());
    const Status found = core.store->FetchTo(key, &unused);
    if (absl::IsNotFound(found)) continue;
    HAKO_RETURN_IF_ERROR(found);
    records.push_back({key, std::nullopt});
    HAKO_RETURN_IF_ERROR(RemoveEntries(core, *index));
  }
  const std::string prefix = CatalogueKey('c');
  PooledCursor cursor(core);
  for (cursor->Jump(prefix); cursor->Valid() && cursor->key().starts_with(prefix); cursor->Next()) {
    if (core.catalogue.names().Get(static_cast<ColumnId>(CatalogueNumber(cursor->key()))) == nullptr)
      records.push_back({std::string(cursor->key()), std::nullopt});
  }
  HAKO_RETURN_IF_ERROR(cursor->status());
  if (!records.empty()) HAKO_RETURN_IF_ERROR(core.catalogue.Store(records));
  core.catalogue.set_has_leftovers(false);
  return absl::OkStatus();
}
HAKO_OR_NO_MEMORY

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
      return absl::DataLossError(absl::StrCat("row '", Printable(key), "': ", status.message()));
    for (std::size_t i = 0; i < row.size(); ++i) {  // conditions rely on the types of columns
      const StatusOr<Value> typed = TypedValue(*names_->Get(row.column(i)), row.value(i));
      if (!typed.ok() || typed->kind() != row.value(i).kind())
        return absl::DataLossError(
            absl::StrCat("row '", Printable(key), "' has a value of another type than column '", ToAbsl(row.name(i)), "'"));
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
          return absl::DataLossError(absl::StrCat("row '", Printable(key), "' has no entry in index ", index->name()));
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
    return absl::DataLossError(absl::StrCat("index ", index->name(), " has an entry for row '", Printable(key), "', which ",
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

  Status CheckTextRows() {
    Rows rows;
    PooledCursor cursor(core_);
    for (cursor->Jump({&kRowSpace, 1}); cursor->Valid() && cursor->key()[0] == kRowSpace; cursor->Next()) {
      rows.Add(cursor->key(), cursor->value());
      if (rows.size < kTextRowsAtOnce && rows.bytes < kTextBytesAtOnce) continue;
      HAKO_RETURN_IF_ERROR(CheckTextRows(rows));
      rows.Clear();
    }
    HAKO_RETURN_IF_ERROR(cursor->status());
    return CheckTextRows(rows);
  }

  Status CheckTextRows(const Rows& rows) {
    for (std::size_t i = 0; i < rows.size; ++i) HAKO_RETURN_IF_ERROR(CheckNumber(std::string_view(rows.keys[i]).substr(1), rows.values[i]));
    for (const Index* const listed : core_.catalogue.indices()) {
      if (listed->state() != IndexState::kReady || !listed->is_text()) continue;
      HAKO_ASSIGN_OR_RETURN(const Index* const index, Resolved(*listed));
      postings_.Clear();
      for (std::size_t i = 0; i < rows.size; ++i) {
        const std::string_view key = std::string_view(rows.keys[i]).substr(1);
        const std::optional<RowNumber> number = NumberOfRow(rows.values[i]);
        if (!number) return absl::DataLossError(absl::StrCat("row '", Printable(key), "' has no number for index ", index->name()));
        index->ForEachList(key, RowView(rows.values[i], names_), [&](std::string_view list, std::uint32_t position) { postings_.Add(list, *number, position); });
      }
      const Status planned = postings_.Plan(core_);
      if (absl::IsAborted(planned)) return absl::DataLossError(absl::StrCat("a posting list of index ", index->name(), " lacks a block"));
      HAKO_RETURN_IF_ERROR(planned);
      if (postings_.size() != 0) return absl::DataLossError(absl::StrCat("a row lacks a word or q-gram in index ", index->name()));
      num_postings_[index->number()] += postings_.num_numbers();
    }
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
    return absl::DataLossError(absl::StrCat("row '", Printable(key), "' has a number that does not lead to it"));
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
      const std::optional<PostingBlock> block = DecodePostings(cursor->value(), key->end, &numbers);
      if (!block || key->list != list || block->begin != end) return damaged();
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
  PostingWriter postings_;
  KeyBlock key_block_;
  std::uint64_t num_numbers_ = 0;                        // of rows, minus those in key blocks
  std::map<std::uint16_t, std::uint64_t> num_postings_;  // of rows, minus those in lists, by index
};

}  // namespace

Status VerifyTable(TableCore& core) { return Verifier(core).Run(); }

}  // namespace hako::table
