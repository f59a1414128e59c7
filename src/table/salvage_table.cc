#include "hako/table/salvage_table.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/base/no_memory.h"
#include "hako/dbm/salvage.h"
#include "hako/table/catalogue.h"
#include "hako/table/index.h"
#include "hako/table/posting_block.h"
#include "hako/table/table_dbm.h"

namespace hako {
namespace table {
namespace {

class Repair {
 public:
  Repair(internal::AnyDatabase& store, SalvageReport& report) : store_(store), cursor_(store.MakeCursor()), report_(report) {}

  Status Run() {
    was_undamaged_ = report_.IsComplete();
    ShowRows();
    HAKO_RETURN_IF_ERROR(ReadHeader());
    HAKO_RETURN_IF_ERROR(ReadColumns());
    HAKO_RETURN_IF_ERROR(ReadRows());
    NameLostColumns();
    HAKO_RETURN_IF_ERROR(ReadIndices());
    HAKO_RETURN_IF_ERROR(ReadEntries());
    HAKO_RETURN_IF_ERROR(ReadKeyBlocks());
    HAKO_RETURN_IF_ERROR(ReadCount());
    changes_.push_back({CatalogueKey('n'), std::nullopt});
    HAKO_RETURN_IF_ERROR(Store());
    HAKO_RETURN_IF_ERROR(RemoveNumbers());
    return store_.RemoveRange({&kEntrySpace, 1}, std::string{kNumberSpace + 1}).status();
  }
  const std::vector<std::string>& indices() const { return index_names_; }

 private:
  template <class... Text>
  void Note(const Text&... text) {
    report_.notes.push_back(absl::StrCat(text...));
  }
  template <class Visit>
  Status ForEach(const std::string& prefix, Visit&& visit) {
    for (cursor_->Jump(prefix); cursor_->Valid() && cursor_->key().starts_with(prefix); cursor_->Next())
      visit(cursor_->key(), cursor_->value());
    return cursor_->status();
  }
  Status Store() {
    for (const Catalogue::Record& change : changes_) {
      const auto action = change.value ? Action::Set(*change.value) : Action::Remove();
      HAKO_RETURN_IF_ERROR(store_.Process(change.key, [&action](std::optional<std::string_view>) { return action; }));
    }
    return absl::OkStatus();
  }

  // Replaces keys of records in the report by keys of rows, and drops losses of records that are
  // rebuilt.
  void ShowRows() {
    const std::string begin(1, kRowSpace), end(1, kRowSpace + 1);
    std::vector<SalvageReport::LostRange> ranges;
    for (const SalvageReport::LostRange& range : report_.lost_ranges) {
      if (range.from < begin) Note("a part of the catalogue is lost: indices, and types and defaults of columns, may be missing");
      const std::string from = std::max(range.from, begin);
      if (from >= end || (range.to && *range.to <= begin)) continue;
      ranges.push_back({from.substr(1), range.to && *range.to < end ? std::optional(range.to->substr(1)) : std::nullopt});
    }
    report_.lost_ranges = std::move(ranges);
    for (SalvageReport::Place& place : report_.places) place.key = place.key.starts_with(begin) ? place.key.substr(1) : std::string();
  }

  Status ReadHeader() {
    std::string header;
    const Status read = store_.FetchTo(CatalogueKey('h'), &header);
    if (!absl::IsNotFound(read)) return read;  // Catalogue::Load reads it again
    Note("the header of the table is lost: its rows may have other columns from now on");
    changes_.push_back(Catalogue::HeaderOf(false));
    return absl::OkStatus();
  }

  Status ReadColumns() {
    return ForEach(CatalogueKey('c'), [this](std::string_view key, std::string_view value) {
      const std::size_t number = key.size() == 4 ? CatalogueNumber(key) : 0;
      const bool fits = number != 0 && number <= TableLimits::kColumns;
      std::optional<StoredColumn> column = fits ? DecodeColumn(static_cast<ColumnId>(number), value) : std::nullopt;
      if (column && names_.Find(column->name) == nullptr) return names_.Add(*std::move(column));
      Note("the record of a column is damaged");
      changes_.push_back({std::string(key), std::nullopt});
    });
  }

  Status ReadRows() {
    num_rows_ = 0;
    return ForEach({kRowSpace}, [this](std::string_view key, std::string_view value) {
      const RowView row(value, nullptr);
      if (!row.Check().ok() || key.size() - 1 > TableLimits::kKeySize) {
        report_.Add(SalvageReport::Kind::kRecord, 0, 0, key.substr(1));
        changes_.push_back({std::string(key), std::nullopt});
        lost_keys_.insert(std::string(key.substr(1)));
        return;
      }
      ++num_rows_;
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (names_.Get(row.column(i)) == nullptr) ++rows_of_lost_[row.column(i)];
      }
    });
  }

  void NameLostColumns() {
    for (const auto& [id, num_rows] : rows_of_lost_) {
      StoredColumn column{.id = id, .name = absl::StrCat("lost_column_", static_cast<int>(id))};
      while (names_.Find(column.name) != nullptr) column.name += '_';
      Note("the name of a column, and its type, are lost: its cells in ", num_rows, " rows are in column '", column.name, "' now");
      changes_.push_back(Catalogue::RecordOf(column));
      names_.Add(std::move(column));
    }
  }

  Status ReadIndices() {
    return ForEach(CatalogueKey('i'), [this](std::string_view key, std::string_view value) {
      const auto drop = [&] { changes_.push_back({std::string(key), std::nullopt}); };
      auto record = Index::Decode(value);
      if (!record.ok() || key.size() != 4) {
        Note("the record of an index is damaged: create the index again");
        return drop();
      }
      if (record->state == IndexState::kDropped) return drop();
      const std::string name = record->options.name;
      auto index = Index::Make(CatalogueNumber(key), std::move(record->options), IndexState::kBuilding,
                               [this](std::string_view column) { return names_.Find(column); });
      if (!index.ok()) {
        Note("an index is dropped, as a column of it is lost: ", index.status().message());
        return drop();
      }
      changes_.push_back(Catalogue::RecordOf(**index, IndexState::kBuilding));
      index_names_.push_back(name);
      indices_[CatalogueNumber(key)] = *std::move(index);
    });
  }

  // Entries reveal the keys of lost rows, and indices whose records are lost.
  Status ReadEntries() {
    std::set<std::uint16_t> of_lost;
    Status failed;
    HAKO_RETURN_IF_ERROR(ForEach({kEntrySpace}, [&](std::string_view key, std::string_view value) {
      if (!failed.ok() || key.size() < 3) return;
      const auto number = static_cast<std::uint16_t>(static_cast<unsigned char>(key[1]) << 8 | static_cast<unsigned char>(key[2]));
      const auto index = indices_.find(number);
      if (index == indices_.end()) {
        of_lost.insert(number);
        return;
      }
      if (index->second->is_text()) return;
      const Index::RowOfEntry entry = index->second->Row(key, value);
      if (entry.ok) failed = NoteRow(entry.key);
    }));
    if (!of_lost.empty() && !was_undamaged_) Note(of_lost.size(), " indices are dropped, as their records are lost: create them again");
    return failed;
  }

  // So do the keys of rows by number.
  Status ReadKeyBlocks() {
    Status failed;
    KeyBlock block;
    HAKO_RETURN_IF_ERROR(ForEach({kNumberSpace}, [&](std::string_view, std::string_view value) {
      if (!block.Decode(value)) return;
      for (unsigned slot = 0; slot < kKeysOfBlock && failed.ok(); ++slot) {
        if (block.has(slot)) failed = NoteRow(block.key(slot));
      }
    }));
    return failed;
  }

  // Reports the row of this key, if it is lost.
  Status NoteRow(std::string_view key) {
    if (key.size() > TableLimits::kKeySize) return absl::OkStatus();
    std::string unused;
    const Status found = store_.FetchTo(RowKey(key), &unused);
    if (!absl::IsNotFound(found)) return found;
    if (key_bytes_ + key.size() > SalvageReport::kKeyBytesMax || !lost_keys_.insert(std::string(key)).second) return absl::OkStatus();
    key_bytes_ += key.size() + 1;
    report_.Add(SalvageReport::Kind::kRecord, 0, 0, key);
    return absl::OkStatus();
  }

  // Rows of several moments may have the same number: all get new ones with their indices.
  Status RemoveNumbers() {
    static constexpr std::size_t kRowsAtOnce = 1000;
    std::vector<std::string> keys;
    std::string next(1, kRowSpace);
    do {
      keys.clear();
      for (cursor_->Jump(next); cursor_->Valid() && cursor_->key()[0] == kRowSpace && keys.size() < kRowsAtOnce; cursor_->Next()) {
        if (NumberOfRow(cursor_->value())) keys.emplace_back(cursor_->key());
      }
      HAKO_RETURN_IF_ERROR(cursor_->status());
      std::string row;
      for (const std::string& key : keys) {
        HAKO_RETURN_IF_ERROR(store_.Process(key, [&row](std::optional<std::string_view> found) {
          if (!found) return Action::Keep();
          row = *found;
          RemoveNumberOfRow(&row);
          return Action::Set(row);
        }));
      }
      if (!keys.empty()) next.assign(keys.back()).push_back('\0');
    } while (keys.size() == kRowsAtOnce);
    return absl::OkStatus();
  }

  // A table that was closed has the number of its rows.
  Status ReadCount() {
    std::string count;
    const Status read = store_.FetchTo(CatalogueKey('n'), &count);
    if (!read.ok() && !absl::IsNotFound(read)) return read;
    const auto num_lost = [&]() -> std::optional<std::uint64_t> {
      if (count.size() == 8 && LoadBigEndian(count.data()) >= num_rows_) return LoadBigEndian(count.data()) - num_rows_;
      return was_undamaged_ ? std::optional(lost_keys_.size()) : std::nullopt;
    }();
    report_.num_records = num_rows_;
    report_.num_lost = num_lost;
    return absl::OkStatus();
  }

  internal::AnyDatabase& store_;
  std::unique_ptr<internal::AnyCursor> cursor_;
  SalvageReport& report_;
  bool was_undamaged_ = false;
  ColumnNames names_;
  std::map<ColumnId, std::uint64_t> rows_of_lost_;
  std::map<std::uint16_t, std::unique_ptr<Index>> indices_;
  std::vector<std::string> index_names_;
  std::set<std::string> lost_keys_;
  std::uint64_t key_bytes_ = 0, num_rows_ = 0;
  std::vector<Catalogue::Record> changes_;
};

}  // namespace

Status RepairSalvaged(std::unique_ptr<internal::AnyDatabase> store, SalvageReport& report) {
  std::vector<std::string> names;
  {
    Repair repair(*store, report);
    HAKO_RETURN_IF_ERROR(repair.Run());
    names = repair.indices();
  }
  HAKO_ASSIGN_OR_RETURN(const auto table, TableDBM::Open(std::move(store), {}));  // builds the indices
  for (const IndexInfo& index : table->Indices()) std::erase(names, index.options.name);
  for (const std::string& name : names)
    report.notes.push_back(absl::StrCat("index ", name, " is dropped: it was unique, and two rows that were found have the same value"));
  return table->Close();
}

}  // namespace table

StatusOr<SalvageReport> TableDBM::Salvage(const std::string& from, const std::string& to, const FileOptions& options) HAKO_TRY {
  const auto salvage = [](const PositionalParallelFile& file, LogPlace<PositionalParallelFile> log,
                          MemoryMapParallelFile empty_file) -> StatusOr<SalvageReport> {
    SalvageReport report;
    HAKO_ASSIGN_OR_RETURN(auto db, internal::SalvageOpen<TreeDBM<>>(file, log, std::move(empty_file), true, report));
    HAKO_RETURN_IF_ERROR(table::RepairSalvaged(std::make_unique<internal::AnyModel<TreeDBM<>>>(std::move(db)), report));
    return report;
  };
  return internal::SalvageFile<TreeDBM<>>(from, to, options, salvage);
}
HAKO_OR_NO_MEMORY

}  // namespace hako
