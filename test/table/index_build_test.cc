// The creation of an index beside writers, step by step: before each call that the creation makes of its
// database, and in turn before none, a writer makes one change. Then Verify and a naive loop over the rows
// find that the index has exactly their entries, and that no two rows have one value of a unique index;
// or the creation has found two such rows, and has left nothing.
//
// And the same with threads: HAKO_BUILDS is the number of indices that they build.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/table/table_dbm.h"
#include "support/hooked_store.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "table/naive_rows.h"

namespace hako {
namespace {

struct NamedIndex {
  std::string name;
  IndexOptions options;
};
const std::vector<NamedIndex> kIndices = {
    {"plain", {.name = "i", .columns = {{"s"}}}},
    {"numeric", {.name = "i", .columns = {{"n", IndexKind::kNumeric}}}},
    {"token", {.name = "i", .columns = {{"t", IndexKind::kToken}}}},
    {"qgram", {.name = "i", .columns = {{"t", IndexKind::kQGram}}}},
    {"token_positions", {.name = "i", .columns = {{"t", IndexKind::kToken}}, .positions = true}},
    {"qgram_positions", {.name = "i", .columns = {{"t", IndexKind::kQGram}}, .positions = true}},
    {"covering", {.name = "i", .columns = {{"s"}}, .covering = {"n", "t"}}},
    {"partial", {.name = "i", .columns = {{"n", IndexKind::kNumeric}}, .where = "status = 'open'"}},
    {"partial_of_absent", {.name = "i", .columns = {{"s"}}, .where = "gone is null"}},
    {"unique", {.name = "i", .columns = {{"u"}}, .unique = true}},
    {"unique_numeric", {.name = "i", .columns = {{"m", IndexKind::kNumeric}}, .unique = true}},
    {"unique_composite", {.name = "i", .columns = {{"u"}, {"m", IndexKind::kNumeric}}, .unique = true}},
    {"unique_covering", {.name = "i", .columns = {{"u"}}, .unique = true, .covering = {"n"}}},
    {"unique_partial", {.name = "i", .columns = {{"u"}}, .unique = true, .where = "status = 'open'"}}};

// Rows a, b, y, z, and so many between that they are indexed in two steps. Rows a and z have the same u and m.
constexpr int kBetween = 260;
void Fill(TableDBM& table) {
  const auto put = [](TableBatch& batch, const std::string& key, int number) {
    const std::string text = std::to_string(number);
    batch.Put(key, {{"s", "s" + std::to_string(number % 40)},
                    {"n", number % 50},
                    {"t", "word" + std::to_string(number % 9) + " tail" + std::to_string(number % 4)},
                    {"u", "u" + text},
                    {"m", number},
                    {"status", "open"}});
  };
  TableBatch batch;
  put(batch, "a", 7);
  put(batch, "b", 8);
  for (int i = 0; i < kBetween; ++i) put(batch, "m" + std::to_string(1000 + i), 1000 + i);
  put(batch, "y", 5);
  put(batch, "z", 7);
  ASSERT_THAT(table.Write(batch), IsOk());
}

struct NamedChange {
  std::string name;
  std::function<Status(TableDBM&)> make;
};
const std::vector<NamedChange> kChanges = {
    {"nothing", [](TableDBM&) { return absl::OkStatus(); }},
    {"update_of_last",
     [](TableDBM& t) {
       return t.Update("z", {{"u", "new"}, {"m", 9}});
     }},
    {"update_of_first",
     [](TableDBM& t) {
       return t.Update("a", {{"u", "new"}, {"m", 9}});
     }},
    {"update_beside",
     [](TableDBM& t) {
       return t.Update("z", {{"n", 3}, {"gone", "no"}});
     }},
    {"put",
     [](TableDBM& t) {
       return t.Put("z", {{"u", "new"}, {"m", 9}, {"n", 1}, {"s", "x"}, {"status", "open"}});
     }},
    {"put_of_new",
     [](TableDBM& t) {
       return t.Put("c", {{"u", "new"}, {"m", 9}, {"n", 1}, {"s", "x"}, {"status", "done"}});
     }},
    {"put_of_taken",
     [](TableDBM& t) {
       return t.Put("c", {{"u", "u5"}, {"m", 5}, {"status", "open"}});
     }},
    {"put_keep",
     [](TableDBM& t) {
       return t.PutKeep("zz", {{"u", "u7"}, {"m", 7}, {"status", "open"}});
     }},
    {"append",
     [](TableDBM& t) {
       return t.Append("z", {{"u", "more"}, {"t", "end"}, {"m", 1}});
     }},
    {"removal_of_first", [](TableDBM& t) { return t.Remove("a"); }},
    {"removal_of_last", [](TableDBM& t) { return t.Remove("z"); }},
    {"move",  // y takes the value of z, which a has too
     [](TableDBM& t) {
       TableBatch batch;
       batch.Update("z", {{"u", "u8000"}, {"m", 8000}});
       batch.Update("y", {{"u", "u7"}, {"m", 7}});
       return t.Write(batch);
     }},
    {"exchange",
     [](TableDBM& t) {
       TableBatch batch;
       batch.Update("b", {{"u", "u5"}, {"m", 5}});
       batch.Update("y", {{"u", "u8"}, {"m", 8}});
       return t.Write(batch);
     }},
    {"both",
     [](TableDBM& t) {
       TableBatch batch;
       batch.Update("a", {{"u", "u1"}, {"m", 1}});
       batch.Update("z", {{"u", "u2"}, {"m", 2}});
       return t.Write(batch);
     }},
    {"by_query",
     [](TableDBM& t) {
       return t.Select().Where(Column("m") == 7).Update({{"status", "done"}, {"n", 11}}).status();
     }},
    {"removal_by_query", [](TableDBM& t) { return t.Select().Where(Column("m") == 7).Limit(1).Remove().status(); }},
    {"clear_and_put", [](TableDBM& t) {
       const Status removed = t.Select().Where(Key() >= "m").Remove().status();
       return removed.ok() ? t.Put("z", {{"u", "u7"}, {"m", 7}, {"s", "s1"}}) : removed;
     }}};

class IndexBuildTest : public testing::TestWithParam<NamedIndex> {};

TEST_P(IndexBuildTest, ChangeBeforeEachStepIsInTheIndex) {
  const IndexOptions& index = GetParam().options;
  // With a sanitizer every fourth step, of another change and index others.
  constexpr int kStride = kSlowdown == 1 ? 1 : 4;
  int first = static_cast<int>(GetParam().name.size());
  for (const NamedChange& change : kChanges) {
    bool is_over = false;
    for (int step = ++first % kStride; !is_over; step += kStride) {
      SCOPED_TRACE(change.name + " before step " + std::to_string(step));
      const auto hook = std::make_shared<StoreHook>();
      ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(HookedStore<>::InMemory(hook), {.columns = {{"gone", {}}}}));
      Fill(*table);
      if (step % 3 == 1) ASSERT_THAT(table->Update("z", {{"u", "u9"}, {"m", 9}}), IsOk());  // no value is taken twice
      int calls = 0;
      bool is_changing = false;
      Status changed;
      hook->before = [&](StoreHook::Call) {
        if (is_changing || calls++ != step) return absl::OkStatus();
        is_changing = true;
        changed = change.make(*table);
        is_changing = false;
        return absl::OkStatus();
      };
      const Status created = table->CreateIndex(index);
      hook->before = nullptr;
      is_over = calls <= step;
      EXPECT_TRUE(changed.ok() || absl::IsAlreadyExists(changed) || absl::IsNotFound(changed)) << changed;
      ASSERT_TRUE(created.ok() || (index.unique && absl::IsAlreadyExists(created))) << created;
      EXPECT_EQ(table->Indices().size(), created.ok() ? 1u : 0u);
      ASSERT_THAT(table->Verify(), IsOk());
      ASSERT_EQ(NaiveRows(*table).CountWrongAnswers(10), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, IndexBuildTest, testing::ValuesIn(kIndices), [](const auto& info) { return info.param.name; });

// Rows that have numbers, as another index of words has them. The lists are written after all rows were read, or after
// each row. Numbers of removed rows are given to other ones meanwhile.
TEST(TextIndexBuildTest, ListsOfRowsThatChangeAfterTheyWereReadAreThoseOfTheRows) {
  const std::vector<NamedChange> changes = {
      {"update",
       [](TableDBM& t) {
         return t.Update("c", {{"t", "word9 tail2"}});
       }},
      {"update_and_back",
       [](TableDBM& t) {
         const Status updated = t.Update("c", {{"t", "other"}});
         return updated.ok() ? t.Update("c", {{"t", "word2 tail2"}}) : updated;
       }},
      {"update_of_others",
       [](TableDBM& t) {
         return t.Select().Where(Column("t").HasAll("tail1")).Update({{"t", "word2 tail1 more"}}).status();
       }},
      {"other_column",
       [](TableDBM& t) {
         return t.Update("c", {{"t", "word5"}, {"status", "done"}});
       }},
      {"removal", [](TableDBM& t) { return t.Remove("c"); }},
      {"removal_of_all", [](TableDBM& t) { return t.Select().Remove().status(); }},
      {"other_rows_with_the_numbers",
       [](TableDBM& t) {
         Status status = t.Select().Where(Key() < "e").Remove().status();
         for (int i = 0; i < 8 && status.ok(); ++i)
           status = t.Put((i % 2 == 0 ? "a" : "x") + std::to_string(i), {{"t", "word" + std::to_string(i % 3) + " new"}});
         return status;
       }},
  };
  int first = 0, num_taken = 0;
  for (const IndexKind kind : {IndexKind::kToken, IndexKind::kQGram}) {
    for (const std::uint64_t build_bytes : {std::uint64_t{1} << 20, std::uint64_t{0}}) {
      for (const NamedChange& change : changes) {
        bool is_over = false;
        for (int step = ++first % kSlowdown; !is_over; step += kSlowdown) {
          SCOPED_TRACE(change.name + " before step " + std::to_string(step));
          const auto hook = std::make_shared<StoreHook>();
          ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(HookedStore<>::InMemory(hook), {.build_bytes = build_bytes}));
          ASSERT_THAT(table->CreateIndex({.name = "numbers", .columns = {{"t", IndexKind::kToken}}}), IsOk());
          for (char key = 'a'; key <= 'h'; ++key) {
            const std::string text = "word" + std::to_string(key - 'a') + " tail" + std::to_string(key % 3);
            ASSERT_THAT(table->Put(std::string(1, key), {{"t", text}, {"status", "open"}}), IsOk());
          }
          int calls = 0;
          bool is_changing = false;
          hook->before = [&](StoreHook::Call) {
            if (is_changing || calls++ != step) return absl::OkStatus();
            is_changing = true;
            EXPECT_THAT(change.make(*table), IsOk());
            is_changing = false;
            ++num_taken;
            return absl::OkStatus();
          };
          ASSERT_THAT(
              table->CreateIndex(
                  {.name = "i", .columns = {{"t", kind}}, .where = first % 4 == 0 ? "status = 'open'" : "", .positions = first % 3 == 0}),
              IsOk());
          hook->before = nullptr;
          is_over = calls <= step;
          ASSERT_THAT(table->Verify(), IsOk());
          ASSERT_EQ(NaiveRows(*table).CountWrongAnswers(20), 0);
        }
      }
    }
  }
  EXPECT_GT(num_taken, 100 / kSlowdown);
}

TEST(TextIndexBuildTest, ProgressCountsTheRows) {
  const auto table = *TableDBM::OpenInMemory();
  Fill(*table);
  for (const IndexKind kind : {IndexKind::kOrdered, IndexKind::kToken}) {
    std::uint64_t last = 0;
    ASSERT_THAT(table->CreateIndex({.columns = {{"t", kind}}},
                                   [&last](std::uint64_t num_rows) {
                                     EXPECT_GT(num_rows, last);
                                     last = num_rows;
                                   }),
                IsOk());
    EXPECT_THAT(table->Count(), IsOkAndHolds(last));
  }
}

// How many indices are built beside threads: HAKO_BUILDS, or `usual`.
int Builds(int usual) {
  const char* given = std::getenv("HAKO_BUILDS");
  return given != nullptr ? std::atoi(given) : usual;
}

// As the writers of a table that is used: each of the functions, rows that come and go, values that are taken.
void Write(TableDBM& table, Random& random, const std::atomic<bool>& is_over) {
  while (!is_over) {
    const std::string key = "k" + std::to_string(random.Below(400));
    const auto number = static_cast<std::int64_t>(random.Below(900));
    const std::string text = std::to_string(number), u = "u" + text,
                      t = "word" + std::to_string(number % 30) + " tail" + std::to_string(number % 7);
    const Value s = random.OneIn(6) ? Value() : Value(u), status = random.OneIn(3) ? Value("done") : Value("open");
    const std::vector<Cell> cells = {{"s", s}, {"n", number % 50}, {"t", t}, {"u", u}, {"m", number}, {"status", status}};
    Status made;
    switch (random.Below(8)) {
      case 0:
        made = table.Remove(key);
        break;
      case 1:
        made = table.PutKeep(key, cells);
        break;
      case 2:
        made = table.Update(key, {{"u", u}, {"m", number}});
        break;
      case 3:
        made = table.Append(key, {{"u", "x"}, {"s", "y"}});
        break;
      case 4: {
        const std::string other = "k" + std::to_string(random.Below(400));
        TableBatch batch;  // it may take the value of the other one
        batch.Update(other, {{"u", "v" + text}, {"m", number + 1000}});
        batch.Put(key, cells);
        made = table.Write(batch);
        break;
      }
      case 5:
        made = table.Select().Where(Column("m") == number).Update({{"n", number % 7}, {"status", status}}).status();
        break;
      case 6:
        made = table.Select().Where(Column("m") == number).Remove().status();
        break;
      default:
        made = table.Put(key, cells);
    }
    ASSERT_TRUE(made.ok() || absl::IsNotFound(made) || absl::IsAlreadyExists(made)) << made;
  }
}

TEST(IndexBuildThreadTest, IndicesBuiltBesideWritersAreThoseOfTheRows) {
  SCOPED_TRACE(TestSeed());
  const int builds = Builds(24);
  constexpr int kRounds = 12;  // of one table
  int num_built = 0, num_refused = 0, num_wrong = 0, num_queries = 0;
  for (int built = 0; built < builds;) {
    const auto table = *TableDBM::OpenInMemory();
    Random first(TestSeed() + static_cast<std::uint64_t>(built));
    for (int round = 0; round < kRounds && built < builds; ++round, ++built) {
      // Values that are taken twice let a unique index fail: mostly they are not.
      for (int i = 0; round % 4 == 0 && i < 400; ++i) {
        const std::string number = std::to_string(10'000 + i);
        ASSERT_THAT(
            table->Put("k" + std::to_string(i), {{"u", "u" + number}, {"m", 10'000 + i}, {"n", i % 50}, {"s", "s"}, {"status", "open"}}),
            IsOk());
      }
      std::atomic<bool> is_over = false;
      std::vector<std::thread> writers;
      for (std::uint64_t writer = 0; writer < 2; ++writer) {
        writers.emplace_back([&, seed = first.Below(1'000'000) + writer] {
          Random random(seed);
          Write(*table, random, is_over);
        });
      }
      IndexOptions index = kIndices[static_cast<std::size_t>(built) % kIndices.size()].options;
      index.name = "i" + std::to_string(round % 3);
      (void)table->DropIndex(index.name);
      const Status created =
          round % 8 == 7 ? table->SetColumn("m", {.type = ColumnType::kInt64, .unique = true}) : table->CreateIndex(index);
      is_over = true;
      for (std::thread& writer : writers) writer.join();
      if (round % 8 == 7)
        ASSERT_TRUE(created.ok() || absl::IsAlreadyExists(created) || absl::IsFailedPrecondition(created)) << created;
      else
        ASSERT_TRUE(created.ok() || (index.unique && absl::IsAlreadyExists(created))) << created;
      ++(created.ok() ? num_built : num_refused);
      const Status verified = table->Verify();
      EXPECT_THAT(verified, IsOk());
      NaiveRows rows(*table);
      num_wrong += rows.CountWrongAnswers(40) != 0 || !verified.ok() ? 1 : 0;
      num_queries += rows.num_queries();
      (void)table->DropIndex("m");
      ASSERT_THAT(table->SetColumn("m", {}), IsOk());
    }
  }
  std::printf("%d indices built, %d refused, %d queries compared, %d indices wrong\n", num_built, num_refused, num_queries, num_wrong);
  EXPECT_EQ(num_wrong, 0);
}

// A step of the build that splits blocks may find each of them changed, again and again.
TEST(TextIndexBuildTest, WritersOfTheSameWordsDoNotStopIt) {
  static constexpr std::uint64_t kRows = 2000 / kSlowdown;
  const auto table = *TableDBM::OpenInMemory();
  const auto draw = [](Random& random) {
    std::string text;
    for (int n = 0; n < 8; ++n) text += "w" + std::to_string(random.Below(10)) + " ";
    return text;
  };
  Random random(TestSeed());
  for (std::uint64_t i = 0; i < kRows; ++i) ASSERT_THAT(table->Put(std::to_string(i), {{"t", draw(random)}}), IsOk());
  ASSERT_THAT(table->CreateIndex({.name = "first", .columns = {{"t", IndexKind::kToken}}}), IsOk());
  std::atomic<bool> is_over{false};
  std::vector<std::thread> writers;
  for (std::uint64_t w = 0; w < 3; ++w) {
    writers.emplace_back([&, w] {
      Random mine(TestSeed() + w + 1);
      while (!is_over) EXPECT_THAT(table->Put(std::to_string(mine.Below(kRows)), {{"t", draw(mine)}}), IsOk());
    });
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(table->CreateIndex({.name = "words", .columns = {{"t", IndexKind::kToken}}, .positions = true}), IsOk());
    EXPECT_THAT(table->DropIndex("words"), IsOk());
    EXPECT_THAT(table->CreateIndex({.name = "grams", .columns = {{"t", IndexKind::kQGram}}, .q = 2, .positions = true}), IsOk());
    EXPECT_THAT(table->DropIndex("grams"), IsOk());
  }
  is_over = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_THAT(table->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
