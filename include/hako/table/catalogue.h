// Catalogue: the columns and indices of a table, in memory and as records of its database.
//
//   00 'h'         the version of the format (src/table/catalogue.cc) and the options of the table
//   00 'c' NUMBER  type, flags, name and default of a column
//   00 'i' NUMBER  an index (table/index.h)
//
// Invariants
//   1. A column's record is stored in the same step as the first row or index that has the column, so no
//      row has a column without a name, and a step that fails adds no column (NewColumns).
//   2. The list of indices that writers use is replaced only while no writer runs (WriterGate), so all
//      later updates maintain a new index, and none maintains a dropped one.
//   3. A published list is immutable, and lives until Close.
//   4. Each name in an index, including its `where`, is the name of a column.
//
// Threads: reads take no lock, except all_indices(). Changes hold mutex(), even while an index is
// being built or dropped. Lock order: mutex(), then WriterGate.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/dbm/any_model.h"
#include "hako/sync/mutex.h"
#include "hako/sync/thread_slot.h"
#include "hako/table/column_names.h"
#include "hako/table/index.h"
#include "hako/table/schema.h"

namespace hako::table {

// Excludes writers for a moment, and tells readers whether any have run. A writer holds the gate from Enter to
// Leave of its thread's slot.
class WriterGate {
 public:
  class Writer {
   public:
    explicit Writer(WriterGate& gate) : slot_(&gate.Enter()) {}
    // Does not wait: is_inside() is false if the gate is closed.
    Writer(WriterGate& gate, std::try_to_lock_t) : slot_(gate.TryEnter()) {}
    Writer(const Writer&) = delete;
    ~Writer() {
      if (slot_ != nullptr) slot_->Leave();
    }
    bool is_inside() const { return slot_ != nullptr; }
    // Adds to the number of rows of the table. REQUIRES: is_inside()
    void AddRows(std::int64_t rows) {
      HAKO_DCHECK(is_inside());
      slot_->num_rows.fetch_add(rows, std::memory_order_relaxed);
    }

   private:
    friend class WriterGate;
    struct alignas(128) Slot {
      static constexpr std::uint64_t kEntry = std::uint64_t{1} << 32;
      std::atomic<std::uint64_t> entries{0};  // kEntry for each that there ever was, and 1 for each writer that is inside
      std::atomic<std::int64_t> num_rows{0};

      void Enter() { entries.fetch_add(kEntry + 1, std::memory_order_seq_cst); }
      void Leave() { entries.fetch_sub(1, std::memory_order_release); }
      static bool HasWriter(std::uint64_t found) { return found % kEntry != 0; }
    };
    Slot* slot_;
  };

  // Runs `body` while no writer holds the gate.
  // REQUIRES: this thread does not hold it
  template <class Body>
  auto RunExclusive(Body&& body) {
    mutex_.AssertNotHeld();
    const sync::MutexLock lock(mutex_);
    is_closed_.store(true, std::memory_order_seq_cst);
    for (const Writer::Slot& slot : slots_) {
      while (Writer::Slot::HasWriter(slot.entries.load(std::memory_order_seq_cst))) std::this_thread::yield();
    }
    slots_[0].Enter();
    struct Opener {
      WriterGate& gate;
      ~Opener() {
        gate.slots_[0].Leave();
        gate.is_closed_.store(false, std::memory_order_release);
      }
    } opener{*this};
    return body();
  }
  // REQUIRES: the calling thread is in the body of RunExclusive
  void AssertNoWriters() const { mutex_.AssertHeld(); }
  // REQUIRES: the calling thread has a Writer, or is in the body of RunExclusive. Threads share
  // slots, so this check may take another thread's Writer for the caller's.
  void AssertEntered() const {
    HAKO_DCHECK(mutex_.IsHeld(true) ||
                Writer::Slot::HasWriter(slots_[sync::ThreadIndex() % slots_.size()].entries.load(std::memory_order_relaxed)));
  }
  // Returns the present moment, unless a writer is inside. All records that are read between two calls that return the
  // same moment are of one state of the table.
  std::optional<std::uint64_t> Moment() const {
    std::atomic_thread_fence(std::memory_order_acquire);
    std::uint64_t sum = 0;
    for (const Writer::Slot& slot : slots_) {
      const std::uint64_t entries = slot.entries.load(std::memory_order_seq_cst);
      if (Writer::Slot::HasWriter(entries)) return std::nullopt;
      sum += entries;
    }
    return sum;
  }
  // Adds to the number of rows from a body that runs exclusively.
  void AddRows(std::int64_t rows) { slots_[0].num_rows.fetch_add(rows, std::memory_order_relaxed); }
  // Returns the sum of all AddRows.
  std::int64_t num_rows() const {
    std::int64_t sum = 0;
    for (const Writer::Slot& slot : slots_) sum += slot.num_rows.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  Writer::Slot* TryEnter() {
    Writer::Slot& slot = slots_[sync::ThreadIndex() % slots_.size()];
    slot.Enter();
    if (!is_closed_.load(std::memory_order_seq_cst)) return &slot;
    slot.Leave();
    return nullptr;
  }
  Writer::Slot& Enter() {
    for (;;) {
      if (Writer::Slot* const slot = TryEnter()) return *slot;
      while (is_closed_.load(std::memory_order_acquire)) std::this_thread::yield();
    }
  }

  sync::Mutex mutex_;  // held while the gate is closed
  std::array<Writer::Slot, 32> slots_;
  std::atomic<bool> is_closed_{false};
};

// The indices that writers maintain, in the order of their numbers.
using IndexList = std::vector<const Index*>;
// The numbers of the columns that have not_null or a default.
using RuleList = std::vector<ColumnId>;

// Makes the column that options describe, with its default converted to its type. Returns
// InvalidArgument if the default cannot be converted.
StatusOr<StoredColumn> MakeColumn(ColumnId id, std::string_view name, const ColumnOptions& options);
// Decodes the record of a column; nullopt if it is damaged.
std::optional<StoredColumn> DecodeColumn(ColumnId id, std::string_view record);
// Returns the options of the index that makes a column unique.
IndexOptions UniqueIndexOf(std::string_view column);

class NewColumns;

class Catalogue {
 public:
  // A record that a step stores. A value of nullopt removes it.
  struct Record {
    std::string key;
    std::optional<std::string> value;
  };
  // The catalogue of a new table.
  struct Beginning {
    std::vector<StoredColumn> columns;
    std::vector<std::unique_ptr<Index>> indices;
  };
  // An index that is being built, and the list without it.
  struct AddedIndex {
    Index* index;
    const IndexList* before;
  };
  // A column and the rules of the table with it.
  struct Schema {
    const StoredColumn* column;
    const RuleList* rules;
  };

  explicit Catalogue(internal::AnyDatabase& store) : store_(store) {}

  // Reads the records. Returns DataLoss if one is damaged, and Unimplemented for another version of
  // the format. An index of words of another version of Unicode (table/words.h) is as one that is
  // being built.
  Status Load() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes the catalogue of a new table with these columns. Returns an error if the table cannot
  // have them.
  static StatusOr<Beginning> Begin(std::span<const std::pair<std::string, ColumnOptions>> columns);
  // Stores the catalogue of a new table, in one step.
  Status Create(bool closed_schema, Beginning beginning) ABSL_LOCKS_EXCLUDED(mutex_);

  const ColumnNames& names() const { return names_; }
  bool has_closed_schema() const { return has_closed_schema_; }
  const IndexList& indices() const { return *indices_.load(std::memory_order_acquire); }
  // Returns the index in the list that has this entry; nullptr if there is none.
  const Index* IndexOf(std::string_view entry_key) const {
    for (const Index* const index : indices()) {
      if (entry_key.starts_with(index->prefix())) return index;
    }
    return nullptr;
  }
  const RuleList& rules() const { return *rules_.load(std::memory_order_acquire); }
  // Changes with each Publish of a schema.
  std::uint64_t schema_number() const { return schema_number_.load(std::memory_order_acquire); }
  const Index* FindIndex(std::string_view name) const;

  // ---- changes ----
  sync::Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }
  // Stores records in one step.
  Status Store(std::span<const Record> records);
  static Record HeaderOf(bool closed_schema);
  static Record RecordOf(const StoredColumn& column);
  static Record RecordOf(const Index& index, IndexState state);
  // SchemaOf returns the present schema of a column. PrepareSchema makes one in which this column
  // replaces the one of the same number.
  Schema SchemaOf(const StoredColumn& column) const { return {&column, rules_.load(std::memory_order_acquire)}; }
  Schema PrepareSchema(StoredColumn column) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes writers obey this schema. REQUIRES: no writer runs (unchecked here: the callers have the
  // gate, and check it)
  void Publish(const Schema& schema) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Stores a new index in the state "being built", with the columns that it adds, and adds it to
  // the list.
  StatusOr<AddedIndex> AddIndex(const IndexOptions& options, NewColumns& added, WriterGate& gate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Replaces the list. ListWithout makes the present list without an index; it lives until Close.
  void List(const IndexList* list, WriterGate& gate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const IndexList* ListWithout(const Index& index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Keep(index, false); }
  // All indices since Open, including those that were dropped since, or were found marked as
  // dropped.
  const std::vector<std::unique_ptr<Index>>& all_indices() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return all_indices_; }
  // Whether a failed step, or the removal of an index, has left records, which have no effect.
  bool has_leftovers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return has_leftovers_; }
  void set_has_leftovers(bool has_some) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { has_leftovers_ = has_some; }

 private:
  Status LoadColumns(internal::AnyCursor& cursor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status LoadIndices(internal::AnyCursor& cursor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const IndexList* Keep(const Index& index, bool is_listed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const RuleList* RulesWith(const StoredColumn* column) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  friend class NewColumns;
  internal::AnyDatabase& store_;
  ColumnNames names_;
  bool has_closed_schema_ = false;
  sync::Mutex mutex_;
  bool has_leftovers_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint16_t next_index_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<std::unique_ptr<Index>> all_indices_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<IndexList>> all_lists_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<RuleList>> all_rules_ ABSL_GUARDED_BY(mutex_);
  static inline const IndexList kNoIndices{};
  static inline const RuleList kNoRules{};
  std::atomic<const IndexList*> indices_{&kNoIndices};
  std::atomic<const RuleList*> rules_{&kNoRules};
  std::atomic<std::uint64_t> schema_number_{0};
};

// The columns that a step adds. The step stores their records (records()), and publishes them once
// only the database itself can still refuse the step. If the step fails, they are withdrawn.
// REQUIRES: Catalogue::mutex() is held while it exists
class NewColumns {
 public:
  explicit NewColumns(Catalogue& catalogue) : catalogue_(catalogue) { catalogue.mutex().AssertHeld(); }
  NewColumns(const NewColumns&) = delete;
  ~NewColumns() {
    if (!is_kept_) Withdraw();
  }

  // Returns the column of this name, and adds it if there is none. Returns InvalidArgument if the
  // schema of the table is closed.
  StatusOr<const StoredColumn*> Intern(std::string_view name);
  // As Intern, even if the schema is closed.
  StatusOr<const StoredColumn*> Declare(std::string_view name);
  // Returns nullptr if there is none.
  const StoredColumn* Find(std::string_view name) const;

  const std::vector<Catalogue::Record>& records() const { return records_; }
  void Publish() noexcept {
    for (const StoredColumn* const column : columns_) catalogue_.names_.Publish(column);
  }
  // Call Keep if the step has succeeded, or Withdraw if it has failed.
  void Keep() noexcept { is_kept_ = true; }
  void Withdraw() noexcept {
    for (; !columns_.empty(); columns_.pop_back()) {
      if (columns_.back() != nullptr) catalogue_.names_.Withdraw(columns_.back());
    }
  }

 private:
  Catalogue& catalogue_;
  std::vector<const StoredColumn*> columns_;  // nullptr: there was no memory for it
  std::vector<Catalogue::Record> records_;
  std::unordered_map<std::string_view, const StoredColumn*> by_name_;
  bool is_kept_ = false;
};

}  // namespace hako::table
