// Changes that an iterator of a tree sees while it is on a leaf.
#include <atomic>
#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

template <class Database>
class TreeCursorTest : public testing::Test {
 protected:
  void SetUp() override {
    if constexpr (std::same_as<Database, BabyDBM<MemoryFile>>) {
      ASSERT_OK_AND_ASSIGN(db_, Database::Open({}));
    } else {
      ASSERT_OK_AND_ASSIGN(db_, Database::Open(MemoryFile()));
    }
    for (const std::string_view key : {"b", "d", "f", "h"}) ASSERT_THAT(db_->Set(key, key), IsOk());
  }
  template <class Iterator>
  static std::vector<std::string> Rest(Iterator& it, bool backwards = false) {
    std::vector<std::string> keys;
    for (; it.Valid(); backwards ? it.Previous() : it.Next()) keys.emplace_back(it.key());
    EXPECT_THAT(it.status(), IsOk());
    return keys;
  }

  std::unique_ptr<Database> db_;
};
using All = testing::Types<TreeDBM<MemoryFile>, BabyDBM<MemoryFile>>;
TYPED_TEST_SUITE(TreeCursorTest, All);

TYPED_TEST(TreeCursorTest, SeesRecordsAddedAheadByItsThread) {
  auto it = this->db_->MakeIterator();
  it.Jump("d");
  ASSERT_THAT(this->db_->Set("e", "new"), IsOk());
  ASSERT_THAT(this->db_->Set("c", "new"), IsOk());
  EXPECT_EQ(it.key(), "d");
  EXPECT_THAT(this->Rest(it), testing::ElementsAre("d", "e", "f", "h"));
  it.Jump("f");
  ASSERT_THAT(this->db_->Set("da", "new"), IsOk());
  ASSERT_THAT(this->db_->Set("g", "new"), IsOk());
  EXPECT_THAT(this->Rest(it, true), testing::ElementsAre("f", "e", "da", "d", "c", "b"));
}

TYPED_TEST(TreeCursorTest, JumpsAheadAsJumpDoes) {
  const auto key_of = [](int i) { return std::to_string(10'000 + i) + std::string(static_cast<std::size_t>(i % 40), 'x'); };
  for (int i = 0; i < 3000; i += 3) ASSERT_THAT(this->db_->Set(key_of(i), "value"), IsOk());
  auto ahead = this->db_->MakeIterator(), jump = this->db_->MakeIterator();
  for (int from = 0; from < 3000; from += 301) {
    for (int to = from; to < 3000; to += 1 + (to - from) / 3) {
      to % 2 == 0 ? ahead.Jump(key_of(from)) : ahead.JumpBriefly(key_of(from));
      ASSERT_TRUE(ahead.Valid());
      if (std::string_view(key_of(to)) < ahead.key()) continue;
      const std::uint64_t about = ahead.CountAbout(key_of(to));
      ahead.JumpAhead(key_of(to));
      jump.Jump(key_of(to));
      ASSERT_EQ(ahead.key(), jump.key()) << from << " to " << to;
      const auto count = static_cast<std::uint64_t>((to - from + 2) / 3);
      ASSERT_TRUE(about >= count / 4 && about <= 2 * count + 256) << about << " for " << count;
      EXPECT_EQ(ahead.value(), jump.value());
    }
  }
  EXPECT_EQ(this->Rest(ahead).back(), "h");
}

// For more moves than a cursor reads its leaf in place, and more than a leaf has records.
TYPED_TEST(TreeCursorTest, SeesChangesOfItsThreadBeforeEachMoveAfterAJump) {
  const auto key_of = [](int i) { return "k" + std::to_string(1000 + i); };
  for (int i = 0; i < 1000; ++i) ASSERT_THAT(this->db_->Set(key_of(i), "old"), IsOk());
  for (const bool jumps : {false, true}) {
    auto it = this->db_->MakeIterator();
    it.JumpBriefly(key_of(0));
    for (int i = 0; i < 990; i += 3) {
      const std::string seen(it.value()), value = "value " + std::to_string(i);
      ASSERT_EQ(it.key(), key_of(i));
      ASSERT_THAT(it.Set("other"), IsOk());
      ASSERT_EQ(it.value(), seen) << "until the next move";
      ASSERT_THAT(this->db_->Set(key_of(i) + "x", value), IsOk());
      jumps ? it.JumpAhead(key_of(i) + "a") : it.Next();
      ASSERT_TRUE(it.Valid()) << i;
      ASSERT_EQ(it.key(), key_of(i) + "x");
      ASSERT_EQ(it.value(), value);
      if (i % 2 == 0) ASSERT_THAT(this->db_->Remove(key_of(i + 1)), IsOk());
      ASSERT_THAT(this->db_->Remove(key_of(i) + "x"), IsOk());
      ASSERT_EQ(it.key(), key_of(i) + "x") << "until the next move";
      jumps ? it.JumpAhead(key_of(i) + "y") : it.Next();
      ASSERT_EQ(it.key(), key_of(i % 2 == 0 ? i + 2 : i + 1));
      i % 5 == 0 ? it.JumpBriefly(key_of(i + 3)) : it.JumpAhead(key_of(i + 3));
      ASSERT_THAT(this->db_->Set(key_of(i + 1), "old"), IsOk());
    }
  }
}

TYPED_TEST(TreeCursorTest, ShowsWholeRecordsInOrderAfterAShortJumpBesideAWriter) {
  const auto key_of = [](unsigned i) { return "k" + std::to_string(1000 + i % 500); };
  const auto value_of = [](const std::string& key, unsigned i) { return key + ":" + std::string(i % 7 * 5, 'v'); };
  std::atomic<bool> ends = false;
  std::thread writer([&] {
    for (unsigned i = 0; i < 30'000; ++i) {
      const std::string key = key_of(i * 7919);
      EXPECT_TRUE(i % 4 == 3 ? this->db_->Remove(key).code() != absl::StatusCode::kDataLoss : this->db_->Set(key, value_of(key, i)).ok());
    }
    ends = true;
  });
  auto it = this->db_->MakeIterator();
  for (unsigned i = 0; !ends && !this->HasFailure(); ++i) {
    std::string least = key_of(i * 31);
    it.JumpBriefly(least);
    for (unsigned move = 0; move < 6 && it.Valid(); ++move) {
      const std::string key(it.key());
      EXPECT_GE(key, least);
      EXPECT_THAT(it.value(), testing::StartsWith(key + ":"));
      EXPECT_EQ((it.value().size() - key.size() - 1) % 5, 0u);
      least = (i + move) % 3 == 0 ? key + "a" : key + '\0';
      (i + move) % 3 == 0 ? it.JumpAhead(least) : it.Next();
    }
    EXPECT_THAT(it.status(), IsOk());
  }
  writer.join();
}

TYPED_TEST(TreeCursorTest, SeesARecordAddedAfterTheLastOne) {
  auto it = this->db_->MakeIterator();
  it.Last();
  ASSERT_THAT(it.Set("other"), IsOk());
  ASSERT_THAT(this->db_->Set("i", "new"), IsOk());
  EXPECT_THAT(this->Rest(it), testing::ElementsAre("h", "i"));
}

TYPED_TEST(TreeCursorTest, DoesNotSeeRecordsRemovedByItsThread) {
  auto it = this->db_->MakeIterator();
  it.First();
  ASSERT_THAT(this->db_->Remove("b"), IsOk());
  ASSERT_THAT(this->db_->Remove("d"), IsOk());
  EXPECT_EQ(it.key(), "b") << "until the next move";
  EXPECT_THAT(this->Rest(it), testing::ElementsAre("b", "f", "h"));
}

TYPED_TEST(TreeCursorTest, ShowsValuesSetByItsThread) {
  auto it = this->db_->MakeIterator();
  it.First();
  ASSERT_THAT(this->db_->Set("d", "a longer value"), IsOk());
  it.Next();
  EXPECT_EQ(it.value(), "a longer value");
}

TYPED_TEST(TreeCursorTest, ContinuesAfterASplitOrMergeOfItsLeaf) {
  auto it = this->db_->MakeIterator();
  it.Jump("d");
  std::vector<std::string> expected = {"d"};
  for (int i = 1000; i < 4000; ++i) ASSERT_THAT(this->db_->Set(expected.emplace_back("e" + std::to_string(i)), "new"), IsOk());
  expected.insert(expected.end(), {"f", "h"});
  EXPECT_EQ(this->Rest(it), expected);
  it.Jump("e1010");
  ASSERT_THAT(this->db_->RemoveRange("e", "f").status(), IsOk());
  EXPECT_THAT(this->Rest(it), testing::ElementsAre("e1010", "f", "h"));
}

}  // namespace
}  // namespace hako
