// ChangeSet: changes of rows, and of their entries in all indices, as one atomic step.
//
// 1. It reads the rows, applies the changes to copies, and compares the entries of the old and the
//    new rows (Try). Of text indices it plans the changes of posting lists (table/posting_writer.h).
// 2. One ProcessMulti locks the records of the rows and of all entries that change. Its visitor
//    checks that each row is still as it was read and that unique entries are free; if not, it
//    aborts (Write). Then it changes all records, and stores those of new columns.
// So the record of a row serialises its writers: the later one finds that the row has changed, and
// begins again. There is no other lock. After kTriesMax conflicts a change excludes all writers and
// begins again.
//
// The value of a unique entry names the row that has the entry's parts. While the index is being
// built, a row may lack its entry because another row with the same parts has it. So a change
// removes an entry only if it names the row that is changed.
//
// In a transaction (table/table_transaction.h) the step updates its records, and ChangesInTransaction has the rest.
//
// Each thread keeps a ChangeSet, to reuse its memory.
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
#include "hako/table/posting_writer.h"
#include "hako/table/row.h"
#include "hako/table/table_core.h"

namespace hako::table {

class ChangeSet {
 public:
  static constexpr int kTriesMax = 16;
  // The limits of a WriteBatch: the number of records, and the bytes of their keys and values.
  static constexpr std::size_t kRecordsMax = std::size_t{1} << 20;
  static constexpr std::size_t kBytesMax = std::size_t{256} << 20;

  // Looks up the columns. Adds missing ones to `added`; if that is nullptr, sets *lacks_columns
  // instead.
  // REQUIRES: the gate is not held; `added` outlives the changes (unchecked: threads share slots of the gate)
  Status Resolve(TableCore& core, std::span<const Change> changes, NewColumns* added, bool* lacks_columns);
  // Makes the changes. Returns Aborted with an empty message if a row was changed meanwhile.
  // REQUIRES: the gate is held, or no writer runs
  Status Try(TableCore& core, std::span<const Change> changes);

  std::int64_t num_rows_added() const { return num_rows_added_; }
  std::uint64_t num_changed() const { return num_changed_; }
  // Whether this object has grown so large that its thread should not keep it.
  bool IsLarge() const { return postings_.IsLarge() || states_.size() + keys_.capacity() > 4096 || cells_.capacity() > 65'536; }

 private:
  struct CellOf {
    ColumnId column;
    Value value;
  };
  struct State {  // of one row
    std::string row_key, old_bytes, new_bytes;
    bool had, has;
    std::vector<std::pair<std::size_t, std::size_t>> old_ranges, new_ranges;  // places in `entries`, in the order of the indices
    std::string_view key() const { return std::string_view(row_key).substr(1); }
  };
  struct Operation {
    std::string_view key, value;  // a removal has a value, too
    bool is_set;
    bool is_kept;  // the row had the key of the entry before
    std::uint32_t state;
  };

  Status ReadRows(TableCore& core, std::span<const Change> changes);
  Status Apply(TableCore& core, const Change& change, std::span<const CellOf> cells, State& state);
  Status Build(TableCore& core, const Change& change, std::span<const CellOf> cells, const RowView* old_row, std::string* out);
  Status CheckRules(const Catalogue& catalogue, bool is_new);
  Status AddEntries(TableCore& core, TakenNumbers& taken);
  Status AddPostings(TableCore& core, TakenNumbers& taken, State& state);
  void Compare();
  void CompareEntries(std::uint32_t state, std::pair<std::size_t, std::size_t> before, std::pair<std::size_t, std::size_t> after);
  Status Write(TableCore& core);
  Status WriteOne(TableCore& core, const State& state);
  // Whether a unique entry is absent, or names the row of the operation.
  bool IsFree(const Operation& operation, std::optional<std::string_view> found) const;
  Status UniqueError(const TableCore& core, const Operation& operation) const;

  NewColumns* added_ = nullptr;
  std::vector<CellOf> cells_;  // of all changes
  std::vector<std::uint32_t> begins_;
  std::vector<CellOf> merged_;
  std::deque<std::string> texts_;  // texts of values that were converted here
  std::size_t num_texts_ = 0;
  RowBuilder builder_;
  std::vector<State> states_;
  std::uint32_t num_states_ = 0;
  std::unordered_map<std::string_view, std::uint32_t> state_of_;  // by key
  std::vector<std::uint32_t> state_of_change_;
  Entries old_, new_;
  PostingWriter postings_;
  std::vector<RowNumber> retired_;  // the numbers of rows that are removed
  std::vector<RowNumber> noted_;    // in a transaction: those of rows that change while a text index is being built
  std::vector<Operation> unique_removes_, unique_sets_, removes_, sets_, all_;
  std::vector<std::string_view> keys_;
  std::int64_t num_rows_added_ = 0;
  std::uint64_t num_changed_ = 0;
};

}  // namespace hako::table
