// ColumnNames: the columns of a table, by name and by number. A column gets its number once and
// keeps it; its schema may change.
//
// Threads: Find and Get take no lock and see every column whose Add has returned before; one thread
// at a time may call Add. Their results stay valid as long as the ColumnNames.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hako/table/row.h"
#include "hako/table/schema.h"

namespace hako::table {

// A column, which never changes; a new schema makes another object of the same number.
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

  // nullptr if there is none.
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
  // Numbers are 1 to this.
  std::size_t size() const { return size_.load(std::memory_order_acquire); }

  // Adds a column or replaces the one of the same number and name.
  void Add(StoredColumn column);

 private:
  static constexpr std::size_t kChunk = 256;
  using Slots = std::vector<std::atomic<const StoredColumn*>>;
  using Chunk = std::array<std::atomic<const StoredColumn*>, kChunk>;

  static std::size_t HashOf(std::string_view name);
  static void Put(Slots& slots, const StoredColumn* column);

  std::atomic<const Slots*> slots_;
  std::array<std::atomic<Chunk*>, TableLimits::kColumns / kChunk + 1> chunks_{};
  std::atomic<std::size_t> size_{0};
  std::vector<std::unique_ptr<Slots>> all_slots_;  // each half full at most; old ones may be in use
  std::vector<std::unique_ptr<StoredColumn>> columns_;
  std::vector<std::unique_ptr<Chunk>> all_chunks_;
};

}  // namespace hako::table
