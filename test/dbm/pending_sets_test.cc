// Pending Sets, of keys that may exist already, with direct I/O: the records that they replace are
// read in batches, every thread sees them at once, and none is lost while reads fail.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/hash/file/pending_list.h"
#include "support/checked_value.h"
#include "support/direct_file.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

constexpr std::uint64_t kRecords = 640, kValueSize = 480, kLongSize = 300'000;

// Counts single and batched reads, fails reads on request, and lets a long write wait for the test.
class WatchedFile : public DirectFile<512> {
 public:
  static inline std::atomic<std::uint64_t> reads = 0, groups = 0;
  static inline std::atomic<bool> fails = false;
  static inline std::function<void()> on_long_write;  // called by the writing thread, once

  static StatusOr<WatchedFile> Open(const std::string& path, const FileOptions& options = {}) {
    HAKO_ASSIGN_OR_RETURN(auto file, DirectFile::Open(path, options));
    return WatchedFile(std::move(file));
  }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
    if (fails) return absl::UnavailableError("the device does not answer");
    if (out.size() > 8) ++reads;  // no stamp
    return DirectFile::ReadAt(offset, out);
  }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) {
    if (in.size() > 2 * kValueSize && on_long_write) std::exchange(on_long_write, nullptr)();
    return DirectFile::WriteAt(offset, in);
  }
  Status ReadMulti(std::span<const ReadRequest> requests) const {
    if (fails) return absl::UnavailableError("the device does not answer");
    ++groups;
    return DirectFile::ReadMulti(requests);
  }

 private:
  explicit WatchedFile(DirectFile&& file) : DirectFile(std::move(file)) {}
};
using Hash = HashDBM<WatchedFile>;

class PendingSetsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!PositionalParallelFile::Open(directory_.File("probe"), {.direct = true}).ok()) GTEST_SKIP() << "no direct I/O here";
    Open();
    for (std::uint64_t i = 0; i < kRecords; ++i) Set(i, 0);
    ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
  }
  void TearDown() override {
    WatchedFile::fails = false;
    WatchedFile::on_long_write = nullptr;
    if (db_ == nullptr) return;
    EXPECT_THAT(db_->Verify(), IsOk());
  }
  // Without a log, as Sets wait for others only then.
  void Open() { ASSERT_OK_AND_ASSIGN(db_, Hash::Open(directory_.File("db"), {.seed = 1, .durability = Durability::kNone})); }
  void Set(std::uint64_t i, std::uint64_t salt) {
    const std::string key = NumberedKey(i), value = CheckedValue(key, kValueSize, salt);
    ASSERT_THAT(db_->Set(key, value), IsOk());
    expected_[key] = value;
  }
  void SetSome(std::uint64_t salt) {
    for (std::uint64_t i = 0; i < 100; ++i) Set(i * 7 % kRecords, salt);
  }

  // A visitor, which calls `visit`, makes a long value of the record. Its write waits until another
  // thread has run `beside`.
  template <class F>
  void MakeLongBeside(
      std::string_view key, F beside, const std::function<void()>& visit = [] {}) {
    std::future<void> late;
    bool ended = false;
    WatchedFile::on_long_write = [&] {
      std::future<void> done = std::async(std::launch::async, beside);
      ended = done.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
      if (!ended) late = std::move(done);
    };
    const std::string result(kLongSize, 'r');
    EXPECT_THAT(db_->Process(key,
                             [&](std::optional<std::string_view>) {
                               visit();
                               return Action::Set(result);
                             }),
                IsOk());
    EXPECT_TRUE(ended) << "another thread had to wait for the long write";
  }

  TempDir directory_;
  std::unique_ptr<Hash> db_;
  Records expected_;
};

TEST_F(PendingSetsTest, ReadsReplacedRecordsInBatches) {
  WatchedFile::reads = WatchedFile::groups = 0;
  for (std::uint64_t i = 0; i < kRecords; ++i) Set(i * 7 % kRecords, 1);
  EXPECT_EQ(WatchedFile::groups, kRecords / hash::PendingList::kMax - 1) << "the last ones wait";
  EXPECT_LE(WatchedFile::reads, kRecords / 50);
  EXPECT_EQ(db_->Count(), kRecords);
  EXPECT_EQ(WatchedFile::groups, kRecords / hash::PendingList::kMax);
  EXPECT_EQ(ListByIterator(*db_).records, expected_);
}

TEST_F(PendingSetsTest, NewKeysAreNotPending) {
  WatchedFile::reads = WatchedFile::groups = 0;
  for (std::uint64_t i = kRecords; i < 2 * kRecords; ++i) Set(i, 0);
  db_->Count();
  EXPECT_LE(WatchedFile::reads + WatchedFile::groups, 4u) << "some have the tag of another key";
  EXPECT_EQ(ListByIterator(*db_).records, expected_);
}

TEST_F(PendingSetsTest, EveryOperationSeesPendingSets) {
  std::uint64_t salt = 1;
  const auto key = NumberedKey(7);
  const auto value = [&] { return CheckedValue(key, kValueSize, salt); };
  const std::pair<const char*, std::function<void()>> operations[] = {
      {"Get", [&] { EXPECT_THAT(db_->Get(key), IsOkAndHolds(value())); }},
      {"GetMulti",
       [&] {
         const std::string_view keys[] = {key};
         std::optional<std::string> found[1];
         ASSERT_THAT(db_->GetMulti(keys, found), IsOk());
         EXPECT_EQ(found[0], value());
       }},
      {"Process",
       [&] { EXPECT_THAT(db_->Process(key, [&](std::optional<std::string_view> found) -> void { EXPECT_EQ(found, value()); }), IsOk()); }},
      {"ProcessMulti",
       [&] {
         const std::string_view keys[] = {key};
         EXPECT_THAT(db_->ProcessMulti(keys,
                                       [&](std::size_t, std::optional<std::string_view> found) -> std::optional<Action> {
                                         EXPECT_EQ(found, value());
                                         return Action::Keep();
                                       }),
                     IsOk());
       }},
      {"Append",
       [&] {
         EXPECT_THAT(db_->Append(key, "more"), IsOk());
         EXPECT_THAT(db_->Get(key), IsOkAndHolds(value() + "more"));
         Set(7, salt);
       }},
      {"Remove",
       [&] {
         EXPECT_THAT(db_->Remove(key), IsOk());
         EXPECT_THAT(db_->Remove(key), StatusIs(absl::StatusCode::kNotFound));
         Set(7, salt);
       }},
      {"an iterator", [&] { EXPECT_EQ(ListByIterator(*db_).records, expected_); }},
      {"an iterator that is under way",
       [&] {
         auto it = db_->MakeIterator();
         Records found;
         for (it.First(); it.Valid(); it.Next()) {
           EXPECT_TRUE(found.emplace(it.key(), it.value()).second);
           Set(found.size() % 100 * 7 % kRecords, salt);  // again, as it is
         }
         EXPECT_EQ(found, expected_);
       }},
      {"ProcessEach",
       [&] {
         Listing listing;
         EXPECT_THAT(db_->ProcessEach([&](std::string_view k, std::string_view v) { listing.Add(k, v); }), IsOk());
         EXPECT_EQ(listing.records, expected_);
       }},
      {"ProcessEachParallel",
       [&] {
         Listing listing;
         EXPECT_THAT(db_->ProcessEachParallel(1, [&](std::string_view k, std::string_view v) { listing.Add(k, v); }), IsOk());
         EXPECT_EQ(listing.records, expected_);
       }},
      {"Count", [&] { EXPECT_EQ(db_->Count(), kRecords); }},
      {"GetStats", [&] { EXPECT_EQ(db_->GetStats().num_records, kRecords); }},
      {"Verify", [&] { EXPECT_THAT(db_->Verify(), IsOk()); }},
      {"Rebuild", [&] { EXPECT_THAT(db_->Rebuild(), IsOk()); }},
      {"CopyTo",
       [&] {
         EXPECT_THAT(db_->CopyTo(directory_.File("copy")), IsOk());
         ASSERT_OK_AND_ASSIGN(auto copy, Hash::Open(directory_.File("copy")));
         EXPECT_EQ(ListByIterator(*copy).records, expected_);
       }},
      {"Close",
       [&] {
         ASSERT_THAT(db_->Close(), IsOk());
         Open();
       }},
      {"Clear",
       [&] {
         EXPECT_THAT(db_->Clear(), IsOk());
         EXPECT_EQ(db_->Count(), 0u);
         expected_.clear();
         for (std::uint64_t i = 0; i < kRecords; ++i) Set(i, salt);
       }},
  };
  for (const auto& [name, operation] : operations) {
    SCOPED_TRACE(name);
    ++salt;
    SetSome(salt);
    Set(7, salt);
    operation();
    EXPECT_EQ(ListByIterator(*db_).records, expected_);
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(PendingSetsTest, RepeatedSetsOfAKeyTakeNoSpace) {
  const std::uint64_t bytes = db_->GetStats().total_bytes;
  for (std::uint64_t i = 0; i < 10'000; ++i) Set(i % 3, i);
  EXPECT_EQ(db_->GetStats().total_bytes, bytes);
  EXPECT_EQ(ListByIterator(*db_).records, expected_);
}

TEST_F(PendingSetsTest, NoSetIsLostWhileReadsFail) {
  ASSERT_THAT(db_->Close(), IsOk());
  Open();
  Set(3, 1);
  WatchedFile::fails = true;
  Set(5, 1);
  EXPECT_THAT(db_->Get(NumberedKey(3)), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(db_->Remove(NumberedKey(5)), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(db_->Synchronize(SyncMode::kHard), StatusIs(absl::StatusCode::kUnavailable));
  Set(5, 2);
  std::uint64_t taken = 0;
  while (taken < kRecords && db_->Set(NumberedKey(10 + taken), "taken").ok()) expected_[NumberedKey(10 + taken++)] = "taken";
  EXPECT_EQ(taken, hash::PendingList::kMax - 2) << "more than that have no place, and are refused";
  WatchedFile::fails = false;
  EXPECT_EQ(ListByIterator(*db_).records, expected_);
  EXPECT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_EQ(db_->Count(), kRecords);
}

TEST_F(PendingSetsTest, OthersContinueWhileASetWaitsForALongResult) {
  const std::string held = NumberedKey(3);
  std::future<Status> set;
  MakeLongBeside(held, [&] {
    set = std::async(std::launch::async, [&] { return db_->Set(held, "after the visitor"); });
    set.wait_for(std::chrono::milliseconds(300));  // until it is pending or waits
    Set(5, 1);
    EXPECT_THAT(db_->Get(NumberedKey(5)), IsOkAndHolds(expected_[NumberedKey(5)]));
    EXPECT_EQ(db_->Count(), kRecords);
  });
  EXPECT_THAT(set.get(), IsOk());
  expected_[held] = "after the visitor";
  EXPECT_TRUE(ListByIterator(*db_).records == expected_);
}

TEST_F(PendingSetsTest, OthersContinueWhileASetDuringAVisitIsPending) {
  const std::string held = NumberedKey(3), other = NumberedKey(5);
  std::future<StatusOr<std::string>> get;
  std::future<Status> synchronization;
  const auto set = [&] { return db_->Set(held, "after the visitor"); };
  MakeLongBeside(
      held,
      [&] {
        get = std::async(std::launch::async, [&] { return db_->Get(held); });
        synchronization = std::async(std::launch::async, [&] { return db_->Synchronize(SyncMode::kHard); });
        get.wait_for(std::chrono::milliseconds(300));  // until both wait
        Set(5, 1);
        EXPECT_THAT(db_->Get(other), IsOkAndHolds(expected_[other]));
      },
      [&] { EXPECT_THAT(std::async(std::launch::async, set).get(), IsOk()); });
  EXPECT_THAT(get.get(), IsOkAndHolds("after the visitor"));
  EXPECT_THAT(synchronization.get(), IsOk());
  expected_[held] = "after the visitor";
  EXPECT_TRUE(ListByIterator(*db_).records == expected_);
}

// The write that ProcessMulti waits for lets another thread make one Set pending and have a second
// one flushed at once.
TEST_F(PendingSetsTest, ProcessMultiSeesEachSetThatEndedBeforeOneItSees) {
  const std::string held = NumberedKey(3), first = NumberedKey(5), second = NumberedKey(kRecords);
  const std::string_view keys[] = {held, first, second};
  std::optional<std::string> seen[3];
  std::future<Status> multi;
  MakeLongBeside(held, [&] {
    Set(7, 1);
    WatchedFile::groups = 0;
    multi = std::async(std::launch::async, [&] {
      return db_->ProcessMulti(keys, [&](std::size_t i, std::optional<std::string_view> value) -> void { seen[i] = value; });
    });
    while (WatchedFile::groups == 0) std::this_thread::yield();  // until it flushes the pending Sets; then it waits for the key
    Set(5, 1);
    Set(kRecords, 1);
  });
  EXPECT_THAT(multi.get(), IsOk());
  EXPECT_TRUE(seen[2] == expected_[second]) << "it began to look after that";
  EXPECT_TRUE(seen[1] == expected_[first]) << "an earlier Set is missing";
}

TEST_F(PendingSetsTest, GetAfterASetDuringAMultiVisitSeesItsLongResult) {
  const std::string first = NumberedKey(3), second = NumberedKey(5), result(kLongSize, 'r');
  const std::string_view keys[] = {first, second};
  std::future<StatusOr<std::string>> get;
  WatchedFile::on_long_write = [&] {
    get = std::async(std::launch::async, [&] { return db_->Get(second); });
    get.wait_for(std::chrono::milliseconds(300));  // so that it has read, or waits
  };
  const auto visit = [&](std::size_t i, std::optional<std::string_view>) -> std::optional<Action> {
    if (i == 0) return Action::Keep();
    EXPECT_THAT(std::async(std::launch::async, [&] { return db_->Set(first, "after the visit"); }).get(), IsOk());
    return Action::Set(result);
  };
  EXPECT_THAT(db_->ProcessMulti(keys, visit), IsOk());
  EXPECT_TRUE(get.get().value_or("") == result) << "the visit, which comes before the Set, comes after this Get";
  EXPECT_THAT(db_->Get(first), IsOkAndHolds("after the visit"));
}

// The Set has found no key hold, and the key is held while its record is written.
TEST_F(PendingSetsTest, SetDuringALongProcessMultiEndsAfterIt) {
  const std::string first = NumberedKey(3), second = NumberedKey(5), result(kLongSize, 'r'), later(kValueSize * 3, 's');
  const std::string_view keys[] = {first, second};
  std::promise<void> writes, may_end;
  std::future<Status> set;
  bool missed = false;
  const auto during_multi = [&] {
    may_end.set_value();
    const bool ended = set.wait_for(std::chrono::milliseconds(300)) == std::future_status::ready;
    missed = ended && db_->Get(second).value_or("") == expected_[second];
  };
  WatchedFile::on_long_write = [&] {
    writes.set_value();
    may_end.get_future().wait();
  };
  const auto visit = [&](std::size_t i, std::optional<std::string_view>) -> std::optional<Action> {
    if (i == 0) return Action::Keep();
    set = std::async(std::launch::async, [&] { return db_->Set(first, later); });
    writes.get_future().wait();
    WatchedFile::on_long_write = during_multi;
    return Action::Set(result);
  };
  EXPECT_THAT(db_->ProcessMulti(keys, visit), IsOk());
  EXPECT_THAT(set.get(), IsOk());
  EXPECT_FALSE(missed) << "the visit, which comes before the Set, comes after this Get";
  EXPECT_TRUE(db_->Get(first).value_or("") == later);
  EXPECT_TRUE(db_->Get(second).value_or("") == result);
}

}  // namespace
}  // namespace hako
