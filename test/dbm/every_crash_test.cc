// Cuts the power in every sequence of up to three operations of ten kinds, at each write and sync and
// after each operation. The sequence begins with a new file, one that was closed, or one whose process
// was killed. At each moment every state that the device may have is opened, or a sample where these
// are many: it has exactly the records of the last synchronization, or of the one that is under way.
// States that differ in no byte from an earlier one of the sequence are not counted.
//
// Longer lives, and crashes in recovery: os_crash_test, tree_os_crash_test.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/hash.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/any_file.h"
#include "hako/file/memory_file.h"
#include "support/booted_memory_file.h"
#include "support/checked_value.h"
#include "support/crash_memory.h"
#include "support/crash_states.h"
#include "support/random.h"
#include "support/refilled_file.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

using Image = CrashMemory::Image;

template <class FileT>
struct Hash {
  using CrashFile = FileT;
  template <class F>
  using Database = HashDBM<Erased<F>>;
  static HashOptions Options() { return {.seed = 1}; }
};
struct Tree {
  using CrashFile = PositionalCrashFile;
  template <class F>
  using Database = TreeDBM<Erased<F>>;
  static TreeOptions Options() { return {.page_size = 128, .cache_bytes = 4 << 20, .durability = Durability::kNone}; }
};

constexpr std::uint8_t kLastBoot = 255;

// The file as the next process finds it on a machine that was booted again. Only one is open at a time.
template <class Kind>
auto FileOf(const Image& image) {
  static RefilledFile file;
  if constexpr (MappedFile<typename Kind::CrashFile>) {
    return BootedMemoryFile(file.With(image), kLastBoot);
  } else {
    return AnyFile(file.With(image));
  }
}

template <class Kind>
StatusOr<Records> Recover(const Image& image, bool is_thorough) {
  auto file = FileOf<Kind>(image);
  using Database = typename Kind::template Database<decltype(file)>;
  HAKO_ASSIGN_OR_RETURN(auto db, Database::Open(std::move(file), Kind::Options()));
  Records found;
  HAKO_RETURN_IF_ERROR(db->ProcessEach([&](std::string_view key, std::string_view value) { found.emplace(key, value); }));
  if (db->Count() != found.size()) return absl::DataLossError("Count is wrong");
  if (!is_thorough) return found;
  HAKO_RETURN_IF_ERROR(db->Verify());
  std::string value;
  for (const auto& [key, listed] : found) {
    HAKO_RETURN_IF_ERROR(db->Get(key, &value));
    if (value != listed) return absl::DataLossError("Get and ProcessEach disagree");
  }
  HAKO_RETURN_IF_ERROR(db->Set("works", "again"));
  HAKO_RETURN_IF_ERROR(db->Close());
  return found;
}

// The file that a sequence begins with.
struct Start {
  std::shared_ptr<CrashMemory> memory;
  Records now;     // after a kill
  Records synced;  // after a power cut
};

template <class Kind>
class Sequence {
  using Database = typename Kind::template Database<typename Kind::CrashFile>;

 public:
  static constexpr int kOperations = 10;

  Sequence(Start start, std::uint64_t seed, std::size_t most)
      : random_(seed), most_(most), memory_(std::move(start.memory)), allowed_{start.synced}, now_(std::move(start.now)) {
    memory_->on_event = [this] { CheckCrashes(); };
  }

  // Operations by number, then Close.
  void Run(const std::vector<int>& operations) {
    // Open of a file that a killed process has left is a synchronization.
    allowed_.push_back(now_);
    ASSERT_OK_AND_ASSIGN(auto db, Database::Open(typename Kind::CrashFile(memory_), Kind::Options()));
    EXPECT_EQ(Difference(now_, ListByIterator(*db).records), "none");
    for (const int operation : operations) {
      ASSERT_THAT(Operate(*db, operation), IsOk()) << operation;
      ASSERT_NO_FATAL_FAILURE(CheckCrashes());
    }
    ASSERT_THAT(Synchronizing([&] { return db->Close(); }), IsOk());
    CheckCrashes();
    memory_->on_event = [] {};
  }
  std::uint64_t num_crashes() const { return seen_.size(); }

 private:
  template <class F>
  Status Synchronizing(F&& body) {
    allowed_.push_back(now_);
    Status status = body();
    allowed_ = {now_};
    return status;
  }

  Status Operate(Database& db, int operation) {
    const std::string fresh = "new" + std::to_string(++salt_), key = "key", other = "other";
    const auto set = [&](const std::string& name, std::size_t size) {
      now_[name] = CheckedValue(name, size, salt_);
      return db.Set(name, now_[name]);
    };
    switch (operation) {
      case 0:
        return set(fresh, 20);
      case 1:
        return set(key, 20);
      case 2:
        return set(key, 1000);
      case 3: {
        const Status status = db.Remove(key);
        return now_.erase(key) == 0 && absl::IsNotFound(status) ? absl::OkStatus() : status;
      }
      case 4:
        now_[key] += "more";
        return db.Append(key, "more");
      case 5:
        now_[fresh] = CheckedValue(fresh, 8, salt_);
        now_[other] = CheckedValue(other, 30, salt_);
        now_.erase(key);
        return db.ProcessMulti(std::array<std::string_view, 3>{fresh, other, key}, [&](std::size_t i, std::optional<std::string_view>) {
          return std::optional(i == 2 ? Action::Remove() : Action::Set(now_[i == 0 ? fresh : other]));
        });
      case 6: {
        const Status status = db.Rekey(key, fresh);
        if (!now_.contains(key)) return absl::IsNotFound(status) ? absl::OkStatus() : status;
        now_[fresh] = now_[key];
        now_.erase(key);
        return status;
      }
      case 7:
        return Synchronizing([&] { return db.Synchronize(SyncMode::kHard); });
      case 8:
        return Synchronizing([&] { return db.Rebuild(); });
      default:
        now_.clear();
        return db.Clear();
    }
  }

  void CheckCrashes() {
    if (testing::Test::HasFatalFailure()) return;
    memory_->ForEachCrash(random_, most_, [&](const Image& image) {
      if (testing::Test::HasFatalFailure()) return;
      const std::string_view bytes(reinterpret_cast<const char*>(image.data()), image.size());
      if (!seen_.insert({Hash64(bytes, 0), image.size()}).second) return;
      const auto found = Recover<Kind>(image, random_.OneIn(16));
      ASSERT_THAT(found, IsOk());
      ASSERT_GT(std::count(allowed_.begin(), allowed_.end(), *found), 0) << Difference(allowed_.back(), *found);
    });
  }

  Random random_;
  const std::size_t most_;
  std::shared_ptr<CrashMemory> memory_;
  std::vector<Records> allowed_;
  Records now_;
  std::uint64_t salt_ = 0;
  std::set<std::pair<std::uint64_t, std::size_t>> seen_;
};

// A new file, or one with a few records, some of them not synchronized, that was closed or whose
// process was killed.
enum class Before { kNew, kClosed, kKilled };
template <class Kind>
Start StartOf(Before before) {
  const auto memory = std::make_shared<CrashMemory>(Image{}, 1);
  if (before == Before::kNew) return {memory, {}, {}};
  auto db = Kind::template Database<typename Kind::CrashFile>::Open(typename Kind::CrashFile(memory), Kind::Options());
  HAKO_ASSERT(db.ok());
  Records records, synced;
  const auto set = [&](const std::string& key) {
    records[key] = CheckedValue(key, 40, 1);
    HAKO_ASSERT((*db)->Set(key, records[key]).ok());
  };
  for (const char* key : {"key", "a", "b"}) set(key);
  HAKO_ASSERT((*db)->Synchronize(SyncMode::kHard).ok());
  synced = records;
  for (const char* key : {"key", "c", "other"}) set(key);
  if (before == Before::kClosed) {
    HAKO_ASSERT((*db)->Close().ok());
    return {memory->Kill(), records, records};
  }
  // Only a mapped hash table keeps the updates of a killed process without a log.
  const bool keeps = MappedFile<typename Kind::CrashFile>;
  return {memory->Kill(), keeps ? records : synced, synced};
}

template <class Kind>
class EveryCrashTest : public testing::Test {};
using Kinds = testing::Types<Hash<MappedCrashFile>, Hash<PositionalCrashFile>, Tree>;
TYPED_TEST_SUITE(EveryCrashTest, Kinds);

TYPED_TEST(EveryCrashTest, LeavesTheLastSynchronizedState) {
  SCOPED_TRACE(TestSeed());
  // There are about 20,000 moments.
  constexpr std::uint64_t kUsual = 60'000;
  const std::size_t most = std::max<std::size_t>(CrashStates(kUsual) / 15'000, 1);  // at one moment
  Random random(TestSeed());
  std::uint64_t num_crashes = 0;
  constexpr int kEnd = Sequence<TypeParam>::kOperations;
  for (int number = 0; number < kEnd * kEnd * kEnd; number += 1 + static_cast<int>(random.Below(4 * kSlowdown - 3))) {
    SCOPED_TRACE(number);
    const std::vector<int> operations = {number % kEnd, number / kEnd % kEnd, number / kEnd / kEnd};
    const auto left_out = static_cast<Before>(random.Below(3));
    for (const Before before : {Before::kNew, Before::kClosed, Before::kKilled}) {
      if (before == left_out && CrashStates(kUsual) <= kUsual) continue;
      SCOPED_TRACE(static_cast<int>(before));
      Sequence<TypeParam> sequence(StartOf<TypeParam>(before), Random::Mix(TestSeed()) + static_cast<std::uint64_t>(number), most);
      ASSERT_NO_FATAL_FAILURE(sequence.Run(operations));
      num_crashes += sequence.num_crashes();
    }
  }
  ReportCrashStates(num_crashes);
}

}  // namespace
}  // namespace hako
