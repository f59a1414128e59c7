#include "hako/table/column_names.h"

#include <algorithm>
#include <utility>

#include "hako/base/hash.h"

namespace hako::table {

ColumnNames::ColumnNames() {
  all_slots_.push_back(std::make_unique<Slots>(64));
  slots_.store(all_slots_.back().get(), std::memory_order_release);
}
ColumnNames::~ColumnNames() = default;

std::size_t ColumnNames::HashOf(std::string_view name) { return Hash64(name, 0); }

void ColumnNames::Put(Slots& slots, const StoredColumn* column) {
  for (std::size_t i = HashOf(column->name);; ++i) {
    std::atomic<const StoredColumn*>& slot = slots[i % slots.size()];
    const StoredColumn* const found = slot.load(std::memory_order_relaxed);
    if (found == nullptr || found->name == column->name) return slot.store(column, std::memory_order_release);
  }
}

void ColumnNames::Add(StoredColumn column) {
  columns_.push_back(std::make_unique<StoredColumn>(std::move(column)));
  const StoredColumn* const added = columns_.back().get();
  const auto number = static_cast<std::size_t>(added->id);
  std::atomic<Chunk*>& chunk = chunks_[number / kChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    all_chunks_.push_back(std::make_unique<Chunk>());
    chunk.store(all_chunks_.back().get(), std::memory_order_release);
  }
  (*chunk.load(std::memory_order_relaxed))[number % kChunk].store(added, std::memory_order_release);
  Slots* slots = all_slots_.back().get();
  if (2 * (number + 1) > slots->size()) {
    all_slots_.push_back(std::make_unique<Slots>(4 * slots->size()));
    Slots* const larger = all_slots_.back().get();
    for (const auto& slot : *slots) {
      if (const StoredColumn* const old = slot.load(std::memory_order_relaxed)) Put(*larger, old);
    }
    slots = larger;
  }
  Put(*slots, added);
  slots_.store(slots, std::memory_order_release);
  size_.store(std::max(size(), number), std::memory_order_release);
}

}  // namespace hako::table
