#include "hako/file/positional_parallel_file.h"

#include "file/file_conformance.h"
#include "file/path_file_conformance.h"
#include "hako/file/positional_io.h"

namespace hako {
namespace {

INSTANTIATE_TYPED_TEST_SUITE_P(PositionalParallelFile, FileConformance, PathFileTraits<PositionalParallelFile>);
INSTANTIATE_TYPED_TEST_SUITE_P(PositionalParallelFile, PathFileConformance, PositionalParallelFile);

static_assert(!KernelBackedFile<PositionalParallelFile>);

TEST(PositionalParallelFile, CountsTransfersToTheDevice) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto file, PositionalParallelFile::Open(dir.File("file")));
  ASSERT_THAT(file.Resize(100), IsOk());
  EXPECT_THAT(file.WriteAt(0, AsBytes("abc")), IsOk());
  EXPECT_THAT(file.WriteAt(3, AsBytes("def")), IsOk());
  std::string bytes(6, '?');
  EXPECT_THAT(file.ReadAt(0, AsMutableBytes(bytes)), IsOk());
  EXPECT_EQ(bytes, "abcdef");
  // These stay here.
  EXPECT_THAT(file.ReadAt(0, {}), IsOk());
  EXPECT_THAT(file.WriteAt(0, {}), IsOk());
  EXPECT_FALSE(file.ReadAt(99, AsMutableBytes(bytes)).ok());
  EXPECT_FALSE(file.WriteAt(99, AsBytes("abc")).ok());
  EXPECT_EQ(file.counters().reads, 1u);
  EXPECT_EQ(file.counters().writes, 2u);
}

TEST(PositionalParallelFile, NeedsNoReservedAddressSpace) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto file, PositionalParallelFile::Open(dir.File("file"), {.reserve_bytes = 1}));
  EXPECT_THAT(file.Resize(1 << 20), IsOk());
}

TEST(PositionalParallelFile, DeviceErrorsNameTheOffsetAndAreNeverNotFound) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto file, PositionalParallelFile::Open(dir.File("file")));
  Fill(file, "content");
  bool is_possible = true;
  std::thread([&] {
    is_possible = FailSystemCallsOfThisThread({SYS_preadv, SYS_pwritev}, ENXIO);
    if (!is_possible) return;
    std::string bytes(3, '?');
    EXPECT_THAT(file.ReadAt(4, AsMutableBytes(bytes)), StatusIs(absl::StatusCode::kUnknown, testing::HasSubstr("at offset 4")));
    EXPECT_THAT(file.WriteAt(4, AsBytes("xyz")), StatusIs(absl::StatusCode::kUnknown, testing::HasSubstr("at offset 4")));
  }).join();
  if (!is_possible) GTEST_SKIP() << "cannot make system calls fail";
  EXPECT_EQ(ContentOf(file), "content");
}

TEST(PositionalIo, TruncatedFileIsAnError) {
  TempDir dir;
  WriteWhole(dir.File("file"), "short");
  const int fd = open(dir.File("file").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  std::string bytes(6, '?');
  EXPECT_EQ(ReadFully(fd, 0, AsMutableBytes(bytes)), EIO);
  EXPECT_EQ(ReadFully(fd, 1, AsMutableBytes(bytes).first(4)), 0);
  EXPECT_EQ(bytes.substr(0, 4), "hort");
  EXPECT_EQ(WriteFully(fd, 4, AsBytes("er")), 0);
  EXPECT_EQ(ReadWhole(dir.File("file")), "shorer");
  close(fd);
  EXPECT_EQ(ReadFully(fd, 0, AsMutableBytes(bytes)), EBADF);
  EXPECT_EQ(WriteFully(fd, 0, AsBytes("x")), EBADF);
}

}  // namespace
}  // namespace hako
