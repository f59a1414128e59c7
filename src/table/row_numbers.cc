#include "hako/table/row_numbers.h"

#include <algorithm>
#include <limits>

#include "hako/base/no_memory.h"
#include "hako/table/index_key.h"

namespace hako::table {
namespace {

Status DamagedKeyBlockError() { return absl::DataLossError("a block of the keys of rows by number is damaged"); }

}  // namespace

StatusOr<RowNumber> RowNumbers::Take() {
  static constexpr std::uint64_t kNewOnes = 16;  // of these one continues the scan
  const sync::MutexLock lock(mutex_);
  if (!knows_end_) HAKO_RETURN_IF_ERROR(FindEnd());
  if (free_.empty()) Advance();
  if (free_.empty() && next_ % kNewOnes == 0) HAKO_RETURN_IF_ERROR(Scan());
  if (!free_.empty()) {
    const RowNumber number = free_.back();
    free_.pop_back();
    return number;
  }
  if (next_ == std::numeric_limits<RowNumber>::max())  // the end of a block is a number more
    return absl::OutOfRangeError("4,294,967,295 numbers of rows are in use, the limit of text indices");
  return static_cast<RowNumber>(next_++);
}

Status RowNumbers::FindEnd() {
  const auto cursor = store_.MakeCursor();
  cursor->JumpLower(std::string{kNumberSpace + 1}, false);
  HAKO_RETURN_IF_ERROR(cursor->status());
  if (cursor->Valid() && cursor->key()[0] == kNumberSpace) {
    KeyBlock block;
    if (cursor->key().size() != kKeyBlockKeySize || !block.Decode(cursor->value())) return DamagedKeyBlockError();
    const std::uint64_t first = std::uint64_t{BigEndian32At(cursor->key())} * kKeysOfBlock;
    for (unsigned slot = 0; slot < kKeysOfBlock; ++slot) {
      if (block.has(slot)) next_ = first + slot + 1;
    }
  }
  scan_end_ = next_;
  knows_end_ = true;
  return absl::OkStatus();
}

// Looks for free numbers in two key blocks.
Status RowNumbers::Scan() {
  if (epoch_ < scans_from_) return absl::OkStatus();
  KeyBlock block;
  std::string bytes;
  for (int i = 0; i < 2 && scanned_ < scan_end_; ++i) {
    const auto number = static_cast<RowNumber>(scanned_ / kKeysOfBlock);
    const Status read = store_.FetchTo(KeyBlockKey(number), &bytes);
    if (!read.ok() && !absl::IsNotFound(read)) return read;
    block.Clear();
    if (read.ok() && !block.Decode(bytes)) return DamagedKeyBlockError();
    free_.reserve(free_.size() + kKeysOfBlock);
    for (unsigned slot = 0; slot < kKeysOfBlock && scanned_ < scan_end_; ++slot, ++scanned_) {
      const auto one = static_cast<RowNumber>(scanned_);
      if (known_.erase(one) == 0 && !block.has(slot)) free_.push_back(one);
    }
  }
  return absl::OkStatus();
}

// Begins a new epoch if all queries of the one before the present one have ended. Then nobody knows the
// numbers that were retired in it any more.
void RowNumbers::Advance() {
  const std::size_t before = (epoch_ + 1) % 2;
  if (num_queries_[before] != 0) return;
  for (const RowNumber number : retired_[before]) {
    if (free_.size() < kFreeMax && free_.size() < free_.capacity())
      free_.push_back(number);
    else
      known_.erase(number);  // the scan finds it again, or the next Open
  }
  retired_[before].clear();
  ++epoch_;
}

void RowNumbers::GiveBack(std::span<const RowNumber> numbers) noexcept {
  if (numbers.empty()) return;
  const sync::MutexLock lock(mutex_);
  HAKO_TRY { free_.insert(free_.end(), numbers.begin(), numbers.end()); }
  HAKO_CATCH_NO_MEMORY()  // the numbers are not given again before the next Open
}

void RowNumbers::Retire(std::span<const RowNumber> numbers) noexcept {
  if (numbers.empty()) return;
  const sync::MutexLock lock(mutex_);
  HAKO_TRY {
    if (!knows_end_) {  // the scan will find them, but no query that runs now may
      scans_from_ = epoch_ + 2;
      return;
    }
    auto& retired = retired_[epoch_ % 2];
    for (const RowNumber number : numbers) {
      if (IsUnscanned(number)) known_.insert(number);
      retired.push_back(number);
    }
    free_.reserve(std::min(kFreeMax, free_.size() + retired_[0].size() + retired_[1].size()));
  }
  HAKO_CATCH_NO_MEMORY()
}

void RowNumbers::RetireAll() {
  const sync::MutexLock lock(mutex_);
  if (!knows_end_) {
    knows_end_ = FindEnd().ok();
    if (!knows_end_) return;
  }
  free_.clear();
  known_.clear();
  for (auto& retired : retired_) retired.clear();
  scanned_ = 0;
  scan_end_ = next_;
  scans_from_ = epoch_ + 2;
}

unsigned RowNumbers::Begin() {
  const sync::MutexLock lock(mutex_);
  const auto epoch = static_cast<unsigned>(epoch_ % 2);
  ++num_queries_[epoch];
  return epoch;
}

void RowNumbers::End(unsigned epoch) {
  const sync::MutexLock lock(mutex_);
  --num_queries_[epoch];
}

}  // namespace hako::table
