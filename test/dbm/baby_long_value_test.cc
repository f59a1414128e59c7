// Long values of a BabyDBM beside other threads, which read and change records of the same leaf
// while the value is copied or read.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/baby_dbm.h"
#include "support/slow_memory.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

constexpr std::size_t kSize = 2 << 20;

class BabyLongValue : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(db_, BabyDBM<>::Open());
    for (int i = 0; i < 10; ++i) ASSERT_THAT(db_->Set(Key(i), "value"), IsOk());
    ASSERT_THAT(db_->Set("long", "short as yet"), IsOk());
  }
  void TearDown() override { EXPECT_THAT(db_->Verify(), IsOk()); }

  static std::string Key(int i) { return "key" + std::to_string(i); }  // all in the leaf of "long"

  void UseOtherRecords() {
    for (int i = 0; i < 10; ++i) {
      EXPECT_THAT(db_->Get(Key(i)).status(), IsOk());
      EXPECT_THAT(db_->Set(Key(i), "other"), IsOk());
    }
  }
  // Runs `other` while `operation`, in another thread, is stopped at the end of `memory`.
  template <class Operation, class Other>
  void RunBeside(SlowMemory& memory, Operation operation, Other other) {
    std::thread thread(operation);
    memory.WaitForReader();
    other();
    memory.Release();
    thread.join();
    EXPECT_FALSE(memory.has_given_up()) << "another thread waited";
  }

  std::unique_ptr<BabyDBM<>> db_;
};

TEST_F(BabyLongValue, SetCopiesItWithNothingLocked) {
  SlowMemory value(kSize);
  RunBeside(
      value, [&] { EXPECT_THAT(db_->Set("long", value.view()), IsOk()); }, [&] { UseOtherRecords(); });
  EXPECT_THAT(db_->Get("long"), IsOkAndHolds(value.view()));
}

TEST_F(BabyLongValue, ProcessMultiCopiesItWithNothingLocked) {
  SlowMemory value(kSize);
  const std::string_view keys[] = {"long", "key3"};
  const auto visit = [&](std::size_t i, std::optional<std::string_view>) {
    return std::optional(Action::Set(i == 1 ? std::string_view("short") : value.view()));
  };
  RunBeside(
      value, [&] { EXPECT_THAT(db_->ProcessMulti(keys, visit), IsOk()); }, [&] { UseOtherRecords(); });
  EXPECT_THAT(db_->Get("long"), IsOkAndHolds(value.view()));
}

// An update of the same key waits for the copy. Otherwise threads that set the key repeatedly would
// starve threads that must read it.
TEST_F(BabyLongValue, ReplacementWaitsForTheCopy) {
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

TEST_F(BabyLongValue, ThreadsThatReadDuringItsCopySeeItWhole) {
  SlowMemory value(kSize);
  std::future<StatusOr<std::string>> get;
  std::future<Status> append, several;
  RunBeside(
      value, [&] { EXPECT_THAT(db_->Set("long", value.view()), IsOk()); },
      [&] {
        get = std::async(std::launch::async, [&] { return db_->Get("long"); });
        several = std::async(std::launch::async, [&] {
          const std::string_view keys[] = {"key1", "long"};
          return db_->ProcessMulti(
              keys, [&](std::size_t i, std::optional<std::string_view> found) -> void { EXPECT_TRUE(i == 0 || found->size() >= kSize); });
        });
        append = std::async(std::launch::async, [&] { return db_->Append("long", "w"); });
        UseOtherRecords();
      });
  EXPECT_TRUE(get.get().value().starts_with(value.view()));
  EXPECT_THAT(several.get(), IsOk());
  EXPECT_THAT(append.get(), IsOk());
  EXPECT_THAT(db_->Get("long"), IsOkAndHolds(std::string(value.view()) + "w"));
}

TEST_F(BabyLongValue, VisitorReadsItWithNothingLocked) {
  const std::string value(kSize, 'v');
  ASSERT_THAT(db_->Set("long", value), IsOk());
  std::future<void> other;
  EXPECT_THAT(db_->Get("long",
                       [&](std::string_view found) {
                         other = std::async(std::launch::async, [this] {
                           UseOtherRecords();
                           EXPECT_THAT(db_->Set("long", "replaced"), IsOk());
                         });
                         EXPECT_EQ(other.wait_for(std::chrono::seconds(60)), std::future_status::ready) << "another thread waited";
                         EXPECT_TRUE(found == value);
                       }),
              IsOk());
  other.get();
  EXPECT_THAT(db_->Get("long"), IsOkAndHolds("replaced"));
}

// A visitor may return a part of the value that it was shown.
TEST_F(BabyLongValue, CanBeSetToAPartOfItself) {
  const std::string value(kSize, 'v');
  ASSERT_THAT(db_->Set("long", value), IsOk());
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

}  // namespace
}  // namespace hako
