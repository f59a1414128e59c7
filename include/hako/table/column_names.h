// ColumnNames: the columns of a table, by name and by number. A column gets its number once and
// keeps it; its schema may change.
//
// A new column is prepared before the step that stores its first cell, and published within that step:
// Get finds a prepared column, Find only a published one. If the step fails, it is withdrawn.
//
// Threads: Find and Get take no lock, and see every column whose Publish has returned before. Only
// one thread at a time may call the other functions. The results of Find and Get stay valid as long
// as the ColumnNames, unless the column is withdrawn.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/table/row.h"
#include "hako/table/schema.h"

namespace hako::table {

// A column. The object never changes: a new schema makes another object with the same number.
struct StoredColumn {
  ColumnId id;
  std::string name;
  ColumnType type = ColumnType::kAny;
  bool not_null = false;
  OwnedValue default_value = {};
};

class ColumnNames {
 public:
  ColumnNames();
  ~ColumnNames();

  // Returns nullptr if there is none.
  const StoredColumn* Find(std::string_view name) const {
    const Slots& slots = *slots_.load(std::memory_order_acquire);
    for (std::size_t i = HashOf(name);; ++i) {
      const StoredColumn* const column = slots[i % slots.size()].load(std::memory_order_acquire);
      if (column == nullptr || column->name == name) return column;
    }
  }
  const StoredColumn* Get(ColumnId id) const {
    const auto number = static_cast<std::size_t>(id);
    const Chunk* const chunk = number <= TableLimits::kColumns ? chunks_[number / kChunk].load(std::memory_order_acquire) : nullptr;
    return chunk == nullptr ? nullptr : (*chunk)[number % kChunk].load(std::memory_order_acquire);
  }
  // Returns the largest number of a published column; numbers begin at 1. A number may have no
  // column.
  std::size_t size() const { return size_.load(std::memory_order_acquire); }

  // Allocates everything that Publish needs. Get finds a new column from here on, and another
  // schema of an existing column only after Publish.
  const StoredColumn* Prepare(StoredColumn column);
  // Adds a prepared column, or replaces the one with the same number and name by it.
  void Publish(const StoredColumn* column) noexcept;
  // Takes back a new column. Of several columns, withdraw the last one first. REQUIRES: no row has
  // it (unchecked: the rows of a column are not counted)
  void Withdraw(const StoredColumn* column) noexcept;
  // Prepares and publishes.
  void Add(StoredColumn column) { Publish(Prepare(std::move(column))); }

 private:
  static constexpr std::size_t kChunk = 256;
  using Slots = std::vector<std::atomic<const StoredColumn*>>;
  using Chunk = std::array<std::atomic<const StoredColumn*>, kChunk>;

  static std::size_t HashOf(std::string_view name);
  // Returns the slot of the column with this name, or the slot where it belongs.
  static std::atomic<const StoredColumn*>& SlotOf(Slots& slots, std::string_view name);
  std::atomic<const StoredColumn*>& CellOf(ColumnId id) {
    const auto number = static_cast<std::size_t>(id);
    return (*chunks_[number / kChunk].load(std::memory_order_relaxed))[number % kChunk];
  }

  std::atomic<const Slots*> slots_;
  std::array<std::atomic<Chunk*>, TableLimits::kColumns / kChunk + 1> chunks_{};
  std::atomic<std::size_t> size_{0};
  std::vector<std::unique_ptr<Slots>> all_slots_;  // each at most half full; readers may still use old ones
  std::vector<std::unique_ptr<StoredColumn>> columns_;
  std::vector<std::unique_ptr<Chunk>> all_chunks_;
};

}  // namespace hako::table
