// Files that PathFiles refuse to open: at once, unchanged, with another code than NotFound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

constexpr OpenMode kModes[] = {OpenMode::kReadOnly, OpenMode::kReadWrite, OpenMode::kCreate, OpenMode::kTruncate};

template <class F>
class OpenRefusalTest : public testing::Test {
 protected:
  static StatusOr<F> Open(const std::string& path, OpenMode mode) {
    FileOptions options;
    options.mode = mode;
    return F::Open(path, options);
  }

  TempDir dir_;
  const std::string path_ = dir_.File("file");
};
using FileTypes = testing::Types<MemoryMapParallelFile, PositionalParallelFile>;
TYPED_TEST_SUITE(OpenRefusalTest, FileTypes);

TYPED_TEST(OpenRefusalTest, RefusesANamedPipeAtOnce) {
  ASSERT_EQ(mkfifo(this->path_.c_str(), 0600), 0);
  std::filesystem::create_symlink("file", this->dir_.File("link"));
  for (const OpenMode mode : kModes) {
    EXPECT_THAT(this->Open(this->path_, mode), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(this->Open(this->dir_.File("link"), mode), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TYPED_TEST(OpenRefusalTest, RefusesDevicesAndDirectories) {
  for (const OpenMode mode : kModes) {
    EXPECT_THAT(this->Open("/dev/null", mode), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(this->Open(this->dir_.path(), mode), StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("is a directory")));
  }
}

TYPED_TEST(OpenRefusalTest, MissingDirectoryIsNotNotFound) {
  std::filesystem::create_symlink("no/such/file", this->dir_.File("link"));
  for (const OpenMode mode : kModes) {
    EXPECT_THAT(this->Open(this->dir_.File("no/such/file"), mode),
                StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("there is no directory " + this->dir_.File("no/such"))));
  }
  EXPECT_THAT(this->Open(this->dir_.File("link"), OpenMode::kCreate),
              StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("links to a directory that does not exist")));
}

}  // namespace
}  // namespace hako
