// Snapshots of ordered databases beside a model: each shows the records of its moment, by key, in ranges and both ways,
// while the database changes.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/array/record_key.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/array_dbm.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/memory_array_dbm.h"
#include "hako/dbm/positional_tree_dbm.h"
#include "hako/dbm/restore.h"
#include "hako/dbm/salvage.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/dbm/write_batch.h"
#include "support/file_system.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

constexpr unsigned kWidth = 24;  // of the records of arrays

struct Baby {
  static auto Open(const std::string&, std::uint64_t bytes) { return BabyDBM<>::Open({.page_size = 512, .snapshot_bytes = bytes}); }
};
struct BabyWithLimit {
  static auto Open(const std::string&, std::uint64_t bytes) {
    return BabyDBM<>::Open({.page_size = 512, .capacity_records = 1'500, .snapshot_bytes = bytes});
  }
};
template <class FileT>
struct Tree {
  static auto Open(const std::string& path, std::uint64_t bytes) {
    return TreeDBM<FileT>::Open(path, {.page_size = 512, .cache_bytes = 1 << 20, .snapshot_bytes = bytes});
  }
};
struct MemoryArray {
  static auto Open(const std::string&, std::uint64_t bytes) { return MemoryArrayDBM<>::Open({.width = kWidth, .snapshot_bytes = bytes}); }
};
struct Array {
  static auto Open(const std::string& path, std::uint64_t bytes) {
    return ArrayDBM<>::Open(path, {.width = kWidth, .snapshot_bytes = bytes});
  }
};

template <const char* kOptions>
struct Any {
  static auto Open(const std::string& path, std::uint64_t bytes) {
    return AnyDBM::Open(path + kOptions + ",snapshot_bytes=" + std::to_string(bytes));
  }
};
constexpr char kAnyBaby[] = "?dbm=baby,page_size=512", kAnyTree[] = ".hkt?page_size=512,cache_bytes=1Mi", kAnyArray[] = ".hka?width=24";

// The memory that a snapshot takes, and why its reads fail.
std::uint64_t BytesOf(AnyDBM& snapshot) { return snapshot.GetStats().snapshot_bytes; }
std::uint64_t BytesOf(auto& snapshot) { return snapshot.bytes(); }
Status ErrorOf(AnyDBM& snapshot) { return snapshot.GetHealth(); }
Status ErrorOf(auto& snapshot) { return snapshot.CheckReads(); }

template <class Kind>
class SnapshotTest : public testing::Test {
 protected:
  using Database = std::remove_reference_t<decltype(**Kind::Open("", 0))>;
  using Snapshot = std::remove_reference_t<decltype(**std::declval<Database&>().Snapshot())>;
  static constexpr bool kIsArray = std::is_same_v<Kind, MemoryArray> || std::is_same_v<Kind, Array> || std::is_same_v<Kind, Any<kAnyArray>>;
  struct Less {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const { return kIsArray ? RecordKeyComparator::Compare(a, b) < 0 : a < b; }
  };
  using Model = std::map<std::string, std::string, Less>;

  void OpenDatabase(std::uint64_t snapshot_bytes = std::uint64_t{1} << 30) {
    ASSERT_OK_AND_ASSIGN(db_, Kind::Open(dir_.File("db"), snapshot_bytes));
  }
  std::string RandomKey() { return std::to_string(random_.Below(3'000)); }
  std::string RandomValue() {
    const std::string digits = std::to_string(random_.Next());
    if (kIsArray) return digits + std::string(kWidth - digits.size(), '.');
    return digits + std::string(random_.OneIn(50) ? 2'000 + random_.Below(9'000) : random_.Below(60), 'v');
  }
  void Set(const std::string& key, const std::string& value) { ASSERT_THAT(db_->Set(key, value), IsOk()); }
  void Update() {
    const std::string key = RandomKey(), value = RandomValue();
    switch (random_.Below(6)) {
      case 0:
        return (void)db_->Remove(key);
      case 1: {
        WriteBatch batch;
        for (int i = 0; i < 4; ++i) random_.OneIn(3) ? batch.Remove(RandomKey()) : batch.Set(RandomKey(), value);
        ASSERT_THAT(db_->Write(batch), IsOk());
        return;
      }
      case 2:
        if (random_.OneIn(10)) ASSERT_THAT(db_->RemoveRange(key, std::to_string(std::stoul(key) + random_.Below(300))).status(), IsOk());
        return;
      default:
        Set(key, value);
    }
  }
  Model Listed() {
    Model records;
    for (auto [key, value] : db_->Range()) records.emplace(key, value);
    return records;
  }

  // Compares a part of what a snapshot shows with the model.
  void Compare(Snapshot& snapshot, const Model& model) {
    for (int i = 0; i < 20; ++i) {
      const std::string key = RandomKey();
      const auto it = model.find(key);
      const StatusOr<std::string> found = snapshot.Get(key);
      if (it == model.end())
        ASSERT_THAT(found.status(), StatusIs(absl::StatusCode::kNotFound)) << key;
      else
        ASSERT_THAT(found, IsOkAndHolds(it->second)) << key;
    }
    const std::string keys[] = {RandomKey(), RandomKey()};
    const std::string_view views[] = {keys[0], keys[1]};
    std::optional<std::string> values[2];
    ASSERT_THAT(snapshot.GetMulti(views, values), IsOk());
    for (int i = 0; i < 2; ++i) {
      const auto it = model.find(keys[i]);
      ASSERT_EQ(values[i], it == model.end() ? std::nullopt : std::optional(it->second));
    }
    const auto& [low, high] = std::minmax(keys[0], keys[1], Less());
    const auto from = model.lower_bound(low), to = model.lower_bound(high);
    if (low != high) ASSERT_THAT(snapshot.CountRange(low, high), IsOkAndHolds(static_cast<std::uint64_t>(std::distance(from, to))));
    ASSERT_EQ(snapshot.Count(), model.size());
    Walk(snapshot, model);
  }
  // Moves an iterator at random. Updates the database meanwhile, if told.
  void Walk(Snapshot& snapshot, const Model& model, bool updates = false) {
    auto it = snapshot.MakeIterator();
    auto at = model.end();
    for (int i = 0; i < 40; ++i) {
      if (updates) Update();
      const std::string key = RandomKey();
      switch (at == model.end() ? random_.Below(6) : random_.Below(16)) {
        case 0:
          it.First();
          at = model.begin();
          break;
        case 1:
          it.Last();
          at = model.empty() ? model.end() : std::prev(model.end());
          break;
        case 2:
          it.Jump(key);
          at = model.lower_bound(key);
          break;
        case 3:
          it.JumpUpper(key);
          at = model.upper_bound(key);
          break;
        case 4:
        case 5: {
          const bool is_inclusive = random_.OneIn(2);
          it.JumpLower(key, is_inclusive);
          at = is_inclusive ? model.upper_bound(key) : model.lower_bound(key);
          at = at == model.begin() ? model.end() : std::prev(at);
          break;
        }
        default:
          if (i % 3 == 0) {
            it.Previous();
            at = at == model.begin() ? model.end() : std::prev(at);
          } else {
            it.Next();
            ++at;
          }
      }
      ASSERT_EQ(it.Valid(), at != model.end());
      ASSERT_THAT(it.status(), IsOk());
      if (!it.Valid()) continue;
      ASSERT_EQ(it.key(), at->first);
      ASSERT_EQ(it.value(), at->second);
    }
  }
  // Compares all records, up and down.
  void CompareAll(Snapshot& snapshot, const Model& model) {
    auto at = model.begin();
    for (auto range = snapshot.Range(); auto [key, value] : range) {
      ASSERT_NE(at, model.end());
      ASSERT_EQ(key, at->first);
      ASSERT_EQ(value, (at++)->second);
    }
    ASSERT_EQ(at, model.end());
    auto back = model.rbegin();
    for (auto range = snapshot.ReverseRange(); auto [key, value] : range) {
      ASSERT_NE(back, model.rend());
      ASSERT_EQ(key, back->first);
      ASSERT_EQ(value, (back++)->second);
    }
    ASSERT_EQ(back, model.rend());
  }

  Random random_{TestSeed()};
  TempDir dir_{TempDir::MemoryParent()};
  std::unique_ptr<Database> db_;
};

using Kinds = testing::Types<Baby, BabyWithLimit, Tree<MemoryMapParallelFile>, Tree<PositionalParallelFile>, MemoryArray, Array,
                             Any<kAnyBaby>, Any<kAnyTree>, Any<kAnyArray>>;
TYPED_TEST_SUITE(SnapshotTest, Kinds);

TYPED_TEST(SnapshotTest, ShowsTheRecordsOfItsMoment) {
  ASSERT_NO_FATAL_FAILURE(this->OpenDatabase());
  struct Taken {
    std::unique_ptr<typename TestFixture::Snapshot> snapshot;
    typename TestFixture::Model model;
  };
  std::vector<Taken> taken;
  Random& random = this->random_;
  for (int step = 0; step < 4'000; ++step) {
    ASSERT_NO_FATAL_FAILURE(this->Update());
    if (random.OneIn(60)) {
      ASSERT_OK_AND_ASSIGN(auto snapshot, this->db_->Snapshot());
      taken.push_back({std::move(snapshot), this->Listed()});
    }
    if (random.OneIn(90) && !taken.empty()) taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(random.Below(taken.size())));
    if (random.OneIn(500)) ASSERT_THAT(this->db_->Synchronize(SyncMode::kHard), IsOk());
    if (random.OneIn(20) && !taken.empty()) {
      Taken& one = taken[random.Below(taken.size())];
      ASSERT_NO_FATAL_FAILURE(this->Compare(*one.snapshot, one.model));
      if (random.OneIn(4)) ASSERT_NO_FATAL_FAILURE(this->Walk(*one.snapshot, one.model, true));
    }
  }
  ASSERT_GT(taken.size(), 3u);
  for (Taken& one : taken) ASSERT_NO_FATAL_FAILURE(this->CompareAll(*one.snapshot, one.model));
  taken.clear();
  ASSERT_THAT(this->db_->Verify(), IsOk());
  ASSERT_THAT(this->db_->Close(), IsOk());
}

TYPED_TEST(SnapshotTest, TakesMemoryOnlyForWhatChanges) {
  ASSERT_NO_FATAL_FAILURE(this->OpenDatabase());
  for (int i = 0; i < 1'000; ++i) this->Set(std::to_string(i), this->RandomValue());
  ASSERT_OK_AND_ASSIGN(auto snapshot, this->db_->Snapshot());
  EXPECT_EQ(BytesOf(*snapshot), 0u);
  for (int i = 0; i < 100; ++i) this->Set("500", this->RandomValue());
  const std::uint64_t bytes = BytesOf(*snapshot);
  EXPECT_GT(bytes, 0u);
  EXPECT_LT(bytes, 64'000u);
  EXPECT_EQ(this->db_->GetStats().num_snapshots, 1u);
  EXPECT_EQ(this->db_->GetStats().snapshot_bytes, bytes);
  snapshot.reset();
  EXPECT_EQ(this->db_->GetStats().num_snapshots, 0u);
  EXPECT_EQ(this->db_->GetStats().snapshot_bytes, 0u);
  ASSERT_OK_AND_ASSIGN(snapshot, this->db_->Snapshot());
  EXPECT_EQ(BytesOf(*snapshot), 0u);
}

TYPED_TEST(SnapshotTest, TheOldestIsCancelledBeyondTheLimit) {
  ASSERT_NO_FATAL_FAILURE(this->OpenDatabase(64 << 10));
  for (int i = 0; i < 3'000; ++i) this->Set(std::to_string(i), this->RandomValue());
  ASSERT_OK_AND_ASSIGN(auto older, this->db_->Snapshot());
  this->Set("0", this->RandomValue());
  ASSERT_OK_AND_ASSIGN(auto newer, this->db_->Snapshot());
  const auto model = this->Listed();
  int changed = 0;
  for (; BytesOf(*newer) < (24 << 10) && changed < 3'000; ++changed) this->Set(std::to_string(changed), this->RandomValue());
  ASSERT_NO_FATAL_FAILURE(this->Compare(*newer, model));
  while (ErrorOf(*older).ok() && changed < 3'000) this->Set(std::to_string(changed++), this->RandomValue());
  EXPECT_THAT(older->Get("1").status(), StatusIs(absl::StatusCode::kResourceExhausted));
  auto it = older->MakeIterator();
  it.First();
  EXPECT_FALSE(it.Valid());
  EXPECT_THAT(it.status(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(BytesOf(*older), 0u);
  ASSERT_NO_FATAL_FAILURE(this->Compare(*newer, model));
  EXPECT_THAT(this->db_->Verify(), IsOk());
}

TYPED_TEST(SnapshotTest, ClearAndCloseEndItsReads) {
  ASSERT_NO_FATAL_FAILURE(this->OpenDatabase());
  for (int i = 0; i < 500; ++i) this->Set(std::to_string(i), this->RandomValue());
  ASSERT_OK_AND_ASSIGN(auto before, this->db_->Snapshot());
  ASSERT_THAT(this->db_->Clear(), IsOk());
  EXPECT_THAT(before->Get("1").status(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(before->CountRange("1").status(), StatusIs(absl::StatusCode::kAborted));
  ASSERT_OK_AND_ASSIGN(auto empty, this->db_->Snapshot());
  this->Set("1", this->RandomValue());
  EXPECT_THAT(empty->Get("1").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(empty->CountRange("0"), IsOkAndHolds(0u));
  ASSERT_THAT(this->db_->Close(), IsOk());
  EXPECT_THAT(empty->Get("1").status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(empty->Get("2").status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  auto it = empty->MakeIterator();
  it.First();
  EXPECT_THAT(it.status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(this->db_->Snapshot().status(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

// A rebuild and checkpoints move the records in the file, and copies read them.
TYPED_TEST(SnapshotTest, StaysBesideARebuildAndACopy) {
  this->OpenDatabase();
  for (int i = 0; i < 1'000; ++i) this->Update();
  const auto model = this->Listed();
  ASSERT_OK_AND_ASSIGN(auto snapshot, this->db_->Snapshot());
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 200; ++i) this->Update();
    if constexpr (requires { this->db_->Rebuild(); }) ASSERT_THAT(this->db_->Rebuild(), IsOk());
    if constexpr (requires { this->db_->CopyTo(std::string()); }) ASSERT_THAT(this->db_->CopyTo(this->dir_.File("copy")), IsOk());
    this->CompareAll(*snapshot, model);
    ASSERT_THAT(this->db_->Verify(), IsOk());
  }
}

TYPED_TEST(SnapshotTest, IsRefusedInAVisitor) {
  ASSERT_NO_FATAL_FAILURE(this->OpenDatabase());
  this->Set("1", this->RandomValue());
  Status refused;
  ASSERT_THAT(this->db_->Process("1", [&](std::optional<std::string_view>) -> void { refused = this->db_->Snapshot().status(); }), IsOk());
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition));
}

TYPED_TEST(SnapshotTest, ExportsTheRecordsOfItsMoment) {
  ASSERT_NO_FATAL_FAILURE(this->OpenDatabase());
  for (int i = 0; i < 500; ++i) ASSERT_NO_FATAL_FAILURE(this->Update());
  const auto model = this->Listed();
  ASSERT_OK_AND_ASSIGN(auto snapshot, this->db_->Snapshot());
  for (int i = 0; i < 500; ++i) ASSERT_NO_FATAL_FAILURE(this->Update());
  ASSERT_OK_AND_ASSIGN(auto target, TinyDBM<>::Open());
  ASSERT_THAT(snapshot->Export(*target), IsOk());
  EXPECT_EQ(target->Count(), model.size());
  for (const auto& [key, value] : model) EXPECT_THAT(target->Get(key), IsOkAndHolds(value));
  std::map<std::string, std::string> shown;
  ASSERT_THAT(snapshot->ProcessEach([&](std::string_view key, std::string_view value) { shown.emplace(key, value); }), IsOk());
  EXPECT_EQ(shown.size(), model.size());
}

TYPED_TEST(SnapshotTest, CopiesTheRecordsOfItsMoment) {
  ASSERT_NO_FATAL_FAILURE(this->OpenDatabase());
  for (int i = 0; i < 500; ++i) ASSERT_NO_FATAL_FAILURE(this->Update());
  WriteBatch batch;
  batch.SetAppliedIndex(17);
  ASSERT_THAT(this->db_->Write(batch), IsOk());
  const auto model = this->Listed();
  ASSERT_OK_AND_ASSIGN(auto snapshot, this->db_->Snapshot());
  batch.SetAppliedIndex(18);
  ASSERT_THAT(this->db_->Write(batch), IsOk());
  for (int i = 0; i < 500; ++i) ASSERT_NO_FATAL_FAILURE(this->Update());
  const auto compare = [&](auto& copy) {
    EXPECT_EQ(copy.Count(), model.size());
    for (const auto& [key, value] : model) ASSERT_THAT(copy.Get(key), IsOkAndHolds(value));
    EXPECT_EQ(copy.AppliedIndex(), 17u);
    EXPECT_THAT(copy.Verify(), IsOk());
    EXPECT_THAT(copy.Close(), IsOk());
  };
  constexpr bool kIsAny = std::is_same_v<typename TestFixture::Database, AnyDBM>;
  if constexpr (kIsAny || requires { snapshot->CopyTo(""); }) {
    ASSERT_OK_AND_ASSIGN(auto closed, TypeParam::Open(this->dir_.File("copy"), 0));  // makes the file, with its suffix
    ASSERT_THAT(closed->Close(), IsOk());
    closed.reset();
    std::string path = this->dir_.File("copy");
    for (const char* const suffix : {".hkt", ".hka"}) {
      if (std::filesystem::exists(this->dir_.File("copy") + suffix)) path = this->dir_.File("copy") + suffix;
    }
    ASSERT_THAT(snapshot->CopyTo(path), IsOk());
    if (std::filesystem::exists(this->dir_.File("copy"))) {
      if constexpr (kIsAny) return;  // a database in memory was saved, which the others test
    }
    ASSERT_OK_AND_ASSIGN(auto copy, TypeParam::Open(this->dir_.File("copy"), 0));
    compare(*copy);
  } else {
    ASSERT_THAT(snapshot->Save(this->dir_.File("copy")), IsOk());
    ASSERT_OK_AND_ASSIGN(auto copy, TypeParam::Open("", 0));
    ASSERT_THAT(copy->Load(this->dir_.File("copy")), IsOk());
    if (copy->Count() == model.size()) compare(*copy);  // one with a limit may evict
  }
}

TYPED_TEST(SnapshotTest, ClosingItEndsItsReads) {
  ASSERT_NO_FATAL_FAILURE(this->OpenDatabase());
  for (int i = 0; i < 500; ++i) this->Set(std::to_string(i), this->RandomValue());
  ASSERT_OK_AND_ASSIGN(auto snapshot, this->db_->Snapshot());
  auto it = snapshot->MakeIterator();
  it.First();
  ASSERT_TRUE(it.Valid());
  ASSERT_THAT(snapshot->Close(), IsOk());
  EXPECT_EQ(this->db_->GetStats().num_snapshots, 0u);
  this->Set("0", this->RandomValue());
  for (int i = 0; i < 500 && it.Valid(); ++i) it.Next();
  EXPECT_THAT(it.status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(snapshot->Get("1").status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(snapshot->Close(), IsOk());
  EXPECT_THAT(this->db_->Verify(), IsOk());
}

// Threads move amounts between records by batches. Each snapshot has the same sum, read by key and by ranges both ways.
TYPED_TEST(SnapshotTest, ConcurrentBatchesAreShownAsAWhole) {
  static constexpr int kAccounts = 1'200;
  ASSERT_NO_FATAL_FAILURE(this->OpenDatabase());
  const auto text = [](std::uint64_t amount) {
    std::string digits = std::to_string(amount);
    return std::string(kWidth - digits.size(), '0') + digits;
  };
  for (int i = 0; i < kAccounts; ++i) this->Set(std::to_string(i), text(1'000));
  std::atomic<bool> stops{false};
  std::atomic<std::uint64_t> num_batches{0};
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    threads.emplace_back([&, seed] {
      Random random(TestSeed() + seed);
      while (!stops) {
        const std::string from = std::to_string(random.Below(kAccounts)), to = std::to_string(random.Below(kAccounts));
        if (from == to) continue;
        const std::string_view keys[] = {from, to};
        std::string values[2];
        std::uint64_t amount = 0;
        EXPECT_THAT(this->db_->ProcessMulti(keys,
                                            [&](std::size_t i, std::optional<std::string_view> found) -> std::optional<Action> {
                                              const std::uint64_t number = std::strtoull(std::string(*found).c_str(), nullptr, 10);
                                              if (i == 0) amount = std::min<std::uint64_t>(number, 7);
                                              values[i] = text(i == 0 ? number - amount : number + amount);
                                              return Action::Set(values[i]);
                                            }),
                    IsOk());
        ++num_batches;
      }
    });
  }
  const auto number = [](std::string_view value) { return std::strtoull(std::string(value).c_str(), nullptr, 10); };
  for (int round = 0; round < 12; ++round) {
    for (const std::uint64_t begun = num_batches; num_batches < begun + 5;) std::this_thread::yield();
    ASSERT_OK_AND_ASSIGN(auto snapshot, this->db_->Snapshot());
    for (int pass = 0; pass < 2; ++pass) {
      std::uint64_t by_key = 0, upwards = 0, downwards = 0;
      for (int i = 0; i < kAccounts; ++i) {
        ASSERT_OK_AND_ASSIGN(const std::string value, snapshot->Get(std::to_string(i)));
        by_key += number(value);
      }
      for (auto range = snapshot->Range(); auto [key, value] : range) upwards += number(value);
      for (auto range = snapshot->ReverseRange(); auto [key, value] : range) downwards += number(value);
      EXPECT_EQ(by_key, kAccounts * 1'000u);
      EXPECT_EQ(upwards, kAccounts * 1'000u);
      EXPECT_EQ(downwards, kAccounts * 1'000u);
    }
  }
  stops = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(this->db_->Verify(), IsOk());
}

// ---- damage ----

class SnapshotDamageTest : public testing::Test {
 protected:
  // Makes a tree of 500 records "before"; the values of some are long and damaged.
  void Make(const std::function<bool(std::uint64_t)>& is_damaged) {
    const auto damaged = [](std::uint64_t i) { return NumberedKey(i) + " is long" + std::string(5'000, 'l'); };
    {
      ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<>::Open(path_, {.page_size = 512}));
      for (std::uint64_t i = 0; i < 500; ++i) ASSERT_THAT(db->Set(NumberedKey(i), is_damaged(i) ? damaged(i) : "before"), IsOk());
      ASSERT_THAT(db->Close(), IsOk());
    }
    std::string bytes = ReadWhole(path_);
    for (std::uint64_t i = 0; i < 500; ++i) {
      if (!is_damaged(i)) continue;
      const std::size_t at = bytes.find(damaged(i).substr(0, 200));
      ASSERT_NE(at, bytes.npos);
      bytes[at + 100] = 'x';
    }
    WriteWhole(path_, bytes);
  }

  const TempDir dir_{TempDir::MemoryParent()};
  const std::string path_ = dir_.File("db");
};

// A writer cannot read a value that it must capture. Each reader is told of it, and what it reads after it has skipped the
// damage is that of the moment.
TEST_F(SnapshotDamageTest, KeepsItsMomentWhileWritersContinueBesideDamage) {
  ASSERT_NO_FATAL_FAILURE(Make([](std::uint64_t i) { return i == 5; }));
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<>::Open(path_));
  ASSERT_OK_AND_ASSIGN(auto snapshot, db->Snapshot());
  ASSERT_THAT(db->Set(NumberedKey(4), "after"), IsOk());    // in the leaf of the damaged value
  ASSERT_THAT(db->Set(NumberedKey(400), "after"), IsOk());  // in another
  ASSERT_THAT(db->Remove(NumberedKey(450)), IsOk());
  auto it = snapshot->MakeIterator();
  int shown = 0, damages = 0;
  for (it.First(); it.Valid() || (absl::IsDataLoss(it.status()) && it.SkipDamage() && ++damages > 0);) {
    if (!it.Valid()) continue;
    EXPECT_EQ(it.value(), "before") << it.key();
    ++shown;
    it.Next();
  }
  EXPECT_THAT(it.status(), IsOk());
  EXPECT_GT(damages, 0);
  EXPECT_EQ(shown, 499);
  EXPECT_THAT(snapshot->Get(NumberedKey(4)), IsOkAndHolds("before"));
  EXPECT_THAT(snapshot->Get(NumberedKey(5)).status(), StatusIs(absl::StatusCode::kDataLoss)) << "it is not absent";
  EXPECT_THAT(snapshot->CountRange("").status(), StatusIs(absl::StatusCode::kDataLoss)) << "what one reader skips is news for others";
  it.Last();
  while (it.Valid()) it.Previous();
  ASSERT_THAT(it.status(), StatusIs(absl::StatusCode::kDataLoss));
  ASSERT_THAT(db->Clear(), IsOk());
  EXPECT_TRUE(it.SkipDamage());
  EXPECT_FALSE(it.Valid());
  EXPECT_THAT(it.status(), StatusIs(absl::StatusCode::kAborted)) << "what ends the reads for good is not skipped";
}

// The leaves side by side are damaged. A cursor that turns among them is told of each once.
TEST_F(SnapshotDamageTest, IsShownOnceToACursorThatTurns) {
  static constexpr std::uint64_t kDamaged = 10;
  ASSERT_NO_FATAL_FAILURE(Make([](std::uint64_t i) { return i < 10 * kDamaged && i % 10 == 5; }));
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<>::Open(path_));
  ASSERT_OK_AND_ASSIGN(auto snapshot, db->Snapshot());
  for (std::uint64_t i = 0; i < 10 * kDamaged; ++i) {
    if (i % 10 != 5) ASSERT_THAT(db->Set(NumberedKey(i), "after"), IsOk());
  }
  auto it = snapshot->MakeIterator();
  std::uint64_t damages = 0;
  const auto pass_damage = [&] {
    while (!it.Valid() && absl::IsDataLoss(it.status()) && it.SkipDamage()) ++damages;
    return it.Valid();
  };
  it.Jump(NumberedKey(50));
  ASSERT_TRUE(pass_damage());
  for (int turn = 0; turn < 20; ++turn) {
    for (int i = 0; i < 40; ++i) {
      turn % 2 == 0 ? it.Next() : it.Previous();
      ASSERT_TRUE(pass_damage());
      ASSERT_EQ(it.value(), "before");
    }
    ASSERT_EQ(it.key(), NumberedKey(turn % 2 == 0 ? 94 : 50)) << "all but the damaged records are shown";
  }
  EXPECT_GT(damages, 1u);
  EXPECT_LE(damages, kDamaged);
  damages = 0;
  it.Jump(NumberedKey(50));
  EXPECT_TRUE(pass_damage());
  EXPECT_EQ(damages, 1u) << "a jump begins anew";
}

// ---- records that expire ----

std::atomic<std::uint64_t> fake_time{0};
std::uint64_t FakeClock() { return fake_time.load(); }

TEST(SnapshotExpiryTest, DecidesForItsMomentWhichRecordsHaveExpired) {
  fake_time = 1'000'000;
  ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open({.page_size = 512, .expiry = true, .clock = &FakeClock}));
  for (std::uint64_t i = 0; i < 200; ++i)
    ASSERT_THAT(db->Set(NumberedKey(i), "v", {.expire_at = i % 2 == 0 ? 2'000'000u : 1'000'500u}), IsOk());
  fake_time = 1'000'500;  // the odd ones have expired
  ASSERT_OK_AND_ASSIGN(auto snapshot, db->Snapshot());
  const auto check = [&] {
    EXPECT_THAT(snapshot->CountRange(""), IsOkAndHolds(100u));
    EXPECT_THAT(snapshot->Get(NumberedKey(10)), IsOkAndHolds("v"));
    EXPECT_THAT(snapshot->Get(NumberedKey(11)).status(), StatusIs(absl::StatusCode::kNotFound));
    auto it = snapshot->MakeIterator();
    it.Last();
    EXPECT_EQ(it.key(), NumberedKey(198));
    EXPECT_EQ(it.expire_at(), 2'000'000u);
  };
  check();
  fake_time = 3'000'000;  // all have
  check();
  ASSERT_THAT(db->RemoveExpired(), IsOkAndHolds(200u));
  check();
  EXPECT_THAT(snapshot->GetExpiry(NumberedKey(10)), IsOkAndHolds(2'000'000u));
  EXPECT_THAT(snapshot->GetExpiry(NumberedKey(11)).status(), StatusIs(absl::StatusCode::kNotFound));
  fake_time = 1'500'000;
  ASSERT_OK_AND_ASSIGN(auto copy, TinyDBM<>::Open({.expiry = true, .clock = &FakeClock}));
  ASSERT_THAT(snapshot->Export(*copy), IsOk());
  EXPECT_EQ(copy->Count(), 100u);
  EXPECT_THAT(copy->GetExpiry(NumberedKey(10)), IsOkAndHolds(2'000'000u));
  const TempDir dir(TempDir::MemoryParent());
  ASSERT_THAT(snapshot->Save(dir.File("copy")), IsOk());
  ASSERT_OK_AND_ASSIGN(auto loaded, BabyDBM<>::Open({.expiry = true, .clock = &FakeClock}));
  ASSERT_THAT(loaded->Load(dir.File("copy")), IsOk());
  EXPECT_THAT(loaded->GetExpiry(NumberedKey(10)), IsOkAndHolds(2'000'000u));
}

TEST(SnapshotExpiryTest, ACopyOfATreeHasTheTimes) {
  const TempDir dir(TempDir::MemoryParent());
  fake_time = 1'000'000;
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<>::Open(dir.File("db.hkt"), {.expiry = true, .clock = &FakeClock}));
  ASSERT_THAT(db->SetType(77), IsOk());
  ASSERT_THAT(db->Set("a", "1", {.expire_at = 2'000'000}), IsOk());
  ASSERT_THAT(db->Set("b", "2"), IsOk());
  ASSERT_THAT(db->Set("c", "3", {.expire_at = 1'000'010}), IsOk());
  ASSERT_OK_AND_ASSIGN(auto snapshot, db->Snapshot());
  ASSERT_THAT(db->Remove("a"), IsOk());
  fake_time = 1'500'000;
  ASSERT_THAT(snapshot->CopyTo(dir.File("copy.hkt")), IsOk());
  EXPECT_THAT(snapshot->CopyTo(dir.File("db.hkt")), StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_OK_AND_ASSIGN(auto copy, TreeDBM<>::Open(dir.File("copy.hkt"), {.clock = &FakeClock}));
  EXPECT_EQ(copy->GetType(), 77u);
  EXPECT_THAT(copy->GetExpiry("a"), IsOkAndHolds(2'000'000u));
  EXPECT_THAT(copy->Get("b"), IsOkAndHolds("2"));
  EXPECT_THAT(copy->Get("c"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(copy->Verify(), IsOk());
}

// ---- files that were written beside one ----

TEST(SnapshotFileTest, SalvageAndRestoreFindTheNewestRecords) {
  const TempDir dir(TempDir::MemoryParent());
  const std::string path = dir.File("db"), archive = dir.File("archive"), copy = dir.File("copy");
  std::filesystem::create_directory(archive);
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<>::Open(path, {.page_size = 512, .log_bytes = 64 << 10, .log_archive = archive}));
  for (std::uint64_t i = 0; i < 300; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "old"), IsOk());
  ASSERT_OK_AND_ASSIGN(auto snapshot, db->Snapshot());
  ASSERT_THAT(db->CopyTo(copy), IsOk());
  for (std::uint64_t i = 0; i < 300; i += 2) ASSERT_THAT(db->Set(NumberedKey(i), std::string(1'000, 'n')), IsOk());
  ASSERT_THAT(db->RemoveRange(NumberedKey(100), NumberedKey(150)), IsOkAndHolds(50u));
  EXPECT_THAT(snapshot->CountRange(""), IsOkAndHolds(300u));
  EXPECT_THAT(snapshot->Get(NumberedKey(102)), IsOkAndHolds("old"));
  ASSERT_THAT(db->Close(), IsOk());
  snapshot.reset();
  ASSERT_THAT(Salvage<TreeDBM<>>(path, dir.File("salvaged")).status(), IsOk());
  ASSERT_THAT(Restore<TreeDBM<>>(copy, archive, dir.File("restored")).status(), IsOk());
  for (const char* const name : {"salvaged", "restored"}) {
    ASSERT_OK_AND_ASSIGN(auto found, TreeDBM<>::Open(dir.File(name)));
    EXPECT_EQ(found->Count(), 250u);
    for (std::uint64_t i = 0; i < 300; ++i) {
      if (i >= 100 && i < 150)
        EXPECT_THAT(found->Get(NumberedKey(i)).status(), StatusIs(absl::StatusCode::kNotFound)) << name;
      else
        EXPECT_THAT(found->Get(NumberedKey(i)), IsOkAndHolds(i % 2 == 0 ? std::string(1'000, 'n') : "old")) << name;
    }
  }
}

// ---- of a database of any kind ----

TEST(AnySnapshotTest, TakesNoUpdates) {
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open("?dbm=baby"));
  ASSERT_THAT(db->Set("a", "1"), IsOk());
  ASSERT_OK_AND_ASSIGN(auto snapshot, db->Snapshot());
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(snapshot->IsWritable());
  EXPECT_THAT(snapshot->Set("a", "2"), refused);
  EXPECT_THAT(snapshot->Remove("a"), refused);
  EXPECT_THAT(snapshot->Append("a", "2"), refused);
  EXPECT_THAT(snapshot->RemoveRange("a"), refused);
  EXPECT_THAT(snapshot->Clear(), refused);
  EXPECT_THAT(snapshot->Rekey("a", "b"), refused);
  EXPECT_THAT(snapshot->SetExpiry("a", 1), refused);
  WriteBatch batch;
  batch.Set("a", "2");
  EXPECT_THAT(snapshot->Write(batch), refused);
  auto it = snapshot->MakeIterator();
  it.First();
  EXPECT_THAT(it.Remove(), refused);
  EXPECT_THAT(snapshot->Snapshot().status(), StatusIs(absl::StatusCode::kUnimplemented));
  ASSERT_THAT(db->Set("a", "3"), IsOk());
  EXPECT_THAT(snapshot->Get("a"), IsOkAndHolds("1"));
  EXPECT_THAT(snapshot->GetExpiry("a"), IsOkAndHolds(0u));
  EXPECT_THAT(snapshot->GetExpiry("b").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(snapshot->Verify(), IsOk());
  EXPECT_EQ(std::ranges::distance(snapshot->PrefixRange("a")), 1);
}

TEST(AnySnapshotTest, AHashTableHasNone) {
  const TempDir dir(TempDir::MemoryParent());
  for (const std::string& name : {std::string("?dbm=tiny"), dir.File("db.hkh")}) {
    ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(name));
    EXPECT_THAT(db->Snapshot().status(),
                StatusIs(absl::StatusCode::kUnimplemented, testing::HasSubstr("each record that exists throughout")));
    ASSERT_THAT(db->Close(), IsOk());
    EXPECT_THAT(db->Snapshot().status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  }
}

}  // namespace
}  // namespace hako
