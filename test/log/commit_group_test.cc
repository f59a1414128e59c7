#include "hako/log/commit_group.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/file/memory_file.h"
#include "log/log_updates.h"
#include "support/hooked_file.h"
#include "support/status_matchers.h"

namespace hako::log {
namespace {

using std::chrono::milliseconds;

TEST(CommitGroup, AThreadAloneDoesNotWait) {
  CommitGroup group;
  EXPECT_EQ(group.Patience(1), milliseconds(0));
  group.NoteSync(1, milliseconds(10));
  EXPECT_EQ(group.Patience(1), milliseconds(0));
}

TEST(CommitGroup, WaitsHalfASyncForThoseThatWereThere) {
  CommitGroup group;
  group.NoteSync(4, milliseconds(10));
  EXPECT_EQ(group.expected(), 4u);
  EXPECT_EQ(group.Patience(2), milliseconds(5));
  EXPECT_EQ(group.Patience(4), milliseconds(0));
}

TEST(CommitGroup, WaitsForNobodyForAWhileOnceTheyStayAway) {
  CommitGroup group;
  group.NoteSync(4, milliseconds(10));
  group.NoteAbsence();
  int num_syncs = 0;
  while (group.Patience(2) == milliseconds(0)) {
    ASSERT_LT(++num_syncs, 100);
    group.NoteSync(4, milliseconds(10));
  }
  EXPECT_GE(num_syncs, 10);
}

TEST(CommitGroup, WaitsTenMillisecondsAtMost) {
  CommitGroup group;
  group.NoteSync(4, std::chrono::seconds(5));
  EXPECT_EQ(group.Patience(2), milliseconds(10));
}

// The number of syncs of two threads: the first is served by a sync during which the second appends.
// While the second thread waits for it, it comes back, and one more sync serves both.
int SyncsOfThreadsInTurn() {
  std::atomic<int> num_syncs{0};
  std::atomic<bool> is_watched{false}, is_syncing{false}, may_end{false};
  const auto hook = [&](Access access) {
    if (access != Access::kSync || !is_watched) return;
    if (++num_syncs > 1) return;
    is_syncing = true;
    while (!may_end) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(50));  // the second thread arrives, and then waits 10 ms
  };
  std::vector<Updates> runs;
  auto log = Recover(HookedFile(MemoryFile(), hook), {}, &runs);
  EXPECT_THAT(log, IsOk());
  const auto commit = [&log](const char* key) {
    const auto lsn = (*log)->Append({LogOp::kSet, key, key});
    EXPECT_THAT(lsn, IsOk());
    EXPECT_THAT((*log)->WaitDurable(*lsn), IsOk());
  };
  is_watched = true;
  std::thread first([&] {
    commit("a");
    std::this_thread::sleep_for(milliseconds(2));
    commit("b");
  });
  while (!is_syncing) std::this_thread::yield();
  std::thread second([&] {
    may_end = true;
    commit("c");
  });
  first.join();
  second.join();
  EXPECT_THAT((*log)->Close(), IsOk());
  return num_syncs;
}

TEST(CommitGroup, ThreadsThatCommitInTurnShareASync) {
  int num_syncs = 0;
  for (int i = 0; i < 20 && num_syncs != 2; ++i) num_syncs = SyncsOfThreadsInTurn();  // a thread may be late on a busy machine
  EXPECT_EQ(num_syncs, 2);
}

}  // namespace
}  // namespace hako::log
