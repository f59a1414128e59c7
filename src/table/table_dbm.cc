#include "hako/table/table_dbm.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "hako/base/no_memory.h"
#include "hako/dbm/any_part.h"
#include "hako/sync/mutex.h"
#include "hako/table/query_run.h"
#include "hako/table/table_changes.h"
#include "hako/table/table_core.h"
#include "hako/table/typed_value.h"

namespace hako {

using table::Change;
using table::ChangeKind;
using table::TableCore;

namespace {

constexpr ChangeKind kKinds[] = {ChangeKind::kPut, ChangeKind::kPutKeep, ChangeKind::kUpdate, ChangeKind::kAppend, ChangeKind::kRemove};

Status ChangeOne(TableCore& core, ChangeKind kind, std::string_view key, std::span<const Cell> cells) {
  const Change change = {kind, key, cells};
  return table::MakeChanges(core, {&change, 1});
}

Status BrokenRule(std::string_view column, std::string_view key, std::string_view how) {
  return absl::FailedPreconditionError(absl::StrCat("column '", ToAbsl(column), "': row '", ToAbsl(key.substr(0, 64)), ToAbsl(how)));
}

// The tables in key spaces that are open: each has its state in memory once.
class OpenSpaces {
 public:
  static OpenSpaces& Get() {
    static OpenSpaces* const spaces = new OpenSpaces;
    return *spaces;
  }
  bool Add(const void* database, std::string_view name) {
    const sync::MutexLock lock(mutex_);
    return spaces_.emplace(database, name).second;
  }
  void Remove(const void* database, const std::string& name) {
    const sync::MutexLock lock(mutex_);
    spaces_.erase({database, name});
  }

 private:
  sync::Mutex mutex_;
  std::set<std::pair<const void*, std::string>> spaces_ ABSL_GUARDED_BY(mutex_);
};

StatusOr<bool> IsEmpty(internal::AnyDatabase& store) {
  const auto cursor = store.MakeCursor();
  cursor->First();
  HAKO_RETURN_IF_ERROR(cursor->status());
  return !cursor->Valid();
}

// Whether an index makes the column unique.
bool IsUnique(const TableCore& core, ColumnId column) {
  return std::ranges::any_of(core.catalogue.indices(), [column](const table::Index* index) {
    return index->is_unique() && index->parts().size() == 1 && index->parts()[0].column == column &&
           index->parts()[0].kind == IndexKind::kOrdered && index->where().node() == nullptr;
  });
}

}  // namespace

void TableBatch::Clear() {
  bytes_.clear();
  cells_.clear();
  changes_.clear();
}

void TableBatch::Add(int kind, std::string_view key, std::span<const Cell> cells) {
  changes_.push_back({kind, bytes_.size(), key.size(), cells_.size(), cells.size()});
  bytes_.append(key);
  for (const Cell& cell : cells) {
    const bool is_bytes = cell.value.kind() == Value::Kind::kBytes;
    const std::string_view value = is_bytes ? cell.value.bytes() : std::string_view();
    cells_.push_back({bytes_.size(), cell.column.size(), value.size(), cell.value.WithBytes({})});
    bytes_.append(cell.column).append(value);
  }
}

TableDBM::TableDBM(std::unique_ptr<TableCore> core) : core_(std::move(core)) {}

TableDBM::~TableDBM() { (void)Close(); }

StatusOr<std::unique_ptr<TableDBM>> TableDBM::Open(std::unique_ptr<internal::AnyDatabase> store, const TableOptions& options) HAKO_TRY {
  return OpenIn(std::move(store), options, "", [] { return absl::OkStatus(); });
}
HAKO_OR_NO_MEMORY

StatusOr<std::unique_ptr<TableDBM>> TableDBM::OpenIn(std::unique_ptr<internal::AnyDatabase> store, const TableOptions& options,
                                                     std::string_view path, FunctionRef<Status()> open_store) {
  std::unique_ptr<TableDBM> opened(new TableDBM(std::make_unique<TableCore>(std::move(store), options.sort_bytes, options.build_bytes)));
  opened->is_closed_ = true;  // nothing must be stored any more
  HAKO_RETURN_IF_ERROR(open_store());
  const Status status = CatchNoMemory([&] { return opened->Begin(options); });
  opened->is_closed_ = !status.ok();
  if (status.ok()) return opened;
  (void)opened->core_->store->CloseUnkept();
  return path.empty() ? status : Status(status.code(), absl::StrCat(ToAbsl(path), ": ", status.message()));
}

StatusOr<std::unique_ptr<TableDBM>> TableDBM::OpenInSpace(std::unique_ptr<AnyDBM> database, std::string_view name,
                                                          const TableOptions& options) {
  auto space = std::make_unique<internal::AnySpace>(std::move(database), name, false);
  const void* const origin = space->Origin();
  std::string own_name(name);
  if (!OpenSpaces::Get().Add(origin, name))
    return absl::FailedPreconditionError(absl::StrCat("the table in the key space '", ToAbsl(name), "' is open already"));
  auto opened = CatchNoMemory([&] { return Open(std::move(space), options); });
  if (opened.ok())
    (*opened)->space_ = std::move(own_name);
  else
    OpenSpaces::Get().Remove(origin, own_name);
  return opened;
}

const void* TableDBM::Origin() const { return core_->store->Origin(); }
AnyDBM& TableDBM::store() {
  HAKO_ASSERT(!core_->IsInTransaction());
  return *core_->any_store;
}

StatusOr<std::unique_ptr<TableDBM>> TableDBM::InTransaction(std::unique_ptr<internal::AnyDatabase> records, bool is_of_table,
                                                            JoinRef join) {
  HAKO_RETURN_IF_ERROR(core_->CheckWhole("In"));
  if (!is_of_table && !space_.empty())
    records = std::make_unique<internal::AnySpace>(internal::AnyAccess::Own(std::move(records)), space_, true);
  auto changes = std::make_shared<table::ChangesInTransaction>(*core_);
  auto core = std::make_unique<TableCore>(*core_, std::move(records), changes);
  std::unique_ptr<TableDBM> view(new TableDBM(std::move(core)));
  view->is_closed_ = true;  // there is nothing to close
  changes->set_records(&join(changes));
  return view;
}

Status TableDBM::Begin(const TableOptions& options) {
  TableCore& core = *core_;
  HAKO_ASSIGN_OR_RETURN(auto beginning, table::Catalogue::Begin(options.columns));
  if (const auto type = core.store->GetType(); type && *type != kTableType)
    return absl::InvalidArgumentError("the file is a plain tree, not a table: open it as a TreeDBM (dbm=tree)");
  HAKO_ASSIGN_OR_RETURN(const bool is_empty, IsEmpty(*core.store));
  if (is_empty) {
    if (!core.store->IsWritable()) return absl::InvalidArgumentError("the table has no catalogue yet: open it for writing once");
    core.rows_at_open = 0;
    return core.catalogue.Create(options.closed_schema, std::move(beginning));
  }
  HAKO_RETURN_IF_ERROR(core.catalogue.Load());
  std::string count;
  const std::string count_key = table::CatalogueKey('n');
  const Status counted = core.store->FetchTo(count_key, &count);
  if (!counted.ok() && !absl::IsNotFound(counted)) return counted;
  if (count.size() == 8) core.rows_at_open = static_cast<std::int64_t>(LoadBigEndian(count.data()));
  HAKO_RETURN_IF_ERROR(core.numbers.Open());
  if (!core.store->IsWritable()) return absl::OkStatus();
  {
    const sync::MutexLock lock(core.catalogue.mutex());
    HAKO_RETURN_IF_ERROR(table::CompleteIndices(core));
  }
  if (counted.ok()) {  // a stored number would be wrong after a crash
    HAKO_RETURN_IF_ERROR(core.store->Process(count_key, [](std::optional<std::string_view>) { return Action::Remove(); }));
  }
  return absl::OkStatus();
}

Status TableDBM::Close() {
  if (is_closed_) return absl::OkStatus();
  is_closed_ = true;
  Status status;
  if (TableCore& core = *core_; core.store->IsWritable()) {
    const sync::MutexLock lock(core.catalogue.mutex());
    (void)table::RemoveLeftovers(core);
  }
  if (core_->store->IsWritable() && core_->rows_at_open != TableCore::kUnknown && core_->store->GetHealth().ok()) {
    char count[8];
    StoreBigEndian(static_cast<std::uint64_t>(core_->rows_at_open + core_->gate.num_rows()), count);
    status = core_->store->Process(table::CatalogueKey('n'), [&count](std::optional<std::string_view>) {
      return Action::Set({count, sizeof(count)});
    });
  }
  core_->DropCursors();
  const Status closed = core_->store->Close();
  if (!space_.empty()) OpenSpaces::Get().Remove(Origin(), space_);
  return status.ok() ? closed : status;
}

Status TableDBM::Put(StringArg key, std::span<const Cell> cells) { return ChangeOne(*core_, ChangeKind::kPut, key, cells); }
Status TableDBM::PutKeep(StringArg key, std::span<const Cell> cells) { return ChangeOne(*core_, ChangeKind::kPutKeep, key, cells); }
Status TableDBM::Update(StringArg key, std::span<const Cell> cells) { return ChangeOne(*core_, ChangeKind::kUpdate, key, cells); }
Status TableDBM::Append(StringArg key, std::span<const Cell> cells) { return ChangeOne(*core_, ChangeKind::kAppend, key, cells); }
Status TableDBM::Remove(StringArg key) { return ChangeOne(*core_, ChangeKind::kRemove, key, {}); }

Status TableDBM::Write(const TableBatch& batch) HAKO_TRY {
  if (batch.changes_.empty()) return GetHealth();
  const std::string_view bytes = batch.bytes_;
  std::vector<Cell> cells;
  for (const TableBatch::CellPlace& place : batch.cells_) {
    const std::string_view value = bytes.substr(place.begin + place.name_size, place.value_size);
    cells.push_back({bytes.substr(place.begin, place.name_size), place.value.WithBytes(value)});
  }
  std::vector<Change> changes;
  for (const TableBatch::ChangePlace& place : batch.changes_) {
    changes.push_back(
        {kKinds[place.kind], bytes.substr(place.begin, place.key_size), std::span(cells).subspan(place.first_cell, place.num_cells)});
  }
  return table::MakeChanges(*core_, changes);
}
HAKO_OR_NO_MEMORY

Status TableDBM::Get(StringArg key, Row* row) {
  row->set_names(&core_->catalogue.names());
  return core_->FetchRow(key, &row->buffer());
}
StatusOr<Row> TableDBM::Get(StringArg key) HAKO_TRY {
  Row row;
  HAKO_RETURN_IF_ERROR(Get(key, &row));
  return row;
}
HAKO_OR_NO_MEMORY

Status TableDBM::Get(StringArg key, FunctionRef<void(const RowView&)> visitor) HAKO_TRY {
  table::RowBuffer bytes;
  HAKO_RETURN_IF_ERROR(core_->FetchRow(key, &bytes));
  visitor(RowView(bytes.view(), &core_->catalogue.names()));
  return absl::OkStatus();
}
HAKO_OR_NO_MEMORY

StatusOr<bool> TableDBM::Contains(StringArg key) {
  HAKO_RETURN_IF_ERROR(table::CheckKey(key));
  const Status status = core_->store->Fetch(table::RowKeyBuffer(key).view(), [](std::size_t) -> char* { return nullptr; });
  if (!status.ok() && !absl::IsNotFound(status)) return status;
  return status.ok();
}

StatusOr<std::uint64_t> TableDBM::Count() { return core_->CountRows(); }

// Everything that the snapshot knows is read from the records of its moment, as Open reads it, except the number of
// rows, which is noted at the moment.
StatusOr<std::unique_ptr<TableDBM>> TableDBM::Snapshot() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(core_->CheckWhole("Snapshot"));
  TableCore& core = *core_;
  std::unique_ptr<internal::AnyDatabase> store;
  std::int64_t num_rows = TableCore::kUnknown;
  HAKO_RETURN_IF_ERROR(core.gate.RunExclusive([&]() -> Status {
    if (core.is_changing_column)
      return absl::UnavailableError("SetColumn checks the rows of a column: take the snapshot when it has returned");
    HAKO_ASSIGN_OR_RETURN(store, core.store->Snapshot());
    if (core.rows_at_open != TableCore::kUnknown) num_rows = core.rows_at_open + core.gate.num_rows();
    return absl::OkStatus();
  }));
  std::unique_ptr<TableDBM> snapshot(new TableDBM(std::make_unique<TableCore>(std::move(store), core.sort_bytes, core.build_bytes)));
  HAKO_RETURN_IF_ERROR(snapshot->Begin({}));
  if (num_rows != TableCore::kUnknown) snapshot->core_->rows_at_open = num_rows;
  return snapshot;
}
HAKO_OR_NO_MEMORY

StatusOr<ColumnId> TableDBM::FindColumn(StringArg name) const {
  const table::StoredColumn* const column = core_->catalogue.names().Find(name);
  if (column == nullptr) return AbsentError();
  return column->id;
}

std::vector<ColumnInfo> TableDBM::Columns() const {
  std::vector<ColumnInfo> columns;
  const table::ColumnNames& names = core_->catalogue.names();
  for (std::size_t number = 1; number <= names.size(); ++number) {
    const table::StoredColumn* const column = names.Get(static_cast<ColumnId>(number));
    if (column != nullptr) columns.push_back({column->name, column->type, column->not_null, column->default_value});
  }
  return columns;
}

bool TableDBM::HasClosedSchema() const { return core_->catalogue.has_closed_schema(); }

std::vector<IndexInfo> TableDBM::Indices() const {
  std::vector<IndexInfo> infos;
  for (const table::Index* const index : core_->catalogue.indices())
    infos.push_back({index->options(), index->state() == table::IndexState::kReady});
  return infos;
}

// A new column is published once it is stored. Writers obey new rules of an existing column before
// its rows are checked, so a row that passed the check cannot break them later.
Status TableDBM::SetColumn(StringArg name, const ColumnOptions& options) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(core_->CheckWhole("SetColumn"));
  TableCore& core = *core_;
  const sync::MutexLock lock(core.catalogue.mutex());
  (void)table::RemoveLeftovers(core);
  table::NewColumns added(core.catalogue);
  HAKO_ASSIGN_OR_RETURN(const table::StoredColumn* const before, added.Declare(name));
  const bool is_new = core.catalogue.names().Find(name) == nullptr;
  HAKO_ASSIGN_OR_RETURN(table::StoredColumn column, table::MakeColumn(before->id, name, options));
  std::vector<table::Catalogue::Record> records = {table::Catalogue::RecordOf(column)};
  const table::Catalogue::Schema old = core.catalogue.SchemaOf(*before), wanted = core.catalogue.PrepareSchema(std::move(column));
  std::optional<table::Catalogue::AddedIndex> index;
  const auto publish = [&](const table::Catalogue::Schema& schema) {
    core.gate.RunExclusive([&] {
      core.catalogue.mutex().AssertHeld();
      core.gate.AssertNoWriters();
      core.catalogue.Publish(schema);
      core.is_changing_column = &schema == &wanted;
    });
  };
  const auto store_new = [&]() -> Status {
    core.catalogue.mutex().AssertHeld();
    HAKO_ASSIGN_OR_RETURN(const std::optional<std::string> row, table::FirstRow(core));
    if (options.not_null && row) return BrokenRule(name, *row, "' has no value");
    HAKO_RETURN_IF_ERROR(core.catalogue.Store(records));
    core.gate.AssertNoWriters();
    core.catalogue.Publish(wanted);
    return absl::OkStatus();
  };
  if (!is_new) publish(wanted);
  const Status status = CatchNoMemory([&]() -> Status {
    core.catalogue.mutex().AssertHeld();
    if (!is_new) HAKO_RETURN_IF_ERROR(CheckRows(name));
    if (options.unique && !IsUnique(core, before->id)) {
      HAKO_ASSIGN_OR_RETURN(index, core.catalogue.AddIndex(table::UniqueIndexOf(name), added, core.gate));
      HAKO_RETURN_IF_ERROR(table::BuildIndex(core, *index->index));
      records.push_back(table::Catalogue::RecordOf(*index->index, table::IndexState::kReady));
    }
    return is_new ? core.gate.RunExclusive(store_new) : core.catalogue.Store(records);
  });
  if (!status.ok()) {
    added.Withdraw();
    if (index) table::UndoIndex(core, *index);
    if (!is_new) publish(old);
    return status;
  }
  if (!is_new) core.gate.RunExclusive([&] { core.is_changing_column = false; });
  if (index) index->index->set_state(table::IndexState::kReady);
  added.Keep();
  return absl::OkStatus();
}
HAKO_OR_NO_MEMORY

// Checks that all rows obey the rules of a column.
Status TableDBM::CheckRows(std::string_view name) {
  const table::StoredColumn& column = *core_->catalogue.names().Find(name);
  if (column.type == ColumnType::kAny && !column.not_null) return absl::OkStatus();
  Status broken;
  HAKO_RETURN_IF_ERROR(Select().Each([&](std::string_view key, const RowView& row) {
    const Value value = row.Get(column.id);
    const StatusOr<Value> typed = table::TypedValue(column, value);
    const bool is_kept = typed.ok() && typed->kind() == value.kind() && !(value.is_null() && column.not_null);
    if (!is_kept) broken = BrokenRule(column.name, key, value.is_null() ? "' has no value" : "' has a value of another type");
    return is_kept;
  }));
  return broken;
}

// The new columns are published last: until then no row has one, so they can be withdrawn.
Status TableDBM::CreateIndex(const IndexOptions& options, FunctionRef<void(std::uint64_t num_rows)> progress) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(core_->CheckWhole("CreateIndex"));
  TableCore& core = *core_;
  const sync::MutexLock lock(core.catalogue.mutex());
  (void)table::RemoveLeftovers(core);
  table::NewColumns added(core.catalogue);
  IndexOptions stored = options;
  if (!options.where.empty()) {  // with converted literals, because types may change later and entries do not
    const StatusOr<Condition> where = ParseCondition(options.where);
    if (where.ok()) stored.where = table::TypedCondition(*where, core.catalogue.names()).ToText();
  }
  HAKO_ASSIGN_OR_RETURN(const table::Catalogue::AddedIndex made, core.catalogue.AddIndex(stored, added, core.gate));
  const Status built = CatchNoMemory([&]() -> Status {
    core.catalogue.mutex().AssertHeld();
    HAKO_RETURN_IF_ERROR(table::BuildIndex(core, *made.index, progress));
    const table::Catalogue::Record record = table::Catalogue::RecordOf(*made.index, table::IndexState::kReady);
    return core.catalogue.Store({&record, 1});
  });
  if (!built.ok()) {
    added.Withdraw();
    table::UndoIndex(core, made);
    return built;
  }
  added.Publish();
  added.Keep();
  made.index->set_state(table::IndexState::kReady);
  return absl::OkStatus();
}
HAKO_OR_NO_MEMORY

Status TableDBM::DropIndex(StringArg name) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(core_->CheckWhole("DropIndex"));
  TableCore& core = *core_;
  const sync::MutexLock lock(core.catalogue.mutex());
  (void)table::RemoveLeftovers(core);
  for (const auto& index : core.catalogue.all_indices()) {
    if (index->name() != name || index->state() == table::IndexState::kDropped) continue;
    if (table::QueryRun::IsUsedHere(*index))
      return absl::FailedPreconditionError(
          absl::StrCat("a query of this thread uses index ", index->name(), ": drop it once that has ended"));
    return table::DropIndex(core, *index);
  }
  return AbsentError();
}
HAKO_OR_NO_MEMORY

Status TableDBM::Clear() { return RemoveAll().status(); }

StatusOr<std::uint64_t> TableDBM::RemoveAll() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(core_->CheckWhole("Clear"));
  const sync::MutexLock lock(core_->catalogue.mutex());
  HAKO_RETURN_IF_ERROR(core_->CountRows().status());
  std::int64_t count = 0;
  const Status removed = core_->gate.RunExclusive([&]() -> Status {
    WriteBatch batch;
    batch.RemoveRange(std::string{table::kRowSpace}, std::string{table::kNumberSpace + 1});
    HAKO_RETURN_IF_ERROR(core_->store->Write(batch));
    core_->numbers.RetireAll();
    count = core_->rows_at_open + core_->gate.num_rows();
    core_->rows_at_open = -core_->gate.num_rows();
    return absl::OkStatus();
  });
  HAKO_RETURN_IF_ERROR(removed);
  return static_cast<std::uint64_t>(count);
}
HAKO_OR_NO_MEMORY

Status TableDBM::Synchronize(SyncMode mode) {
  HAKO_RETURN_IF_ERROR(core_->CheckWhole("Synchronize"));
  return core_->store->Synchronize(mode);
}
std::uint64_t TableDBM::LastLsn() { return core_->store->LastLsn(); }
Status TableDBM::WaitDurable(std::uint64_t lsn) {
  HAKO_RETURN_IF_ERROR(core_->CheckWhole("WaitDurable"));
  return core_->store->WaitDurable(lsn);
}
Status TableDBM::CopyTo(const std::string& path) {
  HAKO_RETURN_IF_ERROR(core_->CheckWhole("CopyTo"));
  if (!core_->store->GetType()) return absl::UnimplementedError("only a table that has a file of its own is copied");
  return core_->store->CopyTo(path);
}
bool TableDBM::ShouldBeRebuilt() { return core_->store->ShouldBeRebuilt(); }
Status TableDBM::Rebuild() {
  HAKO_RETURN_IF_ERROR(core_->CheckWhole("Rebuild"));
  return core_->store->Rebuild();
}
StatusOr<ScrubProgress> TableDBM::Scrub(const ScrubOptions& options) {
  HAKO_RETURN_IF_ERROR(core_->CheckWhole("Scrub"));
  return core_->store->Scrub(options);
}
Status TableDBM::Verify() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(core_->CheckWhole("Verify"));
  HAKO_RETURN_IF_ERROR(core_->store->Verify());
  return table::VerifyTable(*core_);
}
HAKO_OR_NO_MEMORY
Stats TableDBM::GetStats() { return core_->store->GetStats(); }
Inspection TableDBM::Inspect() { return core_->store->Inspect(); }
bool TableDBM::IsWritable() const { return core_->store->IsWritable(); }
Status TableDBM::GetHealth() const { return core_->store->GetHealth(); }

}  // namespace hako
