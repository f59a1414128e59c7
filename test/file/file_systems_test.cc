// Files on several file systems, each in an image. They differ in allocation, in checksums of data,
// and in direct I/O.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "hako/file/any_file.h"
#include "support/child_process.h"
#include "support/file_system.h"
#include "support/loop_image.h"
#include "support/random.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

constexpr std::uint64_t kBlock = 4096;

struct Access {
  std::string_view name, kind;
  bool direct;
  friend void PrintTo(const Access& access, std::ostream* out) { *out << access.name; }
};
constexpr Access kMapped = {"mapped", AnyFile::kMemoryMap, false}, kPositional = {"positional", AnyFile::kPositional, false},
                 kDirect = {"direct", AnyFile::kPositional, true};

std::vector<std::byte> RandomBytes(std::size_t size, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next());
  return bytes;
}

// Drops the file from the page cache.
void ForgetPages(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  fdatasync(fd);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
}

class FileSystemsTest : public testing::TestWithParam<std::tuple<const char*, Access>> {
 protected:
  // One image of each type serves all tests: making it takes longer than they do.
  static LoopImage& ImageOf(const std::string& type) {
    static std::map<std::string, LoopImage> images;
    return images.try_emplace(type, type).first->second;
  }
  void SetUp() override {
    if (!image_.is_mounted()) GTEST_SKIP() << image_.reason();
    const Status status = Open().status();
    if (Kind().direct && absl::IsInvalidArgument(status)) GTEST_SKIP() << status;
    ASSERT_THAT(status, IsOk());
  }
  static const Access& Kind() { return std::get<1>(GetParam()); }
  StatusOr<AnyFile> Open(const Access& access = Kind()) const {
    FileOptions options;
    options.direct = access.direct;
    options.cache_bytes = 1 << 20;
    options.grow_min = 1 << 16;
    return AnyFile::Open(path(), options, access.kind);
  }
  void TearDown() override { std::remove(path().c_str()); }
  std::string path() const { return image_.File("file"); }
  // Takes all space that is left. False if there is still some.
  bool FillUp() const {
    const int fd = open(image_.File("ballast").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    off_t end = 0;
    for (off_t step = 64 << 20; step >= 4096; step /= 2) {
      while (posix_fallocate(fd, end, step) == 0) end += step;
    }
    const std::vector<std::byte> bytes(4096);
    for (int i = 0; i < 10'000 && pwrite(fd, bytes.data(), bytes.size(), end) > 0; ++i) end += 4096;
    const bool is_full = pwrite(fd, bytes.data(), bytes.size(), end) < 0;
    fsync(fd);
    close(fd);
    return is_full;
  }

  LoopImage& image_ = ImageOf(std::get<0>(GetParam()));
};

TEST_P(FileSystemsTest, KeepsWrittenBytes) {
  std::vector<std::byte> expected;
  {
    ASSERT_OK_AND_ASSIGN(auto file, Open());
    for (const std::size_t size : {1, 5'000, 1'000'003}) {  // no whole number of blocks
      const auto bytes = RandomBytes(size, size);
      ASSERT_THAT(file.Resize(expected.size() + size), IsOk());
      ASSERT_THAT(file.WriteAt(expected.size(), bytes), IsOk());
      expected.insert(expected.end(), bytes.begin(), bytes.end());
    }
    ASSERT_THAT(file.Sync(), IsOk());
    expected.resize(700'001);
    ASSERT_THAT(file.Resize(expected.size()), IsOk());
    ASSERT_THAT(file.Close(), IsOk());
  }
  ForgetPages(path());
  EXPECT_EQ(ReadWhole(path()).size(), expected.size());
  for (const Access& access : {Kind(), kPositional, kMapped, Kind()}) {
    ASSERT_OK_AND_ASSIGN(auto file, Open(access));
    ASSERT_EQ(file.Size(), expected.size()) << access.name;
    std::vector<std::byte> out(expected.size());
    ASSERT_THAT(file.ReadAt(0, out), IsOk());
    EXPECT_EQ(out, expected) << access.name;
    ASSERT_THAT(file.Resize(expected.size() + 10'001), IsOk());
    const auto more = RandomBytes(10'001, expected.size());
    ASSERT_THAT(file.WriteAt(expected.size(), more), IsOk());
    expected.insert(expected.end(), more.begin(), more.end());
    ASSERT_THAT(file.Close(), IsOk());
  }
}

TEST_P(FileSystemsTest, ThreadsReadAroundBlocksThatAreInTheCache) {
  const auto expected = RandomBytes(8 << 20, 1);
  {
    ASSERT_OK_AND_ASSIGN(auto file, Open());
    ASSERT_THAT(file.Resize(expected.size()), IsOk());
    ASSERT_THAT(file.WriteAt(0, expected), IsOk());
    ASSERT_THAT(file.Sync(), IsOk());
    ASSERT_THAT(file.Close(), IsOk());
  }
  ForgetPages(path());
  ASSERT_OK_AND_ASSIGN(auto file, Open());
  std::atomic<int> num_failed = 0, num_wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      Random random(static_cast<std::uint64_t>(thread) + 10);
      std::vector<std::byte> out(6 * kBlock);
      for (int i = 0; i < 500; ++i) {
        const std::uint64_t size = i % 2 == 0 ? kBlock : out.size(), at = random.Below((expected.size() - size) / kBlock) * kBlock;
        num_failed += !file.ReadAt(at, std::span(out).first(size)).ok();
        num_wrong += !std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(size), &expected[at]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_failed, 0);
  EXPECT_EQ(num_wrong, 0);
}

TEST_P(FileSystemsTest, SyncedBytesSurviveAKillAndAnUnmount) {
  const auto expected = RandomBytes(300'007, 2);
  ChildProcess child([&](ChildProcess& parent) {
    auto file = Open();
    const bool ok = file.ok() && file->Resize(expected.size()).ok() && file->WriteAt(0, expected).ok() && file->Sync().ok();
    if (ok) parent.Tell();
    parent.Wait();
    return 1;
  });
  child.Wait();
  child.Kill();
  if (std::string_view(std::get<0>(GetParam())) != "tmpfs") {
    ASSERT_TRUE(image_.Remount());
  }
  ASSERT_OK_AND_ASSIGN(auto file, Open());
  ASSERT_GE(file.Size(), expected.size());
  std::vector<std::byte> out(expected.size());
  ASSERT_THAT(file.ReadAt(0, out), IsOk());
  EXPECT_EQ(out, expected);
}

TEST_P(FileSystemsTest, FullFileSystemReturnsResourceExhausted) {
  ASSERT_OK_AND_ASSIGN(auto file, Open());
  ASSERT_THAT(file.Resize(100'000), IsOk());
  EXPECT_THAT(file.Resize(std::uint64_t{1} << 30), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(file.Size(), 100'000u);
  EXPECT_THAT(file.WriteAt(0, RandomBytes(100'000, 3)), IsOk());
  EXPECT_THAT(file.Sync(), IsOk());
}

// Space that a file has stays its own: on a file system that copies blocks when they change, a store to a map
// would end the process by SIGBUS.
TEST_P(FileSystemsTest, AFullFileSystemTakesChangesOfBytesThatAreThere) {
  constexpr std::size_t kSize = 2 << 20;
  ChildProcess child([&](ChildProcess&) {
    auto file = Open();
    if (!file.ok() || !file->Resize(kSize).ok()) return 1;
    const auto old_bytes = RandomBytes(kSize, 5), new_bytes = RandomBytes(kBlock, 6);
    if (!file->WriteAt(0, old_bytes).ok() || !file->Sync().ok()) return 2;
    if (!FillUp()) return 3;
    for (int round = 0; round < 2; ++round) {  // what was synced, and what was changed since the file system is full
      for (std::size_t at = 0; at < kSize; at += 16 * kBlock) {
        if (!file->WriteAt(at, new_bytes).ok()) return 4;
      }
      if (!file->Sync().ok()) return 5;
    }
    std::vector<std::byte> out(kBlock);
    return file->ReadAt(kSize - 16 * kBlock, out).ok() && out == new_bytes && file->Close().ok() ? 0 : 6;
  });
  EXPECT_EQ(child.Result(), 0);
  std::remove(image_.File("ballast").c_str());
}

TEST_P(FileSystemsTest, FileSizeLimitWithinABlockReturnsAnError) {
  ChildProcess child([&](ChildProcess&) {
    const rlimit limit = {.rlim_cur = 1'000'100, .rlim_max = 1'000'100};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    auto file = Open();
    if (!file.ok() || !file->Resize(900'000).ok()) return 2;
    const Status status = file->Resize(1'000'050);  // of which the last block may reach beyond the limit: SIGXFSZ would end us here
    if (!status.ok() && !absl::IsResourceExhausted(status)) return 3;
    return file->WriteAt(file->Size() - 1, RandomBytes(1, 4)).ok() && file->Sync().ok() && file->Close().ok() ? 0 : 4;
  });
  EXPECT_EQ(child.Result(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, FileSystemsTest,
                         testing::Combine(testing::Values("ext4", "xfs", "btrfs", "ext2", "tmpfs"), testing::Values(kMapped, kDirect)),
                         [](const auto& tested) {
                           return std::get<0>(tested.param) + std::string("_") + std::string(std::get<1>(tested.param).name);
                         });

}  // namespace
}  // namespace hako
