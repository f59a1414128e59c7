#include "hako/base/address_space.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/child_process.h"
#include "support/sanitizers.h"

namespace hako {
namespace {

constexpr std::uint64_t kMiB = 1 << 20, kGiB = 1 << 30, kTiB = std::uint64_t{1} << 40;

std::byte* MapMemory(std::uint64_t size) {
  void* const base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return base != MAP_FAILED ? static_cast<std::byte*>(base) : nullptr;
}

// As a system that refuses more than `most` bytes.
auto MapAtMost(std::uint64_t most) {
  return [most](std::uint64_t size) {
    errno = ENOMEM;
    return size <= most ? MapMemory(size) : nullptr;
  };
}

TEST(AddressSpace, ReservesExactlyWhatIsAskedFor) {
  const AddressRange range = ReserveAddresses(123 << 12, 123 << 12, MapMemory);
  ASSERT_NE(range.base, nullptr);
  EXPECT_EQ(range.size, 123u << 12);
  EXPECT_FALSE(range.is_share);
  range.base[range.size - 1] = std::byte{1};
  EXPECT_TRUE(ReleaseAddresses(range));
}

TEST(AddressSpace, GivesTheFirstStructureAllThatItCanUse) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer leaves less address space";
  const AddressRange range = ReserveAddresses(kMiB, kTiB, MapMemory);
  EXPECT_EQ(range.size, kTiB);
  EXPECT_TRUE(ReleaseAddresses(range));
}

TEST(AddressSpace, GivesEachOfManyStructuresAShare) {
  std::vector<AddressRange> ranges;
  for (int i = 0; i < 20'000; ++i) {
    ranges.push_back(ReserveAddresses(kMiB, kTiB, MapMemory));
    ASSERT_NE(ranges.back().base, nullptr) << i;
  }
  EXPECT_GE(ranges[100].size, (kSanitized ? 100 * kMiB : 16 * kGiB));
  EXPECT_GE(ranges.back().size, (kSanitized ? kMiB : 100 * kMiB));
  for (const AddressRange& range : ranges) EXPECT_TRUE(ReleaseAddresses(range));
  const AddressRange again = ReserveAddresses(kMiB, kTiB, MapMemory);
  EXPECT_EQ(again.size, ranges[0].size) << "released shares can be had again";
  EXPECT_TRUE(ReleaseAddresses(again));
}

TEST(AddressSpace, LeavesRoomWhereTheSystemRefuses) {
  const AddressRange range = ReserveAddresses(kMiB, 64 * kGiB, MapAtMost(kGiB));
  ASSERT_NE(range.base, nullptr);
  EXPECT_GE(range.size, kGiB / 8);
  EXPECT_LE(range.size, kGiB / 4);
  EXPECT_TRUE(ReleaseAddresses(range));
}

TEST(AddressSpace, NeverReservesLessThanTheLeast) {
  const AddressRange range = ReserveAddresses(3 * kMiB, 64 * kGiB, MapAtMost(4 * kMiB));
  ASSERT_NE(range.base, nullptr);
  EXPECT_EQ(range.size, 3 * kMiB);
  EXPECT_TRUE(ReleaseAddresses(range));
}

TEST(AddressSpace, ReportsTheErrorOfTheSystem) {
  EXPECT_EQ(ReserveAddresses(kMiB, 64 * kGiB, MapAtMost(kMiB - 1)).base, nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST(AddressSpace, DividesWhatTheProcessMayHave) {
#if defined(HAKO_ASAN) || defined(HAKO_TSAN)
  GTEST_SKIP() << "a sanitizer takes all address space for itself";
#else
  ChildProcess child([](ChildProcess&) {
    const rlimit limit = {.rlim_cur = 2 * kGiB, .rlim_max = 2 * kGiB};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
    const AddressRange first = ReserveAddresses(kMiB, kTiB, MapMemory);
    if (first.size < 100 * kMiB || first.size > kGiB / 2) return 2;
    for (int i = 0; i < 20; ++i) {
      const AddressRange next = ReserveAddresses(kMiB, kTiB, MapMemory);
      if (next.size < kMiB || next.size > first.size) return 3;
    }
    return 0;
  });
  EXPECT_EQ(child.Result(), 0);
#endif
}

}  // namespace
}  // namespace hako
