// Posting lists: long lists, patterns of each length, numbers of rows, and what Verify finds in them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hako/dbm/tree_dbm.h"
#include "hako/table/index_key.h"
#include "hako/table/posting_block.h"
#include "hako/table/table_dbm.h"
#include "support/hooked_store.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::HasSubstr;

std::string KeyOf(std::uint64_t i) { return "row " + std::to_string(i); }

std::vector<std::string> SortedKeys(const Query& query) {
  StatusOr<std::vector<std::string>> keys = query.Keys();
  EXPECT_THAT(keys, IsOk());
  if (!keys.ok()) return {};
  std::sort(keys->begin(), keys->end());
  return *std::move(keys);
}

// Random changes of rows whose words are so few that their lists have many blocks, beside a map.
TEST(TextIndexTest, LongListsBesideAMap) {
  Random random(TestSeed());
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
  std::map<std::string, std::set<int>> model;
  const std::uint64_t num_keys = 6000;
  const auto draw = [&] {
    std::set<int> words;
    for (std::uint64_t n = random.Below(4); n > 0; --n) words.insert(static_cast<int>(random.SkewedSize(5)));
    return words;
  };
  for (int step = 0; step < 200 / kSlowdown; ++step) {
    TableBatch batch;
    for (std::uint64_t n = random.OneIn(3) ? 1 : random.Below(400); n > 0; --n) {
      const std::string key = KeyOf(random.Below(num_keys));
      if (random.OneIn(3)) {
        if (model.erase(key) != 0) batch.Remove(key);
        continue;
      }
      const std::set<int> words = draw();
      std::string text;
      for (const int word : words) text += "w" + std::to_string(word) + " ";
      batch.Put(key, {{"t", text}});
      model[key] = words;
    }
    ASSERT_THAT(table->Write(batch), IsOk());
    if (step % 20 != 0) continue;
    for (int word = 0; word < 32; word += 1 + static_cast<int>(random.Below(8))) {
      std::vector<std::string> with, with_both, without;
      for (const auto& [key, words] : model) {
        (words.contains(word) ? with : without).push_back(key);
        if (words.contains(word) && words.contains(1)) with_both.push_back(key);
      }
      const Condition has = Column("t").HasAll("w" + std::to_string(word)), has_one = Column("t").HasAll("w1");
      EXPECT_THAT(table->Select().Where(has).Count(), IsOkAndHolds(with.size()));
      EXPECT_EQ(SortedKeys(table->Select().Where(has)), with);
      EXPECT_THAT(table->Select().Where(has && has_one).Count(), IsOkAndHolds(with_both.size()));
      EXPECT_THAT(table->Select().Where(!has).Count(), IsOkAndHolds(without.size()));
      EXPECT_EQ(SortedKeys(table->Select().Where(!has)), without);
      with.resize(std::min<std::size_t>(with.size(), 10));
      EXPECT_THAT(table->Select().Where(has).OrderBy("").Limit(10).Keys(), IsOkAndHolds(with));
    }
    ASSERT_THAT(table->Verify(), IsOk());
  }
}

TEST(TextIndexTest, PatternsOfEachLengthBesideScans) {
  Random random(TestSeed());
  const std::string_view kPieces[] = {"a",    "b",    "\xc3\xa9", "\xe3\x81\x82", "\xf0\x9f\x98\x80", std::string_view("\0", 1),
                                      "\x01", "\xff", "\x81"};
  const auto draw = [&](std::uint64_t most) {
    std::string text;
    for (std::uint64_t n = random.Below(most + 1); n > 0; --n) text += kPieces[random.Below(random.OneIn(3) ? std::size(kPieces) : 3)];
    return text;
  };
  for (const unsigned q : {1u, 2u, 3u, 5u}) {
    SCOPED_TRACE(q);
    const auto plain = *TableDBM::OpenInMemory(), indexed = *TableDBM::OpenInMemory();
    ASSERT_THAT(indexed->CreateIndex({.columns = {{"t", IndexKind::kQGram}}, .q = q}), IsOk());
    for (int i = 0; i < 300; ++i) {
      const std::string text = draw(i % 10 == 0 ? 40 : 7);
      for (TableDBM* const table : {plain.get(), indexed.get()})
        ASSERT_THAT(table->Put(KeyOf(static_cast<std::uint64_t>(i)), {{"t", text}}), IsOk());
    }
    for (int i = 0; i < 250 / kSlowdown; ++i) {
      const auto leaf = [&] {
        const std::string part = draw(6);
        return random.OneIn(3) ? Column("t").BeginsWith(part) : random.OneIn(3) ? Column("t").EndsWith(part) : Column("t").Contains(part);
      };
      Condition condition = leaf();
      for (std::uint64_t n = random.Below(4); n > 0; --n)
        condition = random.OneIn(3) ? !condition : random.OneIn(2) ? condition && leaf() : condition || leaf();
      EXPECT_EQ(SortedKeys(indexed->Select().Where(condition)), SortedKeys(plain->Select().Where(condition))) << condition.ToText();
      EXPECT_EQ(*indexed->Select().Where(condition).Count(), *plain->Select().Where(condition).Count()) << condition.ToText();
      EXPECT_EQ(*indexed->Select().Where(condition).OrderBy("", RowOrder::kDescending).Limit(5, 2).Keys(),
                *plain->Select().Where(condition).OrderBy("", RowOrder::kDescending).Limit(5, 2).Keys())
          << condition.ToText();
    }
    EXPECT_THAT(indexed->Verify(), IsOk());
  }
}

// A query without a condition on rows shows keys for the numbers that it found before. At its first key, another thread
// removes rows [from, to) but that one, and puts new ones.
void ExpectThatAQueryShowsOldRows(TableDBM& table, std::uint64_t from, std::uint64_t to, std::uint64_t num_new) {
  int num_shown = 0;
  const Query query = table.Select().Where(Column("t").HasAll("old")).Columns({});
  ASSERT_THAT(query.Each([&](std::string_view key, const RowView&) {
    EXPECT_TRUE(key.starts_with("row ")) << key;
    if (num_shown++ != 0) return true;
    std::thread([&] {
      for (std::uint64_t i = from; i < to; ++i) {
        if (KeyOf(i) != key) EXPECT_THAT(table.Remove(KeyOf(i)), IsOk());
      }
      for (std::uint64_t i = 0; i < num_new; ++i) EXPECT_THAT(table.Put("new " + std::to_string(i), {{"t", "new"}}), IsOk());
    }).join();
    return true;
  }),
              IsOk());
}

TEST(TextIndexTest, NumberOfARemovedRowIsNotGivenToAnotherOneWhileAQueryRuns) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
  for (std::uint64_t i = 0; i < 200; ++i) ASSERT_THAT(table->Put(KeyOf(i), {{"t", "old"}}), IsOk());
  ExpectThatAQueryShowsOldRows(*table, 0, 200, 400);
  EXPECT_THAT(table->Verify(), IsOk());
}

// Also if the table was opened before, and no row was put since.
TEST(TextIndexTest, QueryOfAReopenedTableShowsNoRowThatWasPutMeanwhile) {
  const TempDir dir;
  const std::string path = dir.File("a.hktb");
  {
    const auto table = *TableDBM::Open(path);
    ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
    for (std::uint64_t i = 0; i < 100; ++i) ASSERT_THAT(table->Put(KeyOf(i), {{"t", "old"}}), IsOk());
    ASSERT_THAT(table->Close(), IsOk());
  }
  const auto table = *TableDBM::Open(path);
  ExpectThatAQueryShowsOldRows(*table, 40, 100, 60);
}

TEST(TextIndexTest, ManyConditionsAreCountedRight) {
  const auto plain = *TableDBM::OpenInMemory(), indexed = *TableDBM::OpenInMemory();
  ASSERT_THAT(indexed->CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
  for (std::uint64_t i = 0; i < 100; ++i) {
    for (TableDBM* const table : {plain.get(), indexed.get()}) ASSERT_THAT(table->Put(KeyOf(i), {{"t", "w" + std::to_string(i)}}), IsOk());
  }
  Condition none = !Column("t").HasAll("w0"), nested = Column("t").HasAll("w0");
  for (int i = 1; i < 80; ++i) {
    none = none && !Column("t").HasAll("w" + std::to_string(i));
    nested = !(nested && Column("t").HasAll("w" + std::to_string(i)));
    if (i % 9 != 0 && (i < 62 || i > 66)) continue;
    for (const Condition& condition : {none, nested}) {
      EXPECT_EQ(*indexed->Select().Where(condition).Count(), *plain->Select().Where(condition).Count()) << i;
      EXPECT_EQ(SortedKeys(indexed->Select().Where(condition)), SortedKeys(plain->Select().Where(condition))) << i;
    }
  }
}

TEST(TextIndexTest, DeepConditionsArePlannedInLinearTime) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
  ASSERT_THAT(table->Put("a", {{"t", "word"}}), IsOk());
  Condition nested = Column("t").HasAll("word");
  for (int i = 0; i < 1000; ++i) nested = !(nested && Column("t").HasAll("word"));
  QueryEffort effort(20'000);
  EXPECT_THAT(table->Select().Where(nested).Within(&effort).Keys(), IsOk());
}

TEST(TextIndexTest, LongKeysAreShownInOrderWithLittleMemory) {
  const auto table = *TableDBM::OpenInMemory({.sort_bytes = 1 << 20});
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
  const int num_rows = 3000;
  for (int i = 0; i < num_rows; ++i) ASSERT_THAT(table->Put(std::string(1000, 'k') + std::to_string(i), {{"t", "word"}}), IsOk());
  Query query = table->Select().Where(Column("t").HasAll("word"));
  StatusOr<std::vector<std::string>> keys = Query(query).OrderBy("").Keys();
  ASSERT_THAT(keys, IsOk());
  EXPECT_EQ(keys->size(), static_cast<std::size_t>(num_rows));
  EXPECT_TRUE(std::is_sorted(keys->begin(), keys->end()));
  EXPECT_THAT(Query(query).Limit(1'000'000).Keys(), IsOkAndHolds(*keys));
  EXPECT_THAT(Query(query).InBatches(1000).Update({{"n", 1}}), IsOkAndHolds(static_cast<std::uint64_t>(num_rows)));
}

TEST(TextIndexTest, LimitOfWordsIsExact) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kQGram}}}), IsOk());
  Random random(TestSeed());
  std::string text;
  std::set<std::string> grams;
  while (grams.size() < TableLimits::kEntriesOfRow) {
    const std::uint64_t point = 0x4e00 + random.Below(5000);
    text +=
        {static_cast<char>(0xe0 | point >> 12), static_cast<char>(0x80 | (point >> 6 & 0x3f)), static_cast<char>(0x80 | (point & 0x3f))};
    if (text.size() >= 9) grams.insert(text.substr(text.size() - 9));
  }
  EXPECT_THAT(table->Put("a", {{"t", text}}), IsOk());
  EXPECT_THAT(table->Put("b", {{"t", text + "abcd"}}), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(table->Append("a", {{"t", "abcd"}}), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("limit of index t:qgram")));
  EXPECT_THAT(table->Select().Where(Column("t").EndsWith(text.substr(text.size() - 9))).Count(), IsOkAndHolds(1u));
  EXPECT_THAT(table->Verify(), IsOk());
}

// Beside a writer that splits blocks, and puts and removes a row that never meets the condition.
TEST(TextIndexTest, QueriesBesideAWriterMissNoOtherRow) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kQGram}}}), IsOk());
  const std::uint64_t num_rows = 2400 / kSlowdown;
  TableBatch batch;
  for (std::uint64_t i = 0; i < num_rows; ++i) {
    batch.Put("stable " + std::to_string(i), {{"t", "apple"}});
    batch.Put("other " + std::to_string(i), {{"t", "none"}});
  }
  ASSERT_THAT(table->Write(batch), IsOk());
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !is_over; ++i) {
      const std::string key = "other " + std::to_string(i * 7919 % num_rows);
      EXPECT_THAT(table->Update(key, {{"t", i / num_rows % 2 == 0 ? "pear apple" : "none"}}), IsOk());
      if (i % 3 == 0)
        EXPECT_THAT(i % 2 == 0 ? table->Put("more", {{"t", "apple"}}) : table->Update("more", {{"t", "apple apple"}}),
                    testing::AnyOf(IsOk(), StatusIs(absl::StatusCode::kNotFound)));
      if (i % 3 == 1) (void)table->Remove("more");
    }
  });
  for (int i = 0; i < 48 / kSlowdown; ++i) {
    for (const Condition& condition : {Column("t").HasAll("apple"), Column("t").Contains("appl"), Column("t").Contains("ap")}) {
      std::uint64_t num_stable = 0;
      EXPECT_THAT(table->Select().Where(condition).Columns({}).Each([&](std::string_view key, const RowView&) {
        num_stable += key.starts_with("stable ") ? 1 : 0;
        return true;
      }),
                  IsOk());
      EXPECT_EQ(num_stable, num_rows) << condition.ToText();
    }
    // "none" and "pear apple" both lack the word, and so does "apple" of the row that comes and goes.
    const StatusOr<std::uint64_t> others = table->Select().Where(!Column("t").HasAll("apple") && !Column("t").HasAll("none")).Count();
    EXPECT_THAT(others, IsOkAndHolds(0u));
  }
  is_over = true;
  writer.join();
  EXPECT_THAT(table->Verify(), IsOk());
}

// Then the row is as it was read, and its lists are not as they were planned.
TEST(TextIndexTest, RowThatChangesBackWhileItIsChangedGetsItsWords) {
  for (const bool positions : {false, true}) {
    for (int first = 0; first < 8; ++first) {
      for (int second = first + 1; second < 8; ++second) {
        SCOPED_TRACE(std::to_string(first) + " " + std::to_string(second));
        const auto hook = std::make_shared<StoreHook>();
        ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(HookedStore<>::InMemory(hook), {}));
        ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}, .positions = positions}), IsOk());
        for (std::uint64_t i = 0; i < 3; ++i) ASSERT_THAT(table->Put(KeyOf(i), {{"t", "none of two words"}}), IsOk());
        int calls = 0;
        bool is_changing = false;
        hook->before = [&](StoreHook::Call) {
          if (is_changing) return absl::OkStatus();
          if (calls != first && calls != second) return ++calls, absl::OkStatus();
          is_changing = true;
          EXPECT_THAT(table->Update(KeyOf(1), {{"t", calls++ == first ? "two words apples" : "none of two words"}}), IsOk());
          is_changing = false;
          return absl::OkStatus();
        };
        ASSERT_THAT(table->Update(KeyOf(1), {{"t", "two words of apples"}}), IsOk());
        hook->before = nullptr;
        EXPECT_THAT(table->Select().Where(Column("t").HasPhrase("two words")).Keys(), IsOkAndHolds(testing::SizeIs(3)));
        ASSERT_THAT(table->Verify(), IsOk());
      }
    }
  }
}

std::size_t NumKeyBlocks(const std::string& path) {
  const auto store = *TreeDBM<>::Open(path, {.type = kTableType});
  return *store->CountRange(std::string{table::kNumberSpace}, std::string{table::kNumberSpace + 1});
}

// Also of those that were removed before the table was opened, and by Clear.
TEST(TextIndexTest, NumbersOfRemovedRowsAreGivenAgain) {
  const TempDir dir;
  const std::string path = dir.File("a.hktb");
  static constexpr std::uint64_t kRows = 250;
  for (std::uint64_t life = 0; life < 5; ++life) {
    const auto table = *TableDBM::Open(path);
    if (life == 0) ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
    for (std::uint64_t round = 0; round < 6; ++round) {
      const std::uint64_t first = (life * 6 + round) * kRows;
      for (std::uint64_t i = first; i < first + kRows; ++i) {
        ASSERT_THAT(table->Put(KeyOf(i), {{"t", "word"}}), IsOk());
        if (i >= kRows && round != 3) ASSERT_THAT(table->Remove(KeyOf(i - kRows)), IsOk());
      }
      if (round == 2) ASSERT_THAT(table->Clear(), IsOk());
    }
    ASSERT_THAT(table->Clear(), IsOk());
    for (std::uint64_t i = 0; i < kRows; ++i) ASSERT_THAT(table->Put(KeyOf((life + 1) * 6 * kRows - kRows + i), {{"t", "word"}}), IsOk());
    EXPECT_THAT(table->Verify(), IsOk());
    EXPECT_THAT(table->Select().Where(Column("t").HasAll("word")).Count(), IsOkAndHolds(kRows));
    ASSERT_THAT(table->Close(), IsOk());
  }
  EXPECT_LT(NumKeyBlocks(path), 8 * kRows / table::kKeysOfBlock);
}

TEST(TextIndexTest, WritersOfTheSameWordsDoNotLoseAny) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kQGram}}}), IsOk());
  const int num_threads = 4, num_rows = 600 / kSlowdown;
  std::vector<std::thread> writers;
  std::atomic<int> num_kept{0};
  for (int writer = 0; writer < num_threads; ++writer) {
    writers.emplace_back([&, writer] {
      Random random(TestSeed() + static_cast<std::uint64_t>(writer));
      for (int i = 0; i < num_rows; ++i) {
        const std::string key = std::to_string(writer) + " " + std::to_string(i);
        EXPECT_THAT(table->Put(key, {{"t", "all these words are in each row"}}), IsOk());
        const bool removes = random.OneIn(3);
        if (removes) EXPECT_THAT(table->Remove(key), IsOk());
        num_kept += removes ? 0 : 1;
        if (random.OneIn(50))
          EXPECT_THAT(table->Select().Where(Column("t").HasAll("words") && Column("t").Contains("row")).Count(), IsOk());
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const auto wanted = static_cast<std::uint64_t>(num_kept.load());
  for (const Condition& condition :
       {Column("t").HasAll("these"), Column("t").Contains("each"), Column("t").Contains("wo"), !Column("t").HasAll("other")})
    EXPECT_THAT(table->Select().Where(condition).Count(), IsOkAndHolds(wanted)) << condition.ToText();
  EXPECT_THAT(table->Verify(), IsOk());
}

// ---- Verify ----

class DamagedListTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto table = *TableDBM::Open(path_);
    ASSERT_THAT(table->CreateIndex({.name = "words", .columns = {{"t", IndexKind::kToken}}}), IsOk());
    TableBatch batch;
    for (std::uint64_t i = 0; i < 1000; ++i) batch.Put(KeyOf(i), {{"t", i % 7 == 0 ? "often rare" + std::to_string(i) : "often"}});
    ASSERT_THAT(table->Write(batch), IsOk());
    ASSERT_THAT(table->Verify(), IsOk());
    ASSERT_THAT(table->Close(), IsOk());
  }
  // Changes the record that begins so, and returns what Verify says.
  Status VerifyAfter(const std::string& begin, const std::function<std::optional<std::string>(std::string)>& change) {
    {
      const auto store = *TreeDBM<>::Open(path_, {.type = kTableType});
      auto cursor = store->MakeIterator();
      cursor.Jump(begin);
      EXPECT_TRUE(cursor.Valid() && cursor.key().starts_with(begin));
      const std::string key(cursor.key());
      const std::optional<std::string> value = change(std::string(cursor.value()));
      EXPECT_THAT(value ? store->Set(key, *value) : store->Remove(key), IsOk());
      EXPECT_THAT(store->Close(), IsOk());
    }
    return (*TableDBM::Open(path_))->Verify();
  }
  static std::string List(std::string_view word) { return table::EntryPrefix(1).append(word); }
  static std::string WithNumbers(std::string bytes, const std::function<void(std::vector<table::RowNumber>&)>& change) {
    std::vector<table::RowNumber> numbers;
    const auto block = table::DecodePostings(bytes, table::PostingBlock::kNoEnd, &numbers);
    change(numbers);
    EXPECT_EQ(table::EncodePostings(numbers, block->begin, &bytes), numbers.size());
    return bytes;
  }

  const TempDir dir_;
  const std::string path_ = dir_.File("a.hktb");
};

TEST_F(DamagedListTest, LackOfANumberIsFound) {
  const auto remove = [](std::vector<table::RowNumber>& numbers) { numbers.erase(numbers.begin()); };
  EXPECT_THAT(VerifyAfter(List("often"), [&](std::string block) { return WithNumbers(block, remove); }),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("lacks a word or q-gram in index words")));
}
TEST_F(DamagedListTest, AdditionalNumberIsFound) {
  const auto add = [](std::vector<table::RowNumber>& numbers) { numbers.insert(numbers.begin(), 3); };
  EXPECT_THAT(VerifyAfter(List("rare7"), [&](std::string block) { return WithNumbers(block, add); }),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("index words has a word or q-gram of a row that lacks it")));
}
TEST_F(DamagedListTest, LostBlockIsFound) {
  EXPECT_THAT(VerifyAfter(List("often"), [](std::string) { return std::nullopt; }),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("lacks a block")));
}
TEST_F(DamagedListTest, LostKeyBlockIsFound) {
  EXPECT_THAT(VerifyAfter(std::string{table::kNumberSpace}, [](std::string) { return std::nullopt; }),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("has a number that does not lead to it")));
}
TEST_F(DamagedListTest, UndecodableBlockIsFoundByQueriesToo) {
  EXPECT_THAT(VerifyAfter(List("often"), [](std::string block) { return block.substr(0, block.size() - 1); }),
              StatusIs(absl::StatusCode::kDataLoss));
  const auto table = *TableDBM::Open(path_);
  EXPECT_THAT(table->Select().Where(Column("t").HasAll("often")).Keys().status(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(table->Put("another", {{"t", "other words"}}), IsOk());
}

}  // namespace
}  // namespace hako
