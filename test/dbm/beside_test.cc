// What lies beside a database file, and belongs to another: a log that is not that of this file, an archive
// that another database uses. Nothing of it is overwritten, and a history does not end without being asked.
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/restore.h"
#include "hako/log/log_archive.h"
#include "support/file_system.h"
#include "support/killed_files.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// Kinds that keep a log, as names of AnyDBM.
struct Kind {
  const char* label;
  const char* suffix;
  const char* options;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.label; }
constexpr Kind kKinds[] = {
    {"Tree", ".hkt", "page_size=512"},      {"PositionalTree", ".hkt", "file=pos"},
    {"PositionalHash", ".hkh", "file=pos"}, {"DurableHash", ".hkh", "durability=power"},
    {"Array", ".hka", "width=8"},           {"Tiny", ".hks", "dbm=tiny"},
    {"Baby", ".hks", "dbm=baby"},
};

auto RefusedWith(const std::string& part) { return StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(part)); }

class BesideTest : public testing::TestWithParam<Kind> {
 protected:
  BesideTest() { fs::create_directory(archive_); }
  std::string Path(const std::string& name) const { return dir_.File(name) + GetParam().suffix; }
  StatusOr<std::unique_ptr<AnyDBM>> Open(const std::string& name, const std::string& options = "") const {
    return AnyDBM::Open(Path(name) + "?" + GetParam().options + (options.empty() ? "" : "," + options));
  }
  std::string WithArchive() const { return "log_bytes=65536,log_archive=" + archive_; }
  void Fill(AnyDBM& db, int from, int to) const {
    for (int i = from; i < to; ++i) ASSERT_THAT(db.Set(std::to_string(i), "v" + std::to_string(i % 1000)), IsOk());
  }
  // The files of a database that was killed with updates in its log.
  void MakeKilled(const std::string& name, const std::string& options = "") const {
    const auto db = Open("live", options);
    ASSERT_THAT(db, IsOk());
    Fill(**db, 0, 50);
    CopyAsKilled(Path("live"), Path(name));
    ASSERT_GT(ReadWhole(Path(name) + "-log").size(), 0u);
  }
  std::uint64_t CountIn(const std::string& name, const std::string& options = "") const {
    const auto db = Open(name, options);
    EXPECT_THAT(db, IsOk());
    return db.ok() ? (*db)->Count() : 0;
  }

  TempDir dir_{TempDir::MemoryParent()};
  const std::string archive_ = dir_.File("archive");
};

TEST_P(BesideTest, ANewDatabaseDoesNotReplaceTheLogOfAnother) {
  MakeKilled("a");
  const std::string log = ReadWhole(Path("a") + "-log");
  fs::rename(Path("a"), Path("moved"));
  for (const char* const options : {"", "durability=none", ""}) {
    EXPECT_THAT(Open("a", options).status(), RefusedWith(fs::canonical(dir_.path()).string() + "/a" + GetParam().suffix + "-log"));
    EXPECT_EQ(ReadWhole(Path("a") + "-log"), log);
  }
  fs::rename(Path("moved"), Path("a"));
  EXPECT_EQ(CountIn("a"), 50u);
}

// A log that has no updates yet still tells that a database was here: its file has all the records.
TEST_P(BesideTest, ALogWithoutUpdatesTellsOfALostFile) {
  {
    const auto db = Open("live");
    ASSERT_THAT(db, IsOk());
    Fill(**db, 0, 50);
    ASSERT_THAT((*db)->Close(), IsOk());
  }
  const auto live = Open("live");
  ASSERT_THAT(live, IsOk());
  CopyAsKilled(Path("live"), Path("a"));
  const std::string log = ReadWhole(Path("a") + "-log");
  ASSERT_GT(log.size(), 0u);
  fs::rename(Path("a"), Path("moved"));
  for (const char* const options : {"", "durability=none"}) {
    EXPECT_THAT(Open("a", options).status(),
                RefusedWith("there is no file " + fs::canonical(dir_.path()).string() + "/a" + GetParam().suffix));
    EXPECT_FALSE(fs::exists(Path("a")));
    EXPECT_TRUE(ReadWhole(Path("a") + "-log") == log);
  }
  fs::rename(Path("moved"), Path("a"));
  EXPECT_EQ(CountIn("a"), 50u);
}

// The log of a creation that was killed before it was complete is no such log.
TEST_P(BesideTest, AnUnfinishedLogTellsOfNoFile) {
  for (const std::string& bytes : {std::string(), std::string(16 << 10, '\0')}) {
    std::ofstream(Path("a") + "-log") << bytes;
    EXPECT_EQ(CountIn("a"), 0u);
  }
}

TEST_P(BesideTest, ALogCanBeMovedAfterItsFile) {
  MakeKilled("a");
  fs::rename(Path("a"), Path("moved"));
  EXPECT_THAT(Open("moved").status(), StatusIs(absl::StatusCode::kDataLoss));
  ASSERT_FALSE(Open("a").ok());
  fs::rename(Path("a") + "-log", Path("moved") + "-log");
  EXPECT_EQ(CountIn("moved"), 50u);
  fs::remove(Path("a"));
  EXPECT_EQ(CountIn("a"), 0u);
}

TEST_P(BesideTest, TruncateDropsTheLogOfAnother) {
  MakeKilled("a");
  fs::remove(Path("a"));
  for (const char* const options : {"mode=truncate", "mode=truncate,durability=none"}) {
    EXPECT_EQ(CountIn("a", options), 0u);
    EXPECT_FALSE(fs::exists(Path("a") + "-log"));
  }
}

// A copy is another database than the one that the log belongs to.
TEST_P(BesideTest, ACopyDoesNotReplaceTheLogOfTheOriginal) {
  MakeKilled("a");
  {
    const auto db = Open("live");
    ASSERT_THAT(db, IsOk());
    ASSERT_THAT((*db)->CopyTo(Path("copy")), IsOk());
  }
  const std::string log = ReadWhole(Path("a") + "-log");
  fs::rename(Path("a"), Path("moved"));
  fs::copy_file(Path("copy"), Path("a"));
  EXPECT_THAT(Open("a").status(), RefusedWith("a" + std::string(GetParam().suffix) + "-log"));
  EXPECT_EQ(ReadWhole(Path("a") + "-log"), log);
  fs::rename(Path("a") + "-log", Path("moved") + "-log");
  EXPECT_EQ(CountIn("moved"), 50u);
  EXPECT_EQ(CountIn("a"), 50u);
}

// A kill at the end of Close leaves the log, which the database does not need any more.
TEST_P(BesideTest, TheLogOfAnEarlierOpeningIsDropped) {
  for (int round = 0; round < 3; ++round) {
    {
      const auto db = Open("a");
      ASSERT_THAT(db, IsOk());
      EXPECT_EQ((*db)->Count(), 20u * static_cast<unsigned>(round));
      Fill(**db, 20 * round, 20 * round + 20);
      fs::copy_file(Path("a") + "-log", dir_.File("kept"), fs::copy_options::overwrite_existing);
      ASSERT_THAT((*db)->Close(), IsOk());
    }
    ASSERT_FALSE(fs::exists(Path("a") + "-log"));
    fs::copy_file(dir_.File("kept"), Path("a") + "-log");
  }
  EXPECT_EQ(CountIn("a"), 60u);
}

// ---- archives ----

TEST_P(BesideTest, TwoOpenDatabasesDoNotShareAnArchive) {
  const auto a = Open("a", WithArchive());
  ASSERT_THAT(a, IsOk());
  Fill(**a, 0, 10);
  ASSERT_THAT((*a)->CopyTo(Path("copy")), IsOk());
  const auto b = Open("b", WithArchive());
  EXPECT_THAT(b.status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                   AllOf(HasSubstr(archive_), HasSubstr("/a" + std::string(GetParam().suffix)))));
  Fill(**a, 0, 5'000);
  ASSERT_THAT((*a)->Synchronize(SyncMode::kHard), IsOk());
  ASSERT_THAT((*a)->Close(), IsOk());
  // Nor one after the other.
  EXPECT_THAT(Open("b", WithArchive()).status(), RefusedWith(archive_));
  EXPECT_EQ(CountIn("a", WithArchive()), 5'000u);
  const auto restored = AnyDBM::Restore(Path("copy"), archive_, Path("restored"), {});
  ASSERT_THAT(restored, IsOk());
  EXPECT_EQ(CountIn("restored"), 5'000u);
}

TEST_P(BesideTest, AFileInTheArchiveIsNotReplaced) {
  const std::string path = archive_ + "/" + log::ArchiveNameOf(1);
  const auto db = Open("a", WithArchive());
  ASSERT_THAT(db, IsOk());
  std::ofstream(path) << "precious";
  Fill(**db, 0, 5'000);
  EXPECT_THAT((*db)->Synchronize(SyncMode::kHard), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(path)));
  EXPECT_EQ(ReadWhole(path), "precious");
  fs::remove(path);
  EXPECT_THAT((*db)->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_THAT((*db)->Close(), IsOk());
}

TEST_P(BesideTest, AHistoryEndsOnlyWhenAsked) {
  for (const bool is_closed : {true, false}) {
    SCOPED_TRACE(is_closed ? "closed" : "killed");
    const std::string name = is_closed ? "live" : "killed";
    MakeKilled("killed", WithArchive());
    const std::string file = ReadWhole(Path(name));
    for (const char* const options : {"", "durability=none"}) EXPECT_THAT(Open(name, options).status(), RefusedWith("log_archive=none"));
    if (is_closed) {  // to read it, and to change a copy, which the history does not depend on, needs nothing
      const auto db = Open(name, "mode=read");
      ASSERT_THAT(db, IsOk());
      EXPECT_EQ((*db)->Count(), 50u);
      ASSERT_THAT((*db)->CopyTo(Path("copy")), IsOk());
      EXPECT_EQ(CountIn("copy"), 50u);
    }
    {
      const auto db = Open(name, WithArchive());
      ASSERT_THAT(db, IsOk());
      Fill(**db, 50, 60);
      ASSERT_THAT((*db)->Close(), IsOk());
    }
    EXPECT_EQ(CountIn(name, "log_archive=none"), 60u);
    EXPECT_EQ(CountIn(name), 60u);
    EXPECT_THAT(Open(name, WithArchive()).status(), RefusedWith(archive_));
    for (const char* const each : {"live", "killed", "copy"}) fs::remove(Path(each));
    fs::remove(Path("killed") + "-log");
    fs::remove_all(archive_);
    fs::create_directory(archive_);
  }
}

// Killed, its history ended at once, and killed again.
TEST_P(BesideTest, AKilledHistoryCanBeEnded) {
  MakeKilled("killed", WithArchive());
  {
    const auto db = Open("killed", "log_archive=none");
    ASSERT_THAT(db, IsOk());
    Fill(**db, 50, 70);
    CopyAsKilled(Path("killed"), Path("again"));
  }
  EXPECT_EQ(CountIn("killed"), 70u);
  EXPECT_EQ(CountIn("again"), 70u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, BesideTest, testing::ValuesIn(kKinds), [](const auto& one) { return one.param.label; });

}  // namespace
}  // namespace hako
