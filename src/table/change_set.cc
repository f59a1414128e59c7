#include "hako/table/change_set.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/varint.h"
#include "hako/table/table_changes.h"
#include "hako/table/typed_value.h"

namespace hako::table {
namespace {

// If there are several changes, adds the key to an error.
Status WithKey(const Status& status, std::string_view key, bool is_single) {
  if (is_single || (absl::IsResourceExhausted(status) && status.message().empty())) return status;
  const absl::string_view what = absl::IsNotFound(status)        ? "there is no such row"
                                 : absl::IsAlreadyExists(status) ? "the row exists"
                                                                 : status.message();
  return Status(status.code(), absl::StrCat("row '", ToAbsl(key.substr(0, 64)), "': ", what));
}

}  // namespace

Status ChangeSet::Resolve(TableCore& core, std::span<const Change> changes, NewColumns* added, bool* lacks_columns) {
  added_ = added;
  cells_.clear();
  begins_.clear();
  for (const Change& change : changes) {
    HAKO_RETURN_IF_ERROR(CheckKey(change.key));
    if (change.cells.size() > TableLimits::kColumnsOfRow)
      return absl::OutOfRangeError(
          absl::StrCat("a row of ", change.cells.size(), " columns exceeds the limit of ", TableLimits::kColumnsOfRow));
    const auto begin = cells_.size();
    begins_.push_back(static_cast<std::uint32_t>(begin));
    bool is_sorted = true;
    for (const Cell& cell : change.cells) {
      const StoredColumn* column = core.catalogue.names().Find(cell.column);
      if (column == nullptr) {
        if (added == nullptr) return *lacks_columns = true, absl::OkStatus();
        HAKO_ASSIGN_OR_RETURN(column, added->Intern(cell.column));
      }
      is_sorted = is_sorted && (cells_.size() == begin || cells_.back().column < column->id);
      cells_.push_back({column->id, cell.value});
    }
    if (is_sorted) continue;
    const auto from = cells_.begin() + static_cast<std::ptrdiff_t>(begin);
    std::stable_sort(from, cells_.end(), [](const CellOf& a, const CellOf& b) { return a.column < b.column; });
    for (auto it = from; it != cells_.end() && it + 1 != cells_.end(); ++it) {
      if (it->column == (it + 1)->column)
        return absl::InvalidArgumentError(absl::StrCat("column '", core.catalogue.names().Get(it->column)->name, "' is given twice"));
    }
  }
  begins_.push_back(static_cast<std::uint32_t>(cells_.size()));
  return absl::OkStatus();
}

Status ChangeSet::Try(TableCore& core, std::span<const Change> changes) {
  core.gate.AssertEntered();
  num_texts_ = 0;
  num_rows_added_ = 0;
  num_changed_ = 0;
  old_.Clear();
  new_.Clear();
  HAKO_RETURN_IF_ERROR(ReadRows(core, changes));
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const auto cells = std::span(cells_).subspan(begins_[i], begins_[i + 1] - begins_[i]);
    const Status status = Apply(core, changes[i], cells, states_[state_of_change_[i]]);
    if (!status.ok()) return WithKey(status, changes[i].key, changes.size() == 1);
  }
  postings_.Clear();
  retired_.clear();
  noted_.clear();
  TakenNumbers taken(core.numbers);
  HAKO_RETURN_IF_ERROR(AddEntries(core, taken));
  Compare();
  if (core.IsInTransaction()) {
    HAKO_RETURN_IF_ERROR(core.changes->BeginStep());
    ChangesInTransaction::Step step{.taken = taken.numbers(), .retired = retired_, .noted = noted_};
    HAKO_RETURN_IF_ERROR(Write(core));
    step.num_rows_added = num_rows_added_;
    core.changes->AddStep(std::move(step));
    taken.Keep();
    return absl::OkStatus();
  }
  HAKO_RETURN_IF_ERROR(Write(core));
  taken.Keep();
  core.numbers.Retire(retired_);
  return absl::OkStatus();
}

// Reads the rows together.
Status ChangeSet::ReadRows(TableCore& core, std::span<const Change> changes) {
  num_states_ = 0;
  state_of_change_.clear();
  const auto add = [this](std::string_view key) {
    if (num_states_ == states_.size()) states_.emplace_back();
    states_[num_states_++].row_key.assign(1, kRowSpace).append(key);
  };
  const auto note = [this](std::size_t i, bool is_there) {
    State& state = states_[i];
    state.had = state.has = is_there;
    if (!is_there) state.old_bytes.clear();
    state.new_bytes = state.old_bytes;
  };
  if (changes.size() == 1) {
    add(changes[0].key);
    state_of_change_.push_back(0);
    const Status status = core.store->FetchTo(states_[0].row_key, &states_[0].old_bytes);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    note(0, status.ok());
    return absl::OkStatus();
  }
  state_of_.clear();
  state_of_.reserve(changes.size());
  for (const Change& change : changes) {
    const auto [found, is_new] = state_of_.try_emplace(change.key, num_states_);
    state_of_change_.push_back(found->second);
    if (is_new) add(change.key);
  }
  keys_.clear();
  for (const State& state : std::span(states_).first(num_states_)) keys_.push_back(state.row_key);
  const auto sink = [this](std::size_t i, std::size_t size) {
    states_[i].old_bytes.resize(size);
    return states_[i].old_bytes.data();
  };
  return core.store->FetchMulti(keys_, sink, note);
}

Status ChangeSet::Apply(TableCore& core, const Change& change, std::span<const CellOf> cells, State& state) {
  using Kind = ChangeKind;
  if (change.only_if != nullptr) {
    const bool matches = state.has && change.only_if->Matches(change.key, RowView(state.new_bytes, &core.catalogue.names()));
    if (change.only_if->IsStopped()) return change.only_if->error();
    if (!matches) return absl::OkStatus();
    ++num_changed_;
  }
  if (change.kind == Kind::kPutKeep && state.has) return PresentError();
  if ((change.kind == Kind::kUpdate || change.kind == Kind::kRemove) && !state.has) return AbsentError();
  if (change.kind == Kind::kRemove) {
    state.has = false;
    state.new_bytes.clear();
    return absl::OkStatus();
  }
  const bool merges = state.has && (change.kind == Kind::kUpdate || change.kind == Kind::kAppend);
  const RowView old_row = merges ? RowView(state.new_bytes, &core.catalogue.names()) : RowView();
  HAKO_RETURN_IF_ERROR(Build(core, change, cells, merges ? &old_row : nullptr, &state.new_bytes));
  state.has = true;
  return absl::OkStatus();
}

// Merges the cells into the old row. If there is none, makes a new row.
Status ChangeSet::Build(TableCore& core, const Change& change, std::span<const CellOf> cells, const RowView* before_row, std::string* out) {
  static constexpr RowView kNoCells;
  const RowView& old_row = before_row == nullptr ? kNoCells : *before_row;
  merged_.clear();
  std::size_t at = 0;
  for (const CellOf& cell : cells) {
    for (; at < old_row.size() && old_row.column(at) < cell.column; ++at) merged_.push_back({old_row.column(at), old_row.value(at)});
    const bool is_there = at < old_row.size() && old_row.column(at) == cell.column;
    const Value before = is_there ? old_row.value(at++) : Value();
    merged_.push_back(cell);
    if (change.kind != ChangeKind::kAppend || before.is_null()) continue;
    if (num_texts_ == texts_.size()) texts_.emplace_back();
    std::string& joined = texts_[num_texts_++];
    HAKO_RETURN_IF_ERROR(CheckValue(core.catalogue.names().Get(cell.column)->name, cell.value));
    joined = before.ToText() + cell.value.ToText();
    merged_.back().value = cell.value.is_untyped() ? Value::Untyped(joined) : Value(joined);
  }
  for (; at < old_row.size(); ++at) merged_.push_back({old_row.column(at), old_row.value(at)});
  HAKO_RETURN_IF_ERROR(CheckRules(core.catalogue, before_row == nullptr));
  builder_.Begin();
  for (const CellOf& cell : merged_) {
    const StoredColumn* const named = core.catalogue.names().Get(cell.column);
    if (named == nullptr) return absl::DataLossError("the row has a column without a name");
    const StoredColumn& column = *named;
    StatusOr<Value> typed = TypedValue(column, cell.value);
    if (!typed.ok()) return typed.status();
    builder_.Add(cell.column, *typed);
    if (builder_.bytes() > TableLimits::kRowSize)
      return TooLargeError(absl::StrCat("a row with column '", column.name, "'"), builder_.bytes(), TableLimits::kRowSize);
  }
  if (builder_.size() > TableLimits::kColumnsOfRow)
    return absl::OutOfRangeError(absl::StrCat("a row of ", builder_.size(), " columns exceeds the limit of ", TableLimits::kColumnsOfRow));
  const std::string_view row = builder_.End();
  out->assign(row);
  return absl::OkStatus();
}

// Adds the defaults of a new row to merged_, which stays in ascending order, and checks columns
// with not_null.
Status ChangeSet::CheckRules(const Catalogue& catalogue, bool is_new) {
  for (const ColumnId id : catalogue.rules()) {
    const StoredColumn& column = *catalogue.names().Get(id);
    const auto it =
        std::lower_bound(merged_.begin(), merged_.end(), id, [](const CellOf& cell, ColumnId wanted) { return cell.column < wanted; });
    const bool is_given = it != merged_.end() && it->column == id;
    if (!is_given && is_new && !column.default_value.get().is_null()) {
      merged_.insert(it, {id, column.default_value.get()});
    } else if (column.not_null && (!is_given || it->value.is_null())) {
      return absl::InvalidArgumentError(absl::StrCat("column '", column.name, "' is not null, and the row has no value of it"));
    }
  }
  return absl::OkStatus();
}

Status ChangeSet::AddEntries(TableCore& core, TakenNumbers& taken) {
  const IndexList& indices = core.catalogue.indices();
  const ColumnNames* const names = &core.catalogue.names();
  const bool has_texts = std::ranges::any_of(indices, [](const Index* index) { return index->is_text(); });
  for (std::size_t i = 0; i < num_states_; ++i) {
    State& state = states_[i];
    state.old_ranges.clear();
    state.new_ranges.clear();
    if (has_texts || NumberOfRow(state.old_bytes)) HAKO_RETURN_IF_ERROR(AddPostings(core, taken, state));
    if (state.had == state.has && state.old_bytes == state.new_bytes) continue;
    const auto add = [&](bool exists, std::string_view bytes, Entries* entries, auto* ranges) -> Status {
      const RowView row = exists ? RowView(bytes, names) : RowView();
      for (const Index* const index : indices) {
        if (index->is_text()) continue;
        const std::size_t from = entries->size();
        if (exists) HAKO_RETURN_IF_ERROR(index->AddEntries(state.key(), row, entries));
        ranges->emplace_back(from, entries->size());
      }
      return absl::OkStatus();
    };
    HAKO_RETURN_IF_ERROR(add(state.had, state.old_bytes, &old_, &state.old_ranges));
    HAKO_RETURN_IF_ERROR(add(state.has, state.new_bytes, &new_, &state.new_ranges));
  }
  return absl::OkStatus();
}

// A row keeps its number. One without a number is in no list yet.
Status ChangeSet::AddPostings(TableCore& core, TakenNumbers& taken, State& state) {
  std::optional<RowNumber> number = NumberOfRow(state.old_bytes);
  const bool was_listed = number.has_value();
  if (number && state.has && !NumberOfRow(state.new_bytes)) SetNumberOfRow(*number, &state.new_bytes);
  if (state.had == state.has && state.old_bytes == state.new_bytes) return absl::OkStatus();
  if (number && !state.has) {
    postings_.RemoveKey(*number, state.key());
    retired_.push_back(*number);
  }
  const ColumnNames* const names = &core.catalogue.names();
  const RowView old_row(state.old_bytes, names);
  const auto has_same_text = [](const Value& a, const Value& b) {
    return a.kind() == b.kind() && (a.is_null() || (a.kind() == Value::Kind::kBytes && a.bytes() == b.bytes()));
  };
  for (const Index* const index : core.catalogue.indices()) {
    if (!index->is_text()) continue;
    if (state.has && !number) {
      HAKO_ASSIGN_OR_RETURN(number, taken.Take(state.key()));
      SetNumberOfRow(*number, &state.new_bytes);
      postings_.AddKey(*number, state.key());
    }
    if (was_listed && index->state() == IndexState::kBuilding)
      core.IsInTransaction() ? noted_.push_back(*number) : index->changed().Add(*number);
    const RowView new_row(state.new_bytes, names);
    const ColumnId column = index->parts()[0].column;
    if (was_listed && state.has && index->DependsOnlyOnColumn() && has_same_text(old_row.Get(column), new_row.Get(column))) continue;
    if (was_listed)
      index->ForEachList(state.key(), old_row,
                         [&](std::string_view list, std::uint32_t position) { postings_.Remove(list, *number, position); });
    const std::size_t before = postings_.num_changes();
    if (state.has)
      index->ForEachList(state.key(), new_row,
                         [&](std::string_view list, std::uint32_t position) { postings_.Add(list, *number, position); });
    HAKO_RETURN_IF_ERROR(index->CheckNumWords(postings_.num_changes() - before));
  }
  return absl::OkStatus();
}

void ChangeSet::Compare() {
  for (auto* const operations : {&unique_removes_, &unique_sets_, &removes_, &sets_}) operations->clear();
  for (std::uint32_t i = 0; i < num_states_; ++i) {
    const State& state = states_[i];
    for (std::size_t k = 0; k < state.old_ranges.size(); ++k) CompareEntries(i, state.old_ranges[k], state.new_ranges[k]);
  }
}

void ChangeSet::CompareEntries(std::uint32_t state, std::pair<std::size_t, std::size_t> before, std::pair<std::size_t, std::size_t> after) {
  auto& [i, old_end] = before;
  auto& [k, new_end] = after;
  while (i < old_end || k < new_end) {
    const int order = i == old_end ? 1 : k == new_end ? -1 : old_.key(i).compare(new_.key(k));
    if (order < 0) {
      (old_.is_unique(i) ? unique_removes_ : removes_).push_back({old_.key(i), old_.value(i), false, true, state});
    } else if (order > 0 || old_.value(i) != new_.value(k)) {
      (new_.is_unique(k) ? unique_sets_ : sets_).push_back({new_.key(k), new_.value(k), true, order == 0, state});
    }
    i += order <= 0 ? 1 : 0;
    k += order >= 0 ? 1 : 0;
  }
}

// If no entries change, one Process suffices.
Status ChangeSet::WriteOne(TableCore& core, const State& state) {
  bool conflicts = false;
  HAKO_RETURN_IF_ERROR(core.store->Process(state.row_key, [&](std::optional<std::string_view> found) {
    conflicts = found.has_value() != state.had || (found && *found != state.old_bytes);
    if (conflicts) return Action::Keep();
    return state.has ? Action::Set(state.new_bytes) : Action::Remove();
  }));
  return conflicts ? MismatchError() : absl::OkStatus();
}

Status ChangeSet::Write(TableCore& core) {
  if (!postings_.IsEmpty()) HAKO_RETURN_IF_ERROR(postings_.Plan(core));
  all_.clear();
  for (const auto* const operations : {&unique_removes_, &unique_sets_, &removes_, &sets_})
    all_.insert(all_.end(), operations->begin(), operations->end());
  keys_.clear();
  std::size_t bytes = 0;
  bool changes = !all_.empty();
  for (std::size_t i = 0; i < num_states_; ++i) {
    const State& state = states_[i];
    keys_.push_back(state.row_key);
    bytes += state.row_key.size() + state.new_bytes.size();
    changes = changes || state.had != state.has || state.old_bytes != state.new_bytes;
    num_rows_added_ += (state.has ? 1 : 0) - (state.had ? 1 : 0);
  }
  if (!changes) return core.store->GetHealth();
  if (num_states_ == 1 && all_.empty() && postings_.size() == 0 && added_ == nullptr) return WriteOne(core, states_[0]);
  const std::size_t num_unique = unique_removes_.size() + unique_sets_.size();
  const std::size_t first_posting = num_states_ + num_unique, first_column = first_posting + postings_.size();
  const auto add_keys = [&](std::span<const Operation> operations) {
    for (const Operation& operation : operations) {
      keys_.push_back(operation.key);
      bytes += operation.key.size() + operation.value.size();
    }
  };
  add_keys(std::span(all_).first(num_unique));
  for (std::size_t i = 0; i < postings_.size(); ++i) {
    keys_.push_back(postings_.key(i));
    bytes += postings_.bytes(i);
  }
  const std::span<const Catalogue::Record> columns = added_ == nullptr ? std::span<const Catalogue::Record>() : added_->records();
  for (const Catalogue::Record& column : columns) keys_.push_back(column.key);
  add_keys(std::span(all_).subspan(num_unique));
  if (keys_.size() > kRecordsMax)
    return absl::OutOfRangeError(absl::StrCat("the changes take ", keys_.size(), " rows and entries of indices, more than the limit of ",
                                              kRecordsMax,
                                              " in one atomic step; make them in parts, those of a query with `limit` or `in batches`"));
  if (bytes > kBytesMax)
    return absl::OutOfRangeError(absl::StrCat("the changes take ", bytes, " bytes, more than the limit of ", kBytesMax,
                                              " in one atomic step; make them in parts, those of a query with `limit` or `in batches`"));
  const Operation* taken = nullptr;
  const auto visit = [&](std::size_t i, std::optional<std::string_view> found) -> std::optional<Action> {
    if (i < num_states_) {
      const State& state = states_[i];
      if (found.has_value() != state.had || (found && *found != state.old_bytes)) return std::nullopt;
      if (state.had == state.has && state.old_bytes == state.new_bytes) return Action::Keep();
      return state.has ? Action::Set(state.new_bytes) : Action::Remove();
    }
    if (i >= first_column && i < first_column + columns.size()) {
      if (i == first_column) added_->Publish();  // from here on only the database can refuse the step
      return Action::Set(*columns[i - first_column].value);
    }
    if (i >= first_posting && i < first_column) return postings_.Visit(i - first_posting, found);
    const bool is_unique = i < first_posting;
    const Operation& operation = all_[is_unique ? i - num_states_ : i - num_states_ - postings_.size() - columns.size()];
    if (is_unique && !IsFree(operation, found)) {
      if (!operation.is_set || operation.is_kept) return Action::Keep();
      taken = &operation;
      return std::nullopt;
    }
    return operation.is_set ? Action::Set(operation.value) : Action::Remove();
  };
  if (!core.IsInTransaction()) core.numbers.Announce(retired_);
  const Status status = core.store->ProcessMulti(Batch<Action>{keys_, visit, first_column}, nullptr);
  if (taken != nullptr) return UniqueError(core, *taken);
  if (status.ok() && added_ != nullptr) added_->Keep();
  return absl::IsAborted(status) ? MismatchError() : status;
}

// A unique entry begins with its row's key.
bool ChangeSet::IsFree(const Operation& operation, std::optional<std::string_view> found) const {
  if (!found) return true;
  const std::string_view key = states_[operation.state].key();
  const std::size_t head = operation.value.size() < found->size() ? operation.value.size() : found->size();
  const std::size_t size = VarintSize(key.size()) + key.size();
  return size <= head && found->substr(0, size) == operation.value.substr(0, size);
}

Status ChangeSet::UniqueError(const TableCore& core, const Operation& operation) const {
  const Index* const index = core.catalogue.IndexOf(operation.key);
  if (index == nullptr) return PresentError();
  std::string columns;
  for (const IndexColumn& part : index->options().columns) absl::StrAppend(&columns, columns.empty() ? "'" : "', '", part.column);
  return absl::AlreadyExistsError(
      absl::StrCat("column ", columns, "': another row has the value, and index ", index->name(), " is unique"));
}

namespace {

// Takes the thread's ChangeSet, or another one if that is in use because a file type of the program
// calls another table.
class ThreadChangeSet {
 public:
  ThreadChangeSet() : set_(Kept().is_used ? std::make_unique<ChangeSet>() : nullptr) { Kept().is_used = true; }
  ThreadChangeSet(const ThreadChangeSet&) = delete;
  ~ThreadChangeSet() {
    if (set_ != nullptr) return;
    if (Kept().set.IsLarge()) Kept().set = ChangeSet();
    Kept().is_used = false;
  }
  ChangeSet& get() { return set_ != nullptr ? *set_ : Kept().set; }

 private:
  struct OfThread {
    ChangeSet set;
    bool is_used = false;
  };
  static OfThread& Kept() {
    thread_local OfThread kept;
    return kept;
  }
  std::unique_ptr<ChangeSet> set_;
};

}  // namespace

namespace {

// A conflict in a transaction shows that its reads no longer hold: its commit would say the same.
Status MakeInTransaction(TableCore& core, ChangeSet& set, std::span<const Change> changes) {
  const WriterGate::Writer writer(core.gate);
  Status status = set.Try(core, changes);
  const bool is_bare = absl::IsAborted(status) && status.message().empty();
  return is_bare ? absl::AbortedError("rows or entries that the transaction has read were changed meanwhile") : status;
}

Status MakeResolved(TableCore& core, ChangeSet& set, std::span<const Change> changes) {
  if (core.IsInTransaction()) return MakeInTransaction(core, set, changes);
  Status status;
  for (int tries = 0;; ++tries) {
    if (tries < ChangeSet::kTriesMax) {
      WriterGate::Writer writer(core.gate);
      status = set.Try(core, changes);
      if (status.ok() && set.num_rows_added() != 0) writer.AddRows(set.num_rows_added());
    } else {
      status = core.gate.RunExclusive([&]() -> Status {
        const Status made = set.Try(core, changes);
        if (made.ok()) core.gate.AddRows(set.num_rows_added());
        if (absl::IsAborted(made)) return absl::DataLossError("the posting lists of a text index do not fit together: Verify says more");
        return made;
      });
    }
    if (!absl::IsAborted(status)) return status;
  }
}

}  // namespace

Status MakeChanges(TableCore& core, std::span<const Change> changes, std::uint64_t* num_changed) HAKO_TRY {
  ThreadChangeSet owner;
  ChangeSet& set = owner.get();
  bool lacks_columns = false;
  HAKO_RETURN_IF_ERROR(set.Resolve(core, changes, nullptr, &lacks_columns));
  Status status;
  if (!lacks_columns) {
    status = MakeResolved(core, set, changes);
  } else {
    const sync::MutexLock lock(core.catalogue.mutex());
    NewColumns added(core.catalogue);
    HAKO_RETURN_IF_ERROR(set.Resolve(core, changes, &added, nullptr));
    if (core.IsInTransaction()) {  // the columns are stored at once, and stay without a row that has them
      HAKO_RETURN_IF_ERROR(core.catalogue.Store(added.records()));
      added.Publish();
      added.Keep();
      HAKO_RETURN_IF_ERROR(set.Resolve(core, changes, nullptr, &lacks_columns));
    }
    status = MakeResolved(core, set, changes);
  }
  if (num_changed != nullptr) *num_changed = set.num_changed();
  return status;
}
HAKO_OR_NO_MEMORY

}  // namespace hako::table
