// Index: an open index of a table, with the numbers of its columns. It makes the entries of a row,
// which depend only on the row and its key. A text index, of words or q-grams, has posting lists
// instead (table/posting_block.h).
//
// Invariants
//   1. A ready index has exactly the entries that AddEntries makes of the rows, a text index the
//      numbers of the rows in the lists that ForEachList names. An index that is being built may lack
//      some of these. Each update of a row changes its entries in the same step.
//   2. An index is dropped in three steps: it is marked as dropped, its entries are removed, its
//      record is removed. Open goes on with the dropping of an index that it finds marked.
//   3. A number of an index is not used again while the table is open.
//   4. A ready index has the words of this version of Unicode. Open builds an index of another version
//      again, like one that is being built; its record keeps the old version until that is done, so
//      neither version takes it for ready meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "hako/base/assert.h"
#include "hako/base/function_ref.h"
#include "hako/base/status.h"
#include "hako/sync/mutex.h"
#include "hako/table/filter.h"
#include "hako/table/index_key.h"
#include "hako/table/posting_block.h"
#include "hako/table/row.h"
#include "hako/table/schema.h"

namespace hako::table {

// The entries of some rows: keys and values in one buffer.
class Entries {
 public:
  struct Entry {
    std::uint32_t begin, key_size, value_size;
    bool is_unique;  // no other row may have an entry with this key
  };

  void Clear() {
    bytes_.clear();
    entries_.clear();
  }
  std::size_t size() const { return entries_.size(); }
  std::string_view key(std::size_t i) const { return {bytes_.data() + entries_[i].begin, entries_[i].key_size}; }
  std::string_view value(std::size_t i) const { return {bytes_.data() + entries_[i].begin + entries_[i].key_size, entries_[i].value_size}; }
  bool is_unique(std::size_t i) const { return entries_[i].is_unique; }

  // Adds an entry, which is built in place: its key from Begin to EndKey, then its value up to End.
  std::string* Begin() {
    begin_ = bytes_.size();
    return &bytes_;
  }
  void EndKey() { key_end_ = bytes_.size(); }
  void End(bool is_unique) {
    entries_.push_back({static_cast<std::uint32_t>(begin_), static_cast<std::uint32_t>(key_end_ - begin_),
                        static_cast<std::uint32_t>(bytes_.size() - key_end_), is_unique});
  }
  void Cancel() { bytes_.resize(begin_); }
  std::size_t open_size() const { return bytes_.size() - begin_; }

 private:
  std::string bytes_;
  std::vector<Entry> entries_;
  std::size_t begin_ = 0, key_end_ = 0;
};

// The numbers of rows that writers change while a text index is being built. Thread-safe.
class ChangedRows {
 public:
  void Add(RowNumber number) {
    const sync::MutexLock lock(mutex_);
    numbers_.insert(number);
  }
  // Returns them in ascending order, and forgets them.
  std::vector<RowNumber> Take() {
    const sync::MutexLock lock(mutex_);
    std::vector<RowNumber> numbers(numbers_.begin(), numbers_.end());
    numbers_.clear();
    return numbers;
  }
  void Clear() {
    const sync::MutexLock lock(mutex_);
    numbers_.clear();
  }

 private:
  sync::Mutex mutex_;
  std::set<RowNumber> numbers_ ABSL_GUARDED_BY(mutex_);
};

enum class IndexState : std::uint8_t { kBuilding = 1, kReady = 2, kDropped = 3 };

struct IndexPart {
  ColumnId column;
  IndexKind kind;
};

class Index {
 public:
  // Returns the names of all columns of the index, including those in its `where`. Returns an error
  // if the options are malformed.
  static StatusOr<std::vector<std::string>> ColumnsOf(const IndexOptions& options);
  // Looks up these columns, all of which exist.
  using FindColumn = FunctionRef<const StoredColumn*(std::string_view)>;
  static StatusOr<std::unique_ptr<Index>> Make(std::uint16_t number, IndexOptions options, IndexState state, FindColumn find);

  std::uint16_t number() const { return number_; }
  const std::string& name() const { return options_.name; }
  const IndexOptions& options() const { return options_; }
  const std::vector<IndexPart>& parts() const { return parts_; }
  const Condition& where() const { return where_; }
  const std::string& prefix() const { return prefix_; }  // with which the keys of its entries begin
  bool is_unique() const { return options_.unique; }
  bool is_text() const { return parts_[0].kind == IndexKind::kToken || parts_[0].kind == IndexKind::kQGram; }
  // Whether its posting lists have positions: of a word how many words are before it, of a q-gram where it
  // begins in the text, in bytes.
  bool has_positions() const { return options_.positions; }
  // Whether the value of an entry has a row with all columns of the index.
  bool is_covering() const { return !options_.covering.empty(); }
  const std::vector<ColumnId>& covered() const { return covered_; }  // ascending

  using VisitList = FunctionRef<void(std::string_view list, std::uint32_t position)>;
  // Calls visit with the list of each word or q-gram of a row (table/index_key.h), in the order of the text,
  // with repetitions. `list` is valid during the call. A q-gram ends before a zero byte; at the end of the
  // text and before a zero byte there are shorter ones, so each substring without a zero byte that is not
  // longer than a q-gram begins one. `position` is kNoPosition in an index without positions.
  // REQUIRES: is_text()
  void ForEachList(std::string_view key, const RowView& row, VisitList visit) const;
  // Returns the list of a word. REQUIRES: is_text()
  std::string List(std::string_view word) const {
    HAKO_DCHECK(is_text());
    return std::string(prefix_).append(word);
  }
  // Returns OutOfRange if a row has too many different words or q-grams.
  Status CheckNumWords(std::size_t count) const;
  // Whether a row whose column of a text index stays the same also keeps its lists.
  bool DependsOnlyOnColumn() const { return filter_.IsAlways(); }
  // Adds the entries of a row. Returns OutOfRange, which names the index, if a value is too long.
  // REQUIRES: !is_text()
  Status AddEntries(std::string_view key, const RowView& row, Entries* entries) const;

  // Finds the key of the row that an entry leads to: it follows the parts in the entry's key or, in
  // a unique entry, is in the entry's value. `parts_size` is the length of prefix and parts, if it
  // is known. `ok` is false if the entry is damaged.
  struct RowOfEntry {
    std::string_view key;
    std::string_view covered;  // the row in a covering index
    bool ok = false;
  };
  RowOfEntry Row(std::string_view entry_key, std::string_view entry_value) const;

  // Encode the record of the catalogue, and decode it. Decode returns DataLoss if the record is
  // damaged.
  struct Record {
    IndexOptions options;
    IndexState state;
    std::string tables;
  };
  std::string Encode(IndexState state) const;
  static StatusOr<Record> Decode(std::string_view record);

  // The version of Unicode by which the entries were made (WordTables, table/words.h): that of a new
  // index, or of a record. It is empty if no word, in the index or its `where`, decides on entries.
  void set_tables(std::string tables) { tables_ = std::move(tables); }
  // Whether the entries may have other words than those of this version.
  bool IsOutdated() const { return tables_ != present_tables_; }
  void MakePresent() { tables_ = present_tables_; }

  IndexState state() const { return state_.load(std::memory_order_seq_cst); }
  void set_state(IndexState state) {
    state_.store(state, std::memory_order_seq_cst);
    if (state != IndexState::kBuilding) changed_.Clear();
  }
  // The number of queries that use the index; DropIndex waits for them.
  std::atomic<int>& users() const { return users_; }
  // For writers and its builder: see src/table/index_builder.cc.
  ChangedRows& changed() const { return changed_; }

 private:
  Index() = default;
  std::uint16_t number_ = 0;
  IndexOptions options_;
  std::vector<IndexPart> parts_;
  std::vector<ColumnId> covered_;
  Condition where_;
  Filter filter_;
  std::string prefix_;
  std::string present_tables_, tables_;
  std::atomic<IndexState> state_{IndexState::kBuilding};
  mutable std::atomic<int> users_{0};
  mutable ChangedRows changed_;
};

}  // namespace hako::table
