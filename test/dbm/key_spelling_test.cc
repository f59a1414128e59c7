// Keys that compare equal but differ in bytes are one key, which keeps the spelling that was stored
// first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "dbm/shared_databases.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "support/status_matchers.h"

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

template <class Kind>
class KeySpellingTest : public testing::Test {
 protected:
  std::vector<std::string> Keys() {
    std::vector<std::string> keys;
    auto it = db_->MakeIterator();
    for (it.First(); it.Valid(); it.Next()) keys.emplace_back(it.key());
    EXPECT_THAT(it.status(), IsOk());
    return keys;
  }
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

}  // namespace
}  // namespace hako
