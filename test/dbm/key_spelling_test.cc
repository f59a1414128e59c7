// Keys that compare equal but differ in bytes are one key, which keeps the spelling that was stored
// first, until the record is removed or expires.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/shared_databases.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/dbm/write_batch.h"
#include "hako/file/memory_file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "support/killed_files.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::ElementsAre;

// Only letters count, so that equal keys may be of any length.
struct LettersComparator {
  static constexpr std::string_view kName = "letters";
  static int Compare(std::string_view a, std::string_view b) { return LettersOf(a).compare(LettersOf(b)); }

 private:
  static std::string LettersOf(std::string_view key) {
    std::string letters(key);
    std::erase(letters, '-');
    return letters;
  }
};

struct Baby {
  using Database = BabyDBM<MemoryMapParallelFile, LettersComparator>;
  static auto Open() { return Database::Open({.page_size = 512}).value(); }
};
struct Tree {
  using Database = TreeDBM<MemoryFile, LettersComparator>;
  static auto Open() { return Database::Open(MemoryFile(), {.page_size = 512}).value(); }
};

template <class Database>
std::vector<std::string> KeysOf(Database& db) {
  std::vector<std::string> keys;
  auto it = db.MakeIterator();
  for (it.First(); it.Valid(); it.Next()) keys.emplace_back(it.key());
  EXPECT_THAT(it.status(), IsOk());
  return keys;
}

template <class Kind>
class KeySpellingTest : public testing::Test {
 protected:
  std::vector<std::string> Keys() { return KeysOf(*db_); }
  void TearDown() override { EXPECT_THAT(db_->Verify(), IsOk()); }

  decltype(Kind::Open()) db_ = Kind::Open();
};
using Kinds = testing::Types<Baby, Tree>;
TYPED_TEST_SUITE(KeySpellingTest, Kinds);

// With values that fit in place, that are longer or shorter, and that are stored out of line.
TYPED_TEST(KeySpellingTest, UpdatesKeepTheSpelling) {
  ASSERT_THAT(this->db_->Set("a-b", "1234"), IsOk());
  for (const std::size_t size : {4u, 2u, 3u, 50u, 49u, 120u, 10u, 300u, 5u, 3000u, 3000u, 2000u, 0u, 100u}) {
    for (const char* other : {"ab", "-ab", "a--------------------b"}) {
      ASSERT_THAT(this->db_->Set(other, std::string(size, 'v')), IsOk());
      ASSERT_THAT(this->Keys(), ElementsAre("a-b")) << size << " bytes for " << other;
      ASSERT_THAT(this->db_->Get("ab"), IsOkAndHolds(std::string(size, 'v')));
    }
  }
  ASSERT_THAT(this->db_->Append("ab-", "more"), IsOk());
  ASSERT_THAT(this->db_->CompareExchange("ab", Expect::Any(), Action::Set("another")), IsOk());
  EXPECT_THAT(this->Keys(), ElementsAre("a-b"));
}

TYPED_TEST(KeySpellingTest, RekeyToAnEqualKeyKeepsTheSpelling) {
  ASSERT_THAT(this->db_->Set("a-b", "1"), IsOk());
  ASSERT_THAT(this->db_->Rekey("ab", "-ab"), IsOk());
  EXPECT_THAT(this->Keys(), ElementsAre("a-b"));
  EXPECT_THAT(this->db_->Get("ab"), IsOkAndHolds("1"));
}

TYPED_TEST(KeySpellingTest, RekeyToTheKeyOfAnotherRecordKeepsItsSpelling) {
  ASSERT_THAT(this->db_->Set("a-b", "1"), IsOk());
  ASSERT_THAT(this->db_->Set("c-d", "a longer value"), IsOk());
  ASSERT_THAT(this->db_->Rekey("ab", "cd"), IsOk());
  EXPECT_THAT(this->Keys(), ElementsAre("c-d"));
  EXPECT_THAT(this->db_->Get("cd"), IsOkAndHolds("1"));
}

TYPED_TEST(KeySpellingTest, ChangesWhenTheRecordIsRemovedAndStoredAgain) {
  ASSERT_THAT(this->db_->Set("a-b", "1"), IsOk());
  ASSERT_THAT(this->db_->Remove("ab"), IsOk());
  ASSERT_THAT(this->db_->Set("ab-", "1"), IsOk());
  EXPECT_THAT(this->Keys(), ElementsAre("ab-"));
}

TYPED_TEST(KeySpellingTest, ABatchThatRemovesAndStoresTheRecordChangesIt) {
  const std::string spellings[] = {"a-b", "ab", "a----------------------------------b", "-ab", "ab-"};
  std::size_t i = 0;
  for (const std::size_t size : {3u, 3u, 60u, 2u, 3000u, 0u, 3000u, 100u}) {
    const std::string& key = spellings[++i % std::size(spellings)];
    WriteBatch batch;
    batch.Remove("ab");
    batch.Set(key, std::string(size, 'v'));
    ASSERT_THAT(this->db_->Write(batch), IsOk());
    ASSERT_THAT(this->Keys(), ElementsAre(key)) << size;
    ASSERT_THAT(this->db_->Get("ab"), IsOkAndHolds(std::string(size, 'v')));
    EXPECT_EQ(this->db_->Count(), 1u);
  }
}

TYPED_TEST(KeySpellingTest, OfEqualKeysOfOneCallTheFirstThatIsStoredCounts) {
  const std::string_view keys[] = {"-ab", "a-b", "ab"};
  const auto set_later = [](std::size_t i, std::optional<std::string_view>) {
    return std::optional(i == 0 ? Action::Keep() : Action::Set(i == 1 ? "1" : "2"));
  };
  ASSERT_THAT(this->db_->ProcessMulti(keys, set_later), IsOk());
  EXPECT_THAT(this->Keys(), ElementsAre("a-b"));
  EXPECT_THAT(this->db_->Get("ab"), IsOkAndHolds("2"));
}

// Full pages that an update splits: their keys are far longer than those of the call, and the
// reverse.
TYPED_TEST(KeySpellingTest, UpdatesKeepTheSpellingInFullPages) {
  std::vector<std::string> keys;
  for (char c = 'a'; c <= 'z'; ++c) {
    keys.push_back(std::string(1, c) + std::string(c % 2 == 0 ? 100 : 0, '-') + "x");
    ASSERT_THAT(this->db_->Set(keys.back(), "v"), IsOk());
  }
  for (std::size_t size = 1; size < 120; size += 7) {
    for (char c = 'a'; c <= 'z'; ++c)
      ASSERT_THAT(this->db_->Set(std::string(1, c) + std::string(c % 2 == 0 ? 0 : 100, '-') + "x", std::string(size, 'v')), IsOk());
    ASSERT_THAT(this->Keys(), testing::ElementsAreArray(keys)) << size;
  }
}

std::atomic<std::uint64_t> the_time{0};
std::uint64_t TheTime() { return the_time.load(); }

struct ExpiringBaby {
  using Database = BabyDBM<MemoryMapParallelFile, LettersComparator>;
  static inline const BabyOptions kOptions = {.page_size = 512, .expiry = true, .clock = &TheTime};
};
struct ExpiringTree {
  using Database = TreeDBM<PositionalParallelFile, LettersComparator>;
  static inline const TreeOptions kOptions = {.page_size = 512, .expiry = true, .clock = &TheTime};
};

template <class Kind>
class ExpiredSpellingTest : public testing::Test {
 protected:
  using Database = typename Kind::Database;
  static constexpr std::uint64_t kFirst = 1'700'000'000'000;

  void SetUp() override {
    the_time = kFirst;
    db_ = *Database::Open(dir_.File("db"), Kind::kOptions);
  }
  void TearDown() override {
    EXPECT_THAT(db_->Verify(), IsOk());
    EXPECT_THAT(db_->Close(), IsOk());
  }
  // Stores a record, which expires.
  void LetExpire(std::string_view key, std::string_view value) {
    ASSERT_THAT(db_->Set(key, value, {.ttl = std::chrono::milliseconds(10)}), IsOk());
    the_time += 10;
  }
  // What a database has that is opened after a kill at this moment.
  std::vector<std::string> KeysAfterAKill() {
    const std::string name = dir_.File("killed" + std::to_string(num_kills_++));
    CopyAsKilled(dir_.File("db"), name);
    const auto killed = Database::Open(name, Kind::kOptions);
    EXPECT_THAT(killed.status(), IsOk());
    if (!killed.ok()) return {};
    EXPECT_THAT((*killed)->Verify(), IsOk());
    return KeysOf(**killed);
  }

  TempDir dir_;
  std::unique_ptr<Database> db_;
  int num_kills_ = 0;
};
using ExpiringKinds = testing::Types<ExpiringBaby, ExpiringTree>;
TYPED_TEST_SUITE(ExpiredSpellingTest, ExpiringKinds);

TYPED_TEST(ExpiredSpellingTest, AnUpdateOfAnExpiredRecordStoresItsOwnSpelling) {
  auto& db = *this->db_;
  const std::string medium(300, 'v'), large(3000, 'v');
  const auto multi = [](std::string_view value) {
    return [value](std::size_t, std::optional<std::string_view> shown) {
      EXPECT_FALSE(shown);
      return std::optional(Action::Set(value));
    };
  };
  const std::string_view keys[] = {"ab-"};
  const KeyValue records[] = {{"ab-", "1"}};
  const std::pair<const char*, std::function<Status()>> updates[] = {
      {"Set", [&] { return db.Set("ab-", "1"); }},
      {"Set of a medium value", [&] { return db.Set("ab-", medium); }},
      {"Set of a large value", [&] { return db.Set("ab-", large); }},
      {"Set of a time", [&] { return db.Set("ab-", "1", {.ttl = std::chrono::hours(1)}); }},
      {"Set without overwriting", [&] { return db.Set("ab-", "1", {.overwrite = false}); }},
      {"Set that keeps the time", [&] { return db.Set("ab-", "1", {.keep_expiry = true}); }},
      {"Append", [&] { return db.Append("ab-", "1", ","); }},
      {"Increment", [&] { return db.Increment("ab-").status(); }},
      {"CompareExchange", [&] { return db.CompareExchange("ab-", Expect::Absent(), Action::Set("1")); }},
      {"Process", [&] { return db.Process("ab-", [](std::optional<std::string_view>) { return Action::Set("1"); }); }},
      {"Process of an Action", [&] { return db.Process("ab-", Action::Set("1")); }},
      {"Process without the value", [&] { return db.Process("ab-", [](bool exists) { return Action::Set(exists ? "2" : "1"); }); }},
      {"ProcessMulti", [&] { return db.ProcessMulti(keys, multi("1")); }},
      {"ProcessMulti of a large value", [&] { return db.ProcessMulti(keys, multi(large)); }},
      {"SetMulti", [&] { return db.SetMulti(records); }},
      {"AppendMulti", [&] { return db.AppendMulti(records); }},
      {"Write",
       [&] {
         WriteBatch batch;
         batch.Expect("ab", Expect::Absent());
         batch.Set("ab-", "1");
         batch.Set("ab", "2");
         return db.Write(batch);
       }},
      {"Rekey",
       [&] {
         EXPECT_THAT(db.Set("c", "1"), IsOk());
         return db.Rekey("c", "ab-", {.overwrite = false});
       }},
  };
  for (const std::size_t size : {1u, 3000u}) {
    for (const auto& [name, update] : updates) {
      SCOPED_TRACE(std::string(name) + " after " + std::to_string(size) + " bytes");
      ASSERT_NO_FATAL_FAILURE(this->LetExpire("a----------b", std::string(size, 'o')));
      ASSERT_THAT(update(), IsOk());
      EXPECT_THAT(KeysOf(db), ElementsAre("ab-"));
      EXPECT_EQ(db.Count(), 1u);
      EXPECT_THAT(db.Get("ab"), IsOk());
      EXPECT_THAT(this->KeysAfterAKill(), ElementsAre("ab-"));
      ASSERT_THAT(db.Set("a-b", "kept"), IsOk());  // the record is there: it keeps its key
      EXPECT_THAT(KeysOf(db), ElementsAre("ab-"));
      ASSERT_THAT(db.Remove("ab"), IsOk());
    }
  }
}

// The visitor is called once, and an update that does not store the record leaves it absent.
TYPED_TEST(ExpiredSpellingTest, AnUpdateThatStoresNothingLeavesTheRecordAbsent) {
  auto& db = *this->db_;
  ASSERT_NO_FATAL_FAILURE(this->LetExpire("a-b", "old"));
  int calls = 0;
  const auto keep = [&calls](std::optional<std::string_view> value) {
    EXPECT_FALSE(value);
    ++calls;
    return Action::Keep();
  };
  ASSERT_THAT(db.Process("ab", keep), IsOk());
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(db.CompareExchange("ab", Expect::Any(), Action::Set("x")), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(db.Remove("ab"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db.Replace("ab", "x"), StatusIs(absl::StatusCode::kNotFound));
  WriteBatch batch;
  batch.Expect("ab", Expect::Any());
  batch.Set("ab", "x");
  EXPECT_THAT(db.Write(batch), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(KeysOf(db), ElementsAre());
  EXPECT_THAT(this->KeysAfterAKill(), ElementsAre());
}

// Of many records in full pages, every other one has expired.
TYPED_TEST(ExpiredSpellingTest, ABatchRespellsOnlyExpiredRecords) {
  auto& db = *this->db_;
  std::vector<std::string> expected;
  WriteBatch batch;
  for (int i = 0; i < 400; ++i) {
    const std::string number = std::to_string(1000 + i), old_key = "-" + number, new_key = number + std::string(i % 7 == 0 ? 90 : 1, '-');
    const SetOptions options = i % 2 == 0 ? SetOptions{.ttl = std::chrono::milliseconds(10)} : SetOptions{};
    ASSERT_THAT(db.Set(old_key, std::string(static_cast<std::size_t>(i % 60), 'o'), options), IsOk());
    batch.Set(new_key, std::string(static_cast<std::size_t>(i * 7 % 50 + (i % 50 == 0 ? 2000 : 0)), 'n'));
    expected.push_back(i % 2 == 0 ? new_key : old_key);
  }
  the_time += 10;
  ASSERT_THAT(db.Write(batch), IsOk());
  EXPECT_EQ(KeysOf(db), expected);
  EXPECT_EQ(db.Count(), 400u);
  EXPECT_EQ(this->KeysAfterAKill(), expected);
}

TEST(ExpiredSpellingOfSnapshotsTest, ASetAfterLoadStoresItsOwnSpelling) {
  const TempDir dir;
  the_time = 1'700'000'000'000;
  const auto db = *ExpiringBaby::Database::Open(ExpiringBaby::kOptions), loaded = *ExpiringBaby::Database::Open(ExpiringBaby::kOptions);
  ASSERT_THAT(db->Set("a-b", "old", {.ttl = std::chrono::milliseconds(10)}), IsOk());
  ASSERT_THAT(db->Save(dir.File("snapshot")), IsOk());
  ASSERT_THAT(loaded->Load(dir.File("snapshot")), IsOk());
  the_time += 10;
  ASSERT_THAT(loaded->Set("ab-", "new"), IsOk());
  EXPECT_THAT(KeysOf(*loaded), ElementsAre("ab-"));
  EXPECT_THAT(loaded->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
