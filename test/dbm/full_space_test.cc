// A HashDBM whose file cannot grow: free space is usable regardless of the sizes of the records
// that left it.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "dbm/shared_databases.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/any_file.h"
#include "hako/file/memory_file.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

constexpr std::uint64_t kMost = 6 << 20;  // bytes of the file

// Fills the database, and removes every other record.
template <class D>
void FillAndThin(D& db) {
  const std::string value(120, 'v');
  std::uint64_t n = 0;
  while (db.Set("key" + std::to_string(n), value).ok()) ++n;
  ASSERT_GT(n, 10'000u);
  for (std::uint64_t i = 0; i < n; i += 2) ASSERT_THAT(db.Remove("key" + std::to_string(i)), IsOk());
  ASSERT_THAT(db.Synchronize(SyncMode::kHard), IsOk());
}

// Sets shorter records until no more fit, and returns their size.
template <class D>
std::uint64_t SetShorter(D& db) {
  std::uint64_t n = 0;
  const std::string value(40, 'w');
  while (db.Set("new" + std::to_string(n), value).ok()) ++n;
  return n * 40;
}

template <class D>
void ExpectRoomForShorterRecords(D& db) {
  const std::uint64_t free = db.GetStats().free_bytes;
  ASSERT_GT(free, kMost / 4);
  EXPECT_GE(SetShorter(db), free / 3) << "of " << free << " free bytes";
  EXPECT_THAT(db.Verify(), IsOk());
  EXPECT_THAT(db.Close(), IsOk());
}

StatusOr<std::unique_ptr<HashDBM<>>> OpenMapped(const TempDir& dir) {
  return HashDBM<>::Open(dir.File("a.hkh"), {}, {.reserve_bytes = kMost});
}

TEST(FullSpaceTest, ShorterRecordsFitInTheSpaceOfRemovedOnes) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto db, OpenMapped(dir));
  FillAndThin(*db);
  ExpectRoomForShorterRecords(*db);
}

TEST(FullSpaceTest, ShorterRecordsFitInTheSpaceOfRemovedOnesOfAnUnmappedFile) {
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<AnyFile>::Open(AnyFile(MemoryFile(kMost))));
  FillAndThin(*db);
  ExpectRoomForShorterRecords(*db);
}

TEST(FullSpaceTest, FailedRebuildLeavesTheSpaceUsable) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto db, OpenMapped(dir));
  FillAndThin(*db);
  for (int i = 0; i < 3; ++i) {
    const Status status = db->Rebuild();
    EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
  }
  EXPECT_EQ(db->GetStats().waiting_bytes, 0u);
  ExpectRoomForShorterRecords(*db);
}

}  // namespace
}  // namespace hako
