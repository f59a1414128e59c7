// Threads that change the same rows of a table, while another one creates and drops indices and
// another one runs queries.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/table/table_dbm.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

constexpr int kWriters = 3;

TEST(TableConcurrentTest, WritersOfOneRowLoseNoUpdate) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kQGram}}, .q = 2}), IsOk());
  constexpr std::size_t kAppends = kSlowdown == 1 ? 800 : 100;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&table, writer] {
      for (std::size_t i = 0; i < kAppends; ++i)
        ASSERT_THAT(table->Append(i % 2 == 0 ? "a" : "b", {{"t", std::string(1, static_cast<char>('0' + writer))}}), IsOk());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table->Get("a")->Get("t").bytes().size() + table->Get("b")->Get("t").bytes().size(), kWriters * kAppends);
  EXPECT_THAT(table->Count(), IsOkAndHolds(2u));
  EXPECT_THAT(table->Verify(), IsOk());
}

TEST(TableConcurrentTest, CopiesAreMadeBesideChecks) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(dir.File("a.hktb")));
  std::thread checks([&table] {  // each of a newer state, which is stored before
    for (int i = 0; i < 10; ++i) {
      ASSERT_THAT(table->Put(std::to_string(i), {{"a", i}}), IsOk());
      ASSERT_THAT(table->Verify(), IsOk());
    }
  });
  for (int i = 0; i < 10; ++i) EXPECT_THAT(table->CopyTo(dir.File("copy.hktb")), IsOk());
  checks.join();
  ASSERT_OK_AND_ASSIGN(const auto copy, TableDBM::Open(dir.File("copy.hktb")));
  EXPECT_THAT(copy->Verify(), IsOk());
}

TEST(TableConcurrentTest, IndicesComeAndGoBesideWritersAndQueries) {
  SCOPED_TRACE(TestSeed());
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->SetColumn("a", {}), IsOk());
  std::atomic<bool> is_over = false;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      Random random(TestSeed() + static_cast<std::uint64_t>(writer));
      for (int i = 0; i < 1500; ++i) {
        const std::string key = std::to_string(random.Below(300)), word = "word" + std::to_string(random.Below(10));
        const auto n = static_cast<std::int64_t>(random.Below(10));
        const Status status = random.OneIn(5) ? table->Remove(key)
                              : random.OneIn(10)
                                  ? table->Select().Where(Column("a") == n).Limit(5).Update({{"a", n + 1}, {"b", n + 1}}).status()
                                  : table->Put(key, {{"a", n}, {"b", n}, {"t", word + " and more"}});
        ASSERT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; !is_over; ++i) {
      const IndexKind kind = static_cast<IndexKind>(i % 4);
      const std::string column = kind == IndexKind::kOrdered || kind == IndexKind::kNumeric ? "a" : "t";
      ASSERT_THAT(table->CreateIndex({.name = "index", .columns = {{column, kind}}}), IsOk());
      ASSERT_THAT(table->DropIndex("index"), IsOk());
    }
  });
  threads.emplace_back([&] {
    Random random(TestSeed());
    while (!is_over) {
      const auto n = static_cast<std::int64_t>(random.Below(10));
      ASSERT_THAT(table->Select().Where(Column("a") == n).Each([n](std::string_view, const RowView& row) {
        EXPECT_EQ(row["a"], Value(n));
        EXPECT_EQ(row["b"], Value(n));
        return true;
      }),
                  IsOk());
      const std::string word = "word" + std::to_string(n);
      ASSERT_THAT(table->Select().Where(Column("t").HasAll(word + " more")).Each([&word](std::string_view, const RowView& row) {
        EXPECT_EQ(row["t"].bytes(), word + " and more");
        return true;
      }),
                  IsOk());
      ASSERT_THAT(table->Verify(), IsOk());
    }
  });
  for (int writer = 0; writer < kWriters; ++writer) threads[static_cast<std::size_t>(writer)].join();
  is_over = true;
  for (std::size_t i = kWriters; i < threads.size(); ++i) threads[i].join();
  EXPECT_THAT(table->Verify(), IsOk());
  EXPECT_THAT(table->Select().Where(Key() >= "").Count(), IsOkAndHolds(*table->Count()));
}

}  // namespace
}  // namespace hako
