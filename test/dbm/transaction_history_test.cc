// Transactions of several threads are serializable: histories of appends to lists are checked for cycles, as Elle does;
// counts of ranges and sums of accounts, for states that never were; and the same after processes were killed.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "dbm/kinds.h"
#include "gtest/gtest.h"
#include "hako/dbm/transaction.h"
#include "hako/dbm/write_batch.h"
#include "support/crash_child.h"
#include "support/crash_states.h"
#include "support/full_size.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "support/threads.h"

namespace hako {
namespace {

using Ids = std::vector<std::uint64_t>;

Ids ParseIds(std::string_view list) {
  Ids ids;
  for (const auto part : absl::StrSplit(std::string(list), ',', absl::SkipEmpty())) {
    std::uint64_t id = 0;
    EXPECT_TRUE(absl::SimpleAtoi(part, &id)) << list;
    ids.push_back(id);
  }
  return ids;
}

// A committed transaction: the lists that it read before its own appends, what it appended, and when it ran.
struct Committed {
  std::vector<std::pair<std::string, Ids>> reads;
  std::vector<std::pair<std::string, std::uint64_t>> appends;
  std::uint64_t begin = 0, end = 0;
};

// Returns what is wrong with a history; empty if there is an order of the transactions that explains it and keeps the order
// of those that do not overlap.
std::string FaultOf(const std::vector<Committed>& history, const std::map<std::string, Ids>& lists) {
  std::map<std::uint64_t, std::size_t> writer;
  for (std::size_t t = 0; t < history.size(); ++t) {
    for (const auto& [key, id] : history[t].appends) writer[id] = t;
  }
  std::vector<std::set<std::size_t>> after(history.size());  // of each transaction, those that must come later
  const auto order = [&](std::size_t a, std::size_t b) {
    if (a != b) after[a].insert(b);
  };
  std::size_t num_ids = 0;
  for (const auto& [key, ids] : lists) {
    num_ids += ids.size();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (!writer.contains(ids[i])) return absl::StrCat(ids[i], " of ", key, " was never committed");
      if (i > 0) order(writer[ids[i - 1]], writer[ids[i]]);
    }
  }
  if (num_ids != writer.size()) return absl::StrCat(writer.size() - num_ids, " appends are lost");
  static const Ids kEmpty;
  for (std::size_t t = 0; t < history.size(); ++t) {
    for (const auto& [key, seen] : history[t].reads) {
      const auto found = lists.find(key);
      const Ids& list = found != lists.end() ? found->second : kEmpty;
      if (seen.size() > list.size() || !std::equal(seen.begin(), seen.end(), list.begin()))
        return absl::StrCat("a read of ", key, " is no prefix");
      if (!seen.empty()) order(writer[seen.back()], t);
      if (seen.size() < list.size()) order(t, writer[list[seen.size()]]);
    }
    for (std::size_t other = 0; other < history.size(); ++other) {
      if (history[t].end < history[other].begin) order(t, other);
    }
  }
  std::vector<std::size_t> num_before(history.size()), free;
  for (const auto& later : after) {
    for (const std::size_t b : later) ++num_before[b];
  }
  for (std::size_t t = 0; t < history.size(); ++t) {
    if (num_before[t] == 0) free.push_back(t);
  }
  std::size_t num_ordered = 0;
  for (; !free.empty(); ++num_ordered) {
    const std::size_t t = free.back();
    free.pop_back();
    for (const std::size_t b : after[t]) {
      if (--num_before[b] == 0) free.push_back(b);
    }
  }
  return num_ordered == history.size() ? "" : "the transactions depend on each other in a cycle";
}

TEST(TransactionHistories, TheCheckFindsAnomalies) {
  const std::map<std::string, Ids> lists = {{"a", {1, 2}}, {"b", {3}}};
  const Committed one = {{}, {{"a", 1}}, 1, 10}, two = {{{"a", {1}}}, {{"a", 2}}, 1, 10}, three = {{}, {{"b", 3}}, 1, 10};
  EXPECT_EQ(FaultOf({one, two, three}, lists), "");
  EXPECT_NE(FaultOf({one, two}, lists), "");                                                                              // a dirty write
  EXPECT_NE(FaultOf({one, two, three, {{}, {{"a", 4}}, 1, 10}}, lists), "");                                              // a lost one
  EXPECT_NE(FaultOf({one, {{{"a", {}}}, {{"a", 2}}, 1, 10}, three}, lists), "");                                          // a lost update
  EXPECT_NE(FaultOf({one, {{{"a", {1}}, {"b", {}}}, {{"a", 2}}, 1, 10}, {{{"a", {1}}}, {{"b", 3}}, 1, 10}}, lists), "");  // write skew
  EXPECT_NE(FaultOf({one, two, three, {{{"a", {1, 2}}, {"b", {}}}, {}, 1, 10}, {{{"a", {1}}, {"b", {3}}}, {}, 1, 10}}, lists),
            "");                                                                // reads of no state
  EXPECT_NE(FaultOf({one, two, three, {{{"b", {}}}, {}, 20, 30}}, lists), "");  // a stale read
}

template <class Kind>
class TransactionHistoryTest : public testing::Test {
 protected:
  using Database = typename Kind::DB;
  static constexpr bool kIsOrdered = requires(Database & db) { db.Range(); };

  void SetUp() override { ASSERT_OK_AND_ASSIGN(db_, Kind::Open(dir_.File("db"))); }
  void TearDown() override {
    ASSERT_THAT(db_->Verify(), IsOk());
    ASSERT_THAT(db_->Close(), IsOk());
  }

  static void MaybeYield(Random& random) {
    if (random.OneIn(3)) std::this_thread::yield();
  }
  // Reads and appends at random. Returns whether it was committed.
  bool RunOne(Transaction<Database>& transaction, Random& random, std::uint64_t first_id, Committed* done) {
    done->begin = ++clock_;
    std::set<std::string> appended;
    for (std::uint64_t ops = random.Between(1, 4); ops > 0; --ops) {
      const std::string key = absl::StrCat("list ", random.Below(4));
      MaybeYield(random);
      if (random.OneIn(2)) {
        done->appends.emplace_back(key, first_id);
        EXPECT_THAT(transaction.Append(key, absl::StrCat(first_id++), ","), IsOk());
        appended.insert(key);
      } else if (kIsOrdered && appended.empty() && random.OneIn(2)) {
        ReadAll(transaction, random, done);
      } else if (!appended.contains(key)) {
        std::string list;
        const Status status = transaction.Get(key, &list);
        EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
        done->reads.emplace_back(key, status.ok() ? ParseIds(list) : Ids());
      }
    }
    MaybeYield(random);
    const Status status = transaction.Commit();
    EXPECT_TRUE(status.ok() || absl::IsAborted(status)) << status;
    done->end = ++clock_;
    return status.ok();
  }
  // Reads all lists as a range; those that are absent, too.
  void ReadAll([[maybe_unused]] Transaction<Database>& transaction, [[maybe_unused]] Random& random, [[maybe_unused]] Committed* done) {
    if constexpr (kIsOrdered) {
      std::map<std::string, Ids> seen;
      for (int i = 0; i < 4; ++i) seen[absl::StrCat("list ", i)];
      const auto show = [&](auto range) {
        for (auto [key, list] : range) {
          seen[std::string(key)] = ParseIds(list);
          MaybeYield(random);
        }
        EXPECT_THAT(range.status(), IsOk());
      };
      random.OneIn(2) ? show(transaction.PrefixRange("list ")) : show(transaction.ReverseRange());
      for (auto& [key, ids] : seen) done->reads.emplace_back(key, std::move(ids));
    }
  }

  TempDir dir_;
  std::unique_ptr<Database> db_;
  std::atomic<std::uint64_t> clock_{0};
};

using Kinds = testing::Types<kinds::Tiny, kinds::Baby, kinds::Hash, kinds::Tree>;
TYPED_TEST_SUITE(TransactionHistoryTest, Kinds);

// HAKO_HISTORIES: how many.
TYPED_TEST(TransactionHistoryTest, AreSerializable) {
  const char* const given = std::getenv("HAKO_HISTORIES");
  const std::uint64_t num_histories = given != nullptr ? std::strtoull(given, nullptr, 10) : FullSize() ? 2'000 : 300;
  constexpr int kThreads = 3, kTransactions = 10;
  std::uint64_t num_committed = 0;
  for (std::uint64_t h = 0; h < num_histories && !this->HasFailure(); ++h) {
    ASSERT_THAT(this->db_->Clear(), IsOk());
    std::vector<Committed> histories[kThreads];
    RunThreads(kThreads, [&](int thread) {
      Random random(TestSeed() + h * 100 + static_cast<std::uint64_t>(thread));
      Transaction transaction(*this->db_);
      for (std::uint64_t t = 0; t < kTransactions; ++t) {
        Committed done;
        const std::uint64_t id = (static_cast<std::uint64_t>(thread) * kTransactions + t) * 100 + 1;
        if (random.OneIn(5)) {  // a plain update
          done.begin = ++this->clock_;
          done.appends.emplace_back("list 0", id);
          EXPECT_THAT(this->db_->Append("list 0", absl::StrCat(id), ","), IsOk());
          done.end = ++this->clock_;
          histories[thread].push_back(done);
        } else if (this->RunOne(transaction, random, id, &done)) {
          histories[thread].push_back(done);
        }
      }
    });
    std::vector<Committed> history;
    for (const auto& part : histories) history.insert(history.end(), part.begin(), part.end());
    num_committed += history.size();
    std::map<std::string, Ids> lists;
    ASSERT_THAT(this->db_->ProcessEach([&](std::string_view key, std::string_view list) { lists[std::string(key)] = ParseIds(list); }),
                IsOk());
    ASSERT_EQ(FaultOf(history, lists), "") << "history " << h;
  }
  EXPECT_GT(num_committed, num_histories * kThreads * kTransactions / 4);
}

// Each transaction counts the records of its group and adds one with that number, so the numbers are 0, 1, 2, ... of each
// group, and no group exceeds the limit that both obey together.
TYPED_TEST(TransactionHistoryTest, RangesHaveNoPhantoms) {
  if constexpr (TestFixture::kIsOrdered) {
    constexpr int kThreads = 3;
    for (int round = 0; round < (FullSize() ? 200 : 40); ++round) {
      ASSERT_THAT(this->db_->Clear(), IsOk());
      RunThreads(kThreads, [&](int thread) {
        Random random(TestSeed() + static_cast<std::uint64_t>(round * kThreads + thread));
        Transaction transaction(*this->db_);
        for (int i = 0; i < 30; ++i) {
          const std::string group = absl::StrCat("group ", random.Below(2), "/"), other = group == "group 0/" ? "group 1/" : "group 0/";
          const Status added = transaction.Retry(1000, [&]() -> Status {
            HAKO_ASSIGN_OR_RETURN(const std::uint64_t mine, transaction.CountRange(group, EndOfPrefix(group)));
            this->MaybeYield(random);
            std::uint64_t others = 0;
            auto range = transaction.ReverseRange(other, EndOfPrefix(other));
            for ([[maybe_unused]] const auto& record : range) ++others;
            HAKO_RETURN_IF_ERROR(range.status());
            if (mine + others >= 60) return absl::OutOfRangeError("full");
            return transaction.Set(absl::StrCat(group, random.Next()), absl::StrCat(mine));
          });
          ASSERT_TRUE(added.ok() || absl::IsOutOfRange(added)) << added;
        }
      });
      EXPECT_EQ(this->db_->Count(), 60u);
      for (const char* const group : {"group 0/", "group 1/"}) {
        std::set<std::uint64_t> numbers;
        std::uint64_t count = 0;
        for (auto [key, value] : this->db_->PrefixRange(group)) {
          std::uint64_t number = 0;
          ASSERT_TRUE(absl::SimpleAtoi(std::string(value), &number));
          numbers.insert(number);
          ++count;
        }
        ASSERT_EQ(numbers.size(), count);
        if (count > 0) ASSERT_EQ(*numbers.rbegin(), count - 1);
      }
    }
  }
}

constexpr std::uint64_t kAccounts = 50, kMoney = 1000;
std::string Account(std::uint64_t i) { return absl::StrCat("account ", i); }

template <class D>
Status Fill(D& db) {
  WriteBatch batch;
  for (std::uint64_t i = 0; i < kAccounts; ++i) batch.Set(Account(i), absl::StrCat(kMoney));
  return db.Write(batch);
}
template <class D>
StatusOr<std::int64_t> Balance(D& from, const std::string& account) {
  HAKO_ASSIGN_OR_RETURN(const std::string text, from.Get(account));
  std::int64_t amount = 0;
  if (!absl::SimpleAtoi(text, &amount)) return absl::DataLossError(text);
  return amount;
}
template <class D>
Status Move(Transaction<D>& transaction, std::uint64_t from, std::uint64_t to, std::int64_t amount) {
  HAKO_ASSIGN_OR_RETURN(const std::int64_t first, Balance(transaction, Account(from)));
  HAKO_RETURN_IF_ERROR(transaction.Set(Account(from), absl::StrCat(first - amount)));
  HAKO_ASSIGN_OR_RETURN(const std::int64_t second, Balance(transaction, Account(to)));
  return transaction.Set(Account(to), absl::StrCat(second + amount));
}
// The sum of all accounts in one transaction that only reads.
template <class D>
StatusOr<std::int64_t> SumOf(Transaction<D>& transaction) {
  std::int64_t sum = 0;
  const auto add = [&]() -> Status {
    sum = 0;
    for (std::uint64_t i = 0; i < kAccounts; ++i) {
      HAKO_ASSIGN_OR_RETURN(const std::int64_t amount, Balance(transaction, Account(i)));
      sum += amount;
    }
    return absl::OkStatus();
  };
  HAKO_RETURN_IF_ERROR(transaction.Retry(100'000, add));
  return sum;
}

TYPED_TEST(TransactionHistoryTest, MoneyIsMovedBesideSums) {
  ASSERT_THAT(Fill(*this->db_), IsOk());
  std::atomic<int> num_moving{2};
  RunThreads(3, [&](int thread) {
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    Transaction transaction(*this->db_);
    if (thread == 2) {
      for (int i = 0; num_moving > 0 || i < 20; ++i) ASSERT_THAT(SumOf(transaction), IsOkAndHolds(kAccounts * kMoney));
      return;
    }
    for (int i = 0; i < (FullSize() ? 20'000 : 2'000); ++i) {
      const std::uint64_t from = random.Below(kAccounts), to = random.Below(kAccounts);
      ASSERT_THAT(transaction.Retry(100'000, [&] { return Move(transaction, from, to, 1); }), IsOk());
    }
    --num_moving;
  });
  Transaction transaction(*this->db_);
  EXPECT_THAT(SumOf(transaction), IsOkAndHolds(kAccounts * kMoney));
}

// Each thread's transactions also count themselves.
template <class Kind>
void Work(const std::string& path, CrashProgress& progress, std::uint64_t seed) {
  auto db = Kind::Open(path);
  if (!db.ok()) return progress.Fail(db.status().ToString());
  progress.ready = true;
  RunThreads(2, [&](int thread) {
    Random random(seed + static_cast<std::uint64_t>(thread));
    Transaction transaction(**db);
    auto& mine = progress.writers[thread];
    for (std::uint64_t i = mine.begun;; ++i) {
      const std::uint64_t from = random.Below(kAccounts), to = random.Below(kAccounts);
      mine.begun = i + 1;
      const Status moved = transaction.Retry(1'000'000, [&]() -> Status {
        HAKO_RETURN_IF_ERROR(Move(transaction, from, to, 1));
        return transaction.Set(absl::StrCat("moves ", thread), absl::StrCat(i + 1));
      });
      if (!moved.ok()) return progress.Fail(moved.ToString());
      mine.acknowledged = i + 1;
    }
  });
}

TYPED_TEST(TransactionHistoryTest, AreWholeAfterAKill) {
  if constexpr (TypeParam::kInFile) {
    Random random(TestSeed());
    const std::string path = this->dir_.File("killed");
    {
      ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(path));
      ASSERT_THAT(Fill(*db), IsOk());
      ASSERT_THAT(db->Close(), IsOk());
    }
    std::uint64_t counts[2] = {};
    for (int round = 0; round < Kills(FullSize() ? 40 : 6); ++round) {
      std::uint64_t begun[2], acknowledged[2];
      {
        CrashChild child([&](CrashProgress& progress) {
          for (int t = 0; t < 2; ++t) progress.writers[t].begun = counts[t];
          Work<TypeParam>(path, progress, random.Next());
        });
        child.AwaitReady();
        CrashChild::Pause(random.Below(20'000));
        child.Kill();
        ASSERT_STREQ(child.progress().failure, "");
        for (int t = 0; t < 2; ++t) {
          begun[t] = child.progress().writers[t].begun;
          acknowledged[t] = std::max<std::uint64_t>(child.progress().writers[t].acknowledged, counts[t]);
        }
      }
      ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(path));
      ASSERT_THAT(db->Verify(), IsOk());
      Transaction transaction(*db);
      ASSERT_THAT(SumOf(transaction), IsOkAndHolds(kAccounts * kMoney));
      for (int t = 0; t < 2; ++t) {
        ASSERT_OK_AND_ASSIGN(const std::string text, db->GetOr(absl::StrCat("moves ", t), "0"));
        ASSERT_TRUE(absl::SimpleAtoi(text, &counts[t]));
        ASSERT_GE(counts[t], acknowledged[t]);
        ASSERT_LE(counts[t], begun[t]);
      }
      ASSERT_THAT(db->Close(), IsOk());
    }
  }
}

}  // namespace
}  // namespace hako
