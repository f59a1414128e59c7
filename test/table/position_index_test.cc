// Indices with positions: phrases and long substrings beside scans, rows with too many positions, rows whose
// words only move, and what Verify finds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hako/dbm/tree_dbm.h"
#include "hako/table/index_key.h"
#include "hako/table/posting_block.h"
#include "hako/table/table_dbm.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string KeyOf(std::uint64_t i) { return "row " + std::to_string(i); }

std::vector<std::string> SortedKeys(const Query& query) {
  StatusOr<std::vector<std::string>> keys = query.Keys();
  EXPECT_THAT(keys, IsOk());
  if (!keys.ok()) return {};
  std::sort(keys->begin(), keys->end());
  return *std::move(keys);
}

// A table with an index and one without, which get the same changes and must give the same answers.
class Pair {
 public:
  Pair(std::uint64_t seed, IndexOptions index) : random_(seed), index_(std::move(index)) {
    indexed_ = *TableDBM::Open(dir_.File("a.hktb"));
    if (random_.OneIn(2)) EXPECT_THAT(indexed_->CreateIndex(index_), IsOk());
  }

  Random& random() { return random_; }
  // A text of few pieces, so that they repeat, sometimes with more of one than a list has positions.
  std::string Text(std::uint64_t most) {
    static constexpr std::string_view kWords[] = {"a", "b", "A", "\xc3\xa9", "ab", "aa"};
    static constexpr std::string_view kPieces[] = {
        "a", "b", "\xc3\xa9", "\xe3\x81\x82", "\xf0\x9f\x98\x80", std::string_view("\0", 1), "\x01", "\xff", "\x81", "\xe3"};
    std::string text;
    for (std::uint64_t n = random_.Below(most + 1); n > 0; --n) {
      if (IsOfWords())
        text.append(kWords[random_.Below(random_.OneIn(3) ? std::size(kWords) : 2)]).append(random_.OneIn(8) ? "" : " ");
      else
        text += kPieces[random_.Below(random_.OneIn(3) ? std::size(kPieces) : 2)];
    }
    return text;
  }
  void ChangeRows() {
    TableBatch batch;
    for (std::uint64_t n = random_.OneIn(2) ? 1 : random_.Below(100); n > 0; --n) {
      const std::string key = KeyOf(random_.Below(200));
      const std::string text = random_.OneIn(30) ? Text(3000) : random_.OneIn(8) ? Text(400) : Text(12);
      switch (random_.Below(8)) {
        case 0:
          batch.Remove(key);
          break;
        case 1:
          batch.Append(key, {{"t", text}});
          break;
        case 2:
          batch.Put(key, {{"other", 1}});
          break;
        default:
          batch.Put(key, {{"t", text}});
      }
    }
    const Status plain = plain_->Write(batch);
    ASSERT_THAT(indexed_->Write(batch), StatusIs(plain.code()));
  }
  void ChangeIndex() {
    const Status dropped = indexed_->DropIndex(index_.name);
    if (absl::IsNotFound(dropped)) ASSERT_THAT(indexed_->CreateIndex(index_), IsOk());
  }
  void Reopen() {
    ASSERT_THAT(indexed_->Verify(), IsOk());
    ASSERT_THAT(indexed_->Close(), IsOk());
    indexed_ = *TableDBM::Open(dir_.File("a.hktb"));
  }
  void Compare() {
    Condition condition = Leaf();
    for (std::uint64_t n = random_.OneIn(2) ? 0 : random_.Below(4); n > 0; --n)
      condition = random_.OneIn(3) ? !condition : random_.OneIn(2) ? condition && Leaf() : condition || Leaf();
    const Query indexed = indexed_->Select().Where(condition), plain = plain_->Select().Where(condition);
    const std::vector<std::string> keys = SortedKeys(plain);
    num_found_ += keys.empty() ? 0 : 1;
    EXPECT_EQ(SortedKeys(indexed), keys) << condition.ToText();
    EXPECT_THAT(indexed.Count(), IsOkAndHolds(keys.size())) << condition.ToText();
    EXPECT_EQ(*Query(indexed).OrderBy("", RowOrder::kDescending).Limit(5, 2).Keys(),
              *Query(plain).OrderBy("", RowOrder::kDescending).Limit(5, 2).Keys())
        << condition.ToText();
  }
  std::uint64_t num_found() const { return num_found_; }

 private:
  bool IsOfWords() const { return index_.columns[0].kind == IndexKind::kToken; }
  Condition Leaf() {
    const std::string text = random_.OneIn(20) ? Text(150) : Text(9);
    const Column column("t");
    if (IsOfWords()) return random_.OneIn(6) ? column.HasAll(text) : random_.OneIn(6) ? column.HasAny(text) : column.HasPhrase(text);
    return random_.OneIn(3) ? column.BeginsWith(text) : random_.OneIn(4) ? column.EndsWith(text) : column.Contains(text);
  }

  Random random_;
  const TempDir dir_;
  const IndexOptions index_;
  std::unique_ptr<TableDBM> indexed_, plain_ = *TableDBM::OpenInMemory();
  std::uint64_t num_found_ = 0;
};

TEST(PositionIndexTest, PhrasesAndSubstringsBesideScans) {
  const IndexOptions indices[] = {{.name = "i", .columns = {{"t", IndexKind::kToken}}, .positions = true},
                                  {.name = "i", .columns = {{"t", IndexKind::kQGram}}, .q = 1, .positions = true},
                                  {.name = "i", .columns = {{"t", IndexKind::kQGram}}, .q = 2, .positions = true},
                                  {.name = "i", .columns = {{"t", IndexKind::kQGram}}, .q = 3, .positions = true},
                                  {.name = "i", .columns = {{"t", IndexKind::kQGram}}, .where = "other is null", .positions = true}};
  for (std::uint64_t i = 0; i < std::size(indices); ++i) {
    SCOPED_TRACE(i);
    Pair pair(TestSeed() + i, indices[i]);
    for (int step = 0; step < 300 / kSlowdown && !testing::Test::HasFailure(); ++step) {
      pair.random().OneIn(4) ? pair.ChangeRows() : pair.Compare();
      if (pair.random().OneIn(40)) pair.ChangeIndex();
      if (pair.random().OneIn(60)) pair.Reopen();
    }
    pair.Reopen();
    EXPECT_GT(pair.num_found(), 10u / kSlowdown);
  }
}

// The index alone decides, and then no row is tested.
TEST(PositionIndexTest, PhrasesAndSubstringsAreDecidedByTheIndex) {
  const auto with = *TableDBM::OpenInMemory(), without = *TableDBM::OpenInMemory();
  for (const IndexKind kind : {IndexKind::kToken, IndexKind::kQGram}) {
    ASSERT_THAT(with->CreateIndex({.columns = {{"t", kind}}, .positions = true}), IsOk());
    ASSERT_THAT(without->CreateIndex({.columns = {{"t", kind}}}), IsOk());
  }
  TableBatch batch;
  for (std::uint64_t i = 0; i < 1000; ++i)
    batch.Put(KeyOf(i), {{"t", i % 3 == 0 ? "one two three" : i % 3 == 1 ? "one three two" : "two one"}});
  std::string many = "two three";  // of more positions than a list has
  for (int i = 0; i < 200; ++i) many += " two one three";
  batch.Put("many", {{"t", many}});
  for (TableDBM* const table : {with.get(), without.get()}) ASSERT_THAT(table->Write(batch), IsOk());
  const std::pair<Condition, std::uint64_t> cases[] = {
      {Column("t").HasPhrase("one two"), 334},  {Column("t").HasPhrase("two three"), 335}, {Column("t").HasPhrase("three two one"), 1},
      {!Column("t").HasPhrase("one two"), 667}, {Column("t").Contains("two th"), 335},     {Column("t").Contains("e tw"), 668},
      {!Column("t").Contains("e tw"), 333},     {Column("t").BeginsWith("two"), 334},      {Column("t").BeginsWith("one two three"), 334}};
  for (const auto& [condition, count] : cases) {
    SCOPED_TRACE(condition.ToText());
    EXPECT_THAT(with->Select().Where(condition).Count(), IsOkAndHolds(count));
    EXPECT_THAT(without->Select().Where(condition).Count(), IsOkAndHolds(count));
    if (condition.node()->op == table::Op::kNot || count == 1) continue;  // one row is read sooner than one more list
    EXPECT_THAT(with->Select().Where(condition).Explain(), IsOkAndHolds(Not(HasSubstr("rows that meet"))));
    EXPECT_THAT(without->Select().Where(condition).Explain(), IsOkAndHolds(HasSubstr("rows that meet")));
    // A row that is decided by the index is not read: this many units suffice for lists and keys, and not for rows.
    QueryEffort effort(300);
    EXPECT_THAT(with->Select().Where(condition).Within(&effort).Count(), IsOkAndHolds(count));
    QueryEffort same(300);
    EXPECT_THAT(without->Select().Where(condition).Within(&same).Count(), StatusIs(absl::StatusCode::kCancelled));
  }
  EXPECT_THAT(with->Verify(), IsOk());
}

TEST(PositionIndexTest, UpdateThatOnlyMovesWordsMovesPositions) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}, .positions = true}), IsOk());
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kQGram}}, .positions = true}), IsOk());
  TableBatch batch;
  for (std::uint64_t i = 0; i < 300; ++i) batch.Put(KeyOf(i), {{"t", "red green blue"}});
  ASSERT_THAT(table->Write(batch), IsOk());
  const auto count = [&](const Condition& condition) { return *table->Select().Where(condition).Count(); };
  ASSERT_THAT(table->Update(KeyOf(7), {{"t", "green red blue"}}), IsOk());
  ASSERT_THAT(table->Update(KeyOf(8), {{"t", "red green  blue"}}), IsOk());
  EXPECT_EQ(count(Column("t").HasPhrase("red green")), 299u);
  EXPECT_EQ(count(Column("t").HasPhrase("green red")), 1u);
  EXPECT_EQ(count(Column("t").Contains("red green")), 299u);
  EXPECT_EQ(count(Column("t").Contains("n blue")), 298u);
  ASSERT_THAT(table->Verify(), IsOk());
  // To more positions than a list has, and back.
  std::string many;
  for (int i = 0; i < 300; ++i) many += "red green blue ";
  ASSERT_THAT(table->Update(KeyOf(9), {{"t", many}}), IsOk());
  EXPECT_EQ(count(Column("t").HasPhrase("blue red")), 1u);
  ASSERT_THAT(table->Verify(), IsOk());
  ASSERT_THAT(table->Update(KeyOf(9), {{"t", "blue red green"}}), IsOk());
  EXPECT_EQ(count(Column("t").HasPhrase("blue red")), 1u);
  EXPECT_EQ(count(Column("t").HasPhrase("green blue")), 298u);
  EXPECT_THAT(table->Verify(), IsOk());
}

// Texts with one word many times, many words, and one long word, which change places with short ones.
TEST(PositionIndexTest, LongTextsAreFoundMovedAndRemoved) {
  std::string same, many;
  for (int i = 0; i < 20'000 / kSlowdown; ++i) same += "same ";
  for (int i = 0; many.size() < 60'000 / kSlowdown; ++i) many += "word" + std::to_string(i % 1500) + " ";
  const Condition conditions[] = {
      Column("t").HasAll("same"),           Column("t").HasPhrase("same same same"), Column("t").HasPhrase("word1499 word0 word1"),
      Column("t").HasPhrase("word1 word0"), Column("t").HasPhrase("first same"),     Column("t").Contains("word1499 word0"),
      Column("t").Contains("first word0"),  Column("t").Contains("llllll"),          Column("t").BeginsWith("same same"),
      Column("t").EndsWith("same ")};
  for (const bool positions : {false, true}) {
    const auto indexed = *TableDBM::OpenInMemory(), plain = *TableDBM::OpenInMemory();
    ASSERT_THAT(indexed->CreateIndex({.columns = {{"t", IndexKind::kToken}}, .positions = positions}), IsOk());
    ASSERT_THAT(indexed->CreateIndex({.columns = {{"t", IndexKind::kQGram}}, .positions = positions}), IsOk());
    const auto put = [&](std::string_view key, std::string_view text) {
      for (TableDBM* const table : {indexed.get(), plain.get()}) ASSERT_THAT(table->Put(key, {{"t", text}}), IsOk());
    };
    const auto compare = [&] {
      for (const Condition& condition : conditions) {
        EXPECT_EQ(SortedKeys(indexed->Select().Where(condition)), SortedKeys(plain->Select().Where(condition))) << condition.ToText();
        EXPECT_EQ(*indexed->Select().Where(!condition).Count(), *plain->Select().Where(!condition).Count()) << condition.ToText();
      }
      EXPECT_THAT(indexed->Verify(), IsOk());
    };
    for (std::uint64_t i = 0; i < 100; ++i) put(KeyOf(i), "the same word" + std::to_string(i));
    put("same", same);
    put("many", many);
    put("long", std::string(60'000 / kSlowdown, 'l'));
    compare();
    put("same", "first " + same);  // each position moves
    put("many", same);
    put("long", "first " + many);
    put(KeyOf(7), std::string(60'000 / kSlowdown, 'l'));
    compare();
    for (const std::string_view key : {"same", "many", "long"}) {
      for (TableDBM* const table : {indexed.get(), plain.get()}) ASSERT_THAT(table->Remove(key), IsOk());
    }
    compare();
  }
}

// Each row is written by one thread, and all write the same lists.
TEST(PositionIndexTest, WritersOfTheSameWordsKeepTheirPositions) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}, .positions = true}), IsOk());
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kQGram}}, .positions = true}), IsOk());
  static constexpr std::string_view kTexts[] = {"these are the words", "the words are these", "words these the are", "are these the words"};
  std::vector<std::thread> writers;
  std::array<std::atomic<std::uint64_t>, std::size(kTexts)> counts{};
  for (std::uint64_t writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&, writer] {
      Random random(TestSeed() + writer);
      for (int i = 0; i < 300 / kSlowdown; ++i) {
        const std::string key = std::to_string(writer) + " " + std::to_string(i);
        std::size_t text = random.Below(std::size(kTexts));
        EXPECT_THAT(table->Put(key, {{"t", kTexts[text]}}), IsOk());
        for (std::uint64_t n = random.Below(3); n > 0; --n) {
          text = random.Below(std::size(kTexts));
          EXPECT_THAT(table->Update(key, {{"t", kTexts[text]}}), IsOk());
        }
        const bool removes = random.OneIn(5);
        if (removes) EXPECT_THAT(table->Remove(key), IsOk());
        counts[text] += removes ? 0 : 1;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  for (std::size_t i = 0; i < std::size(kTexts); ++i) {
    EXPECT_THAT(table->Select().Where(Column("t").HasPhrase(kTexts[i])).Count(), IsOkAndHolds(counts[i].load()));
    EXPECT_THAT(table->Select().Where(Column("t").Contains(kTexts[i])).Count(), IsOkAndHolds(counts[i].load()));
  }
  EXPECT_THAT(table->Verify(), IsOk());
}

// A query that runs beside a writer finds every row that stays as it is.
TEST(PositionIndexTest, QueriesBesideAWriterMissNoOtherRow) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}, .positions = true}), IsOk());
  const std::uint64_t num_rows = 1200 / kSlowdown;
  TableBatch batch;
  for (std::uint64_t i = 0; i < num_rows; ++i) {
    batch.Put("stable " + std::to_string(i), {{"t", "green apple"}});
    batch.Put("other " + std::to_string(i), {{"t", "apple green"}});
  }
  ASSERT_THAT(table->Write(batch), IsOk());
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !is_over; ++i) {
      const std::string key = "other " + std::to_string(i * 7919 % num_rows);
      EXPECT_THAT(table->Update(key, {{"t", i / num_rows % 2 == 0 ? "apple pear pear green" : "apple green"}}), IsOk());
    }
  });
  for (int i = 0; i < 60 / kSlowdown; ++i)
    EXPECT_THAT(table->Select().Where(Column("t").HasPhrase("green apple")).Count(), IsOkAndHolds(num_rows));
  is_over = true;
  writer.join();
  EXPECT_THAT(table->Verify(), IsOk());
}

TEST(PositionIndexTest, OptionIsKeptAndNamed) {
  const TempDir dir;
  {
    const auto table = *TableDBM::Open(dir.File("a.hktb"));
    for (const bool positions : {false, true}) {
      ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}, .positions = positions}), IsOk());
      ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kQGram}}, .q = 8, .positions = positions}), IsOk());
    }
    EXPECT_THAT(table->CreateIndex({.columns = {{"t"}}, .positions = true}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("only an index of words or q-grams has positions")));
    ASSERT_THAT(table->Close(), IsOk());
  }
  const auto table = *TableDBM::Open(dir.File("a.hktb"));
  const std::vector<IndexInfo> indices = table->Indices();
  ASSERT_EQ(indices.size(), 4u);
  static constexpr std::string_view kNames[] = {"t:token", "t:qgram:8", "t:token:positions", "t:qgram:8:positions"};
  for (std::size_t i = 0; i < indices.size(); ++i) {
    EXPECT_EQ(indices[i].options.name, kNames[i]);
    EXPECT_EQ(indices[i].options.positions, i >= 2);
    EXPECT_FALSE(indices[i].options.unique);
    EXPECT_EQ(indices[i].options.q, i % 2 == 0 ? 3u : 8u);
  }
}

// Changes the list of a word, and returns what Verify and a phrase say.
std::pair<Status, Status> AfterChange(const std::function<std::string(std::string)>& change) {
  const TempDir dir;
  const std::string path = dir.File("a.hktb");
  {
    const auto table = *TableDBM::Open(path);
    EXPECT_THAT(table->CreateIndex({.name = "words", .columns = {{"t", IndexKind::kToken}}, .positions = true}), IsOk());
    for (std::uint64_t i = 0; i < 20; ++i) EXPECT_THAT(table->Put(KeyOf(i), {{"t", "one two one"}}), IsOk());
    EXPECT_THAT(table->Verify(), IsOk());
    EXPECT_THAT(table->Close(), IsOk());
  }
  {
    const auto store = *TreeDBM<>::Open(path, {.type = kTableType});
    std::string key = table::EntryPrefix(1) + "one";
    table::AppendLastBlock(&key);
    EXPECT_THAT(store->Set(key, change(*store->Get(key))), IsOk());
    EXPECT_THAT(store->Close(), IsOk());
  }
  const auto table = *TableDBM::Open(path);
  return {table->Verify(), table->Select().Where(Column("t").HasPhrase("one two")).Keys().status()};
}

TEST(PositionIndexTest, VerifyFindsDamagedPositions) {
  const auto is_found = [](std::string_view part) { return StatusIs(absl::StatusCode::kDataLoss, HasSubstr(std::string(part))); };
  const auto moved = AfterChange([](std::string block) { return block.back() = '\6', block; });
  EXPECT_THAT(moved.first, is_found("has it at other positions, in index words"));
  EXPECT_THAT(moved.second, IsOk());
  const auto shorter = AfterChange([](std::string block) { return block.substr(0, block.size() - 1); });
  EXPECT_THAT(shorter.first, is_found(""));
  EXPECT_THAT(shorter.second, is_found(""));
  const auto longer = AfterChange([](std::string block) { return block + "\2"; });
  EXPECT_THAT(longer.first, is_found(""));
  EXPECT_THAT(longer.second, is_found(""));
  const auto no_gap = AfterChange([](std::string block) { return block.back() = '\0', block; });
  EXPECT_THAT(no_gap.first, is_found("index words"));
  EXPECT_THAT(no_gap.second, is_found(""));
}

}  // namespace
}  // namespace hako
