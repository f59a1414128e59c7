#include "hako/log/commit_group.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
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

// The first thread is served by a sync during which the second appends. While the second thread waits
// for it, it comes back, and one more sync serves both.
TEST(CommitGroup, ThreadsThatCommitInTurnShareASync) {
  std::atomic<int> num_syncs{0};
  std::atomic<bool> is_watched{false}, is_syncing{false}, may_end{false};
  const auto hook = [&](Access access) {
    if (access != Access::kSync || !is_watched) return;
    if (++num_syncs > 1) return;
    is_syncing = true;
    while (!may_end) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(500));  // the second thread arrives, and then waits 250 ms
  };
  std::vector<Updates> runs;
  ASSERT_OK_AND_ASSIGN(auto log, Recover(HookedFile(MemoryFile(), hook), {}, &runs));
  const auto commit = [&log](const char* key) {
    const auto lsn = log->Append({LogOp::kSet, key, key});
    ASSERT_THAT(lsn, IsOk());
    ASSERT_THAT(log->WaitDurable(*lsn), IsOk());
  };
  is_watched = true;
  std::thread first([&] {
    commit("a");
    commit("b");
  });
  while (!is_syncing) std::this_thread::yield();
  std::thread second([&] {
    may_end = true;
    commit("c");
  });
  first.join();
  second.join();
  EXPECT_EQ(num_syncs, 2);
  ASSERT_THAT(log->Close(), IsOk());
}

}  // namespace
}  // namespace hako::log
