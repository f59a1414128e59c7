// Every kind of database where the system lacks something, or interrupts each call: no tasks, no descriptors,
// no memory that may be locked, a storm of signals. A call succeeds, or fails for what is lacking; all that
// was acknowledged is there when the shortage is over.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "support/child_process.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

enum class Lack { kSignals, kTasks, kDescriptors, kLockedMemory };
struct Named {
  std::string_view name;
  Lack lack;
  friend void PrintTo(const Named& named, std::ostream* out) { *out << named.name; }
};
constexpr Named kLacks[] = {
    {"Signals", Lack::kSignals}, {"Tasks", Lack::kTasks}, {"Descriptors", Lack::kDescriptors}, {"LockedMemory", Lack::kLockedMemory}};
constexpr std::string_view kKinds[] = {"a.hkh",
                                       "a.hkh?file=pos",
                                       "a.hkh?direct,block_cache_bytes=64ki",
                                       "a.hkh?durability=power,direct",
                                       "a.hkt",
                                       "a.hkt?file=pos",
                                       "a.hkt?direct",
                                       "a.hka?width=8",
                                       "a.hka?width=8,file=pos",
                                       "a.hks",
                                       "a.hks?dbm=baby"};

class ScarceResourcesTest : public testing::TestWithParam<std::tuple<std::string_view, Named>> {
 protected:
  static constexpr int kRecords = 300;
  static Lack Lacks() { return std::get<1>(GetParam()).lack; }
  std::string Name() const { return directory_.File(std::string(std::get<0>(GetParam()))); }
  bool IsArray() const { return std::get<0>(GetParam()).find(".hka") != std::string_view::npos; }
  std::string Value(int i) const {
    return IsArray() ? std::to_string(10'000'000 + i) : std::string(i % 5 == 0 ? 12'000 : 300, 'v') + std::to_string(i);
  }

  // In a child. False: the system does not let it.
  static bool Begin() {
    rlimit limit{1, 1};
    switch (Lacks()) {
      case Lack::kSignals: {
        struct sigaction action = {};
        action.sa_handler = [](int) {};
        action.sa_flags = 0;  // calls are interrupted
        const itimerval timer = {{0, 200}, {0, 200}};
        return sigaction(SIGALRM, &action, nullptr) == 0 && setitimer(ITIMER_REAL, &timer, nullptr) == 0;
      }
      case Lack::kTasks:
        return setrlimit(RLIMIT_NPROC, &limit) == 0;
      case Lack::kDescriptors: {
        const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
        limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(next);
        return close(next) == 0 && setrlimit(RLIMIT_NOFILE, &limit) == 0;
      }
      case Lack::kLockedMemory:
        limit.rlim_cur = limit.rlim_max = 0;
        return setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
    }
    return false;
  }
  // Whether the error says what is lacking. Signals fail nothing, nor do threads and locked memory: they are
  // done without.
  static bool IsExpected(const Status& status) {
    return status.ok() || (Lacks() == Lack::kDescriptors && absl::IsResourceExhausted(status));
  }
  static int Complain(int result, const Status& status) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return result;
  }

  // Runs the database in a child: with the shortage from before Open, or from after it. 100 + the number of
  // records acknowledged if all went as it should.
  int Run(bool before_open) {
    ChildProcess child([&](ChildProcess&) -> int {
      if (setgid(65534) != 0 || setuid(65534) != 0) return 77;
      if (before_open && !Begin()) return 77;
      auto db = AnyDBM::Open(Name());
      if (!IsExpected(db.status())) return Complain(1, db.status());
      if (!db.ok()) return 0;
      if (!before_open && !Begin()) return 77;
      bool may_fail = false;
      for (int i = 0; i < kRecords; ++i) {
        const Status set = (*db)->Set(std::to_string(i), Value(i));
        if (!IsExpected(set)) return Complain(2, set);
        may_fail = may_fail || !set.ok();
        if (i % 100 != 99) continue;
        const Status synced = (*db)->Synchronize(SyncMode::kHard);
        if (!IsExpected(synced)) return Complain(3, synced);
        may_fail = may_fail || !synced.ok();
      }
      for (int i = 0; i < kRecords && !may_fail; ++i) {
        const auto value = (*db)->Get(std::to_string(i));
        if (!value.ok() || *value != Value(i)) return Complain(4, value.status());
      }
      if (const Status closed = (*db)->Close(); !IsExpected(closed)) return Complain(5, closed);
      return may_fail ? 0 : 100;
    });
    return child.Result();
  }
  void ExpectAll() {
    ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(Name()));
    for (int i = 0; i < kRecords; ++i) ASSERT_THAT(db->Get(std::to_string(i)), IsOkAndHolds(Value(i))) << i;
    EXPECT_THAT(db->Verify(), IsOk());
    EXPECT_THAT(db->Close(), IsOk());
  }

  TempDir directory_;
};

TEST_P(ScarceResourcesTest, LoseNothingAndAreNoOtherError) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become a user with a limit of tasks";
  ASSERT_EQ(chmod(directory_.path().c_str(), 0777), 0);
  for (const bool before_open : {true, false}) {
    SCOPED_TRACE(before_open ? "before Open" : "after Open");
    const int result = Run(before_open);
    if (result == 77) GTEST_SKIP() << "the system does not limit it";
    ASSERT_TRUE(result == 0 || result == 100) << result;
    if (result == 100) ExpectAll();
    // Once a database is open, it needs no more of anything; but a snapshot is a new file.
    const bool makes_files = std::get<0>(GetParam()).starts_with("a.hks") && Lacks() == Lack::kDescriptors;
    if ((!before_open && !makes_files) || Lacks() == Lack::kSignals) EXPECT_EQ(result, 100);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScarceResourcesTest, testing::Combine(testing::ValuesIn(kKinds), testing::ValuesIn(kLacks)),
                         [](const auto& tested) {
                           std::string name(std::get<0>(tested.param));
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name + "_" + std::string(std::get<1>(tested.param).name);
                         });

}  // namespace
}  // namespace hako
