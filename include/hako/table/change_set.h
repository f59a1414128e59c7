// ChangeSet: changes of rows, and of their entries in all indices, as one atomic step.
//
// 1. The rows are read, the changes applied to copies, and the entries of the old and the new rows
//    compared (Prepare).
// 2. One ProcessMulti locks the records of the rows and of all entries that change. Its visitor
//    checks that each row still is as it was read and that unique entries are free, else it aborts
//    (Write). Then it changes all of them, and stores the columns that the rows are the first to have.
// So two writers of one row are serialised by its record: the later one finds that the row has
// changed, and begins again. There is no other lock. After kTriesMax conflicts it begins again with
// all writers excluded.
//
// A unique entry is that of one row, which its value names, and that row has the value. While the index
// is being built an entry may be missing, or be that of another row of the same value. So a change removes
// an entry only if it is that of its own row.
//
// A ChangeSet is kept by its thread, with its memory.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/table/index.h"
#include "hako/table/row.h"
#include "hako/table/table_core.h"

namespace hako::table {

class ChangeSet {
 public:
  static constexpr int kTriesMax = 16;
  // As those of a WriteBatch: records, and bytes of their keys and values.
  static constexpr std::size_t kRecordsMax = std::size_t{1} << 20;
  static constexpr std::size_t kBytesMax = std::size_t{256} << 20;

  // Looks up the columns. Those that do not exist are added to `added`; without it, *lacks_columns becomes true.
  // REQUIRES: the gate is not held; `added` outlives the changes (unchecked: threads share slots of the gate)
  Status Resolve(TableCore& core, std::span<const Change> changes, NewColumns* added, bool* lacks_columns);
  // Makes them. Aborted with an empty message: a row has changed meanwhile.
  // REQUIRES: the gate is held, or no writer runs
  Status Try(TableCore& core, std::span<const Change> changes);

  std::int64_t num_rows_added() const { return num_rows_added_; }
  std::uint64_t num_changed() const { return num_changed_; }
  // Whether it has grown so that its thread should not keep it.
  bool IsLarge() const { return states_.size() + keys_.capacity() > 4096 || cells_.capacity() > 65'536; }

 private:
  struct CellOf {
    ColumnId column;
    Value value;
  };
  struct State {  // of one row
    std::string row_key, old_bytes, new_bytes;
    bool had, has;
    std::vector<std::pair<std::size_t, std::size_t>> old_ranges, new_ranges;  // entries by index
    std::string_view key() const { return std::string_view(row_key).substr(1); }
  };
  struct Operation {
    std::string_view key, value;  // the value also of a removal
    bool is_set;
    bool is_kept;  // the row had the key of the entry before
    std::uint32_t state;
  };

  Status Apply(TableCore& core, const Change& change, std::span<const CellOf> cells, bool is_single);
  Status FindState(TableCore& core, std::string_view key, bool is_single, State** found);
  Status Build(TableCore& core, const Change& change, std::span<const CellOf> cells, const RowView* old_row, std::string* out);
  Status CheckRules(const Catalogue& catalogue, bool is_new);
  Status AddEntries(TableCore& core);
  void Compare();
  void CompareEntries(std::uint32_t state, std::pair<std::size_t, std::size_t> before, std::pair<std::size_t, std::size_t> after);
  Status Write(TableCore& core);
  Status WriteOne(TableCore& core, const State& state);
  // Whether a unique entry is absent, or that of the row of the operation.
  bool IsFree(const Operation& operation, std::optional<std::string_view> found) const;
  Status UniqueError(const TableCore& core, const Operation& operation) const;

  NewColumns* added_ = nullptr;
  std::vector<CellOf> cells_;  // of all changes
  std::vector<std::uint32_t> begins_;
  std::vector<CellOf> merged_;
  std::deque<std::string> texts_;  // of values that are made here
  std::size_t num_texts_ = 0;
  RowBuilder builder_;
  std::vector<State> states_;
  std::size_t num_states_ = 0;
  std::unordered_map<std::string_view, std::uint32_t> state_of_;
  Entries old_, new_;
  std::vector<Operation> unique_removes_, unique_sets_, removes_, sets_, all_;
  std::vector<std::string_view> keys_;
  std::int64_t num_rows_added_ = 0;
  std::uint64_t num_changed_ = 0;
};

}  // namespace hako::table
