// A fork beside writers. The child has the locks that they held, and not the writers. (AddressSanitizer of
// clang 14 leaves the locks of its allocator held in such a child, so this runs without it.)
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "support/child_process.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

constexpr int kRecords = 1000;

class ForkBesideTest : public testing::TestWithParam<const char*> {
 protected:
  bool IsArray() const { return std::string(GetParam()).find(".hka") != std::string::npos; }
  std::string Key(int i) const { return std::to_string(i % kRecords); }
  std::string Value(int i) const { return std::string(IsArray() ? 16 : i % 4 == 0 ? 20'000 : 20, 'w'); }

  TempDir dir_;
};

TEST_P(ForkBesideTest, ChildForkedBesideConcurrentWritersWaitsForNone) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AnyDBM> db, AnyDBM::Open(GetParam()[0] == '?' ? GetParam() : dir_.File(GetParam())));
  for (int i = 0; i < kRecords; ++i) ASSERT_THAT(db->Set(Key(i), Value(i)), IsOk());
  std::atomic<bool> stops = false;
  std::vector<std::thread> writers;
  for (int t = 0; t < 2; ++t) {
    writers.emplace_back([&, t] {
      for (int i = t; !stops; i += 2) (void)db->Set(Key(i), Value(i));
    });
  }
  int failed = 0;
  for (int round = 0; round < 10; ++round) {
    ChildProcess child([&](ChildProcess&) -> int {
      alarm(60);
      std::string value;
      int done = 0;
      const auto count = [&done](const Status& status) { done += status.code() != absl::StatusCode::kFailedPrecondition; };
      for (int i = 0; i < kRecords; i += 3) {
        count(db->Get(Key(i), &value));
        count(db->Set(Key(i), Value(1)));
        count(db->Remove(Key(i)));
      }
      count(db->MakeIterator().status());
      count(db->Synchronize(SyncMode::kHard));
      return done == 0 ? 0 : 1;
    });
    failed += child.Result() != 0;
  }
  stops = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(failed, 0);
  EXPECT_THAT(db->Verify(), IsOk());
}

INSTANTIATE_TEST_SUITE_P(Kinds, ForkBesideTest,
                         testing::Values("?dbm=tiny", "?dbm=baby", "db.hkh", "db.hkh?file=pos", "db.hkh?direct", "db.hkh?durability=power",
                                         "db.hkt", "db.hkt?file=pos", "db.hkt?direct", "db.hks", "db.hks?dbm=baby", "db.hka?width=16",
                                         "db.hka?width=16,file=pos"));

}  // namespace
}  // namespace hako
