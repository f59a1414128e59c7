// Files with static or thread storage close at the end of the process or the thread, regardless of
// the order of destruction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "hako/file/positional_parallel_file.h"
#include "support/child_process.h"
#include "support/file_system.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

constexpr std::uint64_t kSize = 4 << 20;

std::optional<PositionalParallelFile> static_file;
thread_local std::optional<PositionalParallelFile> thread_file;

// Leaves scattered dirty blocks, after transfers that were in flight together.
bool Use(std::optional<PositionalParallelFile>* file, const std::string& path, const FileOptions& options) {
  auto opened = PositionalParallelFile::Open(path, options);
  if (!opened.ok()) return false;
  *file = *std::move(opened);
  if (!(*file)->Resize(kSize).ok()) return false;
  const std::vector<std::byte> block(4096, std::byte{'x'});
  for (int pass = 0; pass < 2; ++pass) {
    for (std::uint64_t at = 0; at < kSize; at += 8 * block.size()) {
      if (!(*file)->WriteAt(at, block).ok()) return false;
    }
    if (pass == 0 && !(*file)->Sync().ok()) return false;
  }
  return true;
}

bool HasAll(const std::string& path) {
  const std::string content = ReadWhole(path);
  if (content.size() != kSize) return false;
  for (std::uint64_t at = 0; at < kSize; at += 8 * 4096) {
    if (content[at] != 'x') return false;
  }
  return true;
}

TEST(Exit, StaticDirectFileClosesAtExit) {
  TempDir dir;
  const std::string path = dir.File("file");
  if (absl::IsInvalidArgument(PositionalParallelFile::Open(path, {.direct = true}).status())) GTEST_SKIP() << "no direct I/O here";
  ChildProcess child([&](ChildProcess&) {
    if (!Use(&static_file, path, {.direct = true})) return 1;
    std::exit(0);  // which destroys what has static storage
  });
  EXPECT_EQ(child.Result(), 0);
  EXPECT_TRUE(HasAll(path));
}

TEST(Exit, ThreadLocalDirectFileClosesWhenItsThreadEnds) {
  TempDir dir;
  const std::string path = dir.File("file");
  if (absl::IsInvalidArgument(PositionalParallelFile::Open(path, {.direct = true}).status())) GTEST_SKIP() << "no direct I/O here";
  std::thread([&] { EXPECT_TRUE(Use(&thread_file, path, {.direct = true})); }).join();
  EXPECT_TRUE(HasAll(path));
}

}  // namespace
}  // namespace hako
