#include "hako/table/column_names.h"

#include <algorithm>

#include "hako/base/hash.h"

namespace hako::table {

ColumnNames::ColumnNames() {
  all_slots_.push_back(std::make_unique<Slots>(64));
  slots_.store(all_slots_.back().get(), std::memory_order_release);
}
ColumnNames::~ColumnNames() = default;

std::size_t ColumnNames::HashOf(std::string_view name) { return Hash64(name, 0); }

std::atomic<const StoredColumn*>& ColumnNames::SlotOf(Slots& slots, std::string_view name) {
  for (std::size_t i = HashOf(name);; ++i) {
    std::atomic<const StoredColumn*>& slot = slots[i % slots.size()];
    const StoredColumn* const found = slot.load(std::memory_order_relaxed);
    if (found == nullptr || found->name == name) return slot;
  }
}

const StoredColumn* ColumnNames::Prepare(StoredColumn column) {
  const auto number = static_cast<std::size_t>(column.id);
  std::atomic<Chunk*>& chunk = chunks_[number / kChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    all_chunks_.push_back(std::make_unique<Chunk>());
    chunk.store(all_chunks_.back().get(), std::memory_order_release);
  }
  Slots* slots = all_slots_.back().get();
  if (2 * (number + 1) > slots->size()) {
    all_slots_.push_back(std::make_unique<Slots>(4 * slots->size()));
    Slots* const larger = all_slots_.back().get();
    for (const auto& slot : *slots) {
      if (const StoredColumn* const old = slot.load(std::memory_order_relaxed)) SlotOf(*larger, old->name).store(old);
    }
    slots_.store(larger, std::memory_order_release);
  }
  columns_.push_back(std::make_unique<StoredColumn>(std::move(column)));
  const StoredColumn* const prepared = columns_.back().get();
  if (CellOf(prepared->id).load(std::memory_order_relaxed) == nullptr) CellOf(prepared->id).store(prepared, std::memory_order_release);
  return prepared;
}

void ColumnNames::Publish(const StoredColumn* column) noexcept {
  CellOf(column->id).store(column, std::memory_order_release);
  SlotOf(*all_slots_.back(), column->name).store(column, std::memory_order_release);
  size_.store(std::max(size(), static_cast<std::size_t>(column->id)), std::memory_order_release);
}

// Columns are withdrawn in the reverse order of their addition, so an emptied slot ends no search
// for another name too early. A published number is not used again, because a query may have looked
// it up.
void ColumnNames::Withdraw(const StoredColumn* column) noexcept {
  CellOf(column->id).store(nullptr, std::memory_order_release);
  std::atomic<const StoredColumn*>& slot = SlotOf(*all_slots_.back(), column->name);
  if (slot.load(std::memory_order_relaxed) == column)
    slot.store(nullptr, std::memory_order_release);
  else if (columns_.back().get() == column)
    columns_.pop_back();
}

}  // namespace hako::table
