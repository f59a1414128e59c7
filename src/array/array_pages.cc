#include "hako/array/array_pages.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "hako/sync/atomic_bytes.h"

namespace hako::array {

using format::ArrayImageHeader;
using format::DirectoryEntry;
using format::PageLine;

static_assert(format::kPageImageMax >= sizeof(ArrayImageHeader) + format::kFanout * sizeof(DirectoryEntry));
static_assert(format::kPageImageMax >= format::ArrayShape::kImageUnitsMax * format::kTreeUnit);

std::size_t ArrayPages::Encode(std::uint32_t id, const PageLine& line, const char* base, char* out) const {
  ArrayImageHeader header{};
  header.id = id;
  header.level = static_cast<std::uint8_t>(line.shape.level());
  const std::uint64_t number = NumberOf(line.shape);
  header.number_high = static_cast<std::uint8_t>(number >> 32);
  header.number_low = static_cast<std::uint32_t>(number);
  char* const content = out + sizeof(header);
  unsigned count = 0;
  const std::size_t size = header.level == 0 ? EncodeLeaf(line, base, &count, content) : EncodeDirectory(base, &count, content);
  header.count = static_cast<std::uint16_t>(count);
  std::memcpy(out, &header, sizeof(header));
  return sizeof(header) + size;
}

std::size_t ArrayPages::EncodeLeaf(const PageLine& line, const char* base, unsigned* count, char* out) const {
  const char* const words = shape_.bits_in_line() ? reinterpret_cast<const char*>(line.hints) : base;
  std::memcpy(out, words, shape_.bit_bytes());
  const PresenceBits bits(reinterpret_cast<std::uint32_t*>(const_cast<char*>(words)), shape_.per_leaf);
  char* to = out + shape_.bit_bytes();
  const char* const records = base + shape_.data_begin;
  bits.ForEachRun([&](unsigned begin, unsigned end) {
    const std::size_t size = std::size_t{end - begin} * shape_.width;
    std::memcpy(to, records + std::size_t{begin} * shape_.width, size);
    to += size;
    *count += end - begin;
  });
  return static_cast<std::size_t>(to - out);
}

std::size_t ArrayPages::EncodeDirectory(const char* base, unsigned* count, char* out) {
  char* to = out;
  for (unsigned i = 0; i < format::kFanout; ++i) {
    std::uint32_t child;
    std::memcpy(&child, base + i * sizeof(child), sizeof(child));
    if (child == 0) continue;
    const DirectoryEntry entry{static_cast<std::uint16_t>(i), child};
    std::memcpy(to, &entry, sizeof(entry));
    to += sizeof(entry);
    ++*count;
  }
  return static_cast<std::size_t>(to - out);
}

auto ArrayPages::Parse(std::uint32_t id, std::span<const std::byte> bytes, std::uint32_t id_end) const -> StatusOr<Image> {
  const auto wrong = [id](const char* what) { return absl::DataLossError(absl::StrCat("image of page ", id, ": ", what)); };
  ArrayImageHeader header;
  if (bytes.size() < sizeof(header)) return wrong("truncated");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.id != id) return wrong("belongs to another page");
  if (header.level > format::kDirectoryLevels || header.reserved != std::array<std::byte, 4>{}) return wrong("bad header");
  Image image;
  image.number = header.number();
  if (image.number >= shape_.PagesOf(header.level)) return wrong("number out of range");
  image.bytes = bytes.subspan(sizeof(header));
  const bool is_leaf = header.level == 0;
  const unsigned units = is_leaf ? shape_.units : format::kDirectoryBytes / format::kPageUnit;
  image.shape = format::ArrayPageShape(header.level, image.number, units);
  const unsigned count = header.count;
  image.num_children = is_leaf ? 0 : count;
  if (const char* const what = is_leaf ? FlawOfLeaf(image, count) : FlawOfDirectory(image, id_end)) return wrong(what);
  return image;
}

const char* ArrayPages::FlawOfLeaf(const Image& image, unsigned count) const {
  const unsigned bit_bytes = shape_.bit_bytes();
  if (image.bytes.size() < bit_bytes + std::uint64_t{count} * shape_.width) return "truncated";
  // The last leaf has fewer records.
  const std::uint64_t ids = kRecordIdMax + 1 - image.number * shape_.per_leaf;
  const unsigned most = static_cast<unsigned>(std::min<std::uint64_t>(ids, shape_.per_leaf));
  unsigned found = 0;
  for (unsigned i = 0; i < bit_bytes; ++i) {
    const unsigned byte = std::to_integer<unsigned>(image.bytes[i]);
    if (i * 8 + static_cast<unsigned>(std::bit_width(byte)) > most && byte != 0) return "a record behind the last one";
    found += static_cast<unsigned>(std::popcount(byte));
  }
  return found == count ? nullptr : "number of records does not match the presence bits";
}

const char* ArrayPages::FlawOfDirectory(const Image& image, std::uint32_t id_end) const {
  const unsigned level = image.shape.level();
  if (image.num_children > format::kFanout || image.bytes.size() < image.num_children * sizeof(DirectoryEntry)) return "truncated";
  const std::uint64_t pages = shape_.PagesOf(level - 1);
  unsigned next = 0;
  for (unsigned i = 0; i < image.num_children; ++i) {
    const DirectoryEntry entry = EntryAt(image, i);
    if (entry.index < next || entry.index >= format::kFanout) return "entries out of order";
    next = entry.index + 1u;
    if (image.number * format::kFanout + entry.index >= pages) return "number of a child out of range";
    if (entry.child == 0 || entry.child >= id_end) return "invalid id of a child";
  }
  return nullptr;
}

void ArrayPages::Store(const Image& image, char* base, std::int32_t* hints) const {
  const char* from = reinterpret_cast<const char*>(image.bytes.data());
  if (image.shape.level() > 0) {
    alignas(4) char entries[format::kDirectoryBytes] = {};
    for (unsigned i = 0; i < image.num_children; ++i) {
      const DirectoryEntry entry = EntryAt(image, i);
      const std::uint32_t child = entry.child;
      std::memcpy(entries + entry.index * sizeof(child), &child, sizeof(child));
    }
    return sync::StoreShared(base, entries, sizeof(entries));
  }
  const unsigned num_words = (shape_.per_leaf + 31) / 32;
  auto* const words = reinterpret_cast<std::uint32_t*>(shape_.bits_in_line() ? reinterpret_cast<char*>(hints) : base);
  for (unsigned i = 0; i < num_words; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, from + i * sizeof(word), std::min<std::size_t>(sizeof(word), shape_.bit_bytes() - i * sizeof(word)));
    std::atomic_ref(words[i]).store(word, std::memory_order_relaxed);
  }
  const PresenceBits bits(words, shape_.per_leaf);
  from += shape_.bit_bytes();
  char* const records = base + shape_.data_begin;
  bits.ForEachRun([&](unsigned begin, unsigned end) {
    const std::size_t size = std::size_t{end - begin} * shape_.width;
    sync::StoreShared(records + std::size_t{begin} * shape_.width, from, size);
    from += size;
  });
}

auto ArrayPages::ChildOf(const Image& image, unsigned i) const -> Child {
  const DirectoryEntry entry = EntryAt(image, i);
  return {entry.child, image.number * format::kFanout + entry.index};
}

DirectoryEntry ArrayPages::EntryAt(const Image& image, unsigned i) {
  DirectoryEntry entry;
  std::memcpy(&entry, image.bytes.data() + i * sizeof(entry), sizeof(entry));
  return entry;
}

}  // namespace hako::array
