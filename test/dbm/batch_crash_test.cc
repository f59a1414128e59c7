// Kills processes whose threads transfer money between accounts, each transfer one batch with an
// applied index. Whatever the kill leaves, no money is lost, and the applied index names the last
// transfer that survived.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/surroundings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/positional_parallel_file.h"
#include "support/crash_child.h"
#include "support/crash_states.h"
#include "support/direct_file.h"
#include "support/free_space_check.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

const FileOptions kPatiently = {.lock_timeout = std::chrono::seconds(10)};

constexpr std::uint64_t kAccounts = 60, kWriters = 3;
constexpr std::int64_t kTotal = 1'000'000;

std::string AccountKey(std::uint64_t i) { return "account " + std::to_string(i); }
std::string LastKey(std::uint64_t writer) { return "last transfer of " + std::to_string(writer); }
// Of transfer n = 1, 2, ... of a writer.
std::uint64_t AppliedIndexOf(std::uint64_t writer, std::uint64_t n) { return n * kWriters + writer; }

// Transfers between 2 to 12 accounts, or nearly all. A balance of 0 is an absent record. Some
// balances are written as long numbers.
template <class D>
Status Transfer(D& db, Random& random, std::uint64_t writer, std::uint64_t n) {
  std::vector<std::string> keys;
  const std::uint64_t count = random.OneIn(20) ? kAccounts : random.Between(2, 12), first = random.Below(kAccounts);
  for (std::uint64_t i = 0; i < count; ++i) keys.push_back(AccountKey((first + i * 7) % kAccounts));
  keys.push_back(LastKey(writer));
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  std::vector<std::string> values(keys.size());
  std::int64_t moved = 0;
  const auto visit = [&](std::size_t i, std::optional<std::string_view> value) -> std::optional<Action> {
    if (i == count) return Action::Set(values[i] = std::to_string(n));
    std::int64_t balance = value ? std::stoll(std::string(*value)) : 0;
    const std::int64_t taken = i + 1 == count ? -moved : static_cast<std::int64_t>(random.Below(static_cast<std::uint64_t>(balance) + 1));
    balance -= taken;
    moved += taken;
    if (balance == 0) return Action::Remove();
    values[i] = std::to_string(balance);
    if (random.OneIn(10)) values[i].resize(random.Below(random.OneIn(20) ? 20'000 : 300) + values[i].size(), ' ');
    return Action::Set(values[i]);
  };
  return db.ProcessMulti(Batch<Action>{.keys = views, .visit = visit, .applied_index = AppliedIndexOf(writer, n)});
}

// Numbers of the last transfers as a file has them.
using Last = std::array<std::uint64_t, kWriters>;

template <class FileT>
Last Found(HashDBM<FileT>& db) {
  std::int64_t total = 0;
  std::string value;
  for (std::uint64_t i = 0; i < kAccounts; ++i) total += db.Get(AccountKey(i), &value).ok() ? std::stoll(value) : 0;
  EXPECT_EQ(total, kTotal);
  Last last{};
  for (std::uint64_t writer = 0; writer < kWriters; ++writer) last[writer] = db.Get(LastKey(writer), &value).ok() ? std::stoull(value) : 0;
  const std::uint64_t applied = db.AppliedIndex(), writer = applied % kWriters;
  EXPECT_EQ(applied == 0 ? 0 : last[writer], applied / kWriters) << "the applied index of writer " << writer;
  return last;
}

// The body of a child.
template <class FileT>
void Work(const std::string& path, const HashOptions& options, std::uint64_t seed, const Last& last, bool reorganizes,
          CrashProgress& progress) {
  auto db = HashOn<FileT>::Open(path, options, kPatiently);
  if (!db.ok()) return progress.Fail(ToStd(db.status().ToString()));
  progress.ready = true;
  std::vector<std::thread> threads;
  for (std::uint64_t writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      auto& mine = progress.writers[writer];
      Random random(seed + writer);
      for (std::uint64_t n = last[writer] + 1;; ++n) {
        mine.begun = n;
        if (const Status status = Transfer(**db, random, writer, n); !status.ok()) return progress.Fail(ToStd(status.ToString()));
        mine.acknowledged = n;
        if (!random.OneIn(10)) continue;
        // Single updates beside the batches.
        const std::string key = "other " + std::to_string(random.Below(200));
        const Status status = random.OneIn(3) ? (*db)->Remove(key) : (*db)->Set(key, random.Bytes(random.SkewedSize(10)));
        if (!status.ok() && !absl::IsNotFound(status)) return progress.Fail(ToStd(status.ToString()));
      }
    });
  }
  for (Random random(seed);;) {
    CrashChild::Pause(random.Below(3000));
    const Status status = reorganizes && random.OneIn(3) ? (*db)->Rebuild() : (*db)->Synchronize(SyncMode::kHard);
    if (!status.ok()) return progress.Fail(ToStd(status.ToString()));
  }
}

// A mapped file, or a log, has every transfer that was acknowledged. Another file has those before
// some synchronization.
template <class FileT>
void KillWriters(const HashOptions& options) {
  const bool is_logged = !MappedFile<FileT> && options.durability != Durability::kNone;
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  TempDir directory;
  const std::string path = directory.File("db"), copy = directory.File("copy");
  {
    ASSERT_OK_AND_ASSIGN(auto db, HashOn<FileT>::Open(path, options));
    ASSERT_THAT(db->Set(AccountKey(0), std::to_string(kTotal)), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
  }
  Last last{};
  std::uint64_t num_acknowledged = 0, num_kept = 0;
  const auto is_lacking = [&] { return num_acknowledged <= 300u / kSlowdown || num_kept <= 30u / kSlowdown; };
  int round = 0;
  for (const int rounds = Kills(40); KillsMore(round, rounds, is_lacking()); ++round) {
    SCOPED_TRACE(round);
    const std::uint64_t seed = random.Next();
    const bool reorganizes = random.OneIn(2);
    CrashChild child([&](CrashProgress& progress) { Work<FileT>(path, options, seed, last, reorganizes, progress); });
    if (!random.OneIn(8)) child.AwaitReady();  // else perhaps still recovering
    CrashChild::Pause(500 + random.Below(random.OneIn(4) ? 60'000 : 6000));
    child.Kill();
    ASSERT_STREQ(child.progress().failure, "");
    if (random.OneIn(4)) {  // as after a crash of the machine
      constexpr auto kOverwrites = std::filesystem::copy_options::overwrite_existing;
      std::filesystem::copy_file(path, copy, kOverwrites);
      std::filesystem::remove(copy + "-log");
      if (std::filesystem::exists(path + "-log")) std::filesystem::copy_file(path + "-log", copy + "-log");
      HashOptions drops = options;
      drops.unproven_updates = UnprovenUpdates::kDrop;
      ASSERT_OK_AND_ASSIGN(auto db, HashOn<FileT>::Open(copy, drops, kPatiently));
      Found(*db);
    }
    if (!is_logged && random.OneIn(3)) {  // a process that only reads
      FileOptions only_reads = kPatiently;
      only_reads.mode = OpenMode::kReadOnly;
      ASSERT_OK_AND_ASSIGN(auto db, HashOn<FileT>::Open(path, options, only_reads));
      Found(*db);
      ASSERT_THAT(db->Verify(), IsOk());
    }
    ASSERT_OK_AND_ASSIGN(auto db, HashOn<FileT>::Open(path, options, kPatiently));
    const Last found = Found(*db);
    for (std::uint64_t writer = 0; writer < kWriters; ++writer) {
      const auto& progress = child.progress().writers[writer];
      if (progress.begun == 0) continue;  // killed before
      if (MappedFile<FileT> || is_logged) {
        EXPECT_GE(found[writer], progress.acknowledged.load()) << "of writer " << writer;
      }
      EXPECT_LE(found[writer], progress.begun.load()) << "of writer " << writer;
      num_acknowledged += progress.acknowledged - std::min(progress.acknowledged.load(), last[writer]);
      num_kept += found[writer] - std::min(found[writer], last[writer]);
    }
    last = found;
    ASSERT_THAT(db->Verify(), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    ASSERT_EQ(FreeSpaceCheck::OfFile(path), "");
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(num_acknowledged, 300u / kSlowdown) << "the children hardly worked";
  EXPECT_GT(num_kept, 30u / kSlowdown) << "they were hardly synchronized";
  ReportKills(static_cast<std::uint64_t>(round));
}

template <class FileT>
class BatchCrashTest : public testing::Test {};
using KilledFiles = testing::Types<MemoryMapParallelFile, PositionalParallelFile, DirectFile<512>>;
TYPED_TEST_SUITE(BatchCrashTest, KilledFiles);

TYPED_TEST(BatchCrashTest, KilledWritersLeaveEachBatchAsAWholeOrNotAtAll) { KillWriters<TypeParam>({.durability = Durability::kNone}); }
TYPED_TEST(BatchCrashTest, KilledWritersWithALogLoseNoAcknowledgedBatch) { KillWriters<TypeParam>({.log_bytes = 256 << 10}); }

}  // namespace
}  // namespace hako
