#include "hako/table/catalogue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/text/text_encoding.h"

namespace hako::table {
namespace {

constexpr char kFormatVersion = 2;  // 1: indices of texts and of numbers only
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

std::uint16_t NumberIn(std::string_view key) {
  return static_cast<std::uint16_t>(static_cast<unsigned char>(key[2]) << 8 | static_cast<unsigned char>(key[3]));
}

}  // namespace

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

Status Catalogue::Create(bool closed_schema) {
  has_closed_schema_ = closed_schema;
  return Put(CatalogueKey('h'), std::string{kFormatVersion, closed_schema ? '\1' : '\0'});
}

Status Catalogue::LoadColumns(StoreCursor& cursor) {
  const std::string prefix = CatalogueKey('c');
  for (cursor.Jump(prefix); cursor.Valid() && cursor.key().starts_with(prefix); cursor.Next()) {
    const bool fits = cursor.key().size() == 4 && NumberIn(cursor.key()) != 0 && NumberIn(cursor.key()) <= TableLimits::kColumns;
    std::optional<StoredColumn> column = fits ? DecodeColumn(ColumnId{NumberIn(cursor.key())}, cursor.value()) : std::nullopt;
    if (!column || static_cast<std::size_t>(column->id) != names_.size() + 1 || names_.Find(column->name) != nullptr)
      return absl::DataLossError("the record of a column is damaged");
    names_.Add(*std::move(column));
  }
  PublishRules();
  return cursor.status();
}

Status Catalogue::LoadIndices(StoreCursor& cursor) {
  const std::string prefix = CatalogueKey('i');
  IndexList list;
  for (cursor.Jump(prefix); cursor.Valid() && cursor.key().starts_with(prefix); cursor.Next()) {
    if (cursor.key().size() != 4) return absl::DataLossError("the key of an index is damaged");
    const std::uint16_t number = NumberIn(cursor.key());
    HAKO_ASSIGN_OR_RETURN(auto record, Index::Decode(cursor.value()));
    HAKO_ASSIGN_OR_RETURN(auto index, Index::Make(number, std::move(record.first), record.second, names_));
    if (record.second != IndexState::kDropped) list.push_back(index.get());
    all_indices_.push_back(std::move(index));
    next_index_ = static_cast<std::uint16_t>(number + 1);
  }
  Publish(std::move(list));
  return cursor.status();
}

const Index* Catalogue::FindIndex(std::string_view name) const {
  for (const Index* const index : indices()) {
    if (index->name() == name) return index;
  }
  return nullptr;
}

Status Catalogue::Put(const std::string& key, std::string_view record) {
  return store_.Process(key, [record](std::optional<std::string_view>) { return Action::Set(record); });
}

void Catalogue::Publish(IndexList list) {
  all_lists_.push_back(std::make_unique<IndexList>(std::move(list)));
  indices_.store(all_lists_.back().get(), std::memory_order_release);
}

void Catalogue::PublishRules() {
  auto rules = std::make_unique<RuleList>();
  for (std::size_t number = 1; number <= names_.size(); ++number) {
    const StoredColumn& column = *names_.Get(static_cast<ColumnId>(number));
    if (column.not_null || !column.default_value.get().is_null()) rules->push_back(column.id);
  }
  if (*rules == this->rules()) return;
  all_rules_.push_back(std::move(rules));
  rules_.store(all_rules_.back().get(), std::memory_order_release);
}

StatusOr<const StoredColumn*> Catalogue::Intern(std::string_view name) {
  if (const StoredColumn* const column = names_.Find(name)) return column;
  const sync::MutexLock lock(mutex_);
  if (names_.Find(name) == nullptr && has_closed_schema_)
    return absl::InvalidArgumentError(absl::StrCat("the table has no column '", ToAbsl(name), "', and takes no others"));
  return InternLocked(name);
}

StatusOr<const StoredColumn*> Catalogue::InternLocked(std::string_view name) {
  if (const StoredColumn* const column = names_.Find(name)) return column;
  if (name.empty()) return absl::InvalidArgumentError("a column needs a name");
  if (name == kKeyName)
    return absl::InvalidArgumentError("a column may not be named 'key': that is the primary key in statements and results");
  if (name.size() > TableLimits::kColumnName) {
    return TooLargeError(absl::StrCat("the name of column '", ToAbsl(name.substr(0, 20)), "...'"), name.size(), TableLimits::kColumnName);
  }
  if (!text::IsUtf8(name)) return absl::InvalidArgumentError("the name of a column is not UTF-8");
  if (names_.size() >= TableLimits::kColumns)
    return absl::OutOfRangeError(absl::StrCat("column '", ToAbsl(name), "': the table has ", TableLimits::kColumns, " columns, its limit"));
  StoredColumn column{.id = static_cast<ColumnId>(names_.size() + 1), .name = std::string(name)};
  HAKO_RETURN_IF_ERROR(Put(CatalogueKey('c', static_cast<std::uint16_t>(column.id)), EncodeColumn(column)));
  names_.Add(std::move(column));
  return names_.Find(name);
}

Status Catalogue::ReplaceColumn(StoredColumn column, WriterGate& gate) {
  HAKO_RETURN_IF_ERROR(Put(CatalogueKey('c', static_cast<std::uint16_t>(column.id)), EncodeColumn(column)));
  gate.RunExclusive([&] {
    mutex_.AssertHeld();
    names_.Add(std::move(column));
    PublishRules();
  });
  return absl::OkStatus();
}

StatusOr<Index*> Catalogue::AddIndex(IndexOptions options, WriterGate& gate) {
  if (indices().size() >= TableLimits::kIndices)
    return absl::OutOfRangeError(absl::StrCat("the table has ", TableLimits::kIndices, " indices, its limit"));
  if (next_index_ == 0) return absl::OutOfRangeError("65,535 indices have been created: no number is left");
  HAKO_ASSIGN_OR_RETURN(auto index, Index::Make(next_index_, std::move(options), IndexState::kBuilding, names_));
  if (FindIndex(index->name()) != nullptr) return absl::AlreadyExistsError(absl::StrCat("the table has an index ", index->name()));
  HAKO_RETURN_IF_ERROR(Put(CatalogueKey('i', index->number()), index->Encode(IndexState::kBuilding)));
  ++next_index_;
  IndexList list = indices();
  list.push_back(index.get());
  all_indices_.push_back(std::move(index));
  gate.RunExclusive([&] {
    mutex_.AssertHeld();
    Publish(std::move(list));
  });
  return all_indices_.back().get();
}

Status Catalogue::SetState(Index& index, IndexState state) {
  HAKO_RETURN_IF_ERROR(Put(CatalogueKey('i', index.number()), index.Encode(state)));
  index.set_state(state);
  return absl::OkStatus();
}

void Catalogue::Unlist(const Index& index, WriterGate& gate) {
  IndexList list = indices();
  list.erase(std::remove(list.begin(), list.end(), &index), list.end());
  gate.RunExclusive([&] {
    mutex_.AssertHeld();
    Publish(std::move(list));
  });
}

Status Catalogue::RemoveRecord(const Index& index) {
  return store_.Process(CatalogueKey('i', index.number()), [](std::optional<std::string_view>) { return Action::Remove(); });
}

}  // namespace hako::table
