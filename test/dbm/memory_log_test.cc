// TinyDBM and BabyDBM opened with a path: what their snapshots have, and how they fail. What they share
// with the databases in files is in log_test.cc.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/hash.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/write_batch.h"
#include "hako/file/memory_file.h"
#include "hako/storage/snapshot.h"
#include "support/allocation_counter.h"
#include "support/checked_value.h"
#include "support/child_process.h"
#include "support/crash_child.h"
#include "support/crash_states.h"
#include "support/failing_calls.h"
#include "support/random.h"
#include "support/small_disk.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "support/threads.h"

namespace hako {
namespace {

using testing::HasSubstr;

struct Tiny {
  using Database = TinyDBM<>;
  static inline const TinyOptions kOptions = {};
};
struct Baby {
  using Database = BabyDBM<>;
  static inline const BabyOptions kOptions = {.page_size = 512};
};

template <class Kind>
class MemoryLogTest : public testing::Test {
 protected:
  using Database = typename Kind::Database;

  static auto With(Durability durability, std::uint64_t log_bytes = std::uint64_t{64} << 20) {
    auto options = Kind::kOptions;
    options.durability = durability;
    options.log_bytes = log_bytes;
    return options;
  }
  auto Open(const std::string& path, Durability durability = Durability::kProcess, OpenMode mode = OpenMode::kCreate) {
    return Database::Open(path, With(durability), {.mode = mode});
  }
  // The files as they are now, under another name.
  std::string Copy(const std::string& name) {
    for (const char* const ending : {"", "-log"}) {
      if (std::filesystem::exists(path_ + ending))
        std::filesystem::copy_file(path_ + ending, directory_.File(name) + ending, std::filesystem::copy_options::overwrite_existing);
    }
    return directory_.File(name);
  }
  TempDir directory_;
  const std::string path_ = directory_.File("db");
};
using Kinds = testing::Types<Tiny, Baby>;
TYPED_TEST_SUITE(MemoryLogTest, Kinds);

TYPED_TEST(MemoryLogTest, WithoutALogHasExactlyTheLastSnapshot) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_, Durability::kNone));
  const std::string value(3000, 'v');  // long in a tree
  ASSERT_THAT(db->Set("a", value), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  ASSERT_THAT(db->Set("b", "2"), IsOk());
  ASSERT_THAT(db->Remove("a"), IsOk());
  EXPECT_FALSE(std::filesystem::exists(this->path_ + "-log"));
  {
    ASSERT_OK_AND_ASSIGN(auto killed, this->Open(this->Copy("killed"), Durability::kNone));
    EXPECT_EQ(ListByIterator(*killed).records, (Records{{"a", value}}));
  }
  ASSERT_THAT(db->Set("c", "3", {.durability = Durability::kPower}), IsOk());  // by a snapshot
  {
    ASSERT_OK_AND_ASSIGN(auto killed, this->Open(this->Copy("killed"), Durability::kNone));
    EXPECT_EQ(ListByIterator(*killed).records, (Records{{"b", "2"}, {"c", "3"}}));
  }
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, this->Open(this->path_));
  EXPECT_EQ(db->Count(), 2u);
}

// Writers wait while a snapshot without a log is written: each batch is in it as a whole.
TYPED_TEST(MemoryLogTest, ConcurrentBatchesAreWholeInASnapshotWithoutALog) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_, Durability::kNone));
  std::jthread writer([&](const std::stop_token& stop) {
    for (std::uint64_t i = 1; !stop.stop_requested(); ++i) {
      WriteBatch batch;
      for (std::uint64_t k = 0; k < 300; k += 1 + i % 7) batch.Set(NumberedKey(k), std::to_string(i));
      batch.Set("first", std::to_string(i));
      batch.Set("last", std::to_string(i));
      batch.SetAppliedIndex(i);
      EXPECT_THAT(db->Write(batch), IsOk());
    }
  });
  while (db->AppliedIndex() == 0) std::this_thread::yield();
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    const std::string copy = this->Copy("copy");
    const auto found = this->Open(copy, Durability::kNone, OpenMode::kReadOnly);
    ASSERT_THAT(found, IsOk());
    EXPECT_EQ((*found)->Get("first").value(), std::to_string((*found)->AppliedIndex()));
    EXPECT_EQ((*found)->Get("last").value(), (*found)->Get("first").value());
  }
}

TYPED_TEST(MemoryLogTest, KeepsTheAppliedIndexOfTheLastBatch) {
  const auto write = [](auto& db, std::uint64_t index) {
    WriteBatch batch;
    batch.Set("key", std::to_string(index));
    batch.SetAppliedIndex(index);
    return db.Write(batch);
  };
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
  ASSERT_THAT(write(*db, 5), IsOk());
  for (const std::string name : {"logged", "in the snapshot", "in both"}) {
    const std::string copy = this->Copy(name);
    ASSERT_OK_AND_ASSIGN(auto killed, this->Open(copy));
    EXPECT_EQ(killed->AppliedIndex(), db->AppliedIndex()) << name;
    EXPECT_EQ(killed->Get("key").value(), std::to_string(killed->AppliedIndex()));
    if (name == "logged") {
      ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    } else {
      ASSERT_THAT(write(*db, db->AppliedIndex() + 1), IsOk());
    }
  }
  MemoryFile saved;
  ASSERT_THAT(db->Save(saved), IsOk());
  ASSERT_OK_AND_ASSIGN(auto loaded, TypeParam::Database::Open());
  ASSERT_THAT(loaded->Load(saved), IsOk());
  EXPECT_EQ(loaded->AppliedIndex(), 7u);
}

// Opening and closing it writes no records again.
TYPED_TEST(MemoryLogTest, AnUnchangedSnapshotIsNotWrittenAgain) {
  {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
    ASSERT_THAT(db->Set("key", "value"), IsOk());
  }
  const auto number = NumberOf(this->path_);
  const auto size = std::filesystem::file_size(this->path_);
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
    EXPECT_EQ(db->Get("key").value(), "value");
    EXPECT_TRUE(std::filesystem::exists(this->path_ + "-log"));
    ASSERT_THAT(db->Close(), IsOk());
    EXPECT_EQ(NumberOf(this->path_), number);
    EXPECT_EQ(std::filesystem::file_size(this->path_), size);
    EXPECT_FALSE(std::filesystem::exists(this->path_ + "-log"));
  }
  // One that names a log, and then nothing changes.
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
  ASSERT_THAT(db->Set("key", "other"), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  const auto synchronized = NumberOf(this->path_);
  ASSERT_THAT(db->Close(), IsOk());
  EXPECT_EQ(NumberOf(this->path_), synchronized);
  ASSERT_OK_AND_ASSIGN(db, this->Open(this->path_));
  EXPECT_EQ(db->Get("key").value(), "other");
}

// The end of a snapshot of the first version has the number of records only.
TYPED_TEST(MemoryLogTest, ReadsASnapshotOfTheFirstVersion) {
  std::string bytes;
  {
    format::SnapshotHeader header{};
    header.magic = format::kSnapshotMagic;
    header.version = 1;
    header.id = 7;
    header.check = Hash64(&header, offsetof(format::SnapshotHeader, check), 0);
    bytes.assign(reinterpret_cast<const char*>(&header), sizeof(header));
    const auto add = [&bytes](const std::string& payload, std::uint32_t records) {
      format::SnapshotBlockHeader block;
      block.payload_bytes = static_cast<std::uint32_t>(payload.size());
      block.records = records;
      block.check = format::SnapshotBlockCheck(payload, records, 7, bytes.size());
      bytes.append(reinterpret_cast<const char*>(&block), sizeof(block)).append(payload);
    };
    add(std::string("\x03\x05keyvalue"), 1);
    add(std::string("\x01\0\0\0\0\0\0\0", 8), 0);
  }
  std::ofstream(this->path_, std::ios::binary) << bytes;
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
  EXPECT_EQ(db->Get("key").value(), "value");
  EXPECT_EQ(db->AppliedIndex(), 0u);
  ASSERT_THAT(db->Set("other", "value"), IsOk());
  ASSERT_OK_AND_ASSIGN(auto killed, this->Open(this->Copy("killed")));
  EXPECT_EQ(killed->Count(), 2u);
}

// An end block that was not completed names no log; one before it still counts.
TYPED_TEST(MemoryLogTest, IgnoresAnEndBlockThatWasNotCompleted) {
  {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
    ASSERT_THAT(db->Set("key", "value"), IsOk());
  }
  const auto size = std::filesystem::file_size(this->path_);
  {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
    std::filesystem::copy_file(this->path_, this->directory_.File("named"));
  }
  const auto named = std::filesystem::file_size(this->directory_.File("named"));
  ASSERT_GT(named, size);
  for (auto cut = size; cut < named; cut += 9) {
    std::filesystem::copy_file(this->directory_.File("named"), this->path_, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(this->path_, cut);
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
    EXPECT_EQ(db->Get("key").value(), "value");
    ASSERT_THAT(db->Close(), IsOk());
    EXPECT_EQ(std::filesystem::file_size(this->path_), size);
  }
  std::filesystem::copy_file(this->directory_.File("named"), this->path_, std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(this->Open(this->path_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("the log is missing")));
}

// Close was killed in the end block that names no log: the log is there, and the end block before names
// it.
TYPED_TEST(MemoryLogTest, IgnoresAnEndBlockOfCloseThatWasNotCompleted) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
  ASSERT_THAT(db->Set("key", "value"), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  const auto size = std::filesystem::file_size(this->path_);
  this->Copy("killed");
  ASSERT_THAT(db->Close(), IsOk());
  const auto closed = std::filesystem::file_size(this->path_);
  ASSERT_GT(closed, size);
  const std::string killed = this->directory_.File("killed"), again = this->directory_.File("again");
  for (auto cut = size; cut < closed; ++cut) {
    std::filesystem::copy_file(this->path_, again, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(again, cut);
    std::filesystem::copy_file(killed + "-log", again + "-log", std::filesystem::copy_options::overwrite_existing);
    SCOPED_TRACE(cut);
    ASSERT_OK_AND_ASSIGN(auto found, this->Open(again));
    EXPECT_EQ(found->Get("key").value(), "value");
  }
}

// A bit that flips in the end block that Open has added does not roll the database back.
TYPED_TEST(MemoryLogTest, RefusesADamagedEndBlockIfTheLogHasUpdates) {
  {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
    ASSERT_THAT(db->Set("key", "old"), IsOk());
  }
  const auto size = std::filesystem::file_size(this->path_);
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
  ASSERT_THAT(db->Set("key", "new"), IsOk());
  const auto named = std::filesystem::file_size(this->path_);
  for (auto at = size; at < named; ++at) {
    const std::string copy = this->Copy("killed");
    {
      std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(at));
      const auto byte = static_cast<char>(file.get() ^ 4);
      file.seekp(static_cast<std::streamoff>(at)).put(byte);
    }
    EXPECT_THAT(this->Open(copy), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("end block"))) << at;
  }
  ASSERT_OK_AND_ASSIGN(auto killed, this->Open(this->Copy("killed")));
  EXPECT_EQ(killed->Get("key").value(), "new");
}

TYPED_TEST(MemoryLogTest, IsLockedFromOpenToClose) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(db->Set("key", std::to_string(i)), IsOk());
    EXPECT_THAT(this->Open(this->path_), StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(db->Save(this->path_), StatusIs(absl::StatusCode::kUnavailable));
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  }
  ASSERT_THAT(db->Close(), IsOk());
  EXPECT_THAT(db->Set("key", "late"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(this->Open(this->path_), IsOk());
}

TYPED_TEST(MemoryLogTest, RefusesUpdatesWhenOpenedReadOnly) {
  {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
    ASSERT_THAT(db->Set("key", "value"), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_, Durability::kProcess, OpenMode::kReadOnly));
  EXPECT_FALSE(db->IsWritable());
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("read-only"));
  EXPECT_THAT(db->Set("key", "other"), refused);
  EXPECT_THAT(db->Append("key", "other"), refused);
  EXPECT_THAT(db->Remove("key"), refused);
  EXPECT_THAT(db->Clear(), refused);
  EXPECT_EQ(db->Get("key").value(), "value");
  EXPECT_THAT(this->Open(this->path_, Durability::kNone, OpenMode::kReadOnly), IsOk());
}

TYPED_TEST(MemoryLogTest, AForkedChildLeavesTheFilesToItsParent) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
  ASSERT_THAT(db->Set("key", "value"), IsOk());
  {
    ChildProcess child([&](ChildProcess&) {
      const bool refuses = !db->Synchronize(SyncMode::kHard).ok() && !db->Close().ok();
      db.reset();
      return refuses ? 0 : 1;
    });
    EXPECT_EQ(child.Result(), 0);
  }
  EXPECT_THAT(this->Open(this->path_), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(std::filesystem::exists(this->path_ + "-log"));
  ASSERT_THAT(db->Set("more", "value"), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, this->Open(this->path_));
  EXPECT_EQ(db->Count(), 2u);
}

TYPED_TEST(MemoryLogTest, RequiresAPathForPower) {
  EXPECT_THAT(TypeParam::Database::Open(this->With(Durability::kPower)), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("path")));
}

// Without room for the next snapshot the last one and the log are the truth.
TYPED_TEST(MemoryLogTest, GoesOnWhileTheDeviceIsFull) {
  SmallDisk disk(8 << 20);
  if (!disk.is_mounted()) GTEST_SKIP() << "needs root";
  const std::string path = disk.File("db"), value(1000, 'v');
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Database::Open(path, this->With(Durability::kProcess)));
  std::uint64_t count = 0;
  Status status;
  for (; status.ok() && count < 100'000; ++count) status = db->Set(NumberedKey(count), value);
  ASSERT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
  --count;
  std::ofstream(disk.File("filler"), std::ios::binary) << std::string(8 << 20, 'f');  // as far as it fits
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(db->Count(), count);
  EXPECT_EQ(db->Get(NumberedKey(count - 1)).value(), value);
  EXPECT_THAT(db->Get(NumberedKey(count)), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db->Close(), StatusIs(absl::StatusCode::kResourceExhausted));
  db.reset();
  std::filesystem::remove(disk.File("filler"));
  ASSERT_TRUE(disk.Enlarge(64 << 20));
  ASSERT_OK_AND_ASSIGN(db, TypeParam::Database::Open(path, this->With(Durability::kProcess)));
  EXPECT_EQ(db->Count(), count);
  EXPECT_THAT(db->Verify(), IsOk());
  ASSERT_THAT(db->Set("more", value), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(std::filesystem::path(path).parent_path()), {}), 1);
}

// Every system call of opening, saving and closing fails in turn, once or from then on.
TYPED_TEST(MemoryLogTest, FailedCallsLoseNothing) {
  {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
    ASSERT_THAT(db->Set("key", "0"), IsOk());
  }
  std::uint64_t fired = 1, failures = 0;
  for (std::uint64_t call = 1; fired > 0; ++call) {
    for (const bool forever : {true, false}) {
      SCOPED_TRACE(std::to_string(call) + (forever ? " forever" : ""));
      std::string least = "0";
      FailingCalls::Instance().Arm({.error = call % 2 == 0 ? EIO : ENOSPC, .call = call, .forever = forever});
      if (auto db = this->Open(this->path_); db.ok()) {
        if ((*db)->Set("key", "1").ok()) least = "1";
        (void)(*db)->Synchronize(SyncMode::kHard);
        if ((*db)->Set("key", "2").ok()) least = "2";
        EXPECT_THAT((*db)->Get("key"), IsOkAndHolds(least));
        (void)(*db)->Close();
      }
      fired = FailingCalls::Instance().fired();
      failures += fired != 0 ? 1 : 0;
      FailingCalls::Instance().Disarm();
      ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
      ASSERT_EQ(db->Get("key").value(), least);
      ASSERT_THAT(db->Verify(), IsOk());
      ASSERT_THAT(db->Set("key", "0"), IsOk());
      ASSERT_THAT(db->Close(), IsOk());
    }
    ASSERT_LT(call, 300u);
  }
  EXPECT_GT(failures, 0u) << "the program does not have the calls of support/failing_calls_definitions.h";
  ReportFailures(failures);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(this->directory_.path()), {}), 1);
}

// Memory runs out in a snapshot, and is there again: each update is in the next one.
TYPED_TEST(MemoryLogTest, MemoryThatRunsOutInASnapshotLosesNothing) {
  using Which = FailingAllocation::Which;
  bool has_failed = true;
  for (std::uint64_t n = 1; has_failed; ++n) {
    for (const Which which : {Which::kOnce, Which::kFromThenOn}) {
      SCOPED_TRACE(std::to_string(n) + (which == Which::kOnce ? "" : " from then on"));
      {
        ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
        ASSERT_THAT(db->Set("key", std::to_string(n)), IsOk());
        {
          FailingAllocation failing(n, which, FailingAllocation::Whose::kThisThread);
          const Status synced = db->Synchronize(SyncMode::kHard);
          has_failed = failing.HasFailed();
          EXPECT_TRUE(synced.ok() || absl::IsResourceExhausted(synced)) << synced;
        }
        ASSERT_THAT(db->Close(), IsOk());
      }
      ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
      ASSERT_EQ(db->Get("key").value(), std::to_string(n));
    }
    ASSERT_LT(n, 300u);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(this->directory_.path()), {}), 1);
}

// The snapshot alone is an older state.
TYPED_TEST(MemoryLogTest, LoadRefusesASnapshotWhoseLogHasLaterUpdates) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_));
  ASSERT_THAT(db->Set("key", "value"), IsOk());
  const std::string killed = this->Copy("killed");
  ASSERT_OK_AND_ASSIGN(auto other, TypeParam::Database::Open(TypeParam::kOptions));
  ASSERT_THAT(other->Set("mine", "1"), IsOk());
  EXPECT_THAT(other->Load(killed), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("later updates")));
  EXPECT_EQ(other->Get("mine").value(), "1");
  ASSERT_THAT(this->Open(killed).status(), IsOk());
  ASSERT_THAT(other->Load(killed), IsOk());
  EXPECT_EQ(other->Get("key").value(), "value");
}

}  // namespace
}  // namespace hako
