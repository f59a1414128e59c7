// Long values of a hash table: operations of other threads while one is written, and the state
// after a power cut.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/shared_databases.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/file/memory_file.h"
#include "support/crash_memory.h"
#include "support/hooked_file.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

using Database = HashDBM<TestFile>;
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

  // Sets the key "long". Its first write waits until another thread has run `other`.
  template <class F>
  void SetLongBeside(F other) {
    RunBeside([this] { return db->Set("long", long_value); }, other);
  }
  // The same for any update.
  template <class Update, class F>
  void RunBeside(Update update, F other) {
    std::atomic<bool> armed{true};
    memory->on_event = [&] {
      if (!armed.exchange(false)) return;
      std::future<void> done = std::async(std::launch::async, other);
      ended = done.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
      if (!ended) late = std::move(done);
    };
    ASSERT_THAT(update(), IsOk());
    memory->on_event = [] {};
  }

  // Reads and updates enough keys to cover each bucket, and reads the key that is being changed.
  void UseAllBuckets() {
    for (int i = 0; i < 6000; ++i) EXPECT_THAT(db->Set("other" + std::to_string(i), "other"), IsOk());
    for (int i = 0; i < 6000; ++i) EXPECT_THAT(db->Get("other" + std::to_string(i)), IsOkAndHolds("other"));
    EXPECT_THAT(db->Get("long"), IsOkAndHolds("short as yet"));
    EXPECT_THAT(db->Synchronize(SyncMode::kSoft), IsOk());
  }

  std::shared_ptr<CrashMemory> memory;
  std::unique_ptr<Database> db;
  const std::string long_value = std::string(300'000, 'v');
  bool ended = false;
  std::future<void> late;  // of a thread that did not end in time
};

TEST_F(LongValueTest, DatabaseIsUsableWhileItIsWritten) {
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

TEST_F(LongValueTest, BucketIsUsableWhileAVisitorsResultIsWritten) {
  int visits = 0;
  const auto visitor = [&](std::optional<std::string_view> value) {
    ++visits;
    EXPECT_EQ(value, "short as yet");
    return Action::Set(long_value);
  };
  RunBeside([&] { return db->Process("long", visitor); }, [&] { UseAllBuckets(); });
  EXPECT_TRUE(ended) << "another thread had to wait";
  EXPECT_EQ(visits, 1);
  EXPECT_TRUE(db->Get("long").value() == long_value);
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST_F(LongValueTest, BucketsAreUsableWhileAMultiVisitorsResultsAreWritten) {
  const std::vector<std::string_view> keys = {"key1", "long", "absent", "key2", "long"};
  const auto visitor = [&](std::size_t i, std::optional<std::string_view>) -> std::optional<Action> {
    return i == 3 ? Action::Remove() : i == 0 ? Action::Keep() : Action::Set(long_value);
  };
  const auto use_without_synchronizing = [&] {
    for (int i = 0; i < 6000; ++i) EXPECT_THAT(db->Set("other" + std::to_string(i), "other"), IsOk());
    EXPECT_THAT(db->Get("long"), IsOkAndHolds("short as yet"));
    EXPECT_THAT(db->Get("key2"), IsOkAndHolds("value"));
  };
  RunBeside([&] { return db->ProcessMulti(keys, visitor); }, use_without_synchronizing);
  EXPECT_TRUE(ended) << "another thread had to wait";
  EXPECT_TRUE(db->Get("long").value() == long_value);
  EXPECT_TRUE(db->Get("absent").value() == long_value);
  EXPECT_THAT(db->Get("key1"), IsOkAndHolds("value"));
  EXPECT_THAT(db->Get("key2").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(db->Count(), 500u + 1 + 6000);
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST_F(LongValueTest, ClearDoesNotRunBetweenAVisitorAndItsResult) {
  std::future<Status> cleared;
  std::atomic<bool> armed{true};
  memory->on_event = [&] {
    if (!armed.exchange(false)) return;
    cleared = std::async(std::launch::async, [&] { return db->Clear(); });
    cleared.wait_for(std::chrono::milliseconds(300));  // time for a failure
  };
  const auto visitor = [&](std::optional<std::string_view> value) {
    EXPECT_TRUE(value.has_value());
    return Action::Set(long_value);
  };
  EXPECT_THAT(db->Process("long", visitor), IsOk());
  EXPECT_THAT(cleared.get(), IsOk());
  EXPECT_EQ(db->Count(), 0u) << "the visitor saw a record that was cleared before its result was stored";
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST_F(LongValueTest, PublishedAfterASynchronizationIsNotInItsState) {
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

TEST_F(LongValueTest, SurvivesARebuildDuringItsWrite) {
  for (int i = 0; i < 500; i += 2) ASSERT_THAT(db->Remove("key" + std::to_string(i)), IsOk());
  SetLongBeside([&] {
    EXPECT_THAT(db->Rebuild(), IsOk());
    for (int i = 0; i < 500; ++i) EXPECT_THAT(db->Set("key" + std::to_string(i), std::string(1000, 'w')), IsOk());
  });
  EXPECT_TRUE(ended);
  EXPECT_TRUE(db->Get("long").value() == long_value);
  EXPECT_THAT(db->Verify(), IsOk());
}

template <class D>
void ExpectAtomicUpdates(D& db) {
  constexpr int kThreads = 4, kUpdates = 40;
  constexpr std::size_t kPiece = 1000;  // so that results become long on the way
  const auto append = [](std::string& result, std::optional<std::string_view> value) {
    result.assign(value.value_or("")).append(kPiece, 'p');
    return Action::Set(result);
  };
  const std::vector<std::string_view> both = {"a", "b"};
  std::vector<std::future<void>> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.push_back(std::async(std::launch::async, [&, t] {
      std::string result, other;
      for (int i = 0; i < kUpdates; ++i) {
        if ((i + t) % 2 == 0) {
          EXPECT_THAT(db.Process("single", [&](std::optional<std::string_view> value) { return append(result, value); }), IsOk());
        } else {
          EXPECT_THAT(db.ProcessMulti(both,
                                      [&](std::size_t k, std::optional<std::string_view> value) {
                                        return std::optional(append(k == 0 ? result : other, value));
                                      }),
                      IsOk());
        }
        if (i % 8 == 0) EXPECT_THAT(db.Set("filler" + std::to_string(t * kUpdates + i), std::string(10'000, 'f')), IsOk());
      }
    }));
  }
  for (auto& thread : threads) thread.wait();
  const std::size_t all = kThreads * kUpdates / 2 * kPiece;
  EXPECT_EQ(db.Get("single").value().size(), all);
  EXPECT_EQ(db.Get("a").value().size(), all);
  EXPECT_EQ(db.Get("b").value().size(), all);
  EXPECT_THAT(db.Verify(), IsOk());
}

TEST(LongResultTest, UpdatesOfOneKeyAreAtomicInAFile) {
  ASSERT_OK_AND_ASSIGN(auto database, HashDBM<MemoryFile>::Open(MemoryFile()));
  ExpectAtomicUpdates(*database);
}

TEST(LongResultTest, UpdatesOfOneKeyAreAtomicInMemory) {
  ASSERT_OK_AND_ASSIGN(auto database, TinyDBM<>::Open());
  ExpectAtomicUpdates(*database);
}

// Calls a function after each WriteAt, too.
class WrittenFile : public HookedFile {
 public:
  WrittenFile(MemoryFile file, std::function<void()> written)
      : HookedFile(std::move(file), [](Access) {}), written_(std::make_unique<std::function<void()>>(std::move(written))) {}
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) {
    Status status = HookedFile::WriteAt(offset, in);
    (*written_)();
    return status;
  }

 private:
  std::unique_ptr<std::function<void()>> written_;
};

// An extent that another thread is adding has a header before it has free space: it is not an empty one.
TEST(LongValueRebuildTest, LeavesExtentsThatAreBeingAdded) {
  std::atomic<bool> rebuilt = false;
  std::atomic<std::thread::id> writer_id;
  std::promise<void> wrote_header;
  const auto written = [&] {
    if (writer_id.load() != std::this_thread::get_id()) return;
    writer_id = std::thread::id();
    wrote_header.set_value();
    for (int wait = 0; wait < 300 && !rebuilt; ++wait) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  ASSERT_OK_AND_ASSIGN(auto database, HashDBM<WrittenFile>::Open(WrittenFile(MemoryFile(), written)));
  ASSERT_THAT(database->Set("first", "1"), IsOk());
  const std::string value(700'000, 'v');
  std::thread writer([&] {
    writer_id = std::this_thread::get_id();
    EXPECT_THAT(database->Set("second", value), IsOk());
  });
  wrote_header.get_future().wait();
  EXPECT_THAT(database->Rebuild(), IsOk());
  rebuilt = true;
  writer.join();
  EXPECT_THAT(database->Set("third", std::string(value.size(), 'w')), IsOk());
  EXPECT_THAT(database->Get("second"), IsOkAndHolds(value));
  EXPECT_THAT(database->Verify(), IsOk());
}

// Blocks freed by Rebuild belong to extents that are about to be freed as a whole.
TEST(LongValueRebuildTest, KeepsValuesReplacedMeanwhile) {
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
