#include "hako/table/catalogue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/table/typed_value.h"
#include "hako/text/text_encoding.h"

namespace hako::table {
namespace {

constexpr char kFormatVersion = 4;  // 1: indices of texts and of numbers only; 2: words of ASCII folded; 3: no posting lists
constexpr unsigned kNotNull = 1, kHasDefault = 2;

// type, flags, length of the name, name, kind and bytes of the default
std::string EncodeColumn(const StoredColumn& column) {
  const Value value = column.default_value.get();
  std::string record;
  record.push_back(static_cast<char>(column.type));
  record.push_back(static_cast<char>((column.not_null ? kNotNull : 0) | (value.is_null() ? 0 : kHasDefault)));
  record.push_back(static_cast<char>(column.name.size()));
  record.append(column.name);
  if (!value.is_null()) {
    RowBuilder builder;
    builder.Begin();
    builder.Add(column.id, value);
    record.append(builder.End());
  }
  return record;
}

// Checks whether a table with this many columns can have another one of this name.
Status CheckNewName(std::string_view name, std::size_t num_columns) {
  if (name.empty()) return absl::InvalidArgumentError("a column needs a name");
  if (name == kKeyName)
    return absl::InvalidArgumentError("a column may not be named 'key': that is the primary key in statements and results");
  if (name.size() > TableLimits::kColumnName) {
    return TooLargeError(absl::StrCat("the name of column '", ToAbsl(name.substr(0, 20)), "...'"), name.size(), TableLimits::kColumnName);
  }
  if (!text::IsUtf8(name)) return absl::InvalidArgumentError("the name of a column is not UTF-8");
  if (num_columns < TableLimits::kColumns) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("column '", ToAbsl(name), "': the table has ", TableLimits::kColumns, " columns, its limit"));
}

Status TooManyIndicesError() { return absl::OutOfRangeError(absl::StrCat("the table has ", TableLimits::kIndices, " indices, its limit")); }

}  // namespace

StatusOr<StoredColumn> MakeColumn(ColumnId id, std::string_view name, const ColumnOptions& options) {
  StoredColumn column{.id = id, .name = std::string(name), .type = options.type, .not_null = options.not_null};
  HAKO_ASSIGN_OR_RETURN(const Value typed, TypedValue(column, options.default_value.get()));
  column.default_value = OwnedValue(typed);
  return column;
}

std::optional<StoredColumn> DecodeColumn(ColumnId id, std::string_view record) {
  if (record.size() < 4) return std::nullopt;
  StoredColumn column{.id = id, .name = {}, .type = static_cast<ColumnType>(record[0])};
  const auto flags = static_cast<unsigned char>(record[1]);
  const auto size = static_cast<std::size_t>(static_cast<unsigned char>(record[2]));
  if (column.type > ColumnType::kBytes || size == 0 || size > record.size() - 3) return std::nullopt;
  column.name = record.substr(3, size);
  if (!text::IsUtf8(column.name)) return std::nullopt;
  column.not_null = (flags & kNotNull) != 0;
  if ((flags & kHasDefault) != 0) column.default_value = OwnedValue(RowView(record.substr(3 + size), nullptr).Get(id));
  return column;
}

IndexOptions UniqueIndexOf(std::string_view column) {
  return {.name = {}, .columns = {{std::string(column), IndexKind::kOrdered}}, .unique = true};
}

Status Catalogue::Load() {
  std::string header;
  if (const Status read = store_.FetchTo(CatalogueKey('h'), &header); !read.ok() && !absl::IsNotFound(read)) return read;
  if (header.empty()) return absl::DataLossError("the header of the table is damaged");
  if (header[0] != kFormatVersion)
    return absl::UnimplementedError(absl::StrCat("the table has format version ", static_cast<int>(header[0]), "; this hako reads version ",
                                                 static_cast<int>(kFormatVersion),
                                                 ": export its rows with the hako that wrote it, and import them"));
  has_closed_schema_ = header.size() > 1 && header[1] != 0;
  const auto cursor = store_.MakeCursor();
  const sync::MutexLock lock(mutex_);
  HAKO_RETURN_IF_ERROR(LoadColumns(*cursor));
  return LoadIndices(*cursor);
}

StatusOr<Catalogue::Beginning> Catalogue::Begin(std::span<const std::pair<std::string, ColumnOptions>> columns) {
  Beginning beginning;
  const auto find = [&beginning](std::string_view name) -> const StoredColumn* {
    for (const StoredColumn& column : beginning.columns) {
      if (column.name == name) return &column;
    }
    return nullptr;
  };
  for (const auto& [name, options] : columns) {
    if (find(name) != nullptr) return absl::InvalidArgumentError(absl::StrCat("column '", name, "' is given twice"));
    HAKO_RETURN_IF_ERROR(CheckNewName(name, beginning.columns.size()));
    HAKO_ASSIGN_OR_RETURN(StoredColumn column, MakeColumn(static_cast<ColumnId>(beginning.columns.size() + 1), name, options));
    beginning.columns.push_back(std::move(column));
    if (!options.unique) continue;
    const auto number = static_cast<std::uint16_t>(beginning.indices.size() + 1);
    if (number > TableLimits::kIndices) return TooManyIndicesError();
    HAKO_ASSIGN_OR_RETURN(auto index, Index::Make(number, UniqueIndexOf(name), IndexState::kReady, find));
    beginning.indices.push_back(std::move(index));
  }
  return beginning;
}

Status Catalogue::Create(bool closed_schema, Beginning beginning) {
  const sync::MutexLock lock(mutex_);
  std::vector<Record> records = {HeaderOf(closed_schema)};
  for (const StoredColumn& column : beginning.columns) records.push_back(RecordOf(column));
  for (const auto& index : beginning.indices) records.push_back(RecordOf(*index, IndexState::kReady));
  for (StoredColumn& column : beginning.columns) names_.Add(std::move(column));
  rules_.store(RulesWith(nullptr), std::memory_order_release);
  for (auto& index : beginning.indices) {
    all_indices_.push_back(std::move(index));
    indices_.store(Keep(*all_indices_.back(), true), std::memory_order_release);
  }
  next_index_ = static_cast<std::uint16_t>(all_indices_.size() + 1);
  has_closed_schema_ = closed_schema;
  return Store(records);
}

Status Catalogue::LoadColumns(internal::AnyCursor& cursor) {
  const std::string prefix = CatalogueKey('c');
  for (cursor.Jump(prefix); cursor.Valid() && cursor.key().starts_with(prefix); cursor.Next()) {
    const bool fits =
        cursor.key().size() == 4 && CatalogueNumber(cursor.key()) != 0 && CatalogueNumber(cursor.key()) <= TableLimits::kColumns;
    std::optional<StoredColumn> column = fits ? DecodeColumn(ColumnId{CatalogueNumber(cursor.key())}, cursor.value()) : std::nullopt;
    if (!column || names_.Find(column->name) != nullptr) return absl::DataLossError("the record of a column is damaged");
    names_.Add(*std::move(column));
  }
  rules_.store(RulesWith(nullptr), std::memory_order_release);
  return cursor.status();
}

Status Catalogue::LoadIndices(internal::AnyCursor& cursor) {
  const std::string prefix = CatalogueKey('i');
  for (cursor.Jump(prefix); cursor.Valid() && cursor.key().starts_with(prefix); cursor.Next()) {
    if (cursor.key().size() != 4) return absl::DataLossError("the key of an index is damaged");
    const std::uint16_t number = CatalogueNumber(cursor.key());
    HAKO_ASSIGN_OR_RETURN(auto record, Index::Decode(cursor.value()));
    HAKO_ASSIGN_OR_RETURN(auto index, Index::Make(number, std::move(record.options), record.state,
                                                  [this](std::string_view name) { return names_.Find(name); }));
    index->set_tables(std::move(record.tables));
    if (record.state == IndexState::kReady && index->IsOutdated()) index->set_state(IndexState::kBuilding);
    all_indices_.push_back(std::move(index));
    if (record.state != IndexState::kDropped) indices_.store(Keep(*all_indices_.back(), true), std::memory_order_release);
    next_index_ = static_cast<std::uint16_t>(number + 1);
  }
  return cursor.status();
}

const Index* Catalogue::FindIndex(std::string_view name) const {
  for (const Index* const index : indices()) {
    if (index->name() == name) return index;
  }
  return nullptr;
}

Status Catalogue::Store(std::span<const Record> records) {
  std::vector<std::string_view> keys;
  for (const Record& record : records) keys.push_back(record.key);
  const auto visit = [records](std::size_t i, std::optional<std::string_view>) -> std::optional<Action> {
    return records[i].value ? Action::Set(*records[i].value) : Action::Remove();
  };
  return store_.ProcessMulti(Batch<Action>{keys, visit, 0}, nullptr);
}

Catalogue::Record Catalogue::HeaderOf(bool closed_schema) {
  return {CatalogueKey('h'), std::string{kFormatVersion, closed_schema ? '\1' : '\0'}};
}
Catalogue::Record Catalogue::RecordOf(const StoredColumn& column) {
  return {CatalogueKey('c', static_cast<std::uint16_t>(column.id)), EncodeColumn(column)};
}
Catalogue::Record Catalogue::RecordOf(const Index& index, IndexState state) {
  return {CatalogueKey('i', index.number()), index.Encode(state)};
}

// Makes the present list with this index at its end, or without it.
const IndexList* Catalogue::Keep(const Index& index, bool is_listed) {
  auto list = std::make_unique<IndexList>();
  for (const Index* const one : indices()) {
    if (one != &index) list->push_back(one);
  }
  if (is_listed) list->push_back(&index);
  all_lists_.push_back(std::move(list));
  return all_lists_.back().get();
}

void Catalogue::List(const IndexList* list, WriterGate& gate) {
  gate.RunExclusive([&] { indices_.store(list, std::memory_order_release); });
}

// Makes the rules in which this column replaces the one of the same number.
const RuleList* Catalogue::RulesWith(const StoredColumn* column) {
  auto rules = std::make_unique<RuleList>();
  const std::size_t end = std::max(names_.size(), column == nullptr ? 0 : static_cast<std::size_t>(column->id));
  for (std::size_t number = 1; number <= end; ++number) {
    const auto id = static_cast<ColumnId>(number);
    const StoredColumn* const one = column != nullptr && column->id == id ? column : names_.Get(id);
    if (one != nullptr && (one->not_null || !one->default_value.get().is_null())) rules->push_back(id);
  }
  if (*rules == this->rules()) return rules_.load(std::memory_order_relaxed);
  all_rules_.push_back(std::move(rules));
  return all_rules_.back().get();
}

Catalogue::Schema Catalogue::PrepareSchema(StoredColumn column) {
  const StoredColumn* const prepared = names_.Prepare(std::move(column));
  return {prepared, RulesWith(prepared)};
}

void Catalogue::Publish(const Schema& schema) noexcept {
  names_.Publish(schema.column);
  rules_.store(schema.rules, std::memory_order_release);
  schema_number_.fetch_add(1, std::memory_order_acq_rel);
}

StatusOr<Catalogue::AddedIndex> Catalogue::AddIndex(const IndexOptions& options, NewColumns& added, WriterGate& gate) {
  if (indices().size() >= TableLimits::kIndices) return TooManyIndicesError();
  if (next_index_ == 0) return absl::OutOfRangeError("65,535 indices have been created: no number is left");
  HAKO_ASSIGN_OR_RETURN(const std::vector<std::string> columns, Index::ColumnsOf(options));
  for (const std::string& column : columns) HAKO_RETURN_IF_ERROR(added.Intern(column).status());
  HAKO_ASSIGN_OR_RETURN(
      auto made, Index::Make(next_index_, options, IndexState::kBuilding, [&added](std::string_view name) { return added.Find(name); }));
  if (FindIndex(made->name()) != nullptr)
    return absl::AlreadyExistsError(absl::StrCat("the table has an index ", made->name(), ": give this one another name"));
  std::vector<Record> records = added.records();
  records.push_back(RecordOf(*made, IndexState::kBuilding));
  const AddedIndex result = {made.get(), indices_.load(std::memory_order_relaxed)};
  const IndexList* const list = Keep(*made, true);
  all_indices_.reserve(all_indices_.size() + 1);
  HAKO_RETURN_IF_ERROR(Store(records));
  all_indices_.push_back(std::move(made));
  ++next_index_;
  List(list, gate);
  return result;
}

StatusOr<const StoredColumn*> NewColumns::Intern(std::string_view name) {
  if (catalogue_.has_closed_schema() && Find(name) == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("the table has no column '", ToAbsl(name), "', and takes no others"));
  return Declare(name);
}

StatusOr<const StoredColumn*> NewColumns::Declare(std::string_view name) {
  if (const StoredColumn* const column = Find(name)) return column;
  const std::size_t count = catalogue_.names_.size() + columns_.size();
  HAKO_RETURN_IF_ERROR(CheckNewName(name, count));
  StoredColumn column{.id = static_cast<ColumnId>(count + 1), .name = std::string(name)};
  records_.push_back(Catalogue::RecordOf(column));
  columns_.push_back(nullptr);
  columns_.back() = catalogue_.names_.Prepare(std::move(column));
  by_name_.emplace(columns_.back()->name, columns_.back());
  return columns_.back();
}

const StoredColumn* NewColumns::Find(std::string_view name) const {
  if (const StoredColumn* const column = catalogue_.names_.Find(name)) return column;
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

}  // namespace hako::table
