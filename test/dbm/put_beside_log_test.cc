// Calls that put a whole database in place: CopyTo, Save, Salvage and Restore. Where a log with updates lies
// beside the name they refuse, and change nothing: no database could be opened there, and the log may have the
// newest updates of one that was there.
#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/restore.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct Kind {
  std::string suffix, options;
};
class PutBesideLogTest : public testing::TestWithParam<Kind> {
 protected:
  std::string Path(const std::string& name) const { return directory_.File(name + GetParam().suffix); }
  StatusOr<std::unique_ptr<AnyDBM>> Open(const std::string& name) const { return AnyDBM::Open(Path(name) + GetParam().options); }
  // A database and its log as a kill leaves them, with one update in the log.
  void MakeUnclosed(const std::string& name) const {
    ASSERT_OK_AND_ASSIGN(const auto db, Open("live"));
    ASSERT_THAT(db->Set("1", "old"), IsOk());
    fs::copy(Path("live"), Path(name));
    fs::copy(Path("live") + "-log", Path(name) + "-log");
    ASSERT_THAT(db->Close(), IsOk());
    fs::remove(Path("live"));
  }

  TempDir directory_;
  const testing::Matcher<const Status&> refused_ = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("-log, which may have"));
};

TEST_P(PutBesideLogTest, CopyIsRefusedAndTheDatabaseThereIsKept) {
  ASSERT_NO_FATAL_FAILURE(MakeUnclosed("there"));
  ASSERT_OK_AND_ASSIGN(const auto other, Open("other"));
  ASSERT_THAT(other->Set("2", "new"), IsOk());
  EXPECT_THAT(other->CopyTo(Path("there")), refused_);
  {
    ASSERT_OK_AND_ASSIGN(const auto there, Open("there"));
    EXPECT_THAT(there->Contains("1"), IsOkAndHolds(true));
    EXPECT_THAT(there->Close(), IsOk());
  }
  ASSERT_THAT(other->CopyTo(Path("there")), IsOk());  // it was closed
  ASSERT_OK_AND_ASSIGN(const auto copy, Open("there"));
  EXPECT_THAT(copy->Contains("2"), IsOkAndHolds(true));
  EXPECT_THAT(copy->Verify(), IsOk());
}

TEST_P(PutBesideLogTest, LogWithoutItsFileIsKept) {
  ASSERT_NO_FATAL_FAILURE(MakeUnclosed("there"));
  fs::rename(Path("there"), Path("moved"));
  fs::create_directory(directory_.File("archive"));
  ASSERT_OK_AND_ASSIGN(AnyOptions options, ParseAnyOptions(Path("other") + GetParam().options));
  options.log_archive = directory_.File("archive");
  ASSERT_OK_AND_ASSIGN(const auto other, AnyDBM::Open(options));
  ASSERT_THAT(other->Set("2", "new"), IsOk());
  EXPECT_THAT(other->CopyTo(Path("there")), refused_);
  ASSERT_THAT(other->CopyTo(Path("copy")), IsOk());
  ASSERT_THAT(other->Close(), IsOk());
  EXPECT_THAT(AnyDBM::Restore(Path("copy"), options.log_archive, Path("there"), {}).status(), refused_);
  if (GetParam().suffix != ".hks") EXPECT_THAT(AnyDBM::Salvage(Path("copy"), Path("there")).status(), refused_);
  EXPECT_FALSE(fs::exists(Path("there")));

  fs::rename(Path("there") + "-log", Path("moved") + "-log");
  ASSERT_THAT(AnyDBM::Restore(Path("copy"), options.log_archive, Path("there"), {}).status(), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto restored, Open("there"));
  EXPECT_THAT(restored->Contains("2"), IsOkAndHolds(true));
  ASSERT_OK_AND_ASSIGN(const auto moved, Open("moved"));
  EXPECT_THAT(moved->Contains("1"), IsOkAndHolds(true));
}

INSTANTIATE_TEST_SUITE_P(Kinds, PutBesideLogTest,
                         testing::Values(Kind{".hkt", ""}, Kind{".hkh", "?file=pos"}, Kind{".hka", "?width=3"}, Kind{".hks", ""},
                                         Kind{".hks", "?dbm=baby"}));

}  // namespace
}  // namespace hako
