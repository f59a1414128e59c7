// The bytes that durable updates of a mapped file write to the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <type_traits>

#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "support/file_system.h"
#include "support/loop_image.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

constexpr int kNumRecords = 50'000;
constexpr std::uint64_t kMost = 40 << 10;

std::uint64_t WrittenBytes() {
  std::istringstream lines(ReadWhole("/proc/self/io"));
  std::uint64_t value = 0;
  for (std::string name; lines >> name >> value;) {
    if (name == "write_bytes:") break;
  }
  return value;
}

std::string KeyOf(std::uint64_t i) { return "key" + std::to_string(i); }

template <class D>
std::unique_ptr<D> OpenLoaded(const std::string& path) {
  auto db = D::Open(path).value();
  for (int i = 0; i < kNumRecords; ++i) EXPECT_THAT(db->Set(KeyOf(i), std::string(100, 'v')), IsOk());
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  return db;
}

// The average over `count` random updates.
template <class D>
std::uint64_t WrittenByUpdates(D& db, int count) {
  std::mt19937_64 random(7);
  const std::uint64_t before = WrittenBytes();
  for (int i = 0; i < count; ++i) {
    EXPECT_THAT(db.Set(KeyOf(random() % kNumRecords), std::string(100, 'w'), {.durability = Durability::kPower}), IsOk());
  }
  return (WrittenBytes() - before) / static_cast<std::uint64_t>(count);
}

template <class D>
class WrittenBytesTest : public testing::Test {};
using Databases = testing::Types<HashDBM<>, TreeDBM<>>;
TYPED_TEST_SUITE(WrittenBytesTest, Databases);

template <class D>
using OptionsOf = std::conditional_t<std::is_same_v<D, HashDBM<>>, HashOptions, TreeOptions>;

TYPED_TEST(WrittenBytesTest, DurableDatabaseWritesSmallPages) {
  LoopImage image("xfs");
  if (!image.is_mounted()) GTEST_SKIP() << image.reason();
  ASSERT_THAT(OpenLoaded<TypeParam>(image.File("db"))->Close(), IsOk());  // leaves huge pages in memory
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(image.File("db"), OptionsOf<TypeParam>{.durability = Durability::kPower}));
  WrittenByUpdates(*db, 20);
  EXPECT_LE(WrittenByUpdates(*db, 100), kMost * 3 / 2);
}

TYPED_TEST(WrittenBytesTest, FrequentSyncsMakePagesSmall) {
  LoopImage image("xfs");
  if (!image.is_mounted()) GTEST_SKIP() << image.reason();
  auto db = OpenLoaded<TypeParam>(image.File("db"));
  // Eight syncs within a second; a slow machine gets more time.
  std::uint64_t written = ~std::uint64_t{0};
  for (int round = 0; round < 10 && written > kMost; ++round) written = WrittenByUpdates(*db, 50);
  EXPECT_LE(written, kMost);
}

}  // namespace
}  // namespace hako
