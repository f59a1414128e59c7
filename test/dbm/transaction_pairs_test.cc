// Transactions beside each other feature: records that expire, RemoveRange, Rebuild, salvage, restore, the limit of a cache, long
// values, snapshots. A model knows what each transaction has read, so it knows which commits succeed, and what they leave.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
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
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/restore.h"
#include "hako/dbm/salvage.h"
#include "hako/dbm/snapshot.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/transaction.h"
#include "hako/dbm/tree_dbm.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using absl::StatusCode;

std::atomic<std::uint64_t> fake_now{0};
std::uint64_t FakeClock() { return fake_now.load(); }

struct Stored {
  std::string value;
  std::uint64_t time = Expiry::kNever;
  bool IsLive() const { return time == Expiry::kNever || time > fake_now; }
};
using Model = std::map<std::string, Stored>;
using Listed = std::vector<std::pair<std::string, std::string>>;

// A database and its model.
template <class D>
class Pair {
 public:
  static constexpr bool kIsOrdered = requires(D & d) { d.MakeIterator().Last(); };

  explicit Pair(D& db) : db_(db) {}
  Model& model() { return model_; }
  std::size_t value_max = 40;
  int num_committed = 0, num_aborted = 0;

  std::string Key() { return "k" + std::to_string(10 + random_.Below(40)); }
  std::string Value() { return random_.Bytes(random_.OneIn(4) ? random_.Below(value_max) : random_.Below(12)); }
  std::uint64_t Time() { return db_.expiry() != nullptr && random_.OneIn(2) ? fake_now + 1 + random_.Below(60) : Expiry::kNever; }

  // An update beside the transactions.
  void Update() {
    const std::string key = Key();
    if (random_.OneIn(3)) {
      const Status removed = db_.Remove(key);
      ASSERT_EQ(removed.code(), Find(key) ? StatusCode::kOk : StatusCode::kNotFound);
      model_.erase(key);
    } else {
      const Stored stored{Value(), Time()};
      ASSERT_THAT(db_.Set(key, stored.value, {.expire_at = stored.time}), IsOk());
      model_[key] = stored;
    }
  }
  void RemoveRange() requires kIsOrdered {
    const std::string from = Key(), to = from + "~";
    ASSERT_THAT(db_.RemoveRange(from, to).status(), IsOk());
    std::erase_if(model_, [&](const auto& record) { return record.first >= from && record.first < to; });
  }

  // Runs a transaction of some reads and updates, with between() once among them and once before its commit.
  void Transact(Transaction<D>& transaction, const std::function<void()>& between) {
    std::map<std::string, std::optional<std::string>> read, written;
    std::map<std::string, std::uint64_t> times;
    std::vector<std::pair<std::string, Listed>> passed;  // the records from a key on, up to the end
    const auto holds = [&] {
      const auto same = [&](const auto& record) { return Find(record.first) == record.second; };
      const auto same_time = [&](const auto& record) { return Find(record.first) && model_[record.first].time == record.second; };
      const auto same_range = [&](const auto& range) { return List(range.first) == range.second; };
      return std::ranges::all_of(read, same) && std::ranges::all_of(times, same_time) && std::ranges::all_of(passed, same_range);
    };
    const auto note = [&](const std::string& key) {
      if (!written.contains(key)) read.try_emplace(key, Find(key));
    };
    const auto shown = [&](const std::string& key) { return written.contains(key) ? written[key] : Find(key); };
    std::map<std::string, std::uint64_t> own_times;
    const std::uint64_t steps = 1 + random_.Below(6), pause = random_.Below(steps + 1);
    for (std::uint64_t i = 0; i < steps && holds(); ++i) {
      if (i == pause) {
        between();
        if (!holds()) break;
      }
      const std::string key = Key(), value = Value();
      switch (random_.Below(kIsOrdered ? 7 : 5)) {
        case 0: {
          const StatusOr<std::string> found = transaction.Get(key);
          note(key);
          ASSERT_EQ(found.ok() ? std::optional(*found) : std::nullopt, shown(key));
          break;
        }
        case 1:
          note(key);
          ASSERT_EQ(transaction.Remove(key, nullptr).code(), shown(key) ? StatusCode::kOk : StatusCode::kNotFound);
          if (shown(key)) written[key] = std::nullopt;
          break;
        case 2:
          ASSERT_THAT(transaction.Append(key, value), IsOk());
          note(key);
          if (!shown(key)) own_times[key] = Expiry::kNever;
          written[key] = shown(key).value_or("") + value;
          break;
        case 3:
          ASSERT_THAT(transaction.Set(key, value, {.expire_at = own_times[key] = NextTime()}), IsOk());
          written[key] = value;
          break;
        case 4:
          if (db_.expiry() == nullptr || written.contains(key) || !Find(key)) break;
          ASSERT_THAT(transaction.GetExpiry(key), IsOkAndHolds(model_[key].time));
          times.try_emplace(key, model_[key].time);
          break;
        case 5:
          if constexpr (kIsOrdered) {
            Listed expected;
            for (const auto& [listed, stored] : Merged(written)) {
              if (listed >= key) expected.emplace_back(listed, stored);
            }
            Listed found;
            auto range = transaction.Range(key);
            for (auto [at, bytes] : range) found.emplace_back(at, bytes);
            ASSERT_THAT(range.status(), IsOk());
            ASSERT_EQ(found, expected);
            passed.emplace_back(key, List(key));
          }
          break;
        default:
          if constexpr (kIsOrdered) {
            if (!random_.OneIn(4)) break;
            passed.emplace_back(key, List(key));
            const auto merged = Merged(written);
            std::uint64_t count = 0;
            for (auto at = merged.lower_bound(key); at != merged.end(); ++at, ++count) written[at->first] = std::nullopt;
            ASSERT_THAT(transaction.RemoveRange(key), IsOkAndHolds(count));
          }
      }
    }
    between();
    const Status status = transaction.Commit();
    ASSERT_EQ(status.code(), holds() ? StatusCode::kOk : StatusCode::kAborted) << status;
    status.ok() ? ++num_committed : ++num_aborted;
    if (!status.ok()) return;
    for (const auto& [key, value] : written) {
      const std::uint64_t kept = Find(key) ? model_[key].time : Expiry::kNever;
      model_.erase(key);
      if (value) model_[key] = {*value, own_times.contains(key) ? own_times[key] : kept};
    }
  }
  // Compares the records of a database, which may be a copy, with the model.
  template <class Other>
  void Check(Other& db) {
    Listed found;
    ASSERT_THAT(db.ProcessEach([&](std::string_view key, std::string_view value) { found.emplace_back(key, value); }), IsOk());
    std::ranges::sort(found);
    ASSERT_EQ(found, List(""));
    ASSERT_THAT(db.Verify(), IsOk());
    if (db.expiry() == nullptr) return;
    for (const auto& [key, stored] : model_) {
      if (stored.IsLive()) ASSERT_THAT(db.GetExpiry(key), IsOkAndHolds(stored.time)) << key;
    }
  }
  Listed List(const std::string& from) const {
    Listed records;
    for (auto it = model_.lower_bound(from); it != model_.end(); ++it) {
      if (it->second.IsLive()) records.emplace_back(it->first, it->second.value);
    }
    return records;
  }
  Random& random() { return random_; }

 private:
  std::optional<std::string> Find(const std::string& key) const {
    const auto it = model_.find(key);
    return it != model_.end() && it->second.IsLive() ? std::optional(it->second.value) : std::nullopt;
  }
  std::map<std::string, std::string> Merged(const std::map<std::string, std::optional<std::string>>& written) const {
    std::map<std::string, std::string> merged;
    for (const auto& [key, value] : List("")) merged[key] = value;
    for (const auto& [key, value] : written) {
      merged.erase(key);
      if (value) merged[key] = *value;
    }
    return merged;
  }
  // Of a record of a transaction: later than any step of the clock until its commit.
  std::uint64_t NextTime() { return db_.expiry() != nullptr && random_.OneIn(2) ? fake_now + 100 + random_.Below(60) : Expiry::kNever; }

  D& db_;
  Model model_;
  Random random_{TestSeed()};
};

// A transaction in each case commits, and one is aborted.
template <class D>
void Run(D& db, int num_transactions, const std::function<void(Pair<D>&, int)>& beside, std::size_t value_max = 40) {
  Pair<D> pair(db);
  pair.value_max = value_max;
  Transaction<D> transaction(db);
  for (int i = 0; i < num_transactions; ++i) {
    pair.Transact(transaction, [&] {
      if (pair.random().OneIn(3)) pair.Update();
      beside(pair, i);
    });
    if (testing::Test::HasFatalFailure()) return;
    if (i % 10 == 0) pair.Check(db);
  }
  pair.Check(db);
  EXPECT_GT(pair.num_committed, num_transactions / 4);
  EXPECT_GT(pair.num_aborted, 0);
}

TEST(TransactionPairs, RecordsThatExpire) {
  const auto pass_time = [](auto& pair, int) { fake_now += pair.random().OneIn(3) ? pair.random().Below(30) : 0; };
  fake_now = 1'000'000;
  ASSERT_OK_AND_ASSIGN(auto baby, BabyDBM<>::Open({.page_size = 512, .expiry = true, .clock = &FakeClock}));
  Run<BabyDBM<>>(*baby, 300, pass_time);
  ASSERT_OK_AND_ASSIGN(auto tiny, TinyDBM<>::Open({.expiry = true, .clock = &FakeClock}));
  Run<TinyDBM<>>(*tiny, 300, pass_time);
}

TEST(TransactionPairs, RemoveRange) {
  ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open({.page_size = 256}));
  Run<BabyDBM<>>(*db, 300, [](auto& pair, int) {
    if (pair.random().OneIn(3)) pair.RemoveRange();
  });
}

TEST(TransactionPairs, Rebuild) {
  const TempDir dir(TempDir::MemoryParent());
  ASSERT_OK_AND_ASSIGN(auto tree, TreeDBM<>::Open(dir.File("a.hkt"), {.page_size = 512, .cache_bytes = 1 << 20}));
  ASSERT_OK_AND_ASSIGN(auto hash, HashDBM<>::Open(dir.File("a.hkh")));
  const auto rebuild = [&](auto& pair, int i) {
    if (i % 10 == 3) ASSERT_THAT(tree->Rebuild(), IsOk());
    if (i % 10 == 7) ASSERT_THAT(hash->Rebuild(), IsOk());
    if (pair.random().OneIn(5)) ASSERT_THAT(tree->Synchronize(SyncMode::kSoft), IsOk());
  };
  Run<TreeDBM<>>(*tree, 100, rebuild);
  Run<HashDBM<>>(*hash, 100, rebuild);
}

// Values longer than a page, read by keys and by ranges.
TEST(TransactionPairs, LongValues) {
  const TempDir dir(TempDir::MemoryParent());
  const auto nothing = [](auto&, int) {};
  ASSERT_OK_AND_ASSIGN(auto baby, BabyDBM<>::Open({.page_size = 512}));
  Run<BabyDBM<>>(*baby, 200, nothing, 5'000);
  ASSERT_OK_AND_ASSIGN(auto tree, TreeDBM<>::Open(dir.File("a.hkt"), {.page_size = 512, .cache_bytes = 1 << 20}));
  Run<TreeDBM<>>(*tree, 200, nothing, 5'000);
}

// Each snapshot shows the records of its moment, before and after the commit of the transaction in which it was taken.
TEST(TransactionPairs, Snapshots) {
  const TempDir dir(TempDir::MemoryParent());
  const auto run = [](auto& db) {
    using D = std::remove_reference_t<decltype(db)>;
    std::vector<std::pair<std::remove_reference_t<decltype(*db.Snapshot())>, Listed>> snapshots;
    Run<D>(db, 200, [&](auto& pair, int i) {
      if (pair.random().OneIn(4)) {
        ASSERT_OK_AND_ASSIGN(auto snapshot, db.Snapshot());
        snapshots.emplace_back(std::move(snapshot), pair.List(""));
      }
      if (i % 8 != 0) return;
      for (const auto& [snapshot, expected] : snapshots) {
        Listed found;
        auto range = snapshot->Range();
        for (auto [key, value] : range) found.emplace_back(key, value);
        ASSERT_THAT(range.status(), IsOk());
        ASSERT_EQ(found, expected);
      }
      if (snapshots.size() > 8) snapshots.erase(snapshots.begin(), snapshots.begin() + 5);
    });
  };
  ASSERT_OK_AND_ASSIGN(auto baby, BabyDBM<>::Open({.page_size = 512}));
  run(*baby);
  ASSERT_OK_AND_ASSIGN(auto tree, TreeDBM<>::Open(dir.File("a.hkt"), {.page_size = 512, .cache_bytes = 1 << 20}));
  run(*tree);
}

// The records that transactions have left are found by a salvage, and by a restore from an older copy and the log.
template <class D>
void SalvageAndRestore(const char* name) {
  const TempDir dir(TempDir::MemoryParent());
  const std::string path = dir.File(name), archive = dir.File("archive"), copy = dir.File("copy");
  std::filesystem::create_directory(archive);
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(path, {.log_bytes = 64 << 10, .log_archive = archive}));
  Pair<D> pair(*db);
  Transaction<D> transaction(*db);
  for (int i = 0; i < 100; ++i) {
    if (i == 20) ASSERT_THAT(db->CopyTo(copy), IsOk());
    pair.Transact(transaction, [&] {
      if (pair.random().OneIn(3)) pair.Update();
    });
  }
  ASSERT_GT(pair.num_committed, 0);
  ASSERT_THAT(transaction.Set("never", "committed"), IsOk());
  ASSERT_THAT(db->Close(), IsOk());

  ASSERT_OK_AND_ASSIGN(const SalvageReport report, Salvage<D>(path, dir.File("salvaged")));
  EXPECT_TRUE(report.IsComplete());
  ASSERT_OK_AND_ASSIGN(auto salvaged, D::Open(dir.File("salvaged")));
  pair.Check(*salvaged);
  ASSERT_THAT(Restore<D>(copy, archive, dir.File("restored")).status(), IsOk());
  ASSERT_OK_AND_ASSIGN(auto restored, D::Open(dir.File("restored")));
  pair.Check(*restored);
}
TEST(TransactionPairs, SalvageAndRestoreOfATree) { SalvageAndRestore<TreeDBM<>>("a.hkt"); }
TEST(TransactionPairs, SalvageAndRestoreOfAHashTable) { SalvageAndRestore<HashDBM<>>("a.hkh"); }

// A cache evicts whole records at any time. A transaction has read what it commits on: a record that was evicted since is one
// that has changed.
template <class D>
void EvictBeside() {
  std::map<std::string, std::string, std::less<>> model;  // the records that are there
  const auto note = [&](std::string_view key, std::string_view value) {
    const auto it = model.find(key);
    ASSERT_NE(it, model.end());
    ASSERT_EQ(it->second, value);
    model.erase(it);
  };
  ASSERT_OK_AND_ASSIGN(auto db, D::Open({.capacity_records = 1'000, .on_eviction = note}));
  Random random(TestSeed());
  Transaction<D> transaction(*db);
  int num_evicted = 0, num_committed = 0;
  for (int i = 0; i < 40; ++i) {
    const std::string written = std::to_string(random.Below(30));
    const auto scanned = model.lower_bound("other" + std::to_string(random.Next()));  // was used once
    const std::string read = random.OneIn(2) && scanned != model.end() ? scanned->first : std::to_string(random.Below(30));
    const StatusOr<std::string> found = transaction.Get(read);
    ASSERT_EQ(found.ok(), model.contains(read));
    if (found.ok()) ASSERT_EQ(*found, model[read]);
    const std::string value = std::to_string(i);
    ASSERT_THAT(transaction.Set(written, value), IsOk());
    for (int n = random.OneIn(3) ? 1'200 : 0; n > 0; --n) {
      const std::string other = "other" + std::to_string(random.Next());
      model[other] = "x";
      ASSERT_THAT(db->Set(other, "x"), IsOk());
      for (int use = 0; use < 3; ++use) ASSERT_THAT(db->GetSize(other), IsOkAndHolds(1u));  // more than the one that was read
    }
    const bool is_evicted = found.ok() && !model.contains(read);
    num_evicted += is_evicted ? 1 : 0;
    const Status status = transaction.Commit();
    ASSERT_EQ(status.code(), is_evicted ? StatusCode::kAborted : StatusCode::kOk) << status;
    if (!status.ok()) continue;
    model[written] = value;
    ++num_committed;
    ASSERT_LE(db->Count(), 1'000u);
  }
  EXPECT_GT(num_evicted, 0);
  EXPECT_GT(num_committed, 15);
  std::map<std::string, std::string, std::less<>> shown;
  ASSERT_THAT(db->ProcessEach([&](std::string_view key, std::string_view value) { shown.emplace(key, value); }), IsOk());
  EXPECT_EQ(shown, model);
  ASSERT_THAT(db->Verify(), IsOk());
}
TEST(TransactionPairs, TheLimitOfAHashTable) { EvictBeside<TinyDBM<>>(); }
TEST(TransactionPairs, TheLimitOfATree) { EvictBeside<BabyDBM<>>(); }

}  // namespace
}  // namespace hako
