// Long values of a TreeDBM beside other threads, which read and change records of the same leaf
// while the value is copied, written or read.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "support/hooked_file.h"
#include "support/slow_memory.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

using Database = TreeDBM<HookedFile>;
constexpr std::size_t kSize = 2 << 20;

class TreeLongValue : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(db_, Database::Open(HookedFile(file_.Share(),
                                                        [this](Access access) {
                                                          if (armed_) OnAccess(access);
                                                        }),
                                             {.cache_bytes = 1 << 20}));
    for (int i = 0; i < 10; ++i) ASSERT_THAT(db_->Set(Key(i), "value"), IsOk());
    ASSERT_THAT(db_->Set("long", "short as yet"), IsOk());
  }
  void TearDown() override {
    armed_ = false;
    EXPECT_THAT(db_->Verify(), IsOk());
    EXPECT_THAT(db_->Close(), IsOk());
  }
  // Called before each access to the file while armed_.
  virtual void OnAccess(Access /*access*/) {}

  static std::string Key(int i) { return "key" + std::to_string(i); }  // all in the leaf of "long"

  // Whether `other` ends while `operation`, in another thread, is stopped at the end of `memory`.
  template <class Operation, class Other>
  void RunBeside(SlowMemory& memory, Operation operation, Other other) {
    std::thread thread(operation);
    memory.WaitForReader();
    other();
    memory.Release();
    thread.join();
    EXPECT_FALSE(memory.has_given_up()) << "another thread waited";
  }
  void UseOtherRecords() {
    for (int i = 0; i < 10; ++i) {
      EXPECT_THAT(db_->Get(Key(i)).status(), IsOk());
      EXPECT_THAT(db_->Set(Key(i), "other"), IsOk());
    }
  }

  MemoryFile file_;
  std::atomic<bool> armed_{false};
  std::unique_ptr<Database> db_;
};

TEST_F(TreeLongValue, SetCopiesItWithNothingLocked) {
  SlowMemory value(kSize);
  RunBeside(
      value, [&] { EXPECT_THAT(db_->Set("long", value.view()), IsOk()); }, [&] { UseOtherRecords(); });
  EXPECT_THAT(db_->Get("long"), IsOkAndHolds(value.view()));
}

TEST_F(TreeLongValue, VisitorsResultIsCopiedWithNothingLocked) {
  SlowMemory value(kSize);
  RunBeside(
      value, [&] { EXPECT_THAT(db_->Process("long", [&](std::optional<std::string_view>) { return Action::Set(value.view()); }), IsOk()); },
      [&] { UseOtherRecords(); });
  EXPECT_THAT(db_->Get("long"), IsOkAndHolds(value.view()));
}

TEST_F(TreeLongValue, ProcessMultiCopiesItWithNothingLocked) {
  SlowMemory value(kSize);
  const std::string_view keys[] = {"long", "key3", "longer"};
  RunBeside(
      value,
      [&] {
        EXPECT_THAT(db_->ProcessMulti(keys,
                                      [&](std::size_t i, std::optional<std::string_view>) {
                                        return std::optional(Action::Set(i == 1 ? std::string_view("short") : value.view()));
                                      }),
                    IsOk());
      },
      [&] { UseOtherRecords(); });
  EXPECT_THAT(db_->Get("long"), IsOkAndHolds(value.view()));
  EXPECT_THAT(db_->Get("longer"), IsOkAndHolds(value.view()));
}

// An update of the same key waits for the copy. Otherwise threads that set the key repeatedly would
// starve threads that must read it.
TEST_F(TreeLongValue, ReplacementWaitsForTheCopy) {
  for (const bool removes : {false, true}) {
    SlowMemory value(kSize);
    std::future<Status> later;
    RunBeside(
        value, [&] { EXPECT_THAT(db_->Set("long", value.view()), IsOk()); },
        [&] {
          later = std::async(std::launch::async, [&] { return removes ? db_->Remove("long") : db_->Set("long", "later"); });
          EXPECT_EQ(later.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
        });
    EXPECT_THAT(later.get(), IsOk());
    if (removes) {
      EXPECT_THAT(db_->Get("long").status(), StatusIs(absl::StatusCode::kNotFound));
    } else {
      EXPECT_THAT(db_->Get("long"), IsOkAndHolds("later"));
    }
  }
}

TEST_F(TreeLongValue, ThreadsThatReadDuringItsCopySeeItWhole) {
  SlowMemory value(kSize);
  std::future<StatusOr<std::string>> get;
  std::future<bool> seen;
  std::future<Status> synchronize;
  RunBeside(
      value, [&] { EXPECT_THAT(db_->Set("long", value.view()), IsOk()); },
      [&] {
        get = std::async(std::launch::async, [&] { return db_->Get("long"); });
        seen = std::async(std::launch::async, [&] {
          bool is_whole = false;
          EXPECT_THAT(db_->Get("long", [&](std::string_view found) { is_whole = found == std::string(kSize, 'v'); }), IsOk());
          return is_whole;
        });
        synchronize = std::async(std::launch::async, [&] { return db_->Synchronize(SyncMode::kHard); });
        UseOtherRecords();
      });
  EXPECT_THAT(get.get(), IsOkAndHolds(value.view()));
  EXPECT_TRUE(seen.get());
  EXPECT_THAT(synchronize.get(), IsOk());
}

// A visitor may return a part of the value that it was shown.
TEST_F(TreeLongValue, CanBeSetToAPartOfItself) {
  const std::string value(kSize, 'v');
  ASSERT_THAT(db_->Set("long", value), IsOk());
  ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());  // so that it is read from the file
  const std::string_view keys[] = {"long", "key3"};
  std::optional<std::string_view> seen;
  EXPECT_THAT(db_->ProcessMulti(keys,
                                [&](std::size_t i, std::optional<std::string_view> found) {
                                  if (i == 0) seen = found;
                                  return std::optional(i == 0 ? Action::Remove() : Action::Set(seen->substr(1)));
                                }),
              IsOk());
  EXPECT_THAT(db_->Get("long").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db_->Get("key3"), IsOkAndHolds(value.substr(1)));
}

// The first write of the file waits until the test has used other records.
class TreeLongValueWrite : public TreeLongValue {
 protected:
  void OnAccess(Access access) override {
    if (access != Access::kWrite || is_writing_.exchange(true)) return;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!is_done_ && !has_given_up_) {
      has_given_up_ = std::chrono::steady_clock::now() > deadline;
      std::this_thread::yield();
    }
  }
  std::atomic<bool> is_writing_{false}, is_done_{false}, has_given_up_{false};
};

TEST_F(TreeLongValueWrite, ContinuesWhileOthersSetShortValues) {
  armed_ = true;
  const std::string value(kSize, 'v');
  std::thread setter([&] { EXPECT_THAT(db_->Set("long", value), IsOk()); });
  while (!is_writing_) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) EXPECT_THAT(db_->Set(Key(i % 50), std::string(static_cast<std::size_t>(i % 90), 's')), IsOk());
  is_done_ = true;
  setter.join();
  EXPECT_FALSE(has_given_up_) << "a short Set waited for the long value's way to the file";
  EXPECT_TRUE(db_->Get("long").value() == value);
}

TEST_F(TreeLongValueWrite, ContinuesWhileOthersChangeMorePagesThanTheCacheHolds) {
  constexpr int kRecords = 1200;  // on 150 pages; the cache holds 128
  armed_ = true;
  const std::string value(kSize, 'v'), record(1000, 'r');
  std::thread setter([&] { EXPECT_THAT(db_->Set("long", value), IsOk()); });
  while (!is_writing_) std::this_thread::yield();
  for (int i = 0; i < kRecords; ++i) EXPECT_THAT(db_->Set(Key(i), record), IsOk());
  is_done_ = true;
  setter.join();
  EXPECT_FALSE(has_given_up_) << "Sets of short values waited until the long one was written";
  for (int i = 0; i < kRecords; ++i) ASSERT_THAT(db_->Get(Key(i)), IsOkAndHolds(record));
}

TEST_F(TreeLongValueWrite, ContinuesWhileOthersReadMorePagesThanTheCacheHolds) {
  constexpr int kRecords = 2400;
  const std::string value(kSize, 'v'), record(1000, 'r');
  for (int i = 0; i < kRecords; ++i) ASSERT_THAT(db_->Set(Key(i), record), IsOk());
  ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
  armed_ = true;
  std::thread setter([&] { EXPECT_THAT(db_->Set("long", value), IsOk()); });
  while (!is_writing_) std::this_thread::yield();
  for (int i = 0; i < kRecords / 2; ++i) EXPECT_THAT(db_->Set(Key(i), record), IsOk());  // pages that cannot be evicted now
  for (int i = 0; i < kRecords; ++i) EXPECT_THAT(db_->Get(Key(i)), IsOkAndHolds(record));
  is_done_ = true;
  setter.join();
  EXPECT_FALSE(has_given_up_) << "a Get waited until the long value was written";
}

// Each read of the file by the thread of `operation` waits until another thread has changed and
// written the leaf.
class TreeLongValueRead : public TreeLongValue {
 protected:
  void SetUp() override {
    TreeLongValue::SetUp();
    ASSERT_THAT(db_->Set("long", value_), IsOk());
    ASSERT_THAT(db_->Set("longer", value_), IsOk());
    ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
    armed_ = true;
  }
  void OnAccess(Access access) override {
    if (access != Access::kRead || std::this_thread::get_id() != reader_) return;
    ++num_reads_;
    if (is_over_) return;
    std::future<void> other = std::async(std::launch::async, [this] {
      EXPECT_THAT(db_->Set("key0", std::to_string(num_reads_)), IsOk());
      EXPECT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
      if (num_reads_ == 1) on_first_read_();
    });
    if (other.wait_for(std::chrono::seconds(60)) == std::future_status::ready) return;
    is_over_ = true;
    ADD_FAILURE() << "another thread waited for the read";
    late_ = std::move(other);
  }
  void TearDown() override {
    if (late_.valid()) late_.wait();
    EXPECT_GT(num_reads_, 0);
    TreeLongValue::TearDown();
  }

  // In parts of a mebibyte.
  static constexpr int kReads = 2;
  const std::string value_ = std::string(kSize, 'v');
  const std::thread::id reader_ = std::this_thread::get_id();
  std::atomic<int> num_reads_{0};
  std::atomic<bool> is_over_{false};
  std::function<void()> on_first_read_ = [] {};
  std::future<void> late_;
};

TEST_F(TreeLongValueRead, GetReadsOnceWithoutStoppingOthers) {
  EXPECT_TRUE(db_->Get("long").value() == value_);
  EXPECT_EQ(num_reads_, kReads);
}

TEST_F(TreeLongValueRead, VisitorReadsOnceWithoutStoppingOthers) {
  bool is_whole = false;
  EXPECT_THAT(db_->Get("long", [&](std::string_view found) { is_whole = found == value_; }), IsOk());
  EXPECT_TRUE(is_whole);
  EXPECT_EQ(num_reads_, kReads);
}

TEST_F(TreeLongValueRead, UpdateReadsOnceWithoutStoppingOthers) {
  std::string old_value;
  EXPECT_THAT(db_->Set("long", "short", {.old_value = &old_value}), IsOk());
  EXPECT_TRUE(old_value == value_);
  EXPECT_EQ(num_reads_, kReads);
}

TEST_F(TreeLongValueRead, ProcessMultiReadsOnceWithoutStoppingOthers) {
  const std::string_view keys[] = {"long", "key3", "longer", "long"};
  int num_whole = 0;
  EXPECT_THAT(db_->ProcessMulti(keys, [&](std::size_t, std::optional<std::string_view> found) { num_whole += *found == value_; }), IsOk());
  EXPECT_EQ(num_whole, 3);
  EXPECT_EQ(num_reads_, 2 * kReads);
}

TEST_F(TreeLongValueRead, IteratorReadsWithoutStoppingOthers) {
  int num_records = 0;
  for (const auto& record : db_->Range()) num_records += record.second.size() > 1;
  EXPECT_EQ(num_records, 12);
}

TEST_F(TreeLongValueRead, FindsTheReplacement) {
  for (const bool is_long : {true, false}) {
    num_reads_ = 0;
    const std::string later = is_long ? std::string(kSize, 'w') : "w";
    on_first_read_ = [&] { EXPECT_THAT(db_->Set("long", later), IsOk()); };
    char first = 0;
    EXPECT_THAT(db_->Get("long", [&](std::string_view found) { first = found[0]; }), IsOk());
    EXPECT_EQ(first, 'w');
  }
}

TEST_F(TreeLongValueRead, FindsNothingAfterARemoval) {
  on_first_read_ = [&] {
    EXPECT_THAT(db_->Remove("long"), IsOk());
    EXPECT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
    EXPECT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
  };
  EXPECT_THAT(db_->Get("long").status(), testing::AnyOf(IsOk(), StatusIs(absl::StatusCode::kNotFound)));
}

TEST_F(TreeLongValueRead, IsSkippedIfUnneeded) {
  EXPECT_THAT(db_->GetSize("long"), IsOkAndHolds(kSize));
  EXPECT_THAT(db_->Set("long", "other", {.overwrite = false}), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(num_reads_, 0);
  EXPECT_TRUE(db_->Get("long").value() == value_);
}

// Before the first read of the value, Rebuild moves it, and others are written where it was.
class TreeLongValueMove : public TreeLongValue {
 protected:
  void SetUp() override {
    TreeLongValue::SetUp();
    for (const char* const key : {"before", "long"}) {
      ASSERT_THAT(db_->Set(key, value_), IsOk());
      ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
    }
    ASSERT_THAT(db_->Remove("before"), IsOk());
    ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
    ASSERT_THAT(db_->Set("key0", "other"), IsOk());
    ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());  // the space of "before" is free now
    armed_ = true;
  }
  void OnAccess(Access access) override {
    if (access == Access::kRead && std::this_thread::get_id() == reader_ && num_reads_++ == 0) std::thread([this] { Move(); }).join();
  }
  void TearDown() override {
    EXPECT_GT(num_reads_, kReads) << "the value was not read again";
    TreeLongValue::TearDown();
  }

  static constexpr int kReads = 2;
  const std::string value_ = std::string(kSize, 'v');

 private:
  void Move() {
    bool has_moved = false;
    // While the file is being copied, Rebuild does not cut it. A cut would wait for the read.
    HookedFile copy(MemoryFile(), [&](Access access) {
      if (access != Access::kWrite || std::exchange(has_moved, true)) return;
      EXPECT_THAT(db_->Rebuild(), IsOk());
    });
    EXPECT_THAT(db_->CopyTo(std::move(copy)), IsOk());
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(db_->Set("behind" + std::to_string(i), std::string(kSize, 'b')), IsOk());
      EXPECT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
    }
  }

  const std::thread::id reader_ = std::this_thread::get_id();
  std::atomic<int> num_reads_{0};
};

TEST_F(TreeLongValueMove, GetReadsItAgain) {
  const StatusOr<std::string> found = db_->Get("long");
  ASSERT_THAT(found.status(), IsOk());
  EXPECT_TRUE(*found == value_);
}

TEST_F(TreeLongValueMove, VisitorReadsItAgain) {
  bool is_whole = false;
  EXPECT_THAT(db_->Process("long", [&](std::optional<std::string_view> found) { is_whole = found == value_; }), IsOk());
  EXPECT_TRUE(is_whole);
}

TEST_F(TreeLongValueMove, UpdateReadsItAgain) {
  std::string old_value;
  EXPECT_THAT(db_->Set("long", "short", {.old_value = &old_value}), IsOk());
  EXPECT_TRUE(old_value == value_);
}

TEST_F(TreeLongValueMove, ProcessMultiReadsItAgain) {
  const std::string_view keys[] = {"key3", "long"};
  bool is_whole = false;
  EXPECT_THAT(db_->ProcessMulti(keys, [&](std::size_t i, std::optional<std::string_view> found) { is_whole = i == 1 && found == value_; }),
              IsOk());
  EXPECT_TRUE(is_whole);
}

}  // namespace
}  // namespace hako
