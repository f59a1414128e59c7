// What other threads can do while a long value is being written to a hash table, and what a power cut leaves of it.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/memory_file.h"
#include "support/crash_memory.h"
#include "support/random.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

using Database = HashDBM<PositionalCrashFile>;
constexpr std::uint64_t kCrashes = 20;

class LongValueTest : public testing::Test {
 protected:
  void SetUp() override {
    memory = std::make_shared<CrashMemory>(CrashMemory::Image{}, std::uint8_t{1});
    ASSERT_OK_AND_ASSIGN(db, Database::Open(PositionalCrashFile(memory), {.num_records = 8192}));
    for (int i = 0; i < 500; ++i) ASSERT_THAT(db->Set("key" + std::to_string(i), "value"), IsOk());
    ASSERT_THAT(db->Set("long", "short as yet"), IsOk());
    ASSERT_THAT(db->Set("room", std::string(400'000, 'r')), IsOk());  // the file need not grow later
    ASSERT_THAT(db->Remove("room"), IsOk());
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  }
  void TearDown() override {
    memory->on_event = [] {};
  }

  // Sets the key "long"; at the first write of that, another thread runs `other`, for which the write waits.
  template <class F>
  void SetLongBeside(F other) {
    std::atomic<bool> armed{true};
    memory->on_event = [&] {
      if (!armed.exchange(false)) return;
      std::future<void> done = std::async(std::launch::async, other);
      ended = done.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
      if (!ended) late = std::move(done);
    };
    ASSERT_THAT(db->Set("long", long_value), IsOk());
    memory->on_event = [] {};
  }

  std::shared_ptr<CrashMemory> memory;
  std::unique_ptr<Database> db;
  const std::string long_value = std::string(300'000, 'v');
  bool ended = false;
  std::future<void> late;  // of what did not end in time
};

TEST_F(LongValueTest, OthersReadWriteAndSynchronizeWhileItIsWritten) {
  SetLongBeside([&] {
    for (int i = 0; i < 500; ++i) EXPECT_THAT(db->Set("key" + std::to_string(i), "other"), IsOk());
    EXPECT_EQ(db->Get("long").value(), "short as yet");
    EXPECT_THAT(db->Set("long", "written meanwhile"), IsOk());
    EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  });
  EXPECT_TRUE(ended) << "another thread had to wait";
  EXPECT_TRUE(db->Get("long").value() == long_value);
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST_F(LongValueTest, ThatEntersAfterASynchronizationIsNoPartOfItsState) {
  SetLongBeside([&] { EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk()); });
  ASSERT_TRUE(ended);
  Random random(1);
  for (std::uint64_t crash = 0; crash < kCrashes; ++crash) {
    auto after = std::make_shared<CrashMemory>(memory->Crash(random), std::uint8_t{2});
    ASSERT_OK_AND_ASSIGN(auto recovered, Database::Open(PositionalCrashFile(after)));
    EXPECT_EQ(recovered->Get("long").value(), "short as yet");
    EXPECT_THAT(recovered->Verify(), IsOk());
  }
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  auto after = std::make_shared<CrashMemory>(memory->Crash(random), std::uint8_t{2});
  ASSERT_OK_AND_ASSIGN(auto recovered, Database::Open(PositionalCrashFile(after)));
  EXPECT_TRUE(recovered->Get("long").value() == long_value);
}

TEST_F(LongValueTest, SurvivesARebuildThatRunsWhileItIsWritten) {
  for (int i = 0; i < 500; i += 2) ASSERT_THAT(db->Remove("key" + std::to_string(i)), IsOk());
  SetLongBeside([&] {
    EXPECT_THAT(db->Rebuild(), IsOk());
    for (int i = 0; i < 500; ++i) EXPECT_THAT(db->Set("key" + std::to_string(i), std::string(1000, 'w')), IsOk());
  });
  EXPECT_TRUE(ended);
  EXPECT_TRUE(db->Get("long").value() == long_value);
  EXPECT_THAT(db->Verify(), IsOk());
}

// Blocks that a Rebuild frees belong to extents that are about to be freed as a whole.
TEST(LongValueRebuildTest, KeepsValuesThatOthersReplaceMeanwhile) {
  ASSERT_OK_AND_ASSIGN(auto database, HashDBM<MemoryFile>::Open(MemoryFile()));
  Random random(1);
  const std::string bytes = random.Bytes(1 << 20);
  const auto value = [&bytes](int i) { return std::string_view(bytes).substr(static_cast<std::size_t>(i) * 1000, 700'000); };
  for (int i = 0; i < 20; ++i) ASSERT_THAT(database->Set(std::to_string(i), value(i)), IsOk());
  std::atomic<bool> stop = false;
  Status status;
  auto writer = std::async(std::launch::async, [&] {
    for (int i = 0; !stop && status.ok(); ++i) status = database->Set(std::to_string(i % 20), value(i % 20));
  });
  for (int i = 0; i < 25; ++i) EXPECT_THAT(database->Rebuild(), IsOk());
  stop = true;
  writer.wait();
  EXPECT_THAT(status, IsOk());
  for (int i = 0; i < 20; ++i) EXPECT_THAT(database->Get(std::to_string(i)), IsOkAndHolds(value(i)));
  EXPECT_THAT(database->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
