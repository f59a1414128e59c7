// Many small databases in one process: how many can be open at once, and what each of them costs.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "dbm/kinds.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/child_process.h"
#include "support/file_system.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

constexpr std::uint64_t kRssMax = 256 << 10, kDiskMax = 128 << 10;  // of a database with one record

struct Usage {
  // Bytes, without the program and its libraries: how much of those the kernel has mapped differs from run to run.
  std::uint64_t resident = 0;
  std::uint64_t mappings = 0;
};
Usage UsageNow() {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  Usage usage;
  bool counts = false;
  std::ifstream maps("/proc/self/smaps");
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t begin, end, kib;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2) {
      ++usage.mappings;
      counts = !absl::StrContains(line, ".so.") && !absl::EndsWith(line, ".so") && !absl::EndsWith(line, program);
    } else if (counts && std::sscanf(line.c_str(), "Rss: %" SCNu64 " kB", &kib) == 1) {
      usage.resident += kib << 10;
    }
  }
  return usage;
}

// Where a sync takes no time, if there is room.
std::string FastParent(std::uint64_t bytes) {
  struct statvfs info;
  const bool is_roomy = statvfs("/dev/shm", &info) == 0 && info.f_bavail * info.f_frsize > bytes;
  return is_roomy ? "/dev/shm" : TempDir::DefaultParent();
}

template <class Kind>
class ManyDatabasesTest : public testing::Test {};
TYPED_TEST_SUITE(ManyDatabasesTest, kinds::Default);

template <class Kind>
class OneRecordTest : public testing::Test {};
TYPED_TEST_SUITE(OneRecordTest, kinds::All);

// Opens that many databases with one record each in this process; 0, or what went wrong.
template <class Kind>
int OpenAndUse(const std::string& folder, std::size_t count) {
  std::vector<std::unique_ptr<typename Kind::DB>> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto db = Kind::Open(folder + "/" + std::to_string(i));
    if (!db.ok()) {
      std::fprintf(stderr, "database %zu: %s\n", i, db.status().ToString().c_str());
      return 2;
    }
    if (!(*db)->Set("key", std::to_string(i)).ok()) return 3;
    all.push_back(*std::move(db));
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (all[i]->Get("key").value_or("") != std::to_string(i)) return 4;
  }
  const Usage usage = UsageNow();
  std::fprintf(stderr, "%zu open: %zu bytes of memory and %.2f mappings each\n", count, std::size_t{usage.resident / count},
               static_cast<double>(usage.mappings) / static_cast<double>(count));
  if (usage.resident / count > kRssMax) return 5;
  for (auto& db : all) {
    if (!db->Close().ok()) return 6;
  }
  return 0;
}

TYPED_TEST(ManyDatabasesTest, TenThousandAreOpenAtOnce) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes more memory and address space";
  constexpr std::size_t kCount = 10'000 / kSlowdown, kOthers = 100;
  constexpr std::size_t kFiles = requires { typename TypeParam::DB::LogFile; }
  ? 2 : 1;  // of each
  const TempDir dir(TypeParam::kInFile ? FastParent(2 * kCount * kDiskMax) : TempDir::DefaultParent());
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  std::size_t count = kCount;
  if (TypeParam::kInFile && limit.rlim_cur < kFiles * kCount + kOthers) {
    rlimit wanted = {kFiles * kCount + kOthers, std::max<rlim_t>(limit.rlim_max, kFiles * kCount + kOthers)};
    if (setrlimit(RLIMIT_NOFILE, &wanted) != 0) {
      wanted.rlim_cur = wanted.rlim_max = limit.rlim_max;  // as many as can be
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &wanted), 0);
      count = std::min<std::size_t>(kCount, (limit.rlim_max - kOthers) / kFiles);
    }
    if (count < kCount * 9 / 10) GTEST_SKIP() << "RLIMIT_NOFILE cannot be raised beyond " << limit.rlim_max;
  }
  ChildProcess child([&](ChildProcess&) { return OpenAndUse<TypeParam>(dir.path(), count); });
  EXPECT_EQ(child.Result(), 0);
}

TYPED_TEST(OneRecordTest, TakesLittleMemoryAndDisk) {
  constexpr std::size_t kCount = 20;
  const TempDir dir;
  if (TypeParam::kInFile && !TypeParam::Open(dir.File("any")).ok()) GTEST_SKIP() << "no direct I/O in " << dir.path();
  if (!kSanitized) {
    ChildProcess child([&](ChildProcess&) {
      if (!TypeParam::Open(dir.File("first")).ok()) return 1;  // what all share
      const Usage before = UsageNow();
      std::vector<std::unique_ptr<typename TypeParam::DB>> all;
      for (std::size_t i = 0; i < kCount; ++i) {
        auto db = TypeParam::Open(dir.File(std::to_string(i)));
        if (!db.ok() || !(*db)->Set("key", "value").ok()) return 2;
        all.push_back(*std::move(db));
      }
      const std::uint64_t now = UsageNow().resident;
      const std::uint64_t each = (now - std::min(now, before.resident)) / kCount;  // the kernel may have taken back pages of files
      std::fprintf(stderr, "%zu bytes of memory\n", std::size_t{each});
      return each <= kRssMax ? 0 : 3;
    });
    EXPECT_EQ(child.Result(), 0);
  }
  if constexpr (TypeParam::kInFile) {
    const std::string path = dir.File("one");
    ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(path));
    ASSERT_THAT(db->Set("key", "value"), IsOk());
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    EXPECT_LE(StatOf(path).st_size, kDiskMax) << "open";
    EXPECT_LE(StatOf(path).st_blocks * 512, kDiskMax) << "open";
    ASSERT_THAT(db->Close(), IsOk());
    EXPECT_LE(StatOf(path).st_size, kDiskMax) << "closed";
    EXPECT_LE(StatOf(path).st_blocks * 512, kDiskMax) << "closed";
    ASSERT_OK_AND_ASSIGN(db, TypeParam::Open(path));
    EXPECT_THAT(db->Get("key"), IsOkAndHolds("value"));
    ASSERT_THAT(db->Set("other", "value"), IsOk());
    EXPECT_LE(StatOf(path).st_blocks * 512, kDiskMax) << "opened again";
  }
}

}  // namespace
}  // namespace hako
