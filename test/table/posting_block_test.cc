// The blocks of posting lists, with and without positions, and of row numbers, beside plain vectors and maps.
#include "hako/table/posting_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/random.h"

namespace hako::table {
namespace {

using Numbers = std::vector<RowNumber>;

Numbers Draw(Random& random, std::uint64_t begin, std::uint64_t end, std::size_t count) {
  std::set<RowNumber> numbers;
  const std::uint64_t span = std::min<std::uint64_t>(end - begin, std::uint64_t{1} << random.Below(33));
  for (std::size_t i = 0; i < count; ++i) numbers.insert(static_cast<RowNumber>(begin + random.Below(span)));
  return {numbers.begin(), numbers.end()};
}

TEST(PostingBlockTest, DecodesWhatItEncodes) {
  Random random(TestSeed());
  std::string bytes;
  for (int i = 0; i < 20'000; ++i) {
    const auto begin = static_cast<RowNumber>(random.Below(2) == 0 ? 0 : random.Below(PostingBlock::kNoEnd));
    const Numbers numbers = Draw(random, begin, PostingBlock::kNoEnd, random.Below(400));
    const std::size_t count = EncodePostings(numbers, begin, &bytes);
    ASSERT_LE(bytes.size(), kPostingBytesMax);
    if (count < numbers.size()) {
      ASSERT_GT(bytes.size() + 16, kPostingBytesMax) << "there was room";
    }
    Numbers found;
    const auto block = DecodePostings(bytes, PostingBlock::kNoEnd, &found);
    ASSERT_TRUE(block);
    EXPECT_EQ(block->begin, begin);
    EXPECT_EQ(found, Numbers(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(count)));
    EXPECT_EQ(DecodePostingHead(bytes)->count, count);
    if (count == 0) continue;
    // A number must be below the end.
    EXPECT_FALSE(DecodePostings(bytes, found.back(), &found));
    EXPECT_EQ(found.size(), count) << "a failed call changes nothing";
    EXPECT_TRUE(DecodePostings(bytes, std::uint64_t{found.back()} + 1, &found));
  }
}

TEST(PostingBlockTest, ChangesOneNumber) {
  Random random(TestSeed());
  std::string bytes, changed, wanted;
  int num_changed = 0;
  for (int i = 0; i < 50'000; ++i) {
    const auto begin = static_cast<RowNumber>(random.Below(2) == 0 ? 0 : random.Below(1u << 20));
    const std::uint64_t end = random.Below(2) == 0 ? PostingBlock::kNoEnd : begin + 1 + random.Below(1u << 20);
    const Numbers drawn = Draw(random, begin, end, random.Below(300));
    Numbers numbers(drawn.begin(), drawn.begin() + static_cast<std::ptrdiff_t>(EncodePostings(drawn, begin, &bytes)));
    const bool takes_one = !numbers.empty() && random.Below(2) == 0;
    const auto number = takes_one ? numbers[random.Below(numbers.size())] : static_cast<RowNumber>(random.Below(end));
    const bool adds = random.Below(2) == 0;
    const auto at = std::lower_bound(numbers.begin(), numbers.end(), number);
    const bool is_there = at != numbers.end() && *at == number;
    const bool is_done = ChangePosting(bytes, end, number, adds, &changed);
    if (number < begin || is_there == adds) {
      ASSERT_FALSE(is_done);
      continue;
    }
    if (adds)
      numbers.insert(at, number);
    else
      numbers.erase(at);
    const bool fits = EncodePostings(numbers, begin, &wanted) == numbers.size();
    ASSERT_EQ(is_done, fits) << numbers.size();
    if (!fits) continue;
    ASSERT_EQ(changed, wanted);
    ++num_changed;
  }
  EXPECT_GT(num_changed, 10'000);
}

TEST(PostingBlockTest, DamagedBytesAreRefusedOrDecoded) {
  Random random(TestSeed());
  std::string bytes, changed;
  for (int i = 0; i < 20'000; ++i) {
    const Numbers numbers = Draw(random, 0, PostingBlock::kNoEnd, 1 + random.Below(100));
    (void)EncodePostings(numbers, 0, &bytes);
    if (random.Below(2) == 0)
      bytes.resize(random.Below(bytes.size()));
    else
      bytes[random.Below(bytes.size())] ^= static_cast<char>(1 + random.Below(255));
    Numbers found;
    if (DecodePostings(bytes, PostingBlock::kNoEnd, &found)) {
      EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
      EXPECT_EQ(std::adjacent_find(found.begin(), found.end()), found.end());
    } else {
      EXPECT_TRUE(found.empty());
    }
    (void)ChangePosting(bytes, PostingBlock::kNoEnd, static_cast<RowNumber>(random.Below(PostingBlock::kNoEnd)), random.Below(2) == 0,
                        &changed);
  }
}

using PositionList = std::vector<std::uint32_t>;

PositionList DrawPositions(Random& random) {
  std::set<std::uint32_t> positions;
  const std::uint64_t span = std::uint64_t{1} << random.Below(33);
  for (std::uint64_t n = 1 + random.SkewedSize(6); n > 0; --n)
    positions.insert(static_cast<std::uint32_t>(std::min<std::uint64_t>(random.Below(span), kNoPosition - 1)));
  return {positions.begin(), positions.end()};
}

bool Read(std::string_view bytes, PositionList* out) {
  Positions positions;
  if (!ReadPositions(&bytes, &positions) || !bytes.empty()) return false;
  out->assign(positions.at.begin(), positions.at.begin() + static_cast<std::ptrdiff_t>(positions.count));
  return true;
}

std::string BytesOf(const PositionList& positions) {
  std::string bytes;
  AppendPositions(positions, &bytes);
  return bytes;
}

TEST(PositionsTest, AreShortOrUnknown) {
  Random random(TestSeed());
  int num_unknown = 0;
  for (int i = 0; i < 20'000; ++i) {
    const PositionList positions = DrawPositions(random);
    std::string bytes = BytesOf(positions);
    ASSERT_LE(bytes.size(), kPositionBytesMax);
    PositionList found = {7};
    ASSERT_TRUE(Read(bytes, &found));
    num_unknown += found.empty() ? 1 : 0;
    if (found.empty()) {
      EXPECT_GT(positions.size(), kPositionBytesMax / 5);
      EXPECT_EQ(bytes, std::string(1, '\0'));
    } else {
      EXPECT_EQ(found, positions);
    }
    const std::string both = bytes + bytes + "rest";
    std::string_view left = both;
    EXPECT_EQ(TakePositions(&left), bytes);
    EXPECT_EQ(TakePositions(&left), bytes);
    EXPECT_EQ(left, "rest");
    left = both;
    EXPECT_TRUE(SkipPositions(&left, 2));
    EXPECT_EQ(left, "rest");
    // What follows, or lacks, is damage.
    EXPECT_FALSE(Read(bytes + bytes, &found));
    EXPECT_FALSE(Read(bytes.substr(0, bytes.size() - 1), &found));
  }
  EXPECT_GT(num_unknown, 100);
  EXPECT_LT(num_unknown, 15'000);
  PositionList many(kPositionBytesMax);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::uint32_t>(i);
  EXPECT_EQ(BytesOf(many).size(), kPositionBytesMax);
  many.push_back(static_cast<std::uint32_t>(many.size()));
  EXPECT_EQ(BytesOf(many), std::string(1, '\0'));
  const std::string all = std::string(kPositionBytesMax, '\3') + '\2';
  std::string_view too_many = all;
  EXPECT_TRUE(TakePositions(&too_many).empty()) << "a block with these could not be split";
}

// Blocks with positions are decoded as they were encoded, and are as large as they may be.
TEST(PositionsTest, BlocksBesideAMap) {
  Random random(TestSeed());
  std::string bytes, changed, wanted;
  int num_changed = 0, num_moved = 0;
  for (int i = 0; i < 10'000; ++i) {
    const auto begin = static_cast<RowNumber>(random.Below(2) == 0 ? 0 : random.Below(1u << 20));
    const std::uint64_t end = random.Below(2) == 0 ? PostingBlock::kNoEnd : begin + 1 + random.Below(1u << 20);
    std::map<RowNumber, std::string> model;
    for (const RowNumber number : Draw(random, begin, end, random.Below(random.OneIn(4) ? 300 : 60)))
      model[number] = BytesOf(random.OneIn(2) ? PositionList{static_cast<std::uint32_t>(random.Below(60))} : DrawPositions(random));
    Numbers numbers;
    std::vector<std::string_view> positions;
    const auto encode = [&](std::string* out) {
      numbers.clear();
      positions.clear();
      for (const auto& [number, one] : model) {
        numbers.push_back(number);
        positions.push_back(one);
      }
      return EncodePostings(numbers, begin, out, positions);
    };
    const std::size_t count = encode(&bytes);
    ASSERT_LE(bytes.size(), kPostingBytesMaxWithPositions);
    if (count < model.size()) ASSERT_GT(bytes.size() + 16 + kPositionBytesMax, kPostingBytesMaxWithPositions) << "there was room";
    model.erase(std::next(model.begin(), static_cast<std::ptrdiff_t>(count)), model.end());
    Numbers found;
    std::string_view rest;
    ASSERT_TRUE(DecodePostings(bytes, end, &found, &rest));
    ASSERT_EQ(found.size(), count);
    for (const RowNumber number : found) ASSERT_EQ(TakePositions(&rest), model.at(number));
    ASSERT_TRUE(rest.empty());
    if (count > 0) EXPECT_FALSE(DecodePostings(bytes, end, &found)) << "without positions it is damaged";

    const auto number = count > 0 && random.OneIn(2) ? numbers[random.Below(count)] : static_cast<RowNumber>(random.Below(end));
    const bool adds = !random.OneIn(3);
    const std::string added = model.contains(number) && random.OneIn(4) ? model[number] : BytesOf(DrawPositions(random));
    const std::string_view view = added;
    const bool is_done = ChangePosting(bytes, end, number, adds, &changed, &view);
    const auto at = model.find(number);
    if (number < begin || (adds ? at != model.end() && at->second == added : at == model.end())) {
      ASSERT_FALSE(is_done);
      continue;
    }
    num_moved += adds && at != model.end() ? 1 : 0;
    if (adds)
      model[number] = added;
    else
      model.erase(number);
    const bool fits = encode(&wanted) == model.size();
    ASSERT_EQ(is_done, fits) << model.size();
    if (!fits) continue;
    ASSERT_EQ(changed, wanted);
    ++num_changed;
  }
  EXPECT_GT(num_changed, 2500);
  EXPECT_GT(num_moved, 1000);
}

TEST(PositionsTest, DamagedBlocksAreRefusedOrDecoded) {
  Random random(TestSeed());
  std::string bytes, changed;
  for (int i = 0; i < 10'000; ++i) {
    const Numbers numbers = Draw(random, 0, PostingBlock::kNoEnd, 1 + random.Below(50));
    std::vector<std::string> kept;
    for (std::size_t n = 0; n < numbers.size(); ++n) kept.push_back(BytesOf(DrawPositions(random)));
    const std::vector<std::string_view> views(kept.begin(), kept.end());
    (void)EncodePostings(numbers, 0, &bytes, views);
    if (random.Below(2) == 0)
      bytes.resize(random.Below(bytes.size()));
    else
      bytes[random.Below(bytes.size())] ^= static_cast<char>(1 + random.Below(255));
    const std::string exact(bytes);  // so that sanitizers notice a read behind it
    Numbers found;
    std::string_view rest;
    if (DecodePostings(exact, PostingBlock::kNoEnd, &found, &rest)) {
      EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
      for (std::size_t n = 0; n < found.size(); ++n) {
        const std::string_view one = TakePositions(&rest);
        PositionList positions;
        if (one.empty()) break;
        if (Read(one, &positions)) EXPECT_TRUE(std::is_sorted(positions.begin(), positions.end()));
      }
    } else {
      EXPECT_TRUE(found.empty());
    }
    const std::string_view some = views[0];
    (void)ChangePosting(exact, PostingBlock::kNoEnd, static_cast<RowNumber>(random.Below(PostingBlock::kNoEnd)), random.OneIn(2), &changed,
                        &some);
  }
}

TEST(KeyBlockTest, BesideAMap) {
  Random random(TestSeed());
  KeyBlock block;
  std::map<unsigned, std::string> model;
  std::string bytes;
  for (int i = 0; i < 20'000; ++i) {
    const auto slot = static_cast<unsigned>(random.Below(kKeysOfBlock));
    if (model.contains(slot)) {
      block.Remove(slot);
      model.erase(slot);
    } else {
      std::string key = random.Below(3) == 0 ? std::string() : "key " + std::to_string(random.Below(1000));
      if (random.Below(50) == 0) key.append(900, 'x');
      block.Set(slot, key);
      model[slot] = key;
    }
    block.Encode(&bytes);
    ASSERT_TRUE(block.Decode(bytes));
    EXPECT_EQ(block.IsEmpty(), model.empty());
    for (unsigned at = 0; at < kKeysOfBlock; ++at) {
      ASSERT_EQ(block.has(at), model.contains(at));
      if (block.has(at)) {
        ASSERT_EQ(block.key(at), model[at]);
      }
    }
    std::string damaged = bytes.substr(0, random.Below(bytes.size()));
    KeyBlock other;
    EXPECT_FALSE(other.Decode(damaged));
    EXPECT_TRUE(other.IsEmpty());
  }
}

}  // namespace
}  // namespace hako::table
