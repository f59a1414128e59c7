#include "hako/log/commit_group.h"

#include <algorithm>
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

// A group whose last sync took this long and served this many threads, all of which have left.
struct Served : CommitGroup {
  Served(int num_threads, Clock::duration took) {
    Enter(num_threads);
    NoteSync(took);
    for (int i = 0; i < num_threads; ++i) Leave();
  }
  using CommitGroup::Enter;
  void Enter(int num_threads) {
    for (int i = 0; i < num_threads; ++i) CommitGroup::Enter();
  }
  // How long it waits.
  Clock::duration TimeToGather() {
    const auto begun = Clock::now();
    return Gather() - begun;
  }
};

TEST(CommitGroup, AThreadAloneDoesNotWait) {
  Served group(1, std::chrono::hours(1));
  group.Enter();
  EXPECT_EQ(group.Patience(), milliseconds(0));
  auto least = group.TimeToGather();  // any of them includes the time of other threads on this processor
  for (int i = 0; i < 50 && least >= milliseconds(10); ++i) least = std::min(least, group.TimeToGather());
  EXPECT_LT(least, milliseconds(10));
}

TEST(CommitGroup, WaitsHalfASyncForThoseThatWereThere) {
  Served group(4, milliseconds(10));
  group.Enter(2);
  EXPECT_EQ(group.Patience(), milliseconds(5));
  EXPECT_GE(group.TimeToGather(), milliseconds(5));
}

TEST(CommitGroup, WaitsNoLongerOnceAllHaveCome) {
  CommitGroup::Clock::duration patience{0};
  for (int i = 0; i < 50 && patience == milliseconds(0); ++i) {  // the last one may be late on a busy machine
    Served group(4, milliseconds(20));
    group.Enter(3);
    std::thread last([&group] { group.Enter(); });
    group.Gather();
    last.join();
    EXPECT_EQ(group.Patience(), milliseconds(0));
    group.Leave();
    patience = group.Patience();
  }
  EXPECT_EQ(patience, milliseconds(10)) << "none has stayed away";
}

TEST(CommitGroup, WaitsForNobodyForAWhileOnceTheyStayAway) {
  Served group(4, milliseconds(2));
  group.Enter(2);
  EXPECT_GE(group.TimeToGather(), milliseconds(1));
  int num_syncs = 0;
  for (; group.Patience() == milliseconds(0); ++num_syncs) {
    ASSERT_LT(num_syncs, 100);
    group.Gather();
  }
  EXPECT_EQ(num_syncs, 16);
}

TEST(CommitGroup, WaitsTenMillisecondsAtMost) {
  Served group(4, std::chrono::seconds(5));
  group.Enter(2);
  EXPECT_EQ(group.Patience(), milliseconds(10));
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
