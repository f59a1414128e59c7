#include "hako/table/table_dbm.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/no_memory.h"
#include "hako/table/table_core.h"
#include "hako/table/typed_value.h"

namespace hako {

using table::Change;
using table::TableCore;

namespace {

constexpr Change::Kind kKinds[] = {Change::Kind::kPut, Change::Kind::kPutKeep, Change::Kind::kUpdate, Change::Kind::kAppend,
                                   Change::Kind::kRemove};

Status ChangeOne(TableCore& core, Change::Kind kind, std::string_view key, std::span<const Cell> cells) {
  const Change change = {kind, key, cells};
  return table::MakeChanges(core, {&change, 1});
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

StatusOr<std::unique_ptr<TableDBM>> TableDBM::Open(std::unique_ptr<table::TableStore> store, const TableOptions& options) HAKO_TRY {
  std::unique_ptr<TableDBM> opened(new TableDBM(std::make_unique<TableCore>(std::move(store), options.sort_bytes)));
  if (Status status = opened->Begin(options); !status.ok()) {
    opened->is_closed_ = true;  // nothing of it is to be stored
    (void)opened->core_->store->Close();
    return status;
  }
  return opened;
}
HAKO_OR_NO_MEMORY

Status TableDBM::Begin(const TableOptions& options) {
  TableCore& core = *core_;
  if (const auto type = core.store->GetType(); type && *type != kTableType)
    return absl::InvalidArgumentError("the file is a plain tree, not a table");
  if (core.store->Count() == 0) {
    if (!core.store->IsWritable()) return absl::InvalidArgumentError("the table has no catalogue yet: open it for writing once");
    return BeginNew(options);
  }
  HAKO_RETURN_IF_ERROR(core.catalogue.Load());
  std::string count;
  const std::string count_key = table::CatalogueKey('n');
  const Status counted = core.store->FetchTo(count_key, &count);
  if (!counted.ok() && !absl::IsNotFound(counted)) return counted;
  if (count.size() == 8) core.rows_at_open = static_cast<std::int64_t>(LoadBigEndian(count.data()));
  if (!core.store->IsWritable()) return absl::OkStatus();
  if (counted.ok()) {  // it would be wrong after a crash
    HAKO_RETURN_IF_ERROR(core.store->Process(count_key, [](std::optional<std::string_view>) { return Action::Remove(); }));
  }
  return Complete();
}

Status TableDBM::BeginNew(const TableOptions& options) {
  core_->rows_at_open = 0;
  HAKO_RETURN_IF_ERROR(core_->catalogue.Create(options.closed_schema));
  for (const auto& [name, column] : options.columns) HAKO_RETURN_IF_ERROR(SetColumn(name, column));
  return absl::OkStatus();
}

// What a crash has cut short.
Status TableDBM::Complete() {
  const sync::MutexLock lock(core_->catalogue.mutex());
  for (std::size_t i = 0; i < core_->catalogue.all_indices().size(); ++i) {
    table::Index& index = *core_->catalogue.all_indices()[i];
    if (index.state() == table::IndexState::kDropped) HAKO_RETURN_IF_ERROR(table::DropIndex(*core_, index));
    if (index.state() != table::IndexState::kBuilding) continue;
    const Status built = table::BuildIndex(*core_, index);
    if (absl::IsAlreadyExists(built)) {  // it was to be unique
      HAKO_RETURN_IF_ERROR(table::DropIndex(*core_, index));
    } else {
      HAKO_RETURN_IF_ERROR(built);
    }
  }
  return absl::OkStatus();
}

Status TableDBM::Close() {
  if (is_closed_) return absl::OkStatus();
  is_closed_ = true;
  Status status;
  if (core_->store->IsWritable() && core_->rows_at_open != TableCore::kUnknown && core_->store->GetHealth().ok()) {
    char count[8];
    StoreBigEndian(static_cast<std::uint64_t>(core_->rows_at_open + core_->gate.num_rows()), count);
    status = core_->store->Process(table::CatalogueKey('n'), [&count](std::optional<std::string_view>) {
      return Action::Set({count, sizeof(count)});
    });
  }
  const Status closed = core_->store->Close();
  return status.ok() ? closed : status;
}

Status TableDBM::Put(std::string_view key, std::span<const Cell> cells) { return ChangeOne(*core_, Change::Kind::kPut, key, cells); }
Status TableDBM::PutKeep(std::string_view key, std::span<const Cell> cells) {
  return ChangeOne(*core_, Change::Kind::kPutKeep, key, cells);
}
Status TableDBM::Update(std::string_view key, std::span<const Cell> cells) { return ChangeOne(*core_, Change::Kind::kUpdate, key, cells); }
Status TableDBM::Append(std::string_view key, std::span<const Cell> cells) { return ChangeOne(*core_, Change::Kind::kAppend, key, cells); }
Status TableDBM::Remove(std::string_view key) { return ChangeOne(*core_, Change::Kind::kRemove, key, {}); }

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

Status TableDBM::Get(std::string_view key, Row* row) {
  row->set_names(&core_->catalogue.names());
  return core_->FetchRow(key, &row->buffer());
}
StatusOr<Row> TableDBM::Get(std::string_view key) HAKO_TRY {
  Row row;
  HAKO_RETURN_IF_ERROR(Get(key, &row));
  return row;
}
HAKO_OR_NO_MEMORY

Status TableDBM::Get(std::string_view key, FunctionRef<void(const RowView&)> visitor) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(table::CheckKey(key));
  char usual[1024];
  std::string longer;
  std::string_view bytes;
  HAKO_RETURN_IF_ERROR(core_->store->Fetch(table::RowKeyBuffer(key).view(), [&](std::size_t size) {
    if (size > sizeof(usual)) longer.resize(size);
    char* const out = size > sizeof(usual) ? longer.data() : usual;
    bytes = {out, size};
    return out;
  }));
  visitor(RowView(bytes, &core_->catalogue.names()));
  return absl::OkStatus();
}
HAKO_OR_NO_MEMORY

StatusOr<bool> TableDBM::Contains(std::string_view key) {
  HAKO_RETURN_IF_ERROR(table::CheckKey(key));
  const Status status = core_->store->Fetch(table::RowKeyBuffer(key).view(), [](std::size_t) -> char* { return nullptr; });
  if (!status.ok() && !absl::IsNotFound(status)) return status;
  return status.ok();
}

StatusOr<std::uint64_t> TableDBM::Count() { return core_->CountRows(); }

StatusOr<ColumnId> TableDBM::FindColumn(std::string_view name) const {
  const table::StoredColumn* const column = core_->catalogue.names().Find(name);
  if (column == nullptr) return AbsentError();
  return column->id;
}

std::vector<ColumnInfo> TableDBM::Columns() const {
  std::vector<ColumnInfo> columns;
  const table::ColumnNames& names = core_->catalogue.names();
  for (std::size_t number = 1; number <= names.size(); ++number) {
    const table::StoredColumn& column = *names.Get(static_cast<ColumnId>(number));
    columns.push_back({column.name, column.type, column.not_null, column.default_value});
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

Status TableDBM::SetColumn(std::string_view name, const ColumnOptions& options) HAKO_TRY {
  {
    const sync::MutexLock lock(core_->catalogue.mutex());
    HAKO_ASSIGN_OR_RETURN(const table::StoredColumn* const before, core_->catalogue.InternLocked(name));
    table::StoredColumn column{.id = before->id, .name = before->name, .type = options.type, .not_null = options.not_null};
    HAKO_ASSIGN_OR_RETURN(const Value typed, table::TypedValue(column, options.default_value.get()));
    column.default_value = typed;
    // Writers keep the rules from here on, so rows that are found to keep them go on to do so.
    HAKO_RETURN_IF_ERROR(core_->catalogue.ReplaceColumn(std::move(column), core_->gate));
    if (const Status checked = CheckRows(name); !checked.ok()) {
      HAKO_RETURN_IF_ERROR(core_->catalogue.ReplaceColumn(*before, core_->gate));
      return checked;
    }
  }
  return options.unique ? CreateIndex({.name = {}, .columns = {{std::string(name), IndexKind::kOrdered}}, .unique = true})
                        : absl::OkStatus();
}
HAKO_OR_NO_MEMORY

// Whether all rows keep the rules of a column.
Status TableDBM::CheckRows(std::string_view name) {
  const table::StoredColumn& column = *core_->catalogue.names().Find(name);
  if (column.type == ColumnType::kAny && !column.not_null) return absl::OkStatus();
  Status broken;
  HAKO_RETURN_IF_ERROR(Select().Each([&](std::string_view key, const RowView& row) {
    const Value value = row.Get(column.id);
    const StatusOr<Value> typed = table::TypedValue(column, value);
    const bool is_kept = typed.ok() && typed->kind() == value.kind() && !(value.is_null() && column.not_null);
    if (!is_kept)
      broken = absl::FailedPreconditionError(absl::StrCat("column '", column.name, "': row '", ToAbsl(key.substr(0, 64)),
                                                          value.is_null() ? "' has no value" : "' has a value of another type"));
    return is_kept;
  }));
  return broken;
}

Status TableDBM::CreateIndex(const IndexOptions& options) HAKO_TRY {
  const sync::MutexLock lock(core_->catalogue.mutex());
  for (const IndexColumn& part : options.columns) HAKO_RETURN_IF_ERROR(core_->catalogue.InternLocked(part.column).status());
  for (const std::string& column : options.covering) HAKO_RETURN_IF_ERROR(core_->catalogue.InternLocked(column).status());
  IndexOptions stored = options;
  if (!options.where.empty()) {  // with the literals as they are compared: types may change later, entries do not
    const StatusOr<Condition> where = ParseCondition(options.where);
    if (where.ok()) stored.where = table::TypedCondition(*where, core_->catalogue.names()).ToText();
  }
  HAKO_ASSIGN_OR_RETURN(table::Index* const index, core_->catalogue.AddIndex(std::move(stored), core_->gate));
  const Status built = table::BuildIndex(*core_, *index);
  if (!built.ok()) (void)table::DropIndex(*core_, *index);
  return built;
}
HAKO_OR_NO_MEMORY

Status TableDBM::DropIndex(std::string_view name) HAKO_TRY {
  const sync::MutexLock lock(core_->catalogue.mutex());
  for (const auto& index : core_->catalogue.all_indices()) {
    if (index->name() == name && index->state() != table::IndexState::kDropped) return table::DropIndex(*core_, *index);
  }
  return AbsentError();
}
HAKO_OR_NO_MEMORY

Status TableDBM::Clear() HAKO_TRY {
  const sync::MutexLock lock(core_->catalogue.mutex());
  HAKO_RETURN_IF_ERROR(core_->CountRows().status());
  return core_->gate.RunExclusive([&]() -> Status {
    HAKO_RETURN_IF_ERROR(core_->store->RemoveTogether({table::kRowSpace}, {table::kEntrySpace + 1}));
    core_->rows_at_open = -core_->gate.num_rows();
    return absl::OkStatus();
  });
}
HAKO_OR_NO_MEMORY

Status TableDBM::Synchronize(SyncMode mode) { return core_->store->Synchronize(mode); }
std::uint64_t TableDBM::LastLsn() { return core_->store->LastLsn(); }
Status TableDBM::WaitDurable(std::uint64_t lsn) { return core_->store->WaitDurable(lsn); }
Status TableDBM::CopyTo(const std::string& path) { return core_->store->CopyTo(path); }
bool TableDBM::ShouldBeRebuilt() { return core_->store->ShouldBeRebuilt(); }
Status TableDBM::Rebuild() { return core_->store->Rebuild(); }
StatusOr<ScrubProgress> TableDBM::Scrub(const ScrubOptions& options) { return core_->store->Scrub(options); }
Status TableDBM::Verify() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(core_->store->Verify());
  return table::VerifyTable(*core_);
}
HAKO_OR_NO_MEMORY
Stats TableDBM::GetStats() { return core_->store->GetStats(); }
Inspection TableDBM::Inspect() { return core_->store->Inspect(); }
bool TableDBM::IsWritable() const { return core_->store->IsWritable(); }
Status TableDBM::GetHealth() const { return core_->store->GetHealth(); }

}  // namespace hako
