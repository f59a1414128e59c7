// Catalogue: the columns and indices of a table, in memory and as records of its database.
//
//   00 'h'         the version of the format and the options of the table
//   00 'c' NUMBER  type, flags, name and default of a column
//   00 'i' NUMBER  an index (table/index.h)
//
// Invariants
//   1. A column's record is stored before a row that has its number: the log and a checkpoint keep that
//      order, so after a crash no row has a column without a name.
//   2. The list of indices that writers use is replaced only while no writer runs (WriterGate), so all
//      later updates maintain a new index, and none maintains a dropped one.
//   3. A list never changes, and lists stay until the table is closed.
//
// Threads: reading takes no lock, but for all_indices(). Changes take mutex(), and keep it for as long as
// an index is being built or dropped. Lock order: mutex(), then WriterGate.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "hako/base/status.h"
#include "hako/sync/mutex.h"
#include "hako/sync/thread_slot.h"
#include "hako/table/column_names.h"
#include "hako/table/index.h"
#include "hako/table/table_store.h"

namespace hako::table {

// Excludes writers for a moment. A writer holds it by Enter and Leave of its thread's slot.
class WriterGate {
 public:
  class Writer {
   public:
    explicit Writer(WriterGate& gate) : slot_(gate.Enter()) {}
    Writer(const Writer&) = delete;
    ~Writer() { slot_.num_writers.fetch_sub(1, std::memory_order_release); }
    // Notes that the table has this many rows more.
    void AddRows(std::int64_t rows) { slot_.num_rows.fetch_add(rows, std::memory_order_relaxed); }

   private:
    friend class WriterGate;
    struct alignas(128) Slot {
      std::atomic<int> num_writers{0};
      std::atomic<std::int64_t> num_rows{0};
    };
    Slot& slot_;
  };

  // Runs `body` while no writer holds the gate.
  // REQUIRES: this thread does not hold it
  template <class Body>
  auto RunExclusive(Body&& body) {
    const std::lock_guard lock(mutex_);
    is_closed_.store(true, std::memory_order_seq_cst);
    for (const Writer::Slot& slot : slots_) {
      while (slot.num_writers.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
    }
    struct Opener {
      std::atomic<bool>& is_closed;
      ~Opener() { is_closed.store(false, std::memory_order_release); }
    } opener{is_closed_};
    return body();
  }
  // AddRows of a body that runs exclusively.
  void AddRows(std::int64_t rows) { slots_[0].num_rows.fetch_add(rows, std::memory_order_relaxed); }
  // The sum of AddRows.
  std::int64_t num_rows() const {
    std::int64_t sum = 0;
    for (const Writer::Slot& slot : slots_) sum += slot.num_rows.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  Writer::Slot& Enter() {
    Writer::Slot& slot = slots_[sync::ThreadIndex() % slots_.size()];
    for (;;) {
      slot.num_writers.fetch_add(1, std::memory_order_seq_cst);
      if (!is_closed_.load(std::memory_order_seq_cst)) return slot;
      slot.num_writers.fetch_sub(1, std::memory_order_release);
      while (is_closed_.load(std::memory_order_acquire)) std::this_thread::yield();
    }
  }

  std::mutex mutex_;
  std::array<Writer::Slot, 32> slots_;
  std::atomic<bool> is_closed_{false};
};

// The indices that writers maintain, in the order of their numbers.
using IndexList = std::vector<const Index*>;
// The numbers of the columns that are not null, or have a default.
using RuleList = std::vector<ColumnId>;

class Catalogue {
 public:
  explicit Catalogue(TableStore& store) : store_(store) {}

  // Reads the records. DataLoss if one is damaged, Unimplemented for a newer version.
  Status Load() ABSL_LOCKS_EXCLUDED(mutex_);
  // Stores the header of a new table.
  Status Create(bool closed_schema);

  const ColumnNames& names() const { return names_; }
  bool has_closed_schema() const { return has_closed_schema_; }
  const IndexList& indices() const { return *indices_.load(std::memory_order_acquire); }
  // The one of them that has this entry; nullptr if none has.
  const Index* IndexOf(std::string_view entry_key) const {
    for (const Index* const index : indices()) {
      if (entry_key.starts_with(index->prefix())) return index;
    }
    return nullptr;
  }
  const RuleList& rules() const { return *rules_.load(std::memory_order_acquire); }
  const Index* FindIndex(std::string_view name) const;

  // ---- changes ----
  sync::Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }
  // The number of a column, which is added if there is none.
  StatusOr<const StoredColumn*> Intern(std::string_view name) ABSL_LOCKS_EXCLUDED(mutex_);
  StatusOr<const StoredColumn*> InternLocked(std::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Stores the column's record and replaces it, while `gate` excludes writers.
  Status ReplaceColumn(StoredColumn column, WriterGate& gate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Stores a new index, which is being built.
  StatusOr<Index*> AddIndex(IndexOptions options, WriterGate& gate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status SetState(Index& index, IndexState state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes an index out of the list.
  void Unlist(const Index& index, WriterGate& gate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes the record of an index that is not listed.
  Status RemoveRecord(const Index& index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Also those that have been dropped since the table was opened, or were found marked as dropped.
  const std::vector<std::unique_ptr<Index>>& all_indices() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return all_indices_; }

 private:
  Status LoadColumns(StoreCursor& cursor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status LoadIndices(StoreCursor& cursor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Publish(IndexList list) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PublishRules() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status Put(const std::string& key, std::string_view record);

  TableStore& store_;
  ColumnNames names_;
  bool has_closed_schema_ = false;
  sync::Mutex mutex_;
  std::uint16_t next_index_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<std::unique_ptr<Index>> all_indices_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<IndexList>> all_lists_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<RuleList>> all_rules_ ABSL_GUARDED_BY(mutex_);
  static inline const IndexList kNoIndices{};
  static inline const RuleList kNoRules{};
  std::atomic<const IndexList*> indices_{&kNoIndices};
  std::atomic<const RuleList*> rules_{&kNoRules};
};

}  // namespace hako::table
