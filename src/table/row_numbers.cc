#include "hako/table/row_numbers.h"

#include <algorithm>
#include <array>
#include <limits>

#include "hako/base/no_memory.h"
#include "hako/table/index_key.h"

namespace hako::table {

Status RowNumbers::Open() {
  const auto cursor = store_.MakeCursor();
  cursor->JumpLower(std::string{kNumberSpace + 1}, false);
  HAKO_RETURN_IF_ERROR(cursor->status());
  std::uint64_t end = 0;
  if (cursor->Valid() && cursor->key()[0] == kNumberSpace) {
    KeyBlock block;
    if (cursor->key().size() != kKeyBlockKeySize || !block.Decode(cursor->value())) return DamagedKeyBlockError();
    const std::uint64_t first = std::uint64_t{BigEndian32At(cursor->key())} * kKeysOfBlock;
    for (unsigned slot = 0; slot < kKeysOfBlock; ++slot) {
      if (block.has(slot)) end = first + slot + 1;
    }
  }
  const sync::MutexLock lock(mutex_);
  next_ = scan_end_ = end;
  return absl::OkStatus();
}

StatusOr<RowNumber> RowNumbers::Take() {
  if (const auto from = BeginScan()) HAKO_RETURN_IF_ERROR(Scan(*from));
  const sync::MutexLock lock(mutex_);
  if (!free_.empty()) {
    const RowNumber number = free_.back();
    free_.pop_back();
    return number;
  }
  if (next_ == std::numeric_limits<RowNumber>::max())  // the end of a block is a number more
    return absl::OutOfRangeError("4,294,967,295 numbers of rows are in use, the limit of text indices");
  return static_cast<RowNumber>(next_++);
}

// Returns where to continue the scan, if it is this thread's turn.
std::optional<std::uint64_t> RowNumbers::BeginScan() {
  static constexpr std::uint64_t kNewOnes = 16;  // of these one continues the scan
  const sync::MutexLock lock(mutex_);
  if (free_.empty()) Advance();
  if (!free_.empty() || next_ % kNewOnes != 0 || scanned_ == scan_end_ || is_scanning_ || epoch_ < scans_from_) return std::nullopt;
  is_scanning_ = true;
  return scanned_;
}

// Looks for free numbers in two key blocks.
Status RowNumbers::Scan(std::uint64_t from) {
  std::array<KeyBlock, 2> blocks;
  const auto read = [&]() -> Status {
    std::string bytes;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::uint64_t block = from / kKeysOfBlock + i;
      const Status fetched = store_.FetchTo(KeyBlockKey(static_cast<std::uint32_t>(block)), &bytes);
      if (!fetched.ok() && !absl::IsNotFound(fetched)) return fetched;
      if (fetched.ok() && !blocks[i].Decode(bytes)) return DamagedKeyBlockError();
    }
    return absl::OkStatus();
  };
  const Status status = CatchNoMemory(read);
  const sync::MutexLock lock(mutex_);
  is_scanning_ = false;
  HAKO_RETURN_IF_ERROR(status);
  free_.reserve(free_.size() + blocks.size() * kKeysOfBlock);
  const std::uint64_t end = std::min(scan_end_, (from / kKeysOfBlock + blocks.size()) * kKeysOfBlock);
  for (; scanned_ < end; ++scanned_) {
    const auto number = static_cast<RowNumber>(scanned_);
    if (known_.erase(number) == 0 && !blocks[(scanned_ - from / kKeysOfBlock * kKeysOfBlock) / kKeysOfBlock].has(number % kKeysOfBlock))
      free_.push_back(number);
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

void RowNumbers::Announce(std::span<const RowNumber> numbers) {
  if (numbers.empty()) return;
  const sync::MutexLock lock(mutex_);
  for (const RowNumber number : numbers) {
    if (IsUnscanned(number)) known_.insert(number);
  }
}

void RowNumbers::Retire(std::span<const RowNumber> numbers) noexcept {
  if (numbers.empty()) return;
  const sync::MutexLock lock(mutex_);
  HAKO_TRY {
    auto& retired = retired_[epoch_ % 2];
    retired.insert(retired.end(), numbers.begin(), numbers.end());
    free_.reserve(std::min(kFreeMax, free_.size() + retired_[0].size() + retired_[1].size()));
  }
  HAKO_CATCH_NO_MEMORY()
}

void RowNumbers::RetireAll() {
  const sync::MutexLock lock(mutex_);
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
