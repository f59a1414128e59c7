// Building, dropping and verifying the indices of a table.
#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/no_memory.h"
#include "hako/table/posting_writer.h"
#include "hako/table/table_core.h"
#include "hako/table/words.h"

namespace hako::table {
namespace {

// The most rows that are read at once and, for words or q-grams, the most bytes of them.
constexpr std::size_t kRowsAtOnce = 256, kTextRowsAtOnce = 1024, kTextBytesAtOnce = 256 << 10;

struct Rows {                             // some rows, as they were read
  std::vector<std::string> keys, values;  // of records; a row that was removed has the value ""
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

// Posting lists are made of many rows together: these are read, and get their numbers; their words or q-grams are
// gathered in memory (TableOptions::build_bytes), and written list by list, in many steps (Write). So each block is
// written once. By then rows may have changed, and the steps do not look at them. A writer that changes a row after the
// index was listed notes the row's number before its step (Index::changed), and makes the differences between the old
// and the new row in the lists. So only lists of noted numbers can be wrong: they have the words that the builder has
// read and those that writers have added. When all lists are written, Mend gives each noted number exactly the words
// of the row that has the number now: the row that the builder has read, another one, or none. No writer runs
// meanwhile, so none has read a list or a row before and changes it afterwards. From then on lists and row agree, and
// writers keep them so. A row that gets its first number from a writer is put into the lists by that writer.
class Builder {
 public:
  Builder(TableCore& core, const Index& index) : core_(core), index_(index) {}

  Status Run(FunctionRef<void(std::uint64_t num_rows)> progress) {
    std::string next(1, kRowSpace);
    std::uint64_t num_rows = 0;
    for (bool at_end = false; !at_end; progress(num_rows)) {
      HAKO_RETURN_IF_ERROR(ReadRows(&next, &at_end));
      HAKO_RETURN_IF_ERROR(AddRows(0, rows_.size));
      std::size_t gathered = index_.is_text() ? 0 : rows_.size;
      while (gathered < rows_.size && !IsFull()) HAKO_RETURN_IF_ERROR(Gather(gathered++));
      num_rows += gathered;
      if (!IsFull()) continue;
      // Numbers of rows that change are noted only until Mend: the other rows are read again.
      if (gathered < rows_.size) {
        next.assign(rows_.keys[gathered]);
        at_end = false;
        rows_at_once_ = 2 * gathered;
      }
      HAKO_RETURN_IF_ERROR(Write());
    }
    return postings_.num_changes() == 0 ? absl::OkStatus() : Write();
  }

 private:
  static constexpr int kTriesMax = 1000;  // no row changes as often as that between two reads

  static Status UnfitError() { return absl::DataLossError("the posting lists of a text index do not fit together: Verify says more"); }

  std::string_view KeyOf(std::size_t row) const { return std::string_view(rows_.keys[row]).substr(1); }

  // Reads the next rows, from the key *next on.
  Status ReadRows(std::string* next, bool* at_end) {
    const std::size_t rows_max = index_.is_text() ? std::min(kTextRowsAtOnce, rows_at_once_) : kRowsAtOnce;
    rows_.Clear();
    *at_end = true;
    for (cursor_->Jump(*next); cursor_->Valid() && cursor_->key()[0] == kRowSpace; cursor_->Next()) {
      if (rows_.size == rows_max || (index_.is_text() && rows_.bytes >= kTextBytesAtOnce)) {
        *at_end = false;
        break;
      }
      rows_.Add(cursor_->key(), cursor_->value());
    }
    HAKO_RETURN_IF_ERROR(cursor_->status());
    if (!*at_end) next->assign(rows_.keys[rows_.size - 1]).push_back('\0');
    return absl::OkStatus();
  }

  // Adds the entries of rows, or gives them numbers, in one step, or in smaller ones if any of the rows has changed.
  Status AddRows(std::size_t begin, std::size_t end) {
    for (int tries = 0;; ++tries) {
      const Status status = index_.is_text() ? AddNumbers(begin, end) : AddEntries(begin, end);
      if (!absl::IsAborted(status)) return status;
      if (end - begin > 1) break;
      if (tries == kTriesMax) return UnfitError();
      const Status read = core_.FetchRow(KeyOf(begin), &rows_.values[begin]);
      if (absl::IsNotFound(read)) {  // the row was removed, and its writer had no entry to remove
        rows_.values[begin].clear();
        return absl::OkStatus();
      }
      HAKO_RETURN_IF_ERROR(read);
    }
    const std::size_t middle = begin + (end - begin) / 2;
    HAKO_RETURN_IF_ERROR(AddRows(begin, middle));
    return AddRows(middle, end);
  }

  // Gives numbers to the rows that have none.
  Status AddNumbers(std::size_t begin, std::size_t end) {
    step_.Clear();
    keys_.clear();
    row_of_.clear();
    TakenNumbers taken(core_.numbers);
    for (std::size_t i = begin; i < end; ++i) {
      if (NumberOfRow(rows_.values[i])) continue;
      HAKO_ASSIGN_OR_RETURN(const RowNumber number, taken.Take(KeyOf(i)));
      if (row_of_.size() == numbered_.size()) numbered_.emplace_back();
      SetNumberOfRow(number, &numbered_[row_of_.size()].assign(rows_.values[i]));
      step_.AddKey(number, KeyOf(i));
      keys_.push_back(rows_.keys[i]);
      row_of_.push_back(i);
    }
    if (row_of_.empty()) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(step_.Plan(core_));
    HAKO_RETURN_IF_ERROR(ProcessBeside(step_, [&](std::size_t i, std::optional<std::string_view> found) -> std::optional<Action> {
      if (!found || *found != rows_.values[row_of_[i]]) return std::nullopt;
      return Action::Set(numbered_[i]);
    }));
    taken.Keep();
    for (std::size_t i = 0; i < row_of_.size(); ++i) rows_.values[row_of_[i]].swap(numbered_[i]);
    return absl::OkStatus();
  }

  // Makes a step of keys_, for which it calls visit_key, and the operations of `postings`.
  template <class Visit>
  Status ProcessBeside(PostingWriter& postings, Visit&& visit_key) {
    WriterGate::Writer writer(core_.gate);
    return Process(postings, visit_key);
  }
  template <class Visit>
  Status Process(PostingWriter& postings, Visit&& visit_key) {
    const std::size_t num_keys = keys_.size();
    for (std::size_t i = 0; i < postings.size(); ++i) keys_.push_back(postings.key(i));
    const auto visit = [&](std::size_t i, std::optional<std::string_view> found) -> std::optional<Action> {
      return i < num_keys ? visit_key(i, found) : postings.Visit(i - num_keys, found);
    };
    return core_.store->ProcessMulti(Batch<Action>{keys_, visit, keys_.size()}, nullptr);
  }

  bool IsFull() const {
    return num_gathered_ != 0 && postings_.Bytes() + num_gathered_ * PostingWriter::kBytesOfChange >= core_.build_bytes;
  }

  // Adds the words or q-grams of a row to those in memory.
  Status Gather(std::size_t row) {
    if (rows_.values[row].empty()) return absl::OkStatus();
    ++num_gathered_;
    const RowNumber number = *NumberOfRow(rows_.values[row]);
    const std::size_t before = postings_.num_changes();
    index_.ForEachList(KeyOf(row), RowView(rows_.values[row], &core_.catalogue.names()),
                       [&](std::string_view list, std::uint32_t position) { postings_.Add(list, number, position); });
    return index_.CheckNumWords(postings_.num_changes() - before);
  }

  // Adds the gathered words or q-grams to the lists.
  Status Write() {
    static constexpr int kTriesBeside = 8;  // beside writers, which may change the blocks that are to be split
    postings_.Sort();
    const auto keep = [](std::size_t, std::optional<std::string_view>) { return Action::Keep(); };
    std::size_t list = 0, next = 0;
    const auto plan = [&]() -> Status {
      keys_.clear();
      HAKO_ASSIGN_OR_RETURN(next, postings_.PlanSome(core_, list));
      return absl::OkStatus();
    };
    const auto write_alone = [&]() -> Status {
      HAKO_RETURN_IF_ERROR(plan());
      return Process(postings_, keep);
    };
    for (; list < postings_.num_lists(); list = next) {
      Status status = MismatchError();
      for (int tries = 0; tries < kTriesBeside && absl::IsAborted(status); ++tries) {
        status = plan();
        if (status.ok()) status = ProcessBeside(postings_, keep);
      }
      if (absl::IsAborted(status)) status = core_.gate.RunExclusive(write_alone);
      if (absl::IsAborted(status)) return UnfitError();
      HAKO_RETURN_IF_ERROR(status);
    }
    HAKO_RETURN_IF_ERROR(Mend());
    postings_ = PostingWriter();
    num_gathered_ = 0;
    return absl::OkStatus();
  }

  // Makes the lists of the rows that have changed those of the rows.
  Status Mend() {
    static constexpr std::size_t kRowsOfStep = 64;  // writers wait meanwhile
    std::vector<RowNumber> changed;
    core_.gate.RunExclusive([&] { changed = index_.changed().Take(); });
    if (changed.empty()) return absl::OkStatus();
    std::vector<std::tuple<RowNumber, std::string_view, std::uint32_t>> added;  // by this builder
    postings_.ForEachChange([&](std::string_view list, RowNumber number, std::uint32_t position) {
      if (std::ranges::binary_search(changed, number)) added.emplace_back(number, list, position);
    });
    std::ranges::sort(added);
    auto at = added.begin();
    const auto mend_some = [&]() -> Status {
      step_.Clear();
      keys_.clear();
      for (std::size_t rows = 0; rows < kRowsOfStep && at != added.end(); ++rows) {
        const RowNumber number = std::get<0>(*at);
        for (; at != added.end() && std::get<0>(*at) == number; ++at) step_.Remove(std::get<1>(*at), number, std::get<2>(*at));
        HAKO_RETURN_IF_ERROR(AddListsOf(number));
      }
      HAKO_RETURN_IF_ERROR(step_.Plan(core_));
      return Process(step_, [](std::size_t, std::optional<std::string_view>) { return Action::Keep(); });
    };
    while (at != added.end()) HAKO_RETURN_IF_ERROR(core_.gate.RunExclusive(mend_some));
    return absl::OkStatus();
  }

  // Adds the words or q-grams of the row with this number, if there is one, to step_.
  Status AddListsOf(RowNumber number) {
    std::string bytes;
    KeyBlock keys;
    const auto read = [&](std::string_view key) -> StatusOr<bool> {
      const Status status = core_.store->FetchTo(key, &bytes);
      if (!status.ok() && !absl::IsNotFound(status)) return status;
      return status.ok();
    };
    HAKO_ASSIGN_OR_RETURN(const bool has_block, read(KeyBlockKey(number / kKeysOfBlock)));
    if (!has_block) return absl::OkStatus();
    if (!keys.Decode(bytes)) return DamagedKeyBlockError();
    if (!keys.has(number % kKeysOfBlock)) return absl::OkStatus();
    const std::string_view key = keys.key(number % kKeysOfBlock);
    HAKO_ASSIGN_OR_RETURN(const bool has_row, read(RowKey(key)));
    if (!has_row) return DamagedKeyBlockError();
    index_.ForEachList(key, RowView(bytes, &core_.catalogue.names()),
                       [&](std::string_view list, std::uint32_t position) { step_.Add(list, number, position); });
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
        taken = absl::AlreadyExistsError(absl::StrCat("index ", index_.name(), " cannot be unique: row '",
                                                      PrintableKey(KeyOf(row_of_[entry])), "' has the value of another one"));
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
  PooledCursor cursor_{core_};
  Rows rows_;
  Entries entries_;
  std::vector<std::string_view> keys_;
  std::vector<std::size_t> row_of_;
  PostingWriter postings_;                      // of many rows
  std::size_t num_gathered_ = 0;                // how many
  std::size_t rows_at_once_ = kTextRowsAtOnce;  // about as many as fit into memory, if these are fewer
  PostingWriter step_;                          // of a step that gives rows numbers, or mends their lists
  std::vector<std::string> numbered_;           // the rows that get a number in this step, with it
};

}  // namespace

StatusOr<std::optional<std::string>> FirstRow(TableCore& core) {
  PooledCursor cursor(core);
  cursor->Jump({&kRowSpace, 1});
  HAKO_RETURN_IF_ERROR(cursor->status());
  if (!cursor->Valid() || cursor->key()[0] != kRowSpace) return std::nullopt;
  return std::string(cursor->key().substr(1));
}

Status BuildIndex(TableCore& core, Index& index, FunctionRef<void(std::uint64_t num_rows)> progress) {
  return Builder(core, index).Run(progress);
}

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

}  // namespace hako::table
