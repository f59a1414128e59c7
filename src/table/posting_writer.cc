#include "hako/table/posting_writer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/endian.h"
#include "hako/base/hash.h"
#include "hako/base/prefetch.h"
#include "hako/base/random_seed.h"
#include "hako/table/index_key.h"
#include "hako/table/table_core.h"

namespace hako::table {
namespace {

// Whether the only block of a list has no number.
bool IsEmptyList(std::string_view block, std::uint64_t end) { return block == std::string_view("\0", 1) && end == PostingBlock::kNoEnd; }

// The space of the entries, which all lists have in common, and the most bytes behind it in a head.
constexpr std::size_t kSpaceSize = 1, kHeadSize = sizeof(std::uint64_t);
// The sizes of the first slice of a list, and of the largest ones, log2.
constexpr unsigned kFirstSlice = 5, kLastSlice = 12;

// Returns the first bytes of a list behind the space as a number of their order, with zero bytes behind them. Lists of
// no more bytes have different heads, as no word has a zero byte.
std::uint64_t HeadOf(std::string_view list) {
  const std::size_t size = list.size() - kSpaceSize;
  if (size >= kHeadSize) return LoadBigEndian(list.data() + kSpaceSize);
  if (size >= 4)
    return std::uint64_t{BigEndian32At(list.substr(0, kSpaceSize + 4))} << 32 | std::uint64_t{BigEndian32At(list)} << (64 - 8 * size);
  std::uint64_t head = 0;
  for (std::size_t i = kSpaceSize; i < list.size(); ++i) head = head << 8 | static_cast<unsigned char>(list[i]);
  return size == 0 ? 0 : head << (64 - 8 * size);
}

}  // namespace

void PostingWriter::Clear() {
  if (IsEmpty()) return;
  for (const List& list : lists_) slots_[list.slot].list = 0;
  lists_.clear();
  slices_.Clear();
  num_changes_ = num_pending_ = 0;
  keys_.clear();
  list_bytes_.Clear();
  bytes_.Clear();
  changes_.clear();
  position_bytes_.clear();
  key_changes_.clear();
  operations_.clear();
}

std::span<char> PostingWriter::Arena::Room(std::size_t size) {
  if (chunks_.empty() || chunks_.back().capacity() - chunks_.back().size() < size) {
    chunks_.emplace_back();
    chunks_.back().reserve(std::max(kChunk, size));
  }
  std::string& chunk = chunks_.back();
  chunk.resize(chunk.size() + size);
  return std::span(chunk).last(size);
}

void PostingWriter::Arena::Clear() {
  if (chunks_.size() > 1) chunks_.resize(1);
  if (!chunks_.empty()) chunks_[0].clear();
}

std::string_view PostingWriter::Keep(std::string_view bytes) {
  const std::span<char> room = bytes_.Room(bytes.size());
  bytes.copy(room.data(), bytes.size());
  return {room.data(), bytes.size()};
}

std::uint32_t PostingWriter::Slices::Make(unsigned log_size) {
  const auto units = static_cast<std::uint32_t>((std::size_t{1} << log_size) / kUnit);
  if (used_ % kUnits + units > kUnits || used_ == blocks_.size() * kUnits) {
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(kUnits * kUnit));
    used_ = static_cast<std::uint32_t>((blocks_.size() - 1) * kUnits);
  }
  return std::exchange(used_, used_ + units);
}

void PostingWriter::Slices::Clear() {
  if (blocks_.size() > 1) blocks_.resize(1);
  used_ = 0;
}

void PostingWriter::PushByte(Slot& slot, char byte) {
  if (slot.used == 1u << slot.log_size) {
    const unsigned log_size = std::min(slot.log_size + 1u, kLastSlice);
    const std::uint32_t next = slices_.Make(log_size);
    std::memcpy(slices_.at(slot.slice), &next, sizeof(next));
    slot.slice = next;
    slot.log_size = log_size & 0xf;
    slot.used = sizeof(next);
  }
  slices_.at(slot.slice)[slot.used++] = byte;
}

std::uint64_t PostingWriter::Seed() {
  static const std::uint64_t seed = RandomSeed();
  return seed;
}

void PostingWriter::AddPending(std::string_view list, const NumberChange& change) {
  if (slots_.empty()) MakeSlots();
  if (list.size() > kSpaceSize + kHeadSize) {
    MakePending();
    MakeSlots();
    MakeChange(SlotOf(list, Hash64(list, seed_), true, change.position != kNoPosition), change);
    return;
  }
  const std::uint64_t head = HeadOf(list);
  Prefetch(&slots_[FirstSlot(head)]);
  pending_[num_pending_++] = {head, list.size(), change, nullptr};
}

void PostingWriter::MakePending() {
  if (num_pending_ == 0) return;
  MakeSlots();
  const auto pending = std::span(pending_).first(std::exchange(num_pending_, 0));
  for (Pending& one : pending) {
    char list[kSpaceSize + kHeadSize] = {kEntrySpace};
    StoreBigEndian(one.head, list + kSpaceSize);
    one.slot = &SlotOf({list, one.size}, one.head, false, one.change.position != kNoPosition);
    Prefetch(slices_.at(one.slot->slice) + one.slot->used);
  }
  for (const Pending& one : pending) MakeChange(*one.slot, one.change);
}

void PostingWriter::PushVarint(Slot& slot, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) PushByte(slot, static_cast<char>(number | 0x80));
  PushByte(slot, static_cast<char>(number));
}

void PostingWriter::MakeChange(Slot& slot, const NumberChange& change) {
  const bool is_first = slot.used == sizeof(slot.slice) && slot.log_size == kFirstSlice, has_position = change.position != kNoPosition;
  if (is_first || slot.last != change.number || slot.adds != change.adds) {
    slot.num_positions = has_position ? 1 : 0;
    ++num_changes_;
  } else {
    if (!has_position || slot.num_positions > kPositionBytesMax) return;
    ++slot.num_positions;
  }
  const std::int64_t above = std::int64_t{change.number} - slot.last;
  PushVarint(slot, static_cast<std::uint64_t>(above < 0 ? ~above : above) << 2 | (above < 0 ? 2u : 0u) | change.adds);
  if (has_position) PushVarint(slot, change.position);
  slot.last = change.number;
  slot.adds = change.adds;
}

PostingWriter::Slot& PostingWriter::SlotOf(std::string_view list, std::uint64_t head, bool is_long, bool has_positions) {
  HAKO_DCHECK(lists_.size() < slots_.size());
  for (std::size_t at = FirstSlot(head);; ++at) {
    Slot& slot = slots_[at & (slots_.size() - 1)];
    if (slot.list != 0) {
      if (slot.head == head && slot.is_long == is_long && (!is_long || lists_[slot.list - 1].key == list)) return slot;
      continue;
    }
    const std::span<char> key = list_bytes_.Room(list.size());
    list.copy(key.data(), key.size());
    const std::uint32_t slice = slices_.Make(kFirstSlice);
    lists_.push_back({{key.data(), key.size()}, static_cast<std::uint32_t>(&slot - slots_.data()), slice, has_positions});
    slot = {head, static_cast<std::uint32_t>(lists_.size()), 0, slice, sizeof(slice), kFirstSlice, is_long, false, 0};
    return slot;
  }
}

void PostingWriter::MakeSlots() {
  static constexpr std::size_t kSlotsMin = 1024;
  if (3 * slots_.size() >= 4 * (lists_.size() + kPendingMax)) return;
  std::vector<Slot> before(std::max(kSlotsMin, 2 * slots_.size()));
  slots_.swap(before);
  for (const Slot& slot : before) {
    if (slot.list == 0) continue;
    std::size_t at = FirstSlot(slot.head);
    while (slots_[at & (slots_.size() - 1)].list != 0) ++at;
    at &= slots_.size() - 1;
    slots_[at] = slot;
    lists_[slot.list - 1].slot = static_cast<std::uint32_t>(at);
  }
}

void PostingWriter::Decode(const List& list) {
  const Slot& slot = slots_[list.slot];
  std::int64_t number = 0;
  std::uint64_t read = 0;
  unsigned shift = 0;
  bool is_position = false;
  std::uint32_t slice = list.first_slice;
  for (unsigned log_size = kFirstSlice;; log_size = std::min(log_size + 1, kLastSlice)) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(slices_.at(slice));
    const bool is_last = slice == slot.slice;
    const unsigned char* const end = bytes + (is_last ? slot.used : std::size_t{1} << log_size);
    std::size_t size = changes_.size();
    changes_.resize(size + static_cast<std::size_t>(end - bytes));  // none has less than a byte
    for (const unsigned char* at = bytes + sizeof(slice); at != end; ++at) {
      read |= std::uint64_t{*at & 0x7fu} << shift;
      shift += 7;
      if (*at >= 0x80) continue;
      if (is_position) {
        changes_[size - 1].position = read & kNoPosition;
      } else {
        const auto above = static_cast<std::int64_t>(read >> 2);
        number += (read & 2) != 0 ? ~above : above;
        changes_[size++] = {static_cast<RowNumber>(number), (read & 1) != 0, kNoPosition};
      }
      is_position = list.has_positions && !is_position;
      read = shift = 0;
    }
    changes_.resize(size);
    if (is_last) return;
    std::memcpy(&slice, bytes, sizeof(slice));
  }
}

void PostingWriter::KeepPositions(std::span<const NumberChange> changes, bool adds) {
  positions_.clear();
  for (const NumberChange& change : changes) {
    if (change.adds == adds) positions_.push_back(change.position);
  }
  AppendPositions(positions_, &position_bytes_);
}

void PostingWriter::DecodeChanges(const List& list) {
  const std::size_t begin = changes_.size();
  Decode(list);
  const auto first = changes_.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto is_before = [](const NumberChange& a, const NumberChange& b) { return a.number < b.number; };
  const auto is_not_before = [](const NumberChange& a, const NumberChange& b) { return a.number >= b.number; };
  if (!list.has_positions && std::adjacent_find(first, changes_.end(), is_not_before) == changes_.end()) return;
  if (!std::is_sorted(first, changes_.end(), is_before)) std::stable_sort(first, changes_.end(), is_before);
  std::size_t kept = begin;
  for (std::size_t i = begin; i < changes_.size();) {
    const RowNumber number = changes_[i].number;
    const std::size_t from = i;
    bool adds = false, removes = false;
    for (; i < changes_.size() && changes_[i].number == number; ++i) (changes_[i].adds != 0 ? adds : removes) = true;
    const std::size_t added = position_bytes_.size();
    if (adds && list.has_positions) {
      const auto of_number = std::span(changes_).subspan(from, i - from);
      KeepPositions(of_number, true);
      const std::size_t removed = position_bytes_.size();
      if (removes) {
        KeepPositions(of_number, false);
        const std::string_view bytes = position_bytes_;
        removes = bytes.substr(added, removed - added) == bytes.substr(removed);
        position_bytes_.resize(removes ? added : removed);
      }
    }
    if (adds != removes) changes_[kept++] = {number, adds, static_cast<std::uint32_t>(added) & kNoPosition};
  }
  changes_.resize(kept);
}

void PostingWriter::Sort() {
  MakePending();
  order_.clear();
  order_.reserve(lists_.size());
  for (const List& list : lists_) order_.push_back({HeadOf(list.key), static_cast<std::uint32_t>(order_.size())});
  std::sort(order_.begin(), order_.end(), [this](const Ordered& a, const Ordered& b) {
    return a.head != b.head ? a.head < b.head : lists_[a.list].key < lists_[b.list].key;
  });
}

Status PostingWriter::Plan(TableCore& core) {
  Sort();
  changes_.clear();
  position_bytes_.clear();
  changes_.reserve(num_changes_ + (std::size_t{1} << kLastSlice));
  for (std::size_t first = 0; first < order_.size();) HAKO_RETURN_IF_ERROR(PlanLists(core, &first, order_.size()));
  PlanKeys();
  return absl::OkStatus();
}

StatusOr<std::size_t> PostingWriter::PlanSome(TableCore& core, std::size_t first) {
  static constexpr std::size_t kListsMax = 1024, kChangesMax = 1 << 15;
  operations_.clear();
  bytes_.Clear();
  changes_.clear();
  position_bytes_.clear();
  const std::size_t behind = std::min(order_.size(), first + kListsMax);
  while (first < behind && changes_.size() < kChangesMax) HAKO_RETURN_IF_ERROR(PlanLists(core, &first, behind));
  return first;
}

std::size_t PostingWriter::Bytes() const {
  static constexpr std::size_t kNewLists = 4096;
  const std::size_t growth = 3 * slots_.size() < 4 * (lists_.size() + kNewLists) ? 3 : 1;
  return growth * slots_.size() * sizeof(Slot) + slices_.Bytes() + 2 * lists_.capacity() * sizeof(List) + lists_.size() * sizeof(Ordered) +
         list_bytes_.Bytes();
}

// Reads the last blocks together: most changes are in these.
Status PostingWriter::PlanLists(TableCore& core, std::size_t* first, std::size_t behind) {
  static constexpr std::size_t kListsAtOnce = 256;
  const auto lists = std::span(order_).subspan(*first, std::min(behind - *first, kListsAtOnce));
  std::vector<std::string_view> keys;
  std::vector<std::optional<std::string_view>> blocks(lists.size());
  for (const Ordered& ordered : lists) {
    buffer_.assign(lists_[ordered.list].key);
    AppendLastBlock(&buffer_);
    keys.push_back(Keep(buffer_));
  }
  HAKO_RETURN_IF_ERROR(core.store->FetchMulti(
      keys,
      [&](std::size_t i, std::size_t size) {
        const std::span<char> room = bytes_.Room(size);
        blocks[i] = std::string_view(room.data(), size);
        return room.data();
      },
      [&](std::size_t i, bool is_there) {
        if (!is_there) blocks[i].reset();
      }));
  std::optional<PooledCursor> cursor;  // at a block of the last list that had changes in other blocks
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const List& list = lists_[lists[i].list];
    const std::size_t change = changes_.size();
    DecodeChanges(list);
    if (position_bytes_.size() > kNoPosition)
      return absl::OutOfRangeError(
          "the changes have more positions of words and q-grams than one atomic step may have; make them in parts");
    if (change != changes_.size()) HAKO_RETURN_IF_ERROR(PlanList(core, list, blocks[i], change, changes_.size(), &cursor));
  }
  *first += lists.size();
  return absl::OkStatus();
}

Status PostingWriter::PlanList(TableCore& core, const List& list, std::optional<std::string_view> last, std::size_t first,
                               std::size_t behind, std::optional<PooledCursor>* pooled) {
  const std::optional<PostingBlock> block = last ? DecodePostingHead(*last) : PostingBlock();
  if (!block) return DamagedPostingsError();
  while (first < behind && changes_[first].number < block->begin) {
    buffer_.assign(list.key);
    AppendBlock(changes_[first].number + 1, &buffer_);
    const bool has_moved = pooled->has_value();
    if (!has_moved) pooled->emplace(core);
    internal::AnyCursor& cursor = ***pooled;
    has_moved&& cursor.Valid() && cursor.key() <= buffer_ ? cursor.JumpAhead(buffer_) : cursor.JumpBriefly(buffer_);
    HAKO_RETURN_IF_ERROR(cursor.status());
    if (!cursor.Valid()) return MismatchError();  // the list has changed between two reads
    const std::optional<BlockKey> key = ParseBlockKey(cursor.key());
    if (!key || key->list != list.key || key->end == PostingBlock::kNoEnd) return MismatchError();
    std::size_t next = first + 1;
    while (next < behind && changes_[next].number < key->end) ++next;
    HAKO_RETURN_IF_ERROR(PlanBlock(list, key->end, Keep(cursor.value()), first, next));
    first = next;
  }
  return first == behind ? absl::OkStatus() : PlanBlock(list, PostingBlock::kNoEnd, last, first, behind);
}

bool PostingWriter::ChangeInPlace(const Operation& operation, std::string_view block) {
  if (operation.num_changes != 1) return false;
  const NumberChange& change = changes_[operation.first_change];
  const std::string_view positions = operation.has_positions && change.adds != 0 ? PositionsOf(change) : std::string_view();
  return ChangePosting(block, operation.end, change.number, change.adds != 0, &buffer_, operation.has_positions ? &positions : nullptr) &&
         !IsEmptyList(buffer_, operation.end);
}

std::optional<PostingBlock> PostingWriter::Decode(const Operation& operation, std::string_view block) {
  before_.numbers.clear();
  before_.positions.clear();
  if (!operation.has_positions) return DecodePostings(block, operation.end, &before_.numbers);
  std::string_view rest;
  const std::optional<PostingBlock> decoded = DecodePostings(block, operation.end, &before_.numbers, &rest);
  for (std::size_t i = 0; decoded && i < decoded->count; ++i) {
    before_.positions.push_back(TakePositions(&rest));
    if (before_.positions.back().empty()) return std::nullopt;
  }
  return rest.empty() ? decoded : std::nullopt;
}

bool PostingWriter::Apply(std::span<const NumberChange> changes, bool has_positions) {
  after_.numbers.clear();
  after_.positions.clear();
  bool has_changed = false;
  const std::span<const RowNumber> numbers = before_.numbers;
  const auto copy = [&](std::size_t from, std::size_t to) {
    const auto copy_part = [from, to](const auto& in, auto* out) {
      out->insert(out->end(), in.begin() + static_cast<std::ptrdiff_t>(from), in.begin() + static_cast<std::ptrdiff_t>(to));
    };
    copy_part(numbers, &after_.numbers);
    if (has_positions) copy_part(before_.positions, &after_.positions);
  };
  std::size_t at = 0;
  for (const NumberChange& change : changes) {
    const std::size_t from = at;
    at = static_cast<std::size_t>(std::lower_bound(numbers.begin() + static_cast<std::ptrdiff_t>(from), numbers.end(), change.number) -
                                  numbers.begin());
    copy(from, at);
    const bool is_there = at < numbers.size() && numbers[at] == change.number;
    has_changed = has_changed || is_there != (change.adds != 0);
    if (change.adds != 0) {
      after_.numbers.push_back(change.number);
      if (has_positions) {
        after_.positions.push_back(PositionsOf(change));
        has_changed = has_changed || before_.positions[at] != after_.positions.back();
      }
    }
    if (is_there) ++at;
  }
  copy(at, numbers.size());
  return has_changed;
}

// A block that is too large is split so that the new blocks are full if numbers were added behind all
// others, and half full otherwise. The last part keeps the key.
Status PostingWriter::PlanBlock(const List& list, std::uint64_t end, std::optional<std::string_view> before, std::size_t first,
                                std::size_t behind) {
  const auto changes = std::span(changes_).subspan(first, behind - first);
  const auto key_of = [&](std::uint64_t block_end) {
    buffer_.assign(list.key);
    block_end == PostingBlock::kNoEnd ? AppendLastBlock(&buffer_) : AppendBlock(static_cast<std::uint32_t>(block_end), &buffer_);
    return Keep(buffer_);
  };
  Operation operation{.key = key_of(end),
                      .before = before.value_or(std::string_view()),
                      .value = {},
                      .was_there = before.has_value(),
                      .is_there = true,
                      .is_part = false,
                      .end = end,
                      .first_change = first,
                      .num_changes = behind - first,
                      .is_of_keys = false,
                      .has_positions = list.has_positions};
  if (before && ChangeInPlace(operation, *before)) {
    operation.value = Keep(buffer_);
    operations_.push_back(operation);
    return absl::OkStatus();
  }
  before_.numbers.clear();
  before_.positions.clear();
  const std::optional<PostingBlock> block = before ? Decode(operation, *before) : PostingBlock();
  if (!block) return DamagedPostingsError();
  if (changes.front().number < block->begin) return MismatchError();
  if (!Apply(changes, operation.has_positions)) {
    operation.value = operation.before;
    operation.is_there = operation.was_there;
    operations_.push_back(operation);
    return absl::OkStatus();
  }
  const bool is_behind = before_.numbers.empty() || changes.front().number > before_.numbers.back();
  operation.is_there = !after_.numbers.empty() || block->begin != 0 || end != PostingBlock::kNoEnd;
  std::span<const RowNumber> left = after_.numbers;
  std::span<const std::string_view> positions = after_.positions;
  RowNumber begin = block->begin;
  for (std::size_t count; (count = EncodePostings(left, begin, &buffer_, positions)) < left.size(); begin = left.front()) {
    if (!is_behind) {
      count = std::max<std::size_t>(1, (count + 1) / 2);
      (void)EncodePostings(left.first(count), begin, &buffer_, positions.first(std::min(count, positions.size())));
    }
    positions = positions.subspan(std::min(count, positions.size()));
    left = left.subspan(count);
    operation.is_part = true;
    const std::string_view value = Keep(buffer_);
    operations_.push_back({.key = key_of(left.front()),
                           .before = {},
                           .value = value,
                           .was_there = false,
                           .is_there = true,
                           .is_part = true,
                           .end = left.front(),
                           .first_change = 0,
                           .num_changes = 0,
                           .is_of_keys = false,
                           .has_positions = operation.has_positions});
  }
  operation.value = Keep(buffer_);
  operations_.push_back(operation);
  return absl::OkStatus();
}

// Key blocks are read only by the visitor.
void PostingWriter::PlanKeys() {
  for (const auto& [block, changes] : keys_) {
    operations_.push_back({.key = Keep(KeyBlockKey(block)),
                           .before = {},
                           .value = {},
                           .was_there = false,
                           .is_there = true,
                           .is_part = false,
                           .end = 0,
                           .first_change = key_changes_.size(),
                           .num_changes = changes.size(),
                           .is_of_keys = true,
                           .has_positions = false});
    key_changes_.insert(key_changes_.end(), changes.begin(), changes.end());
  }
}

std::optional<Action> PostingWriter::VisitKeys(const Operation& operation, std::optional<std::string_view> found) {
  key_block_.Clear();
  if (found && !key_block_.Decode(*found)) return std::nullopt;
  for (const KeyChange& change : std::span(key_changes_).subspan(operation.first_change, operation.num_changes)) {
    const unsigned slot = change.number % kKeysOfBlock;
    const bool is_there = key_block_.has(slot);
    if (change.adds ? is_there : !is_there || key_block_.key(slot) != change.key) return std::nullopt;
    if (change.adds)
      key_block_.Set(slot, change.key);
    else
      key_block_.Remove(slot);
  }
  if (key_block_.IsEmpty()) return Action::Remove();
  key_block_.Encode(&buffer_);
  return Action::Set(Keep(buffer_));
}

std::optional<Action> PostingWriter::Visit(std::size_t i, std::optional<std::string_view> found) {
  const Operation& operation = operations_[i];
  if (operation.is_of_keys) return VisitKeys(operation, found);
  if (found.has_value() == operation.was_there && (!found || *found == operation.before)) {
    if (operation.was_there == operation.is_there && operation.value == operation.before) return Action::Keep();
    return operation.is_there ? Action::Set(operation.value) : Action::Remove();
  }
  if (operation.is_part || !found) return std::nullopt;
  const auto changes = std::span(changes_).subspan(operation.first_change, operation.num_changes);
  if (ChangeInPlace(operation, *found)) return Action::Set(Keep(buffer_));
  const std::optional<PostingBlock> block = Decode(operation, *found);
  if (!block || changes.front().number < block->begin) return std::nullopt;
  if (!Apply(changes, operation.has_positions)) return Action::Keep();
  if (after_.numbers.empty() && block->begin == 0 && operation.end == PostingBlock::kNoEnd) return Action::Remove();
  if (EncodePostings(after_.numbers, block->begin, &buffer_, after_.positions) != after_.numbers.size()) return std::nullopt;
  return Action::Set(Keep(buffer_));
}

}  // namespace hako::table
