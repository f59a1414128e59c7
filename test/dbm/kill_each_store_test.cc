// Kills the process after each store that an operation on a mapped HashDBM makes to the file, and
// after each store of the recovery from that. A batch survives as a whole or not at all, with its
// applied index. After a crash of the machine instead, the last synchronized state is found.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "support/booted_memory_file.h"
#include "support/checked_value.h"
#include "support/crash_states.h"
#include "support/free_space_check.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/store_tracer.h"
#include "support/test_file.h"

namespace hako {
namespace {

using Image = std::vector<std::byte>;
using Db = HashDBM<MappedTestFile>;

constexpr std::uint8_t kBoot = 1, kNextBoot = 2;

// What the application sees.
struct State {
  Records records;
  std::uint64_t applied_index = 0;
  friend bool operator==(const State&, const State&) = default;
};
std::string Compare(const State& expected, const State& found) {
  if (expected == found) return "equal";
  return Difference(expected.records, found.records) + ", applied index " + std::to_string(expected.applied_index) + " and " +
         std::to_string(found.applied_index);
}
State StateOf(Db& db) { return {ListByIterator(db).records, db.AppliedIndex()}; }

Image BytesOf(const MemoryFile& file) {
  const auto view = file.View(0, file.Size());
  return Image(view.begin(), view.end());
}

// The file after each store of `body`.
template <class Body>
std::vector<Image> TraceStores(MemoryFile& file, Body&& body) {
  constexpr std::size_t kTraced = 64 << 20;
  std::vector<Image> images = {BytesOf(file)};
  const StoreTracer tracer({const_cast<std::byte*>(file.View(0, 0).data()), kTraced}, [&] { images.push_back(BytesOf(file)); });
  body();
  return images;
}

class KillEachStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!StoreTracer::kWorks) GTEST_SKIP() << "stores cannot be traced here";
  }

  // Opens the image as the next process does, compares, uses and closes it. If `stores`, gets the
  // images that a kill of this process's Open would leave.
  std::optional<State> Recover(const Image& image, std::uint8_t boot, std::vector<Image>* stores = nullptr) {
    MemoryFile file = MemoryFile::Of(image);
    StatusOr<std::unique_ptr<Db>> db = absl::UnknownError("not opened");
    const auto open = [&] { db = Db::Open(BootedMemoryFile(file.Share(), boot)); };
    if (stores != nullptr) {
      *stores = TraceStores(file, open);
    } else {
      open();
    }
    EXPECT_THAT(db, IsOk());
    if (!db.ok()) return std::nullopt;
    State found = StateOf(**db);
    EXPECT_EQ((*db)->Count(), found.records.size());
    EXPECT_THAT((*db)->Verify(), IsOk());
    for (int i = 0; i < 5; ++i) EXPECT_THAT((*db)->Set("new " + std::to_string(i), "value"), IsOk());
    EXPECT_THAT((*db)->Close(), IsOk());
    EXPECT_EQ(FreeSpaceCheck::Of(BytesOf(file)), "");
    EXPECT_EQ(FreeSpaceCheck::LostBytes(BytesOf(file)), 0u);
    ++num_states_;
    return found;
  }

  std::string AnyKey() { return NumberedKey(random_.Below(40)); }
  std::string AnyValue(const std::string& key) {
    return CheckedValue(key, random_.OneIn(20) ? random_.Below(12'000) : random_.SkewedSize(8), ++salt_);
  }

  // A batch of some or many keys, perhaps with an applied index.
  Status ApplyBatch(Db& db, State& state) {
    std::vector<std::string> keys(random_.OneIn(6) ? random_.Below(60) : random_.Below(5));
    for (std::string& key : keys) key = AnyKey();
    std::vector<std::string> values;
    for (const std::string& key : keys) values.push_back(AnyValue(key));
    const std::uint64_t kinds = random_.Next();
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    std::optional<std::uint64_t> applied_index;
    if (random_.OneIn(2)) state.applied_index = applied_index.emplace(random_.Next());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if ((kinds >> i % 32 & 3) == 0) {
        state.records.erase(keys[i]);
      } else if ((kinds >> i % 32 & 3) != 1) {
        state.records[keys[i]] = values[i];
      }
    }
    const auto visit = [&](std::size_t i, std::optional<std::string_view>) -> std::optional<Action> {
      const std::uint64_t kind = kinds >> i % 32 & 3;
      return kind == 0 ? Action::Remove() : kind == 1 ? Action::Keep() : Action::Set(values[i]);
    };
    return db.ProcessMulti(Batch<Action>{.keys = views, .visit = visit, .applied_index = applied_index});
  }

  Status ApplyAny(Db& db, State& state) {
    const std::string key = AnyKey();
    switch (random_.Below(6)) {
      case 0:
        state.records.erase(key);
        (void)db.Remove(key);
        return absl::OkStatus();
      case 1:
        if (!random_.OneIn(10)) return absl::OkStatus();
        state.records.clear();
        return db.Clear();
      case 2:
      case 3:
        state.records[key] = AnyValue(key);
        return db.Set(key, state.records[key]);
      default:
        return ApplyBatch(db, state);
    }
  }

  // A database with a history of synchronizations and kills, as it is while a process uses it.
  void MakeHistory() {
    for (std::uint64_t life = random_.Below(3);; --life) {
      ASSERT_OK_AND_ASSIGN(db_, Db::Open(BootedMemoryFile(file_.Share(), kBoot), {.seed = 5}));
      ASSERT_EQ(Compare(now_, StateOf(*db_)), "equal");
      for (std::uint64_t i = random_.Below(80); i > 0; --i) {
        ASSERT_THAT(ApplyAny(*db_, now_), IsOk());
        if (!random_.OneIn(15)) continue;
        ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
        synced_ = now_;
      }
      if (life == 0) return;
      MemoryFile killed = MemoryFile::Of(BytesOf(file_));
      db_.reset();
      file_ = std::move(killed);
    }
  }

  // Checks that each image has the state before an operation or after it, and as soon as one has
  // the latter, all that follow do.
  void ExpectBeforeOrAfter(const std::vector<Image>& images, const State& before, const State& after) {
    bool is_done = false;
    // Of many images some are left out, but never the last.
    for (std::size_t i = 0, step = 1; i < images.size(); i = i + 1 == images.size() ? i + 1 : std::min(i + step, images.size() - 1)) {
      if (images.size() > 300) step = 1 + random_.Below(images.size() / 150);
      SCOPED_TRACE(i);
      const bool recovers_slowly = random_.OneIn(40);
      std::vector<Image> again;
      const std::optional<State> found = Recover(images[i], kBoot, recovers_slowly ? &again : nullptr);
      ASSERT_TRUE(found);
      ASSERT_TRUE(*found == before || *found == after) << Compare(is_done ? after : before, *found);
      if (before != after) {
        ASSERT_TRUE(!is_done || *found == after) << "what was done is undone";
        is_done = *found == after;
      }
      for (std::size_t j = 0; j < again.size(); j += 1 + random_.Below(again.size() / 40 + 1)) {
        SCOPED_TRACE(j);
        const std::optional<State> repeated = Recover(again[j], kBoot);
        ASSERT_TRUE(repeated);
        ASSERT_TRUE(*repeated == *found) << Compare(*found, *repeated);
        if (!random_.OneIn(4)) continue;
        const std::optional<State> crashed = Recover(again[j], kNextBoot);
        ASSERT_TRUE(crashed);
        ASSERT_TRUE(*crashed == synced_) << "after a crash of the machine: " << Compare(synced_, *crashed);
      }
      if (!random_.OneIn(4)) continue;
      const std::optional<State> crashed = Recover(images[i], kNextBoot);
      ASSERT_TRUE(crashed);
      ASSERT_TRUE(*crashed == synced_) << "after a crash of the machine: " << Compare(synced_, *crashed);
    }
    EXPECT_TRUE(before == after || is_done);
  }

  Random random_{TestSeed()};
  MemoryFile file_;
  std::unique_ptr<Db> db_;
  State now_, synced_;
  std::uint64_t salt_ = 0;
  std::uint64_t num_states_ = 0;
};

TEST_F(KillEachStoreTest, LeavesABatchAsAWholeOrNotAtAll) {
  SCOPED_TRACE(TestSeed());
  while (num_states_ < CrashStates(1500)) {
    SCOPED_TRACE(num_states_);
    file_ = MemoryFile();
    now_ = synced_ = {};
    ASSERT_NO_FATAL_FAILURE(MakeHistory());
    const State before = now_;
    Status status;
    const std::vector<Image> images = TraceStores(file_, [&] { status = ApplyBatch(*db_, now_); });
    ASSERT_THAT(status, IsOk());
    ASSERT_EQ(Compare(now_, StateOf(*db_)), "equal");
    ASSERT_NO_FATAL_FAILURE(ExpectBeforeOrAfter(images, before, now_));
    if (HasFailure()) break;
    db_.reset();
  }
  ReportCrashStates(num_states_);
}

}  // namespace
}  // namespace hako
