#include "hako/log/record_log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/file/memory_file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/sync/mutex.h"
#include "log/log_updates.h"
#include "support/crash_child.h"
#include "support/crash_memory.h"
#include "support/crash_states.h"
#include "support/fault_file.h"
#include "support/hooked_file.h"
#include "support/random.h"
#include "support/recording_file.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "support/threads.h"

namespace hako::log {
namespace {

using testing::HasSubstr;
using testing::Not;

template <class FileT>
struct OpenTestFile {
  FileT operator()(const std::string& path) const {
    auto file = FileT::Open(path);
    EXPECT_THAT(file, IsOk());
    return *std::move(file);
  }
};

template <class FileT>
class RecordLogTest : public testing::Test {
 protected:
  FileT OpenFile() { return OpenTestFile<FileT>()(directory_.File("log")); }
  TempDir directory_;
};
using Files = testing::Types<MemoryMapParallelFile, PositionalParallelFile>;
TYPED_TEST_SUITE(RecordLogTest, Files);

TYPED_TEST(RecordLogTest, ReturnsEveryRunInOrder) {
  Random random(1);
  std::vector<Updates> appended, runs;
  std::vector<Position> ends = {{}};
  {
    ASSERT_OK_AND_ASSIGN(auto log, Recover(this->OpenFile(), {}, &runs));
    EXPECT_TRUE(runs.empty());
    for (int i = 0; i < 3000; ++i) {
      appended.push_back(RandomRun(random, 5000));
      ASSERT_OK_AND_ASSIGN(const Lsn lsn, AppendRun(*log, appended.back()));
      EXPECT_GT(lsn, ends.back().lsn);
      ends.push_back(log->position());
    }
    ASSERT_THAT(log->Close(), IsOk());
  }
  for (const std::size_t from : {std::size_t{0}, std::size_t{1}, std::size_t{1234}, appended.size()}) {
    runs.clear();
    ASSERT_OK_AND_ASSIGN(auto log, Recover(this->OpenFile(), ends[from], &runs));
    ASSERT_EQ(runs.size(), appended.size() - from);
    EXPECT_TRUE(std::equal(runs.begin(), runs.end(), appended.begin() + static_cast<std::ptrdiff_t>(from)));
    EXPECT_EQ(log->tail(), ends.back().lsn);
    ASSERT_THAT(log->Close(), IsOk());
  }
}

TYPED_TEST(RecordLogTest, TakesLongKeysLongValuesAndLargeBatches) {
  Random random(2);
  std::vector<Updates> appended, runs;
  for (const std::uint64_t size : {0u, 1u, 32u << 10, (32u << 10) + 1, 70'000u, 5u << 20})
    appended.push_back({{LogOp::kSet, RandomBytes(random, std::min<std::uint64_t>(size, 100'000)), RandomBytes(random, size)}});
  Updates& batch = appended.emplace_back();
  for (int i = 0; i < 100'000; ++i) batch.push_back({LogOp::kSet, std::to_string(i), RandomBytes(random, 50)});
  appended.push_back({{LogOp::kClear, "", ""}});
  ASSERT_OK_AND_ASSIGN(auto log, Recover(this->OpenFile(), {}, &runs));
  for (const Updates& run : appended) ASSERT_THAT(AppendRun(*log, run), IsOk());
  ASSERT_THAT(log->Close(), IsOk());
  log.reset();
  ASSERT_THAT(Recover(this->OpenFile(), {}, &runs), IsOk());
  EXPECT_TRUE(runs == appended);
}

TYPED_TEST(RecordLogTest, ReusesReleasedSegments) {
  std::vector<Updates> runs;
  ASSERT_OK_AND_ASSIGN(auto log, Recover(this->OpenFile(), {}, &runs));
  const std::string value(1000, 'v');
  Position kept;
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_THAT(log->Append({LogOp::kSet, std::to_string(i), value}), IsOk());
    if (i % 1000 == 999) log->Release(std::exchange(kept, log->position()));
  }
  EXPECT_GT(log->tail(), 90u << 20);
  EXPECT_LE(log->file_bytes(), 8u << 20);
  ASSERT_THAT(log->Close(), IsOk());
  log.reset();
  ASSERT_OK_AND_ASSIGN(log, Recover(this->OpenFile(), kept, &runs));
  EXPECT_TRUE(runs.empty());
}

TYPED_TEST(RecordLogTest, ConcurrentWritersShareSyncs) {
  constexpr int kThreads = 8, kUpdates = 50;
  std::vector<Updates> runs;
  ASSERT_OK_AND_ASSIGN(auto log, Recover(this->OpenFile(), {}, &runs));
  RunThreads(kThreads, [&](int thread) {
    for (int i = 0; i < kUpdates; ++i) {
      const std::string key = std::to_string(thread * kUpdates + i);
      auto lsn = log->Append({LogOp::kSet, key, key});
      ASSERT_THAT(lsn, IsOk());
      ASSERT_THAT(log->WaitDurable(*lsn), IsOk());
      EXPECT_GE(log->durable(), *lsn);
    }
  });
  ASSERT_THAT(log->Close(), IsOk());
  log.reset();
  ASSERT_THAT(Recover(this->OpenFile(), {}, &runs), IsOk());
  ASSERT_EQ(runs.size(), std::size_t{kThreads * kUpdates});
  std::vector<bool> seen(runs.size());
  for (const Updates& run : runs) seen[std::stoul(run[0].key)] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<std::ptrdiff_t>(seen.size()));
}

// Where syncs are rare.
TEST(RecordLogFill, NewSegmentsAreFilledByBlocks) {
  const auto count = [](ZeroFill fill) {
    std::atomic<int> num_writes{0};
    auto log = RecordLog<HookedFile>::Open(HookedFile(MemoryFile(), [&](Access access) { num_writes += access == Access::kWrite; }),
                                           kDatabase, kSecret);
    EXPECT_THAT(log, IsOk());
    EXPECT_THAT((*log)->Begin({}, fill), IsOk());
    const int before = num_writes;
    EXPECT_THAT((*log)->Reserve(4 << 20), IsOk());
    EXPECT_THAT((*log)->Close(), IsOk());
    return num_writes - before;
  };
  EXPECT_GE(count(ZeroFill::kPages), (4 << 20) / 4096);
  EXPECT_LE(count(ZeroFill::kBlocks), 2 * (8 << 20) / (32 << 10));
}

TEST(RecordLogFill, NoShortUpdateWaitsForAWholeSegment) {
  std::atomic<int> num_writes{0};
  ASSERT_OK_AND_ASSIGN(auto log,
                       RecordLog<HookedFile>::Open(HookedFile(MemoryFile(), [&](Access access) { num_writes += access == Access::kWrite; }),
                                                   kDatabase, kSecret));
  ASSERT_THAT(log->Begin({}, ZeroFill::kBlocks), IsOk());
  const std::string value(1000, 'v');
  int most = 0;
  while (log->tail() < 80 << 20) {
    const int before = num_writes;
    ASSERT_THAT(log->Append({LogOp::kSet, "key", value}), IsOk());
    most = std::max(most, num_writes - before);
  }
  EXPECT_LE(most, (1 << 20) / (32 << 10));  // of a segment of 16 MiB
  EXPECT_LE(log->file_bytes(), 128u << 20);
  ASSERT_THAT(log->Close(), IsOk());
}

// A short run does not wait for a long one that is being appended.
TYPED_TEST(RecordLogTest, ShortRunsAreAppendedWithinALongOne) {
  std::vector<Updates> runs;
  const std::string value((64 << 20) / kSlowdown, 'v');
  // Once more where the threads did not run side by side.
  for (int i = 0; i < 20 && (runs.empty() || runs.front()[0].key == "long"); ++i) {
    std::filesystem::remove(this->directory_.File("log"));
    runs.clear();
    ASSERT_OK_AND_ASSIGN(auto log, Recover(this->OpenFile(), {}, &runs));
    std::atomic<bool> has_begun = false, has_ended = false;
    std::thread writer([&] {
      has_begun = true;
      EXPECT_THAT(log->Append({LogOp::kSet, "long", value}), IsOk());
      has_ended = true;
    });
    while (!has_begun) std::this_thread::yield();
    std::uint64_t appended = 0;
    for (; !has_ended; ++appended) EXPECT_THAT(log->Append({LogOp::kSet, std::to_string(appended), "short"}), IsOk());
    writer.join();
    ASSERT_THAT(log->Close(), IsOk());
    log.reset();
    ASSERT_THAT(Recover(this->OpenFile(), {}, &runs), IsOk());
    ASSERT_EQ(runs.size(), appended + 1);
  }
  ASSERT_NE(runs.front()[0].key, "long");
  std::uint64_t next = 0;
  for (const Updates& run : runs) {
    ASSERT_EQ(run.size(), 1u);
    if (run[0].key == "long") {
      EXPECT_EQ(run[0].value, value);
    } else {
      ASSERT_EQ(run[0].key, std::to_string(next++));
    }
  }
  // A database that has the updates up to any run finds all later ones from there on.
  std::vector<Position> ends;
  const auto replay = [&](Position from, auto&& visit) {
    ASSERT_OK_AND_ASSIGN(auto opened, RecordLog<TypeParam>::Open(this->OpenFile(), kDatabase, kSecret));
    ASSERT_THAT(opened->Replay(from, visit), IsOk());
  };
  ASSERT_NO_FATAL_FAILURE(replay({}, [&](auto, Position end) {
    ends.push_back(end);
    return absl::OkStatus();
  }));
  for (const std::size_t had : {std::size_t{0}, runs.size() / 3, runs.size() / 2, runs.size() - 2}) {
    std::vector<std::string> keys;
    ASSERT_NO_FATAL_FAILURE(replay(ends[had], [&](std::span<const LogEntry> run, Position) {
      keys.emplace_back(run[0].key);
      return absl::OkStatus();
    }));
    const std::size_t missing = runs.size() - had - 1;
    ASSERT_GE(keys.size(), missing);
    for (std::size_t i = 0; i < missing; ++i) ASSERT_EQ(keys[keys.size() - missing + i], runs[had + 1 + i][0].key);
  }
}

// ---- runs that are appended ahead ----

using Keys = std::vector<std::string>;

// The keys of the runs from `from` on. Each value must repeat its first character.
template <class FileT>
void ReadKeys(FileT file, Position from, Keys* keys) {
  keys->clear();
  ASSERT_OK_AND_ASSIGN(auto log, RecordLog<FileT>::Open(std::move(file), kDatabase, kSecret));
  ASSERT_THAT(log->Replay(from,
                          [&](std::span<const LogEntry> run, Position) {
                            for (const LogEntry& entry : run) {
                              EXPECT_EQ(entry.value.find_first_not_of(entry.value[0]), std::string::npos);
                              keys->emplace_back(entry.key);
                            }
                            return absl::OkStatus();
                          }),
              IsOk());
}

TYPED_TEST(RecordLogTest, ARunAppendedAheadTakesEffectWithItsEnd) {
  std::vector<Updates> runs;
  const std::string value(1 << 20, 'v');
  ASSERT_OK_AND_ASSIGN(auto log, Recover(this->OpenFile(), {}, &runs));
  AheadRun ended, abandoned, unended, repeated, of_short;
  Lsn lsn = 0;
  ASSERT_THAT(log->AppendAhead({LogOp::kSet, "ended", value}, &ended), IsOk());
  ASSERT_THAT(log->AppendAhead({LogOp::kSet, "abandoned", value}, &abandoned), IsOk());
  ASSERT_THAT(log->AppendAhead({LogOp::kSet, "unended", value}, &unended), IsOk());
  ASSERT_THAT(log->AppendAhead({LogOp::kSet, "of_short", "v"}, &of_short), IsOk());
  EXPECT_FALSE(of_short.is_open());
  ASSERT_THAT(log->Append({LogOp::kSet, "between", "v"}), IsOk());
  ASSERT_TRUE(ended.is_open());
  ASSERT_THAT(log->Append(&ended, &lsn), IsOk());
  EXPECT_FALSE(ended.is_open());
  EXPECT_EQ(lsn, log->tail());
  log->Abandon(&abandoned);
  EXPECT_FALSE(abandoned.is_open());
  ASSERT_THAT(log->AppendAhead({LogOp::kSet, "repeated", value}, &repeated), IsOk());
  ASSERT_THAT(log->Append(&repeated, &lsn), IsOk());
  ASSERT_THAT(log->Close(), IsOk());
  log.reset();
  Keys keys;
  ASSERT_NO_FATAL_FAILURE(ReadKeys(this->OpenFile(), {}, &keys));
  EXPECT_EQ(keys, (Keys{"between", "ended", "repeated"}));
}

// More runs are open at once than there are stream numbers.
TYPED_TEST(RecordLogTest, TakesManyRunsAhead) {
  std::vector<Updates> runs;
  const std::string value(300'000, 'v');
  ASSERT_OK_AND_ASSIGN(auto log, Recover(this->OpenFile(), {}, &runs));
  std::array<AheadRun, format::kLogStreams + 6> ahead;
  Keys expected;
  for (std::size_t i = 0; i < ahead.size(); ++i) expected.push_back(std::to_string(i));
  for (std::size_t i = 0; i < ahead.size(); ++i) {
    ASSERT_THAT(log->AppendAhead({LogOp::kSet, expected[i], value}, &ahead[i]), IsOk());
    ASSERT_TRUE(ahead[i].is_open());
  }
  const std::uint64_t before_end = log->tail();
  for (std::size_t i = ahead.size(); i-- > 0;) {
    Lsn lsn = 0;
    ASSERT_THAT(log->Append(&ahead[i], &lsn), IsOk());
  }
  EXPECT_LT(log->tail() - before_end, 8 * value.size());  // most of it is there
  ASSERT_THAT(log->Close(), IsOk());
  log.reset();
  Keys keys;
  ASSERT_NO_FATAL_FAILURE(ReadKeys(this->OpenFile(), {}, &keys));
  EXPECT_EQ(keys, Keys(expected.rbegin(), expected.rend()));
}

// A database that keeps a position finds all later runs from there on, also those that had begun.
TYPED_TEST(RecordLogTest, PositionsAreTakenBetweenTheStepsOfRuns) {
  std::vector<Updates> runs;
  ASSERT_OK_AND_ASSIGN(auto log, Recover(this->OpenFile(), {}, &runs));
  sync::Mutex mutex;  // taken by both, as the locks of a database are
  Keys ended;
  std::vector<std::pair<Position, std::size_t>> positions;  // and the number of runs before
  std::atomic<int> num_positions = 0, writers = 3;
  RunThreads(4, [&](int thread) {
    if (thread == 3) {
      while (writers != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        sync::MutexLock lock(mutex);
        positions.emplace_back(log->TakePosition(), ended.size());
        ++num_positions;
      }
      return;
    }
    for (int i = 0; i < 60 / std::min(kSlowdown, 3); ++i) {
      const std::string key = std::to_string(thread) + ":" + std::to_string(i);
      const std::string value(thread == 2 ? 20 : 600'000, static_cast<char>('a' + i % 26));
      const LogEntry entry{LogOp::kSet, key, value};
      AheadRun run;
      EXPECT_THAT(log->AppendAhead(entry, &run), IsOk());
      for (const int before = num_positions; i % 3 == 0 && num_positions == before;)
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      if (i % 10 == 7 && run.is_open()) {
        log->Abandon(&run);
        continue;
      }
      sync::MutexLock lock(mutex);
      Lsn lsn = 0;
      EXPECT_THAT(run.is_open() ? log->Append(&run, &lsn) : log->Append(entry).status(), IsOk());
      ended.push_back(key);
    }
    --writers;
  });
  ASSERT_THAT(log->Close(), IsOk());
  log.reset();
  ASSERT_GT(positions.size(), 3u);
  positions.emplace_back(Position{}, 0);
  for (std::size_t i = 0; i < positions.size(); i += 1 + positions.size() / 10) {
    const auto& [position, before] = positions[positions.size() - 1 - i];
    Keys keys;
    ASSERT_NO_FATAL_FAILURE(ReadKeys(this->OpenFile(), position, &keys));
    EXPECT_EQ(keys, Keys(ended.begin() + static_cast<std::ptrdiff_t>(before), ended.end())) << "from " << position.lsn;
  }
}

// ---- crashes ----

// Long runs of two threads and short ones of two others, in processes that are killed one after
// another. Each run is there as a whole or not at all, in the order of its thread, and if it was
// acknowledged.
TYPED_TEST(RecordLogTest, KilledWritersOfLongRunsLoseNoAcknowledgedRun) {
  constexpr std::uint64_t kThreads = CrashProgress::kMaxWriters;
  const int lives = Kills(5);
  Random random(TestSeed());
  SCOPED_TRACE(TestSeed());
  const auto value_of = [](std::uint64_t thread, std::uint64_t i) {
    return std::string(thread < 2 ? 300'000 + i % 7 * 50'000 : 50, static_cast<char>('a' + i % 26));
  };
  std::array<std::uint64_t, kThreads> found{};  // by thread
  for (int life = 0; life < lives; ++life) {
    CrashChild child([&](CrashProgress& progress) {
      std::vector<Updates> runs;
      auto log = Recover(this->OpenFile(), {}, &runs);
      if (!log.ok()) return progress.Fail(log.status().ToString());
      progress.ready = true;
      RunThreads(kThreads, [&](int number) {
        const auto thread = static_cast<std::uint64_t>(number);
        for (std::uint64_t i = 0;; ++i) {
          const std::string key = std::to_string(thread) + ":" + std::to_string(found[thread] + i), value = value_of(thread, i);
          std::vector<LogEntry> run(thread % 2 + 1, LogEntry{LogOp::kSet, key, value});
          if (!(*log)->Append(run).ok()) return;
          progress.writers[thread].acknowledged = i + 1;
          if (thread >= 2) std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
      });
    });
    child.AwaitReady();
    CrashChild::Pause(random.Below(20'000));
    child.Kill();
    ASSERT_STREQ(child.progress().failure, "");
    std::vector<Updates> runs;
    ASSERT_OK_AND_ASSIGN(auto log, Recover(this->OpenFile(), {}, &runs));
    const auto before = found;
    found = {};
    for (const Updates& run : runs) {
      const std::string& key = run[0].key;
      const auto thread = static_cast<std::uint64_t>(key[0] - '0');
      ASSERT_EQ(key, std::to_string(thread) + ":" + std::to_string(found[thread]++));
      ASSERT_EQ(run.size(), thread % 2 + 1);
      for (const Update& update : run) {
        ASSERT_EQ(update.value.size(), thread < 2 ? update.value.size() / 50'000 * 50'000 : 50u);
        ASSERT_EQ(update.value.find_first_not_of(update.value[0]), std::string::npos);
      }
    }
    for (std::uint64_t thread = 0; thread < kThreads; ++thread)
      ASSERT_GE(found[thread], before[thread] + child.progress().writers[thread].acknowledged) << "thread " << thread;
  }
  ReportKills(static_cast<std::uint64_t>(lives));
}

}  // namespace
}  // namespace hako::log
