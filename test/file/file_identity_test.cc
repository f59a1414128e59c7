#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "hako/file/memory_map_parallel_file.h"
#include "support/file_system.h"
#include "support/loop_image.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

FileIdentity IdentityAt(const std::string& path) { return MemoryMapParallelFile::Open(path).value().Identity(); }

class FileIdentityTest : public testing::TestWithParam<const char*> {};

TEST_P(FileIdentityTest, ChangesWhenTheFileSystemIsMountedAgain) {
  LoopImage image(GetParam());
  if (!image.is_mounted()) GTEST_SKIP() << image.reason();
  const FileIdentity before = IdentityAt(image.File("file"));
  EXPECT_EQ(IdentityAt(image.File("file")), before);
  ASSERT_TRUE(image.Remount());
  EXPECT_NE(IdentityAt(image.File("file")), before);  // its pages may have been dropped
}

TEST_P(FileIdentityTest, IsTheSameThroughABindMount) {
  if (std::string_view(GetParam()) == "ext2") GTEST_SKIP() << "ext2 has no folder in sysfs, so each mount counts";
  LoopImage image(GetParam());
  if (!image.is_mounted()) GTEST_SKIP() << image.reason();
  const FileIdentity identity = IdentityAt(image.File("file"));
  const std::string elsewhere = image.folder() + "/elsewhere";
  std::filesystem::create_directory(elsewhere);
  ASSERT_EQ(mount(image.folder().c_str(), elsewhere.c_str(), nullptr, MS_BIND, nullptr), 0);
  const FileIdentity bound = IdentityAt(elsewhere + "/file");
  ASSERT_EQ(umount2(elsewhere.c_str(), MNT_DETACH), 0);
  EXPECT_EQ(bound, identity);  // they share the page cache: a restarted container finds its stores
}

TEST_P(FileIdentityTest, ChangesWhenANewFileGetsTheInodeOfARemovedOne) {
  LoopImage image(GetParam());
  if (!image.is_mounted()) GTEST_SKIP() << image.reason();
  const std::string path = image.File("file");
  WriteWhole(path, "");
  const auto inode = StatOf(path).st_ino;
  const FileIdentity before = IdentityAt(path);
  std::filesystem::remove(path);
  WriteWhole(path, "");
  if (StatOf(path).st_ino != inode) GTEST_SKIP() << "the inode was not used again";
  EXPECT_NE(IdentityAt(path), before);
}

INSTANTIATE_TEST_SUITE_P(FileSystems, FileIdentityTest, testing::Values("ext4", "xfs", "btrfs", "ext2"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace hako
