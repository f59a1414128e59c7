// Golden logs: databases whose process was killed, with the log of each log version, see golden_file.h.
#include <cstdint>
#include <memory>
#include <string>

#include "dbm/golden_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/dbm/write_batch.h"
#include "hako/format/log_format.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

struct Images {
  Image database, log;
};

// A database with updates that only the log has: short ones, a batch, and a long value.
Images MakeLogged(const TreeOptions& options) {
  const MemoryFile database, log;
  auto db = TreeDBM<MemoryFile>::Open(database.Share(), log.Share(), options).value();
  FillGolden(*db);
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  FillGoldenMore(*db);
  EXPECT_THAT(db->WaitDurable(db->LastLsn()), IsOk());  // the next sync's mark says so
  WriteBatch batch;
  batch.RemoveRange(GoldenKey(10), GoldenKey(20));
  batch.Set("batch", "value");
  batch.SetAppliedIndex(11);
  EXPECT_THAT(db->Write(batch), IsOk());
  EXPECT_THAT(db->WaitDurable(db->LastLsn()), IsOk());
  EXPECT_THAT(db->Set("long", std::string(300'000, 'x')), IsOk());
  const Images images{GoldenFiles::BytesOf(database), GoldenFiles::BytesOf(log)};
  EXPECT_THAT(db->Close(), IsOk());
  return images;
}

// Opens the database with this name. The first time its files are made with these options.
void ExpectOutcome(const std::string& name, const TreeOptions& options) {
  Images made;
  const auto make = [&] {
    if (made.log.empty()) made = MakeLogged(options);
  };
  const Image database = GoldenFiles::Get(name + "_database", [&] { return make(), made.database; });
  const Image log = GoldenFiles::Get(name, [&] { return make(), made.log; });
  const auto open = [&](const Image& bytes) {
    return TreeDBM<MemoryFile>::Open(MemoryFile::Of(database), MemoryFile::Of(bytes),
                                     {.cache_bytes = 4 << 20, .log_archive = options.log_archive.empty() ? "" : kNoLogArchive});
  };
  auto db = open(log);
  if (db.ok()) {
    EXPECT_EQ((*db)->AppliedIndex(), 11u);
  }
  GoldenFiles::Expect(name, OutcomeOf(std::move(db)));
  GoldenFiles::Expect(name + " damaged", OutcomeOf(open(DamageAt(log, "later"))));
}

class GoldenLogTest : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Versions, GoldenLogTest, testing::Values(2u, 3u, format::kLogPlainVersion));

TEST_P(GoldenLogTest, ReplaysTheLogOfAKilledProcess) { ExpectOutcome("log_" + std::to_string(GetParam()), {.cache_bytes = 4 << 20}); }

// A log with an archive, whose history ends.
TEST(GoldenLogTest, ReplaysALogWithAHistory) {
  const TempDir archive;
  ExpectOutcome("log_4_history", {.cache_bytes = 4 << 20, .log_archive = archive.path()});
}

}  // namespace
}  // namespace hako
