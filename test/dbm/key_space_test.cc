// Key spaces: beside a map for each space, on each kind of database, in transactions and in snapshots.
#include "hako/dbm/key_space.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/comparator.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/transaction.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/dbm/write_batch.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using absl::StatusCode;
using Model = std::map<std::string, std::string>;

struct Tiny {
  static auto Open(const std::string&) { return TinyDBM<>::Open(); }
};
struct Hash {
  static auto Open(const std::string& path) { return HashDBM<>::Open(path); }
};
struct Baby {
  static auto Open(const std::string&) { return BabyDBM<>::Open({.expiry = true}); }
};
struct Tree {
  static auto Open(const std::string& path) { return TreeDBM<>::Open(path); }
};
struct AnyTree {
  static auto Open(const std::string& path) { return AnyDBM::Open(path + ".hkt"); }
};

template <class Kind>
class KeySpaceTest : public testing::Test {
 protected:
  using Database = std::remove_reference_t<decltype(**Kind::Open(""))>;
  static constexpr bool kIsOrdered = !std::is_same_v<Kind, Tiny> && !std::is_same_v<Kind, Hash>;

  void SetUp() override { ASSERT_OK_AND_ASSIGN(db_, Kind::Open(dir_.File("db"))); }
  void TearDown() override {
    ASSERT_THAT(db_->Verify(), IsOk());
    ASSERT_THAT(db_->Close(), IsOk());
  }
  // Sometimes empty, and with the bytes that end spaces.
  std::string RandomKey() {
    std::string key = random_.Bytes(random_.Below(3));
    if (random_.OneIn(3)) key.push_back(random_.OneIn(2) ? '\0' : '\xff');
    return key;
  }
  template <class Space>
  void Update(Space& space, Model& model) {
    const std::string key = RandomKey(), value = random_.Bytes(random_.Below(20));
    switch (random_.Below(7)) {
      case 0:
        EXPECT_EQ(space.Remove(key).ok(), model.erase(key) == 1);
        return;
      case 1: {
        EXPECT_THAT(space.Append(key, value), IsOk());
        model[key] += value;
        return;
      }
      case 2: {
        const std::string to = RandomKey();
        const Status moved = space.Rekey(key, to);
        ASSERT_EQ(moved.ok(), model.contains(key)) << moved;
        if (!moved.ok()) return;
        std::string record = std::move(model[key]);
        model.erase(key);
        model[to] = std::move(record);
        return;
      }
      case 3: {
        WriteBatch batch;
        batch.Set(key, value);
        const std::string other = RandomKey();
        batch.Remove(other);
        model[key] = value;
        model.erase(other);
        if constexpr (kIsOrdered) {
          if (random_.OneIn(4)) {
            std::string from = RandomKey(), to = RandomKey();
            if (to < from) std::swap(from, to);
            const bool has_end = random_.OneIn(4);
            has_end ? batch.RemoveRange(from, to) : batch.RemoveRange(from);
            model.erase(model.lower_bound(from), has_end ? model.lower_bound(to) : model.end());
          }
        }
        EXPECT_THAT(space.Write(batch), IsOk());
        return;
      }
      default:
        EXPECT_THAT(space.Set(key, value), IsOk());
        model[key] = value;
    }
  }

  template <class Space>
  void Compare(Space& space, const Model& model) {
    for (int i = 0; i < 10; ++i) {
      const std::string key = RandomKey();
      const auto found = model.find(key);
      if (found == model.end())
        ASSERT_THAT(space.Get(key).status(), StatusIs(StatusCode::kNotFound));
      else
        ASSERT_THAT(space.Get(key), IsOkAndHolds(found->second));
      const std::string_view keys[] = {key, "", key};
      std::optional<std::string> values[3];
      ASSERT_THAT(space.GetMulti(keys, values), IsOk());
      ASSERT_EQ(values[2], found == model.end() ? std::nullopt : std::optional(found->second));
    }
    Model all;
    ASSERT_THAT(space.ProcessEach([&](std::string_view key, std::string_view value) { all.emplace(key, value); }), IsOk());
    ASSERT_EQ(all, model);
  }
  template <class Space>
  void CompareOrdered(Space& space, const Model& model) {
    std::string from = RandomKey(), to = RandomKey();
    if (to < from) std::swap(from, to);
    const Model expected(model.lower_bound(from), model.lower_bound(to));
    Model part;
    for (auto [key, value] : space.Range(from, to)) part.emplace(key, value);
    ASSERT_EQ(part, expected);
    std::vector<std::string> backwards;
    auto reverse = space.ReverseRange();
    for (auto [key, value] : reverse) backwards.emplace_back(key);
    ASSERT_THAT(reverse.status(), IsOk());
    ASSERT_EQ(backwards.size(), model.size());
    ASSERT_TRUE(std::equal(backwards.rbegin(), backwards.rend(), model.begin(), [](auto& a, auto& b) { return a == b.first; }));
    ASSERT_THAT(space.CountRange(from, to), IsOkAndHolds(expected.size()));
    ASSERT_THAT(space.CountRange(""), IsOkAndHolds(model.size()));
    auto it = space.MakeIterator();
    it.JumpLower(from, true);
    const auto below = model.upper_bound(from);
    ASSERT_EQ(it.Valid(), below != model.begin());
    if (it.Valid()) ASSERT_EQ(it.key(), std::prev(below)->first);
  }

  TempDir dir_;
  std::unique_ptr<Database> db_;
  Random random_{TestSeed()};
};

using Kinds = testing::Types<Tiny, Hash, Baby, Tree, AnyTree>;
TYPED_TEST_SUITE(KeySpaceTest, Kinds);

TYPED_TEST(KeySpaceTest, SpacesHaveTheirOwnKeys) {
  KeySpace first(*this->db_, "users"), second(*this->db_, "user"), third(*this->db_, "usert");
  Model models[3];
  ASSERT_THAT(this->db_->Set("users", "plain"), IsOk());
  for (int i = 0; i < 300 && !this->HasFailure(); ++i) {
    for (int n = 0; n < 3; ++n) {
      auto& space = n == 0 ? first : n == 1 ? second : third;
      for (int u = 0; u < 3; ++u) this->Update(space, models[n]);
      this->Compare(space, models[n]);
      if constexpr (TestFixture::kIsOrdered) this->CompareOrdered(space, models[n]);
    }
  }
  EXPECT_EQ(this->db_->Count(), models[0].size() + models[1].size() + models[2].size() + 1);
  if constexpr (TestFixture::kIsOrdered) {
    EXPECT_THAT(first.RemoveRange(""), IsOkAndHolds(models[0].size()));
    this->Compare(second, models[1]);
    this->Compare(third, models[2]);
  }
}

TYPED_TEST(KeySpaceTest, OneTransactionOrBatchCoversSeveral) {
  Transaction transaction(*this->db_);
  KeySpace users(transaction, "users"), orders(transaction, "orders");
  Model of_users, of_orders;
  for (int i = 0; i < 100 && !this->HasFailure(); ++i) {
    this->Update(users, of_users);
    this->Update(orders, of_orders);
    if constexpr (TestFixture::kIsOrdered) this->CompareOrdered(users, of_users);
  }
  EXPECT_EQ(this->db_->Count(), 0u);
  ASSERT_THAT(transaction.Commit(), IsOk());
  KeySpace committed_users(*this->db_, "users"), committed_orders(*this->db_, "orders");
  this->Compare(committed_users, of_users);
  this->Compare(committed_orders, of_orders);

  WriteBatch batch;
  batch.Expect(committed_users.Key("ada"), Expect::Absent());
  batch.Set(committed_users.Key("ada"), "1815");
  batch.Set(committed_orders.Key("17"), "ada");
  ASSERT_THAT(this->db_->Write(batch), IsOk());
  EXPECT_THAT(committed_users.Get("ada"), IsOkAndHolds("1815"));
  EXPECT_THAT(this->db_->Write(batch), StatusIs(StatusCode::kAborted));
}

TYPED_TEST(KeySpaceTest, ARangeOfATransactionEndsWithItsSpace) {
  if constexpr (TestFixture::kIsOrdered) {
    KeySpace before(*this->db_, "a"), after(*this->db_, "c");
    ASSERT_THAT(before.Set("z", "1"), IsOk());
    ASSERT_THAT(after.Set("a", "1"), IsOk());
    Transaction transaction(*this->db_);
    KeySpace space(transaction, "b");
    EXPECT_THAT(space.CountRange(""), IsOkAndHolds(0u));
    auto it = space.MakeIterator();
    it.First();
    EXPECT_FALSE(it.Valid());
    it.Last();
    EXPECT_FALSE(it.Valid());
    EXPECT_THAT(it.status(), IsOk());
    ASSERT_THAT(space.Set("k", "v"), IsOk());
    ASSERT_THAT(before.Set("z", "2"), IsOk());
    ASSERT_THAT(after.Set("a", "2"), IsOk());
    EXPECT_THAT(transaction.Commit(), IsOk());
  }
}

TYPED_TEST(KeySpaceTest, ANameIsNotEmptyAndHasNoZeroByte) {
  for (const std::string& name : {std::string(), std::string("a\0b", 3)}) {
    KeySpace space(*this->db_, name);
    EXPECT_THAT(space.Set("k", "v"), StatusIs(StatusCode::kInvalidArgument));
    EXPECT_THAT(space.Get("k").status(), StatusIs(StatusCode::kInvalidArgument));
    WriteBatch batch;
    batch.Set("a", "b");
    batch.Set("c", "d");
    EXPECT_THAT(space.Write(batch), StatusIs(StatusCode::kInvalidArgument));
    if constexpr (TestFixture::kIsOrdered) {
      auto range = space.Range();
      EXPECT_TRUE(range.begin() == range.end());
      EXPECT_THAT(range.status(), StatusIs(StatusCode::kInvalidArgument));
      EXPECT_THAT(space.RemoveRange("").status(), StatusIs(StatusCode::kInvalidArgument));
    }
  }
  EXPECT_EQ(this->db_->Count(), 0u);
}

TEST(KeySpaceOfASnapshot, ShowsItsMoment) {
  ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open());
  KeySpace users(*db, "users");
  ASSERT_THAT(users.Set("ada", "1815"), IsOk());
  ASSERT_OK_AND_ASSIGN(auto snapshot, db->Snapshot());
  ASSERT_THAT(users.Set("alan", "1912"), IsOk());
  KeySpace before(*snapshot, "users");
  EXPECT_THAT(before.CountRange(""), IsOkAndHolds(1u));
  EXPECT_THAT(before.Get("alan").status(), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(before.Get("ada"), IsOkAndHolds("1815"));
}

TEST(KeySpaceOfAnyDBM, RangesNeedTheBytewiseOrder) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto hash, AnyDBM::Open(dir.File("a.hkh")));
  ASSERT_OK_AND_ASSIGN(auto numbers, (BabyDBM<MemoryMapParallelFile, DecimalComparator>::Open()));
  AnyDBM tree(std::move(numbers));
  for (AnyDBM* const db : {hash.get(), &tree}) {
    KeySpace space(*db, "users");
    ASSERT_THAT(space.Set("ada", "1815"), IsOk());
    EXPECT_THAT(space.Get("ada"), IsOkAndHolds("1815"));
    auto range = space.Range();
    EXPECT_TRUE(range.begin() == range.end());
    EXPECT_THAT(range.status(), StatusIs(StatusCode::kUnimplemented));
    EXPECT_THAT(space.RemoveRange("").status(), StatusIs(StatusCode::kUnimplemented));
    int count = 0;
    EXPECT_THAT(space.ProcessEach([&](std::string_view key, std::string_view) { count += key == "ada" ? 1 : 100; }), IsOk());
    EXPECT_EQ(count, 1);
    WriteBatch batch;
    batch.RemoveRange("a");
    EXPECT_THAT(space.Write(batch), StatusIs(StatusCode::kUnimplemented));
    EXPECT_EQ(db->Count(), 1u);
    Transaction transaction(*db);
    KeySpace of_transaction(transaction, "users");
    EXPECT_THAT(of_transaction.Write(batch), StatusIs(StatusCode::kUnimplemented));
  }
}

TEST(KeySpaceWithTimes, RecordsExpire) {
  ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open({.expiry = true}));
  KeySpace space(*db, "sessions");
  ASSERT_THAT(space.Set("17", "ada", {.ttl = std::chrono::hours(1)}), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::uint64_t time, space.GetExpiry("17"));
  EXPECT_GT(time, 0u);
  ASSERT_THAT(space.Rekey("17", "18"), IsOk());
  EXPECT_THAT(space.GetExpiry("18"), IsOkAndHolds(time));
  ASSERT_THAT(space.Persist("18"), IsOk());
  EXPECT_THAT(space.GetExpiry("18"), IsOkAndHolds(0u));
}

}  // namespace
}  // namespace hako
