// Files that CopyTo, Save and snapshots replace as a whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "hako/dbm/any_dbm.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

namespace fs = std::filesystem;

// Databases of every kind with a file.
class ReplacedFileTest : public testing::TestWithParam<const char*> {
 protected:
  std::string Name(const std::string& stem) const { return directory_.File(stem + GetParam()); }
  static std::string FileOf(const std::string& name) { return name.substr(0, name.find('?')); }

  TempDir directory_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, ReplacedFileTest,
                         testing::Values(".hkh", ".hkt", ".hkh?file=pos", ".hkt?file=pos", ".hks", ".hks?dbm=baby"),
                         [](const auto& tested) {
                           std::string name = tested.param + 1;
                           for (char& c : name) c = c == '?' || c == '=' ? '_' : c;
                           return name;
                         });

TEST_P(ReplacedFileTest, CopyToItsOwnFileIsRefused) {
  const std::string name = Name("a");
  fs::create_symlink(FileOf(name), directory_.File("link"));
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(name));
  ASSERT_THAT(db->Set("a", "1"), IsOk());
  EXPECT_THAT(db->CopyTo(FileOf(name)), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(db->CopyTo(directory_.File("link")), StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_THAT(db->Set("b", "2"), IsOk());
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, AnyDBM::Open(name));
  EXPECT_THAT(db->Get("a"), IsOkAndHolds("1"));
  EXPECT_THAT(db->Get("b"), IsOkAndHolds("2"));
}

TEST_P(ReplacedFileTest, CopyToAnOpenDatabaseIsRefused) {
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(Name("a")));
  ASSERT_OK_AND_ASSIGN(auto other, AnyDBM::Open(Name("b")));
  EXPECT_THAT(db->CopyTo(FileOf(Name("b"))), StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_THAT(other->Set("b", "2"), IsOk());
  ASSERT_THAT(other->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(other, AnyDBM::Open(Name("b")));
  EXPECT_THAT(other->Get("b"), IsOkAndHolds("2"));
  ASSERT_THAT(other->Close(), IsOk());
  EXPECT_THAT(db->CopyTo(FileOf(Name("b"))), IsOk()) << "it is not open now";
}

TEST_P(ReplacedFileTest, CopyKeepsThePermissionsOfTheFileItReplaces) {
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(Name("a")));
  const std::string copy = FileOf(Name("b"));
  ASSERT_THAT(db->CopyTo(copy), IsOk());
  ASSERT_EQ(chmod(copy.c_str(), 0600), 0);
  ASSERT_THAT(db->CopyTo(copy), IsOk());
  struct stat info = {};
  ASSERT_EQ(stat(copy.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST_P(ReplacedFileTest, RelativeNameKeepsItsDirectoryAfterChdir) {
  const fs::path before = fs::current_path();
  fs::create_directory(directory_.File("other"));
  fs::current_path(directory_.File(""));
  const std::string name = std::string("x") + GetParam();
  auto opened = AnyDBM::Open(name);
  fs::current_path("other");
  ASSERT_OK_AND_ASSIGN(auto db, std::move(opened));
  EXPECT_THAT(db->Set("k", "new"), IsOk());
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_THAT(db->Set("k2", "new"), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
  fs::current_path(before);
  EXPECT_TRUE(fs::is_empty(directory_.File("other")));
  ASSERT_OK_AND_ASSIGN(db, AnyDBM::Open(directory_.File(name)));
  EXPECT_EQ(db->Count(), 2u);
}

TEST_P(ReplacedFileTest, SavingKeepsLinkAndPermissionsAndOtherFiles) {
  const std::string name = Name("a"), unrelated = FileOf(name) + ".tmp";
  fs::create_directory(directory_.File("real"));
  const std::string target = directory_.File("real/target");
  fs::create_symlink(target, FileOf(name));
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(name));
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_EQ(chmod(target.c_str(), 0600), 0);
  fs::create_directory(unrelated);
  ASSERT_OK_AND_ASSIGN(db, AnyDBM::Open(name));
  EXPECT_THAT(db->Set("k", "v"), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
  EXPECT_TRUE(fs::is_symlink(FileOf(name)));
  EXPECT_TRUE(fs::is_directory(unrelated));
  struct stat info = {};
  ASSERT_EQ(stat(target.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.File("real")), fs::directory_iterator()), 1);
}

TEST_P(ReplacedFileTest, SavingASnapshotKeepsTheLock) {
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(Name("a")));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(db->Set("k", std::to_string(i)), IsOk());
    EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    EXPECT_THAT(AnyDBM::Open(Name("a")), StatusIs(absl::StatusCode::kUnavailable));
  }
}

}  // namespace
}  // namespace hako
