// The record log after power cuts, with damage, and on a device that fails.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/file/memory_file.h"
#include "hako/log/record_log.h"
#include "log/log_updates.h"
#include "support/crash_memory.h"
#include "support/crash_states.h"
#include "support/fault_file.h"
#include "support/hooked_file.h"
#include "support/random.h"
#include "support/recording_file.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako::log {
namespace {

using testing::HasSubstr;
using testing::Not;

// A history of updates over several power cuts. Each recovery must show a prefix of the runs, at
// least those that were durable.
class PowerCutChain {
 public:
  explicit PowerCutChain(std::uint64_t seed) : random_(seed) {}

  std::uint64_t states() const { return states_; }

  // Recovers the log from `image`, checks it, and appends more runs. Several crash states of what
  // follows are checked to the given depth.
  void Check(FileHistory::Image image, const std::vector<Updates>& history, std::size_t least, Position from, std::size_t first,
             int depth) {
    ++states_;
    const RecordingFile file(std::move(image));
    const auto recorded = file.history();
    std::vector<Updates> runs;
    auto opened = RecordLog<RecordingFile>::Open(RecordingFile(file), kDatabase, kSecret);
    ASSERT_THAT(opened, IsOk());
    auto log = *std::move(opened);
    ASSERT_THAT(log->Replay(from,
                            [&runs](std::span<const LogEntry> entries, Position) {
                              Updates& run = runs.emplace_back();
                              for (const LogEntry& entry : entries)
                                run.push_back({entry.op, std::string(entry.key), std::string(entry.value)});
                              return absl::OkStatus();
                            }),
                IsOk());
    ASSERT_GE(first + runs.size(), least);
    ASSERT_LE(first + runs.size(), history.size());
    ASSERT_TRUE(std::equal(runs.begin(), runs.end(), history.begin() + static_cast<std::ptrdiff_t>(first)));
    if (depth == 0) return;
    std::vector<Updates> now(history.begin(), history.begin() + static_cast<std::ptrdiff_t>(first + runs.size()));
    // After recovery the updates may be durable in the database, too.
    const bool is_saved = random_.Below(2) == 0;
    if (is_saved) from = log->position(), first = now.size();
    struct Moment {
      std::size_t events, runs, durable;
      Position from;
      std::size_t first;
    };
    std::vector<Moment> moments = {{recorded->events().size(), now.size(), now.size(), from, first}};
    std::size_t durable = now.size();
    ASSERT_THAT(log->Begin(from), IsOk());
    for (std::uint64_t steps = 1 + random_.Below(60); steps > 0; --steps) {
      now.push_back(RandomRun(random_, random_.Below(8) == 0 ? 200'000 : 3000));  // some fill several segments
      auto lsn = AppendRun(*log, now.back());
      ASSERT_THAT(lsn, IsOk());
      if (random_.Below(6) == 0) {
        ASSERT_THAT(log->WaitDurable(*lsn), IsOk());
        durable = now.size();
        if (random_.Below(3) == 0) {
          from = log->position(), first = now.size();
          log->Release(from);
        }
      }
      moments.push_back({recorded->events().size(), now.size(), durable, from, first});
      if (random_.Below(25) != 0) continue;
      // The process is killed: nothing is lost, and all of it is durable before new updates.
      std::vector<Updates> kept;
      log = nullptr;
      auto again = Recover(RecordingFile(file), from, &kept, from);
      ASSERT_THAT(again, IsOk());
      ASSERT_EQ(first + kept.size(), now.size());
      log = *std::move(again);
      durable = now.size();
      moments.push_back({recorded->events().size(), now.size(), durable, from, first});
    }
    for (int i = 0; i < 6; ++i) {
      const Moment& before = moments[random_.Below(moments.size())];
      // Up to the next moment, or to the middle of the run that follows.
      std::size_t next = static_cast<std::size_t>(&before - moments.data()) + 1;
      const std::size_t events =
          next < moments.size() ? before.events + random_.Below(moments[next].events - before.events + 1) : before.events;
      const std::size_t possible = std::min(now.size(), before.runs + 1);
      const std::uint64_t style = random_.Below(4);
      auto crashed = recorded->CrashImageAt(events, [&](std::uint64_t, std::uint64_t n) -> std::uint64_t {
        return style == 0 ? 0 : style == 1 ? n - 1 : style == 2 ? (random_.Below(10) == 0 ? random_.Below(n) : n - 1) : random_.Below(n);
      });
      const std::vector<Updates> so_far(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(possible));
      Check(std::move(crashed), so_far, before.durable, before.from, before.first, depth - 1);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  Random random_;
  std::uint64_t states_ = 0;
};

// A position at the end of a segment is in that segment, although the next one begins there.
TEST(RecordLogCrash, PositionAtTheEndOfASegmentOutlivesAPowerCut) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  const auto memory = std::make_shared<CrashMemory>(CrashMemory::Image{}, 1);
  std::vector<Updates> runs;
  ASSERT_OK_AND_ASSIGN(auto log, Recover(MappedCrashFile(memory), {}, &runs));
  Position position;
  do {
    position = log->TakePosition();
    ASSERT_THAT(log->Append({LogOp::kSet, "key", RandomBytes(random, 1000)}), IsOk());
  } while (position.sequence < 3 || log->TakePosition().sequence == position.sequence);
  ASSERT_THAT(log->SyncSegment(position), IsOk());
  for (int i = 0; i < 50; ++i) {
    const auto left = std::make_shared<CrashMemory>(memory->Crash(random), 2);
    ASSERT_THAT(Recover(MappedCrashFile(left), position, &runs, position).status(), IsOk());
  }
  ASSERT_THAT(log->Close(), IsOk());
}

TEST(RecordLogCrash, ChainsOfPowerCutsLoseNothingDurable) {
  std::uint64_t states = 0;
  for (std::uint64_t seed = 1; states < CrashStates(3000); ++seed) {
    PowerCutChain chain(seed);
    chain.Check({}, {}, 0, {}, 0, 4);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    states += chain.states();
  }
  ReportCrashStates(states);
}

// ---- damage ----

struct SmallLog {
  FileHistory::Image image;
  std::vector<Updates> runs;
  std::size_t durable;  // runs known to be durable by a mark
};

SmallLog MakeSmallLog() {
  SmallLog small;
  RecordingFile file;
  const auto history = file.history();
  std::vector<Updates> none;
  auto log = Recover(std::move(file), {}, &none);
  EXPECT_THAT(log, IsOk());
  for (int i = 0; i < 12; ++i) {
    small.runs.push_back({{LogOp::kSet, "key" + std::to_string(i), std::string(20, 'v')}});
    if (i % 4 == 3) small.runs.back().push_back({LogOp::kRemove, "other", ""});
    auto lsn = AppendRun(**log, small.runs.back());
    EXPECT_THAT(lsn, IsOk());
    if (i == 5 || i == 8) EXPECT_THAT((*log)->WaitDurable(*lsn), IsOk());
    if (i == 5) small.durable = 6;  // the mark before the second sync says so
  }
  small.image = history->ImageAt(history->events().size());
  return small;
}

TEST(RecordLogDamage, IsATornTailOrDataLossNeverAnotherUpdate) {
  const SmallLog small = MakeSmallLog();
  std::size_t num_data_loss = 0, num_shorter = 0;
  for (std::size_t byte = 0; byte < 1500; ++byte) {
    FileHistory::Image image = small.image;
    image[byte] ^= std::byte{static_cast<unsigned char>(1u << (byte % 8))};
    std::vector<Updates> runs;
    const auto log = Recover(RecordingFile(std::move(image)), {}, &runs);
    if (!log.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(log.status()) || absl::IsInvalidArgument(log.status()) || byte < format::kLogSegmentHeader)
          << byte << log.status();
      ++num_data_loss;
      continue;
    }
    ASSERT_LE(runs.size(), small.runs.size());
    EXPECT_TRUE(std::equal(runs.begin(), runs.end(), small.runs.begin())) << byte;
    if (byte >= format::kLogSegmentHeader) EXPECT_GE(runs.size(), small.durable) << byte;
    num_shorter += runs.size() < small.runs.size();
  }
  EXPECT_GT(num_data_loss, 200u);
  EXPECT_GT(num_shorter, 200u);
}

TEST(RecordLogDamage, RefusesTheLogOfAnotherDatabase) {
  FileHistory::Image image = MakeSmallLog().image;
  EXPECT_THAT(RecordLog<RecordingFile>::Open(RecordingFile(std::move(image)), {std::byte{8}}, kSecret),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("another database")));
}

TEST(RecordLogDamage, RefusesANewerFormat) {
  FileHistory::Image image = MakeSmallLog().image;
  format::LogSegmentHeader header;
  std::memcpy(&header, image.data(), sizeof(header));
  header.version = format::kLogVersion + 1;
  header.check = CheckOf(header);
  std::memcpy(image.data(), &header, sizeof(header));
  EXPECT_THAT(RecordLog<RecordingFile>::Open(RecordingFile(std::move(image)), kDatabase, kSecret),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("newer")));
}

TEST(RecordLogDamage, DoesNotTakeRecordsOfAnEarlierUseOfASegment) {
  FileHistory::Image image = MakeSmallLog().image;
  format::LogSegmentHeader header;
  std::memcpy(&header, image.data(), sizeof(header));
  header.sequence = header.sequence + 1;
  header.check = CheckOf(header);
  std::memcpy(image.data(), &header, sizeof(header));
  std::vector<Updates> runs;
  EXPECT_THAT(Recover(RecordingFile(std::move(image)), {}, &runs), IsOk());
  EXPECT_TRUE(runs.empty());
}

// Two segments, each the predecessor of the other.
TEST(RecordLogDamage, RefusesAChainOfSegmentsThatReturnsToItself) {
  FileHistory::Image image(format::LogSegmentOffset(2));
  for (const std::uint32_t index : {0u, 1u}) {
    format::LogSegmentHeader header{.magic = format::kLogMagic,
                                    .version = format::kLogVersion,
                                    .index = index,
                                    .database = kDatabase,
                                    .sequence = index + 1,
                                    .predecessor = 2 - index,
                                    .first_lsn = 0,
                                    .check = 0};
    header.check = CheckOf(header);
    std::memcpy(image.data() + format::LogSegmentOffset(index), &header, sizeof(header));
  }
  std::vector<Updates> runs;
  EXPECT_THAT(Recover(RecordingFile(std::move(image)), {}, &runs), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("later one")));
}

TEST(RecordLogDamage, ReportsUpdatesThatTheLogLacks) {
  std::vector<Updates> runs;
  EXPECT_THAT(Recover(RecordingFile(), {800, 1}, &runs), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("from LSN 800")));
}

// ---- failures of the device ----

TEST(RecordLogFault, AppendsAgainOnceThereIsSpace) {
  const auto plan = std::make_shared<FaultPlan>();
  MemoryFile memory;
  std::vector<Updates> runs, appended;
  ASSERT_OK_AND_ASSIGN(auto log, Recover(FaultFile<MemoryFile>(memory.Share(), plan), {}, &runs));
  plan->Arm({.kind = FaultKind::kResize, .status = absl::ResourceExhaustedError("full"), .forever = true});
  Random random(3);
  std::uint64_t refused = 0;
  for (int i = 0; i < 3000; ++i) {
    Updates run = RandomRun(random, 30'000);
    if (i % 100 == 99) plan->Disarm();
    const auto lsn = AppendRun(*log, run);
    if (i % 100 == 99) {
      EXPECT_THAT(lsn, IsOk());
      plan->Arm({.kind = FaultKind::kResize, .status = absl::ResourceExhaustedError("full"), .forever = true});
    }
    if (lsn.ok()) {
      appended.push_back(std::move(run));
    } else {
      EXPECT_THAT(lsn, StatusIs(absl::StatusCode::kResourceExhausted));
      EXPECT_THAT(log->WaitDurable(log->tail()), IsOk());
      ++refused;
    }
  }
  EXPECT_GT(refused, 20u);
  EXPECT_THAT(log->Health(), IsOk());
  log.reset();
  plan->Disarm();
  ASSERT_THAT(Recover(memory.Share(), {}, &runs), IsOk());
  EXPECT_TRUE(runs == appended);
}

TEST(RecordLogFault, AnUpdateDuringASyncIsNotDurableByIt) {
  std::function<void()> during;
  const auto hook = [&during](Access access) {
    if (access == Access::kSync && during) std::exchange(during, nullptr)();
  };
  std::vector<Updates> runs;
  ASSERT_OK_AND_ASSIGN(auto log, Recover(HookedFile(MemoryFile(), hook), {}, &runs));
  ASSERT_OK_AND_ASSIGN(const Lsn first, log->Append({LogOp::kSet, "a", "1"}));
  Lsn second = 0;
  during = [&] { second = *log->Append({LogOp::kSet, "b", "2"}); };
  ASSERT_THAT(log->WaitDurable(first), IsOk());
  EXPECT_GT(second, first);
  EXPECT_LT(log->durable(), second);
  ASSERT_THAT(log->WaitDurable(second), IsOk());
  EXPECT_GE(log->durable(), second);
}

TEST(RecordLogFault, RefusesUpdatesAfterAFailedSync) {
  const auto plan = std::make_shared<FaultPlan>();
  std::vector<Updates> runs;
  ASSERT_OK_AND_ASSIGN(auto log, Recover(FaultFile<MemoryFile>(MemoryFile(), plan), {}, &runs));
  ASSERT_OK_AND_ASSIGN(const Lsn first, log->Append({LogOp::kSet, "a", "1"}));
  ASSERT_THAT(log->WaitDurable(first), IsOk());
  ASSERT_OK_AND_ASSIGN(const Lsn lsn, log->Append({LogOp::kSet, "b", "2"}));
  plan->Arm({.kind = FaultKind::kSync});
  EXPECT_THAT(log->WaitDurable(lsn), Not(IsOk()));
  EXPECT_THAT(log->WaitDurable(lsn), StatusIs(absl::StatusCode::kFailedPrecondition)) << "a second sync could succeed without the data";
  EXPECT_THAT(log->Append({LogOp::kSet, "c", "3"}), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(log->WaitDurable(first), IsOk());
}

}  // namespace
}  // namespace hako::log
