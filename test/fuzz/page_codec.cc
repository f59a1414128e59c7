// Decodes the image of a page: decompressed by LZ4 or zstd, or stored as it is; in two orders.
#include "hako/base/page_codec.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/database.h"
#include "fuzz/target.h"
#include "hako/base/comparator.h"
#include "hako/base/hash.h"
#include "hako/base/lz4_codec.h"
#include "hako/base/zstd_codec.h"
#include "hako/format/tree_file_format.h"
#include "hako/tree/file/page_encoding.h"
#include "hako/tree/file/page_image.h"
#include "hako/tree/page_view.h"

namespace hako::fuzz {
namespace {

constexpr std::uint32_t kIdEnd = 2048;

template <class Compare>
void Parse(std::uint32_t id, std::span<const std::byte> image) {
  static constexpr auto kOrder = tree::PageView<Compare>::kOrder;
  std::vector<std::byte> bytes(image.begin(), image.end());
  bytes.resize(bytes.size() + 8);
  const auto page = tree::PageImage::Parse(id, std::span(bytes).first(image.size()), kOrder, kIdEnd);
  if (!page.ok()) return;
  const format::PageShape& shape = page->shape();
  tree::PageImage::KeyBuffer buffer;
  std::uint64_t sum = Hash64(page->low(), 0) + Hash64(page->high(), 0);
  for (unsigned i = shape.level() > 0 ? 1 : 0; i < shape.count; ++i) {
    sum += Hash64(page->Key(i, kOrder, buffer), 0);
    sum += Hash64(page->ValueAt(i, kOrder).bytes, 0);
    if (shape.level() > 0) Require(page->child(i) < kIdEnd, "a page has a child that does not exist");
  }
  std::vector<char> memory(shape.size());
  std::array<std::int32_t, format::kPageHints> hints;
  page->Store(memory.data(), hints.data());
  asm volatile("" : : "r"(sum));  // so that all bytes are read
}

template <class Codec>
void Decode(std::string_view image, bool is_bytewise) {
  std::vector<std::byte> room(format::kPageImageMax + 8);
  const std::uint32_t id = LoadFrom<Le<std::uint32_t>>(image, 0).value_or(0);
  const auto bytes = tree::Unpack<Codec>(id, std::as_bytes(std::span(image)), room);
  if (!bytes.ok()) return;
  is_bytewise ? Parse<BytewiseComparator>(id, *bytes) : Parse<DecimalComparator>(id, *bytes);
}

void Run(std::string_view input) {
  Bytes bytes(input);
  const unsigned mode = bytes.Byte();
  const std::string image(bytes.Take(input.size()));
  switch (mode % 3) {
    case 0:
      return Decode<NoCodec>(image, mode / 3 % 2 == 0);
    case 1:
      return Decode<Lz4Codec>(image, mode / 3 % 2 == 0);
    default:
      return Decode<ZstdCodec<3>>(image, mode / 3 % 2 == 0);
  }
}

template <class Codec>
std::string Packed(std::string_view image) {
  std::string packed(image.size(), '\0');
  packed.resize(tree::Pack<Codec>(image, packed.data()));
  return packed;
}
template <class Codec>
std::string Unpacked(std::string_view image) {
  std::vector<std::byte> room(format::kPageImageMax + 8);
  const std::uint32_t id = LoadFrom<Le<std::uint32_t>>(image, 0).value_or(0);
  const auto bytes = tree::Unpack<Codec>(id, std::as_bytes(std::span(image)), room);
  return bytes.ok() ? std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()) : std::string(image);
}

// Changes the page before it is compressed, or its compressed image.
void Mutate(std::string& input, Random& random) {
  const unsigned mode = random.OneIn(8) || input.empty() ? static_cast<unsigned>(random.Below(6)) : static_cast<unsigned char>(input[0]);
  std::string image = input.empty() ? input : input.substr(1);
  const bool changes_page = !random.OneIn(4);
  if (changes_page && mode % 3 == 1) image = Unpacked<Lz4Codec>(image);
  if (changes_page && mode % 3 == 2) image = Unpacked<ZstdCodec<3>>(image);
  MutateBytes(image, random);
  std::string packed;
  if (changes_page && mode % 3 == 1) packed = Packed<Lz4Codec>(image);
  if (changes_page && mode % 3 == 2) packed = Packed<ZstdCodec<3>>(image);
  input = std::string(1, static_cast<char>(mode)) + (packed.empty() ? image : packed);
}

// The pages of a small tree.
std::vector<std::string> MakeSeeds() {
  AnyOptions options = OptionsOf(AnyOptions::kTree, kNoLog, Folder::Instance().Path("db"));
  options.page_size = 1024;
  std::vector<std::string> databases, seeds;
  AddSeeds(options, 0, 60, 200, &databases);
  const std::string file = FileSet::Decode(databases.back()).files[0];
  for (std::uint64_t at = format::kTreeFirstUnit * format::kTreeUnit; at < file.size() && seeds.size() < 9; at += format::kTreeUnit) {
    const auto header = *LoadFrom<format::PageImageHeader>(file, at);
    const bool inner = (header.kind & format::PageShape::kLevel) != 0;
    const std::size_t size = sizeof(header) + header.count * (inner ? 10u : 6u) + header.heap;
    if (header.id < 1024 || header.id >= kIdEnd || header.count == 0 || size > file.size() - at) continue;
    const std::string image = file.substr(at, size);
    seeds.push_back(std::string(1, '\0') + image);
    seeds.push_back(std::string(1, '\1') + Packed<Lz4Codec>(image));
    seeds.push_back(std::string(1, '\2') + Packed<ZstdCodec<3>>(image));
  }
  return seeds;
}

const Registration kTarget({.name = "page_codec", .run = Run, .mutate = Mutate, .make_seeds = MakeSeeds, .mutants = 400});

}  // namespace
}  // namespace hako::fuzz
