#include "hako/table/posting_block.h"

#include <algorithm>
#include <bit>

#include "hako/base/assert.h"
#include "hako/base/endian.h"
#include "hako/base/varint.h"
#include "hako/table/schema.h"

namespace hako::table {
namespace {

struct Reader {
  const std::byte *at, *end;

  explicit Reader(std::string_view bytes)
      : at(reinterpret_cast<const std::byte*>(bytes.data())), end(reinterpret_cast<const std::byte*>(bytes.data()) + bytes.size()) {}
  bool Read(std::uint64_t* number) {
    if (at != end && std::to_integer<unsigned>(*at) < 0x80) {
      *number = std::to_integer<unsigned>(*at++);
      return true;
    }
    at = DecodeVarint(at, end, *number);
    return at != nullptr;
  }
  std::size_t left() const { return static_cast<std::size_t>(end - at); }
};

void AppendVarint(std::uint64_t number, std::string* out) {
  std::array<std::byte, kVarint64SizeMax> bytes;
  const std::byte* const end = EncodeVarint(number, bytes.data());
  out->append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(end - bytes.data()));
}

bool ReadHead(Reader& reader, PostingBlock* block) {
  std::uint64_t head = 0, begin = 0;
  if (!reader.Read(&head) || ((head & 1) != 0 && (!reader.Read(&begin) || begin == 0 || begin >= PostingBlock::kNoEnd))) return false;
  block->count = head >> 1;
  block->begin = static_cast<RowNumber>(begin);
  return block->count <= reader.left();
}

void AppendHead(std::size_t count, RowNumber begin, std::string* out) {
  AppendVarint(count << 1 | (begin == 0 ? 0u : 1u), out);
  if (begin != 0) AppendVarint(begin, out);
}

constexpr std::size_t kHeadMax = 3 + kVarint32SizeMax;
constexpr std::uint64_t kHighBits = 0x8080808080808080;

// Returns the end of `count` varints; nullptr if there are fewer.
const std::byte* SkipVarints(const std::byte* at, const std::byte* end, std::size_t count) {
  for (; end - at >= 8; at += 8) {
    const auto num_ends = static_cast<std::size_t>(std::popcount(~LoadLe<std::uint64_t>(at) & kHighBits));
    if (num_ends >= count) break;
    count -= num_ends;
  }
  for (; count > 0; ++at) {
    if (at == end) return nullptr;
    if (std::to_integer<unsigned>(*at) < 0x80) --count;
  }
  return at;
}

// Returns the end of the positions of `count` numbers; nullptr if there are fewer.
const std::byte* SkipPositions(const std::byte* at, const std::byte* end, std::size_t count) {
  while (count > 0) {
    if (at == end) return nullptr;
    auto byte = std::to_integer<unsigned>(*at++);
    count -= ~byte & 1;  // no other position of the number follows
    for (; byte >= 0x80; byte = std::to_integer<unsigned>(*at++)) {
      if (at == end) return nullptr;
    }
  }
  return at;
}

}  // namespace

std::optional<PostingBlock> DecodePostingHead(std::string_view bytes) {
  Reader reader(bytes);
  PostingBlock block;
  return ReadHead(reader, &block) ? std::optional(block) : std::nullopt;
}

std::optional<PostingBlock> DecodePostings(std::string_view bytes, std::uint64_t end, std::vector<RowNumber>* numbers,
                                           std::string_view* positions) {
  Reader reader(bytes);
  PostingBlock block;
  if (!ReadHead(reader, &block)) return std::nullopt;
  const std::size_t before = numbers->size();
  numbers->resize(before + block.count);
  std::uint64_t least = block.begin;
  for (std::size_t i = before; i < numbers->size(); ++i) {
    for (; i + 8 <= numbers->size() && reader.left() >= 8; i += 8) {  // eight numbers in a byte each
      const auto eight = LoadLe<std::uint64_t>(reader.at);
      if ((eight & kHighBits) != 0 || least + 8 * 0x80 >= end) break;
      for (unsigned k = 0; k < 8; ++k) {
        least += eight >> (8 * k) & 0x7f;
        (*numbers)[i + k] = static_cast<RowNumber>(least++);
      }
      reader.at += 8;
    }
    if (i == numbers->size()) break;
    std::uint64_t above = 0;
    if (!reader.Read(&above) || above >= end || (least += above) >= end) {
      numbers->resize(before);
      return std::nullopt;
    }
    (*numbers)[i] = static_cast<RowNumber>(least++);
  }
  if (positions != nullptr) {
    *positions = bytes.substr(bytes.size() - reader.left());
    return block;
  }
  if (reader.left() == 0) return block;
  numbers->resize(before);
  return std::nullopt;
}

std::size_t EncodePostings(std::span<const RowNumber> numbers, RowNumber begin, std::string* out,
                           std::span<const std::string_view> positions) {
  HAKO_DCHECK(positions.empty() || positions.size() == numbers.size());
  const std::size_t most = (positions.empty() ? kPostingBytesMax : kPostingBytesMaxWithPositions) - kHeadMax;
  char bytes[kPostingBytesMaxWithPositions + kVarint32SizeMax];
  auto* const first = reinterpret_cast<std::byte*>(bytes);
  std::byte* at = first;
  std::size_t count = 0, position_bytes = 0;
  for (std::uint64_t least = begin; count < numbers.size(); ++count) {
    HAKO_DCHECK(numbers[count] >= least);
    std::byte* const next = EncodeVarint(numbers[count] - least, at);
    const std::size_t more = positions.empty() ? 0 : positions[count].size();
    if (static_cast<std::size_t>(next - first) + position_bytes + more > most) break;
    at = next;
    position_bytes += more;
    least = std::uint64_t{numbers[count]} + 1;
  }
  out->clear();
  AppendHead(count, begin, out);
  out->append(bytes, static_cast<std::size_t>(at - first));
  for (std::size_t i = 0; i < count && !positions.empty(); ++i) out->append(positions[i]);
  return count;
}

// Only the place of the number changes, and the number behind it, which is stored minus this one.
bool ChangePosting(std::string_view bytes, std::uint64_t end, RowNumber number, bool adds, std::string* out,
                   const std::string_view* positions) {
  Reader reader(bytes);
  PostingBlock block;
  if (!ReadHead(reader, &block) || block.begin > number) return false;
  const std::byte* const first = reader.at;
  std::uint64_t least = block.begin, above = 0;
  std::size_t left = block.count;
  const std::byte* place = reader.at;  // of the first number that is not below `number`
  while (left > 0) {
    // Eight numbers in a byte each.
    while (left > 8 && reader.left() > 8) {
      const auto eight = LoadLe<std::uint64_t>(reader.at);
      if ((eight & kHighBits) != 0) break;
      constexpr std::uint64_t kEven = 0x00ff00ff00ff00ff;
      const std::uint64_t sum = ((eight & kEven) + (eight >> 8 & kEven)) * 0x0001000100010001 >> 48;
      if (least + sum + 8 > number) break;
      least += sum + 8;
      reader.at += 8;
      left -= 8;
    }
    place = reader.at;
    if (!reader.Read(&above)) return false;
    --left;
    if (least + above >= number) break;
    least += above + 1;
    place = reader.at;
    above = ~std::uint64_t{0};  // no number
  }
  const bool has_next = place != reader.at;
  if (has_next && (above >= end || least + above >= end)) return false;
  const bool is_there = has_next && least + above == number, moves = adds && is_there;
  if (moves ? positions == nullptr : adds == is_there) return false;
  const std::size_t num_before = block.count - left - (has_next ? 1 : 0);
  std::array<std::byte, 2 * kVarint64SizeMax> middle;
  std::byte* to = middle.data();
  const std::byte* rest = reader.at;
  if (moves) {
    place = rest;
  } else if (adds) {
    to = EncodeVarint(number - least, to);
    if (has_next) to = EncodeVarint(least + above - number - 1, to);
  } else if (left > 0) {
    std::uint64_t next = 0;
    if (!reader.Read(&next)) return false;
    rest = reader.at;
    --left;
    to = EncodeVarint(above + next + 1, to);
  }
  const std::byte *rest_end = reader.end, *old_from = reader.end, *old_to = reader.end;  // the positions that are replaced
  if (positions != nullptr) {
    rest_end = SkipVarints(rest, reader.end, left);
    old_from = rest_end == nullptr ? nullptr : SkipPositions(rest_end, reader.end, num_before);
    old_to = old_from == nullptr ? nullptr : SkipPositions(old_from, reader.end, is_there ? 1 : 0);
    if (old_to == nullptr) return false;
  }
  const auto part = [](const std::byte* from, const std::byte* behind) {
    return std::string_view(reinterpret_cast<const char*>(from), static_cast<std::size_t>(behind - from));
  };
  const std::string_view new_positions = adds && positions != nullptr ? *positions : std::string_view();
  if (moves && part(old_from, old_to) == new_positions) return false;
  const std::string_view parts[] = {part(first, place),       part(middle.data(), to), part(rest, rest_end),
                                    part(rest_end, old_from), new_positions,           part(old_to, reader.end)};
  std::size_t size = 0;
  for (const std::string_view one : parts) size += one.size();
  if (size > (positions == nullptr ? kPostingBytesMax : kPostingBytesMaxWithPositions) - kHeadMax) return false;
  out->clear();
  AppendHead(moves ? block.count : adds ? block.count + 1 : block.count - 1, block.begin, out);
  for (const std::string_view one : parts) out->append(one);
  return true;
}

void AppendPositions(std::span<const std::uint32_t> positions, std::string* out) {
  const std::size_t before = out->size();
  std::uint64_t least = 0;  // the position before, plus 1
  for (std::size_t i = 0; i < positions.size() && out->size() - before <= kPositionBytesMax; ++i) {
    HAKO_DCHECK(positions[i] >= least);
    AppendVarint((positions[i] + std::uint64_t{1} - least) << 1 | (i + 1 < positions.size() ? 1u : 0u), out);
    least = positions[i] + std::uint64_t{1};
  }
  if (positions.empty() || out->size() - before > kPositionBytesMax) out->replace(before, out->npos, 1, '\0');
}

std::string_view TakePositions(std::string_view* bytes) {
  const auto* const first = reinterpret_cast<const std::byte*>(bytes->data());
  const std::byte* const end = SkipPositions(first, first + bytes->size(), 1);
  const std::size_t size = end == nullptr ? 0 : static_cast<std::size_t>(end - first);
  if (size > kPositionBytesMax) return {};
  const std::string_view taken = bytes->substr(0, size);
  bytes->remove_prefix(size);
  return taken;
}

bool SkipPositions(std::string_view* bytes, std::size_t count) {
  const auto* const first = reinterpret_cast<const std::byte*>(bytes->data());
  const std::byte* const end = SkipPositions(first, first + bytes->size(), count);
  if (end != nullptr) bytes->remove_prefix(static_cast<std::size_t>(end - first));
  return end != nullptr;
}

bool ReadPositions(std::string_view* bytes, Positions* out) {
  // Most often there is one position, in a byte or two.
  const auto byte = [bytes](std::size_t i) { return static_cast<unsigned char>((*bytes)[i]); };
  if (bytes->size() > 1 && (byte(0) & 1) == 0 && byte(0) != 0 && (byte(0) < 0x80 || (byte(1) < 0x80 && byte(1) != 0))) {
    const unsigned gap = byte(0) < 0x80 ? byte(0) : (byte(0) & 0x7f) | static_cast<unsigned>(byte(1)) << 7;
    out->count = 1;
    out->at[0] = (gap >> 1) - 1;
    bytes->remove_prefix(byte(0) < 0x80 ? 1 : 2);
    return true;
  }
  Reader reader(*bytes);
  std::uint64_t least = 0, gap = 0;
  out->count = 0;
  do {
    if (!reader.Read(&gap)) return false;
    if (gap < 2) {
      if (gap == 1 || out->count != 0) return false;
      break;  // unknown
    }
    if (out->count == out->at.size() || (least += gap >> 1) > kNoPosition) return false;
    out->at[out->count++] = static_cast<std::uint32_t>(least - 1);
  } while ((gap & 1) != 0);
  bytes->remove_prefix(bytes->size() - reader.left());
  return true;
}

bool KeyBlockReader::Begin(std::string_view bytes) {
  next_slot_ = 0;
  key_.clear();
  const bool has_head = bytes.size() >= sizeof(taken_);
  taken_ = has_head ? LoadLe<std::uint32_t>(reinterpret_cast<const std::byte*>(bytes.data())) : 0;
  rest_ = bytes.substr(has_head ? sizeof(taken_) : bytes.size());
  return has_head || bytes.empty();
}

bool KeyBlockReader::MoveTo(unsigned slot) {
  HAKO_DCHECK(has(slot));
  for (; next_slot_ <= slot; ++next_slot_) {
    if (!has(next_slot_)) continue;
    Reader reader(rest_);
    std::uint64_t shared = 0, added = 0;
    if (!reader.Read(&shared) || !reader.Read(&added) || shared > key_.size() || added > reader.left() ||
        shared + added > TableLimits::kKeySize)
      return false;
    key_.resize(shared);
    key_.append(reinterpret_cast<const char*>(reader.at), added);
    rest_.remove_prefix(rest_.size() - reader.left() + added);
  }
  return true;
}

bool KeyBlock::Decode(std::string_view bytes) {
  Clear();
  KeyBlockReader reader;
  if (bytes.empty() || !reader.Begin(bytes)) return false;
  for (unsigned slot = 0; slot < kKeysOfBlock; ++slot) {
    if (!reader.has(slot)) continue;
    if (!reader.MoveTo(slot)) return Clear(), false;
    Set(slot, reader.key());
  }
  return reader.IsAtEnd() ? true : (Clear(), false);
}

std::string_view KeyBlock::key(unsigned slot) const {
  HAKO_DCHECK(has(slot));
  return std::string_view(bytes_).substr(begins_[slot], sizes_[slot]);
}

void KeyBlock::Set(unsigned slot, std::string_view key) {
  begins_[slot] = static_cast<std::uint32_t>(bytes_.size());
  sizes_[slot] = static_cast<std::uint32_t>(key.size());
  bytes_.append(key);
  taken_ |= std::uint32_t{1} << slot;
}

void KeyBlock::Encode(std::string* out) const {
  out->resize(sizeof(taken_));
  StoreLe<std::uint32_t>(reinterpret_cast<std::byte*>(out->data()), taken_);
  std::string_view last;
  for (unsigned slot = 0; slot < kKeysOfBlock; ++slot) {
    if (!has(slot)) continue;
    const std::string_view one = key(slot);
    const std::size_t most = std::min(last.size(), one.size());
    const auto shared = static_cast<std::size_t>(
        std::mismatch(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(most), last.begin()).first - one.begin());
    AppendVarint(shared, out);
    AppendVarint(one.size() - shared, out);
    out->append(one.substr(shared));
    last = one;
  }
}

}  // namespace hako::table
