// The pacing of UpdateLog: which threads wait for a checkpoint.
#include "hako/log/update_log.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "hako/file/memory_file.h"
#include "support/status_matchers.h"

namespace hako::log {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Counts requests, and waits for nothing.
class CountingProgress final : public CheckpointRequests {
 public:
  void Ask() override { ++num_asked; }
  bool has_failed() const override { return fails; }
  bool WaitFor(microseconds time, FunctionRef<bool()> done) override {
    ++num_waits;
    waited += time;
    EXPECT_FALSE(done()) << "waits for nothing";
    return false;
  }

  int num_asked = 0, num_waits = 0;
  microseconds waited{0};
  bool fails = false;
};

class UpdateLogTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kLimit = 1 << 20;

  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(auto log, (RecordLog<MemoryFile>::Open(MemoryFile(), DatabaseId{std::byte{7}}, 42)));
    ASSERT_THAT(log->Begin({}), IsOk());
    const Position begin = log->position();
    log_.Start(std::move(log), kLimit, begin);
  }
  // Appends updates of these many bytes in all, 1 KiB each.
  void AppendShort(std::uint64_t bytes) {
    const std::string value(1000, 's');
    for (std::uint64_t done = 0; done < bytes; done += 1024) {
      Lsn lsn = 0;
      ASSERT_THAT(log_.Append({format::LogOp::kSet, "short key", value}, &lsn), IsOk());
    }
  }
  void AppendAhead(std::size_t bytes) {
    const std::string value(bytes, 'l');
    AheadRun run;
    log_.AppendAhead({format::LogOp::kSet, "long key", value}, &run);
    ASSERT_TRUE(run.is_open());
    Lsn lsn = 0;
    ASSERT_THAT(log_.Append(&run, &lsn), IsOk());
    EXPECT_EQ(lsn, log_.position().lsn);
  }
  // Whether a writer of short updates waits now.
  bool ShortWaits() {
    const int before = progress_.num_waits;
    if (needs_pause_.exchange(false)) log_.PauseIfLong();
    return progress_.num_waits != before;
  }

  CountingProgress progress_;
  std::atomic<bool> needs_pause_{false};
  UpdateLog<MemoryFile> log_{progress_, needs_pause_};
};

TEST_F(UpdateLogTest, UpdatesWaitAtTwiceTheLimit) {
  AppendShort(kLimit / 2);
  EXPECT_EQ(progress_.num_asked, 0);
  AppendShort(kLimit);
  EXPECT_EQ(progress_.num_asked, 1) << "the limit was exceeded";
  EXPECT_FALSE(ShortWaits());
  AppendShort(kLimit);
  EXPECT_TRUE(ShortWaits());
  EXPECT_EQ(progress_.waited, milliseconds(20));
  AppendShort(1);
  progress_.fails = true;
  EXPECT_FALSE(ShortWaits()) << "no checkpoint will end";
  progress_.fails = false;

  log_.NoteCheckpoint(log_.BeginCheckpoint());
  AppendShort(kLimit / 2);
  EXPECT_FALSE(ShortWaits());
  AppendShort(2 * kLimit);
  EXPECT_TRUE(ShortWaits());
}

TEST_F(UpdateLogTest, LongValuesFillTheLogForLongValuesOnly) {
  AppendAhead(3 * kLimit);
  EXPECT_GT(progress_.num_asked, 0);
  EXPECT_EQ(progress_.num_waits, 0) << "the log was empty";
  AppendShort(kLimit);
  EXPECT_FALSE(ShortWaits());
  AppendAhead(3 * kLimit);
  EXPECT_EQ(progress_.num_waits, 1);
  AppendShort(kLimit / 2);
  EXPECT_FALSE(ShortWaits());
  AppendShort(kLimit);
  EXPECT_TRUE(ShortWaits()) << "2.5 times the limit is in short updates";

  // The values of before a checkpoint are no longer counted, on either side.
  const Position position = log_.BeginCheckpoint();
  AppendAhead(kLimit);
  log_.NoteCheckpoint(position);
  AppendShort(kLimit * 3 / 2);
  EXPECT_FALSE(ShortWaits());
  AppendShort(kLimit);
  EXPECT_TRUE(ShortWaits());
}

TEST_F(UpdateLogTest, LongValuesWaitInProportion) {
  AppendAhead(3 * kLimit);
  for (const std::size_t pieces : {8u, 80u}) {
    progress_.waited = {};
    AppendAhead(pieces << 16);
    EXPECT_EQ(progress_.waited, milliseconds(20) * pieces);
  }
  progress_.waited = {};
  progress_.fails = true;
  AppendAhead(kLimit);
  EXPECT_EQ(progress_.waited, milliseconds(0)) << "no checkpoint will end";
  progress_.fails = false;

  log_.NoteCheckpoint(log_.BeginCheckpoint());
  AppendAhead(kLimit);
  EXPECT_EQ(progress_.waited, milliseconds(0));
}

}  // namespace
}  // namespace hako::log
