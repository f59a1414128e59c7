// The blocks of posting lists and of row numbers, beside plain vectors and maps.
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
