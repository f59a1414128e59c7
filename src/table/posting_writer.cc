#include "hako/table/posting_writer.h"

#include <algorithm>
#include <numeric>

#include "hako/base/assert.h"
#include "hako/base/hash.h"
#include "hako/base/random_seed.h"
#include "hako/table/index_key.h"
#include "hako/table/table_core.h"

namespace hako::table {
namespace {

// Whether the only block of a list has no number.
bool IsEmptyList(std::string_view block, std::uint64_t end) { return block == std::string_view("\0", 1) && end == PostingBlock::kNoEnd; }

}  // namespace

void PostingWriter::Clear() {
  for (const List& list : lists_) slots_[list.slot] = 0;
  lists_.clear();
  postings_.clear();
  num_changes_ = 0;
  position_bytes_.clear();
  keys_.clear();
  if (chunks_.size() > 1) chunks_.resize(1);
  if (!chunks_.empty()) chunks_[0].clear();
  changes_.clear();
  key_changes_.clear();
  operations_.clear();
}

std::span<char> PostingWriter::Room(std::size_t size) {
  static constexpr std::size_t kChunk = 64 << 10;
  if (chunks_.empty() || chunks_.back().capacity() - chunks_.back().size() < size) {
    chunks_.emplace_back();
    chunks_.back().reserve(std::max(kChunk, size));
  }
  std::string& chunk = chunks_.back();
  chunk.resize(chunk.size() + size);
  return std::span(chunk).last(size);
}

std::string_view PostingWriter::Keep(std::string_view bytes) {
  const std::span<char> room = Room(bytes.size());
  bytes.copy(room.data(), bytes.size());
  return {room.data(), bytes.size()};
}

void PostingWriter::Change(std::string_view list, RowNumber number, bool adds, std::uint32_t position) {
  static constexpr std::size_t kSlotsMin = 1024;
  if (slots_.size() < 2 * (lists_.size() + 1)) {
    slots_.assign(std::max(kSlotsMin, 2 * slots_.size()), 0);
    for (List& one : lists_) {
      one.slot = SlotOf(one.key, one.hash);
      slots_[one.slot] = static_cast<std::uint32_t>(&one - lists_.data()) + 1;
    }
  }
  static const std::uint64_t seed = RandomSeed();
  const std::uint64_t hash = Hash64(list, seed);
  const std::uint32_t slot = SlotOf(list, hash);
  if (slots_[slot] != 0) {
    List& found = lists_[slots_[slot] - 1];
    if (found.last_number != number || found.last_adds != adds) {
      found.last_number = number;
      found.last_adds = adds;
      found.num_positions = position == kNoPosition ? 0 : 1;
      ++num_changes_;
    } else {
      if (position == kNoPosition || found.num_positions > kPositionBytesMax) return;
      ++found.num_positions;
    }
  } else {
    lists_.push_back({Keep(list), hash, slot, number, adds, position == kNoPosition ? 0u : 1u});
    slots_[slot] = static_cast<std::uint32_t>(lists_.size());
    ++num_changes_;
  }
  postings_.push_back({slots_[slot] - 1, number, adds, position & kNoPosition});
}

// Returns the slot of a list, or the empty one for it. REQUIRES: a slot is empty
std::uint32_t PostingWriter::SlotOf(std::string_view list, std::uint64_t hash) const {
  HAKO_DCHECK(lists_.size() < slots_.size());
  for (std::size_t at = hash;; ++at) {
    const std::size_t slot = at & (slots_.size() - 1);
    const std::uint32_t found = slots_[slot];
    if (found == 0 || (lists_[found - 1].hash == hash && lists_[found - 1].key == list)) return static_cast<std::uint32_t>(slot);
  }
}

void PostingWriter::KeepPositions(std::span<const NumberChange> changes, bool adds) {
  positions_.clear();
  for (const NumberChange& change : changes) {
    if (change.adds == adds) positions_.push_back(change.position);
  }
  AppendPositions(positions_, &position_bytes_);
}

// Sorts the changes by list and number, and leaves each number once.
void PostingWriter::Join() {
  ends_.assign(lists_.size() + 1, 0);
  for (const Posting& posting : postings_) ++ends_[posting.list + 1];
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
  changes_.resize(postings_.size());
  for (const Posting& posting : postings_) changes_[ends_[posting.list]++] = {posting.number, posting.adds, posting.position};
  // Now ends_[list] is the end of its changes.
  std::size_t begin = 0, kept = 0;
  for (std::size_t list = 0; list < lists_.size(); ++list) {
    const std::size_t end = ends_[list];
    const auto first = changes_.begin() + static_cast<std::ptrdiff_t>(begin), last = changes_.begin() + static_cast<std::ptrdiff_t>(end);
    const auto is_before = [](const NumberChange& a, const NumberChange& b) { return a.number < b.number; };
    if (!std::is_sorted(first, last, is_before)) std::stable_sort(first, last, is_before);
    for (std::size_t i = begin; i < end;) {
      const RowNumber number = changes_[i].number;
      const std::size_t from = i;
      bool adds = false, removes = false;
      for (; i < end && changes_[i].number == number; ++i) (changes_[i].adds != 0 ? adds : removes) = true;
      const std::size_t added = position_bytes_.size();
      if (adds && lists_[list].num_positions != 0) {
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
    begin = end;
    ends_[list] = static_cast<std::uint32_t>(kept);
  }
  changes_.resize(kept);
}

Status PostingWriter::Plan(TableCore& core) {
  static constexpr std::size_t kListsAtOnce = 256;
  Join();
  if (position_bytes_.size() > kNoPosition)
    return absl::OutOfRangeError("the changes have more positions of words and q-grams than one atomic step may have; make them in parts");
  std::vector<std::uint32_t> order(lists_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [this](std::uint32_t a, std::uint32_t b) { return lists_[a].key < lists_[b].key; });
  for (std::span<const std::uint32_t> left = order; !left.empty();) {
    const auto some = left.first(std::min(left.size(), kListsAtOnce));
    HAKO_RETURN_IF_ERROR(PlanLists(core, some));
    left = left.subspan(some.size());
  }
  PlanKeys();
  return absl::OkStatus();
}

// Reads the last blocks together: most changes are in these.
Status PostingWriter::PlanLists(TableCore& core, std::span<const std::uint32_t> lists) {
  std::vector<std::string_view> keys;
  std::vector<std::optional<std::string_view>> blocks(lists.size());
  for (const std::uint32_t list : lists) {
    buffer_.assign(lists_[list].key);
    AppendLastBlock(&buffer_);
    keys.push_back(Keep(buffer_));
  }
  HAKO_RETURN_IF_ERROR(core.store->FetchMulti(
      keys,
      [&](std::size_t i, std::size_t size) {
        const std::span<char> room = Room(size);
        blocks[i] = std::string_view(room.data(), size);
        return room.data();
      },
      [&](std::size_t i, bool is_there) {
        if (!is_there) blocks[i].reset();
      }));
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const std::uint32_t list = lists[i];
    const std::size_t first = list == 0 ? 0 : ends_[list - 1], behind = ends_[list];
    if (first != behind) HAKO_RETURN_IF_ERROR(PlanList(core, lists_[list], blocks[i], first, behind));
  }
  return absl::OkStatus();
}

Status PostingWriter::PlanList(TableCore& core, const List& list, std::optional<std::string_view> last, std::size_t first,
                               std::size_t behind) {
  const std::optional<PostingBlock> block = last ? DecodePostingHead(*last) : PostingBlock();
  if (!block) return DamagedPostingsError();
  if (changes_[first].number < block->begin) {
    PooledCursor cursor(core);
    while (first < behind && changes_[first].number < block->begin) {
      buffer_.assign(list.key);
      AppendBlock(changes_[first].number + 1, &buffer_);
      cursor->JumpBriefly(buffer_);
      HAKO_RETURN_IF_ERROR(cursor->status());
      if (!cursor->Valid()) return MismatchError();  // the list has changed between two reads
      const std::optional<BlockKey> key = ParseBlockKey(cursor->key());
      if (!key || key->list != list.key || key->end == PostingBlock::kNoEnd) return MismatchError();
      std::size_t next = first + 1;
      while (next < behind && changes_[next].number < key->end) ++next;
      HAKO_RETURN_IF_ERROR(PlanBlock(list, key->end, Keep(cursor->value()), first, next));
      first = next;
    }
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
                      .has_positions = list.num_positions != 0};
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
