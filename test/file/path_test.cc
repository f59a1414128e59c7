#include "hako/file/path.h"

#include <string>

#include "file/path_file_conformance.h"

namespace hako {
namespace {

class PathTest : public testing::Test {
 protected:
  TempDir dir_;
  const std::string path_ = dir_.File("file");
  const std::string beside_ = path_ + ".tmp";
};

TEST_F(PathTest, RenamesOverAnExistingFile) {
  WriteWhole(path_, "old");
  WriteWhole(beside_, "new");
  EXPECT_THAT(RenameDurably(beside_, path_), IsOk());
  EXPECT_EQ(ReadWhole(path_), "new");
  EXPECT_THAT(RenameDurably(beside_, path_), StatusIs(absl::StatusCode::kNotFound, testing::HasSubstr(beside_)));
  EXPECT_EQ(ReadWhole(path_), "new");
}

TEST_F(PathTest, RemovesOnce) {
  WriteWhole(path_, "old");
  EXPECT_THAT(RemoveFile(path_), IsOk());
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_THAT(RemoveFile(path_), StatusIs(absl::StatusCode::kNotFound, testing::HasSubstr(path_)));
}

TEST_F(PathTest, SyncsTheDirectoryOfABareNameToo) {
  EXPECT_THAT(SyncDirectoryOf(path_), IsOk());
  EXPECT_THAT(SyncDirectoryOf("name"), IsOk());
  EXPECT_THAT(SyncDirectoryOf("/name"), IsOk());
  EXPECT_THAT(SyncDirectoryOf(path_ + "/no/such"), testing::Not(StatusIs(absl::StatusCode::kNotFound)));
  EXPECT_FALSE(SyncDirectoryOf(path_ + "/no/such").ok());
}

}  // namespace
}  // namespace hako
