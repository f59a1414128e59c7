#include "hako/table/row_numbers.h"

#include <algorithm>
#include <array>
#include <limits>

#include "hako/base/assert.h"
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
  knows_zones_ = end == 0;
  return absl::OkStatus();
}

// Whether so few numbers are free that new ones are taken: reuse mixes rows of different keys in a zone.
bool RowNumbers::IsScarce() const {
  static constexpr std::uint64_t kReusedPart = 4;
  return NumFree() == 0 || (NumFree() < std::min<std::uint64_t>(kFreeMax / 2, next_ / kReusedPart) && next_ != kNumbersMax);
}

StatusOr<RowNumber> RowNumbers::Take(std::string_view key) {
  static constexpr std::uint64_t kNewOnes = 16;  // of these one continues the scan
  std::optional<ScanPart> part;
  {
    const sync::MutexLock lock(mutex_);
    if (IsScarce()) Advance();
    if (IsScarce() && next_ % kNewOnes == 0) part = BeginScan();
  }
  if (part) HAKO_RETURN_IF_ERROR(Scan(*part, 1));
  const sync::MutexLock lock(mutex_);
  const bool is_new = IsScarce();
  if (is_new && next_ == kNumbersMax)  // the end of a block is a number more
    return absl::OutOfRangeError("4,294,967,295 numbers of rows are in use, the limit of text indices");
  const RowNumber number = is_new ? static_cast<RowNumber>(next_) : free_[first_free_];
  zones_.Add(number, key);
  if (is_new) {
    ++next_;
  } else if (2 * ++first_free_ > free_.size()) {
    CompactFree();
  }
  return number;
}

// Returns where to continue the scan, if it is this thread's turn.
std::optional<RowNumbers::ScanPart> RowNumbers::BeginScan() {
  if (scanned_ == scan_end_ || is_scanning_ || epoch_ < scans_from_) return std::nullopt;
  is_scanning_ = true;
  return ScanPart{.begin = scanned_, .scans_from = scans_from_, .blocks = {}};
}

// Looks for rows and for free numbers in `num_parts` parts of the key blocks, of which `part` is the first one.
Status RowNumbers::Scan(ScanPart& part, std::size_t num_parts) {
  StatusOr<bool> goes_on = true;
  for (std::size_t i = 0; i < num_parts && goes_on.ok() && *goes_on; ++i) {
    goes_on = CatchNoMemory([&]() -> StatusOr<bool> {
      HAKO_RETURN_IF_ERROR(ReadPart(part));
      return NotePart(part);
    });
  }
  const sync::MutexLock lock(mutex_);
  is_scanning_ = false;
  return goes_on.status();
}

Status RowNumbers::ReadPart(ScanPart& part) {
  std::string bytes;
  for (std::size_t i = 0; i < part.blocks.size(); ++i) {
    const std::uint64_t block = part.begin / kKeysOfBlock + i;
    const Status fetched = store_.FetchTo(KeyBlockKey(static_cast<std::uint32_t>(block)), &bytes);
    if (!fetched.ok() && !absl::IsNotFound(fetched)) return fetched;
    part.blocks[i].Clear();
    if (fetched.ok() && !part.blocks[i].Decode(bytes)) return DamagedKeyBlockError();
  }
  return absl::OkStatus();
}

// Moves to the next part. Returns whether there is one.
bool RowNumbers::NotePart(ScanPart& part) {
  const sync::MutexLock lock(mutex_);
  if (part.scans_from != scans_from_) return false;  // all rows have been removed meanwhile
  const std::uint64_t first = part.begin / kKeysOfBlock * kKeysOfBlock;
  const std::uint64_t end = std::min(scan_end_, first + part.blocks.size() * kKeysOfBlock);
  CompactFree();
  free_.reserve(free_.size() + part.blocks.size() * kKeysOfBlock);
  for (; scanned_ < end; ++scanned_) {
    const auto number = static_cast<RowNumber>(scanned_);
    const KeyBlock& block = part.blocks[(scanned_ - first) / kKeysOfBlock];
    const unsigned slot = number % kKeysOfBlock;
    if (block.has(slot)) zones_.Add(number, block.key(slot));
    if (known_.erase(number) == 0 && !block.has(slot)) free_.push_back(number);
  }
  part.begin = scanned_;
  if (scanned_ == scan_end_) knows_zones_ = true;
  return scanned_ != scan_end_;
}

// A block that cannot be read is left to those who need it.
bool RowNumbers::KnowsOrder(bool is_reversed) {
  static constexpr std::size_t kPartsAtOnce = 2048;
  std::optional<ScanPart> part;
  {
    const sync::MutexLock lock(mutex_);
    if (knows_zones_) return zones_.HasOrder(is_reversed);
    part = BeginScan();
  }
  if (part) (void)Scan(*part, kPartsAtOnce);
  const sync::MutexLock lock(mutex_);
  return knows_zones_ && zones_.HasOrder(is_reversed);
}

std::size_t RowNumbers::NumZones() {
  const sync::MutexLock lock(mutex_);
  return zones_.size();
}

void RowNumbers::SeeNextZones(RowZones::Seen& seen, std::size_t count, std::string_view from, std::string_view to,
                              std::vector<RowZones::Zone>* zones) {
  const sync::MutexLock lock(mutex_);
  HAKO_DCHECK(knows_zones_);
  zones_.SeeNext(seen, count, from, to, zones);
}

void RowNumbers::CompactFree() {
  free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(first_free_));
  first_free_ = 0;
}

// Begins a new epoch if all queries of the one before the present one have ended. Then nobody knows the
// numbers that were retired in it any more.
void RowNumbers::Advance() {
  const std::size_t before = (epoch_ + 1) % 2;
  if (num_queries_[before] != 0) return;
  for (const RowNumber number : retired_[before]) {
    if (NumFree() < kFreeMax && free_.size() < free_.capacity())
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
  for (const RowNumber number : numbers) zones_.Remove(number);
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
  for (const RowNumber number : numbers) zones_.Remove(number);
  HAKO_TRY {
    auto& retired = retired_[epoch_ % 2];
    retired.insert(retired.end(), numbers.begin(), numbers.end());
    CompactFree();
    free_.reserve(std::min(kFreeMax, free_.size() + retired_[0].size() + retired_[1].size()));
  }
  HAKO_CATCH_NO_MEMORY()
}

void RowNumbers::RetireAll() {
  const sync::MutexLock lock(mutex_);
  free_.clear();
  first_free_ = 0;
  known_.clear();
  for (auto& retired : retired_) retired.clear();
  scanned_ = 0;
  scan_end_ = next_;
  scans_from_ = std::max(epoch_ + 2, scans_from_ + 1);
  zones_.Clear();
  knows_zones_ = true;
}

std::uint64_t RowNumbers::Generation() {
  const sync::MutexLock lock(mutex_);
  return scans_from_;
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
