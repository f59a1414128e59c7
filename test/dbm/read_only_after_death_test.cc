// Another process opens the file of a killed one read-only: Verify, ProcessEach and CopyTo agree
// with Get.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/positional_parallel_file.h"
#include "support/checked_value.h"
#include "support/crash_child.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

const FileOptions kReadOnly = {.mode = OpenMode::kReadOnly, .lock_timeout = std::chrono::seconds(10)};

// Runs `work(db)` in a process that is then killed.
template <class FileT, class F>
void WorkAndDie(const std::string& path, F&& work, Durability durability = Durability::kProcess) {
  CrashChild child([&](CrashProgress& progress) {
    auto db = HashDBM<FileT>::Open(path, {.durability = durability});
    if (!db.ok()) return progress.Fail(std::string(db.status().message()));
    if (const Status status = work(**db); !status.ok()) return progress.Fail(std::string(status.message()));
    progress.ready = true;
    for (;;) CrashChild::Pause(100'000);
  });
  child.AwaitReady();
  child.Kill();
  ASSERT_STREQ(child.progress().failure, "");
}

template <class FileT>
void ExpectShows(const std::string& path, const std::string& copy, const Records& expected, const HashOptions& options = {}) {
  {
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<FileT>::Open(path, options, kReadOnly));
    EXPECT_EQ(db->Count(), expected.size());
    EXPECT_THAT(db->Verify(), IsOk());
    EXPECT_EQ(Difference(expected, ListByProcessEach(*db).records), "none");
    EXPECT_THAT(db->CopyTo(copy), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<FileT>::Open(copy));
  EXPECT_THAT(db->Verify(), IsOk());
  EXPECT_EQ(Difference(expected, ListByIterator(*db).records), "none");
}

// Some synchronized updates, and later ones that are not.
template <class D>
Status Update(D& db, bool late) {
  for (std::uint64_t i = 0; i < (late ? 700 : 1000); ++i) {
    const std::string key = NumberedKey(late ? i + 500 : i);
    if (i % 3 == 0 && late && i < 500) {
      HAKO_RETURN_IF_ERROR(db.Remove(key));
    } else {
      HAKO_RETURN_IF_ERROR(db.Set(key, CheckedValue(key, 50, late)));
    }
  }
  return late ? absl::OkStatus() : db.Synchronize(SyncMode::kHard);
}

Records Model(bool late) {
  Records records;
  for (std::uint64_t i = 0; i < 1000; ++i) records[NumberedKey(i)] = CheckedValue(NumberedKey(i), 50, 0);
  for (std::uint64_t i = 0; late && i < 700; ++i) {
    const std::string key = NumberedKey(i + 500);
    if (i % 3 == 0 && i < 500) {
      records.erase(key);
    } else {
      records[key] = CheckedValue(key, 50, 1);
    }
  }
  return records;
}

TEST(ReadOnlyAfterDeathTest, MappedFileShowsEveryAcknowledgedUpdate) {
  TempDir directory;
  ASSERT_NO_FATAL_FAILURE(WorkAndDie<MemoryMapParallelFile>(directory.File("db"), [](auto& db) {
    HAKO_RETURN_IF_ERROR(Update(db, false));
    return Update(db, true);
  }));
  ExpectShows<MemoryMapParallelFile>(directory.File("db"), directory.File("copy"), Model(true));
}

TEST(ReadOnlyAfterDeathTest, PositionalFileShowsTheLastSynchronizedState) {
  TempDir directory;
  const auto update = [](auto& db) {
    HAKO_RETURN_IF_ERROR(Update(db, false));
    return Update(db, true);
  };
  ASSERT_NO_FATAL_FAILURE(WorkAndDie<PositionalParallelFile>(directory.File("db"), update, Durability::kNone));
  ExpectShows<PositionalParallelFile>(directory.File("db"), directory.File("copy"), Model(false));
}

// Looks like a machine crash: another inode.
TEST(ReadOnlyAfterDeathTest, CopyOfAMappedFileShowsTheLastSynchronizedStateIfAsked) {
  TempDir directory;
  ASSERT_NO_FATAL_FAILURE(WorkAndDie<MemoryMapParallelFile>(directory.File("db"), [](auto& db) {
    HAKO_RETURN_IF_ERROR(Update(db, false));
    return Update(db, true);
  }));
  std::filesystem::copy_file(directory.File("db"), directory.File("crashed"));
  ExpectShows<MemoryMapParallelFile>(directory.File("crashed"), directory.File("copy"), Model(false),
                                     {.unproven_updates = UnprovenUpdates::kDrop});
}

}  // namespace
}  // namespace hako
