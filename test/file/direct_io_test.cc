// Direct I/O: a positional file whose transfers bypass the system's page cache, with as few device
// accesses as possible, which are compared with the system's counters.
#include <sys/syscall.h>

#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "file/file_conformance.h"
#include "file/path_file_conformance.h"
#include "hako/file/positional_parallel_file.h"
#include "support/direct_file.h"
#include "support/random.h"
#include "support/small_disk.h"
#include "support/system_counts.h"

namespace hako {
namespace {

using UncachedFile = DirectFile<1024, 0>;
INSTANTIATE_TYPED_TEST_SUITE_P(DirectFileOfSmallBlocks, FileConformance, PathFileTraits<DirectFile<512>>);
INSTANTIATE_TYPED_TEST_SUITE_P(DirectFile, FileConformance, PathFileTraits<DirectFile<0>>);
INSTANTIATE_TYPED_TEST_SUITE_P(DirectFileWithoutCache, FileConformance, PathFileTraits<UncachedFile>);

class DirectIo : public testing::Test {
 protected:
  // nullopt, and the test is skipped, where there is no direct I/O.
  std::optional<PositionalParallelFile> Open(FileOptions options) {
    options.direct = true;
    auto opened = PositionalParallelFile::Open(path_, options);
    if (opened.ok()) return *std::move(opened);
    EXPECT_THAT(opened.status(), StatusIs(absl::StatusCode::kInvalidArgument));
    return std::nullopt;
  }
  TempDir dir_;
  const std::string path_ = dir_.File("file");
};

#define OPEN_OR_SKIP(file, ...)  \
  auto file = Open(__VA_ARGS__); \
  if (!file) GTEST_SKIP() << "no direct I/O here"

TEST_F(DirectIo, ReadsARecordOrARunInOneDeviceAccess) {
  OPEN_OR_SKIP(file, {.block_size = 512, .cache_bytes = 1 << 20});
  ASSERT_THAT(file->Resize(4 << 20), IsOk());
  std::string record(4096, 'r');
  for (std::uint64_t i = 0; i < 16; ++i) ASSERT_THAT(file->WriteAt(i * 4096, AsBytes(record)), IsOk());
  EXPECT_EQ(file->counters().reads + file->counters().writes, 0u) << "whole blocks are not read, and wait";
  ASSERT_THAT(file->Sync(), IsOk());
  EXPECT_EQ(file->counters().writes, 1u) << "neighbours are written together";
  EXPECT_EQ(file->counters().written_bytes, 65536u);
  ASSERT_THAT(file->Close(), IsOk());

  OPEN_OR_SKIP(again, {.block_size = 512, .cache_bytes = 1 << 20});
  ASSERT_THAT(again->ReadAt(100 * 4096 + 9, AsMutableBytes(record).first(4000)), IsOk());
  EXPECT_EQ(again->counters().reads, 1u);
  EXPECT_EQ(again->counters().read_bytes, 4096u);
  EXPECT_EQ(record.substr(0, 4000), std::string(4000, '\0'));
}

TEST_F(DirectIo, ReachesTheFileAtSyncAndAtClose) {
  OPEN_OR_SKIP(file, {});
  Fill(*file, "one, two");
  ASSERT_THAT(file->Sync(), IsOk());
  EXPECT_EQ(ReadWhole(path_).substr(0, 8), "one, two");
  ASSERT_THAT(file->Resize(13), IsOk());
  ASSERT_THAT(file->WriteAt(8, AsBytes(", six")), IsOk());
  ASSERT_THAT(file->Close(), IsOk());
  EXPECT_EQ(ReadWhole(path_), "one, two, six");
}

TEST_F(DirectIo, PaddingLeavesWholeBlocks) {
  OPEN_OR_SKIP(file, {.block_size = 1024, .padding = true});
  Fill(*file, "one, two");
  ASSERT_THAT(file->Close(), IsOk());
  EXPECT_EQ(ReadWhole(path_), "one, two" + std::string(1016, '\0'));
}

TEST_F(DirectIo, RefusesInvalidBlockSizes) {
  for (const std::uint64_t block_size : {1, 256, 1000, 1 << 20}) {
    EXPECT_THAT(PositionalParallelFile::Open(path_, {.direct = true, .block_size = block_size}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("block")));
  }
}

// The file's counters agree with the system's.
TEST_F(DirectIo, CountsAgreeWithTheSystem) {
  OPEN_OR_SKIP(file, {.block_size = 4096, .cache_bytes = 1 << 20});
  constexpr std::uint64_t kRecords = 512;
  ASSERT_THAT(file->Resize(kRecords * 8192), IsOk());
  std::string record(8192, '\0');
  Random random(TestSeed());
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    for (char& byte : record) byte = static_cast<char>(random.Next());
    ASSERT_THAT(file->WriteAt(i * 8192, AsBytes(record)), IsOk());
  }
  ASSERT_THAT(file->Sync(), IsOk());
  std::uint64_t more_read = 1;  // than the file's counter says
  for (int attempt = 0; attempt < 5 && more_read != 0; ++attempt) {
    const auto before = SystemCounts::Of(path_);
    if (!before) GTEST_SKIP() << "the device has no counters";
    const FileCounters mine = file->counters();
    for (std::uint64_t i = 0; i < kRecords; ++i) {
      ASSERT_THAT(file->ReadAt(i * 37 % kRecords * 8192 + 100, AsMutableBytes(record).first(4000)), IsOk());
      if (i % 4 != 0) continue;
      ASSERT_THAT(file->WriteAt((i * 41 + 1) % kRecords * 8192, AsBytes(record).first(4096)), IsOk());
    }
    ASSERT_THAT(file->Sync(), IsOk());
    const auto after = SystemCounts::Of(path_);
    const std::uint64_t reads = file->counters().reads - mine.reads, read_bytes = file->counters().read_bytes - mine.read_bytes;
    const std::uint64_t writes = file->counters().writes - mine.writes, written = file->counters().written_bytes - mine.written_bytes;
    EXPECT_LE(reads, kRecords);
    EXPECT_GE(reads, kRecords / 2);
    ASSERT_GE(after->read_bytes - before->read_bytes, read_bytes);
    more_read = after->read_bytes - before->read_bytes - read_bytes;
    EXPECT_GE(after->written_bytes - before->written_bytes, written);
    EXPECT_LE(after->written_bytes - before->written_bytes, written + (64 << 10)) << "more than the file system's own";
    // Others may use the device too.
    EXPECT_GE(after->reads - before->reads, reads);
    EXPECT_GE(after->writes - before->writes, writes / 2) << "the device may merge some";
  }
  EXPECT_EQ(more_read, 0u) << "the system may also read pages of the program, but not each time";
}

// A sandbox may forbid io_uring altogether, or only its use.
TEST_F(DirectIo, WorksWithoutIoUring) {
  OPEN_OR_SKIP(file, {.block_size = 4096, .cache_bytes = 1 << 20});
  std::string content(1 << 20, '\0');
  Random random(TestSeed());
  for (char& byte : content) byte = static_cast<char>(random.Next());
  Fill(*file, content);
  ASSERT_THAT(file->Close(), IsOk());
  for (const long call : {SYS_io_uring_setup, SYS_io_uring_enter}) {
    std::thread([&, this] {
      if (!FailSystemCallsOfThisThread({call}, EPERM)) return;
      OPEN_OR_SKIP(again, {.block_size = 4096, .cache_bytes = 1 << 20});
      std::vector<std::string> out(64, std::string(5000, '\0'));
      std::vector<ReadRequest> reads;
      for (std::size_t i = 0; i < out.size(); ++i) reads.push_back({.offset = i * 37 % 64 * 16384 + 77, .out = AsMutableBytes(out[i])});
      ASSERT_THAT(again->ReadMulti(reads), IsOk());
      for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], content.substr(reads[i].offset, 5000));
      for (const ReadRequest& read : reads) ASSERT_THAT(again->WriteAt(read.offset, AsBytes(out[0]).first(5)), IsOk());
      EXPECT_THAT(again->Sync(), IsOk());
      ASSERT_THAT(again->ReadAt(reads[7].offset, AsMutableBytes(out[7]).first(5)), IsOk());
      EXPECT_EQ(out[7].substr(0, 5), out[0].substr(0, 5));
      for (std::size_t i = 0; i < out.size(); ++i)
        ASSERT_THAT(again->WriteAt(reads[i].offset, AsBytes(content).subspan(reads[i].offset, 5)), IsOk());
    }).join();
  }
}

}  // namespace
}  // namespace hako
