// Kills processes that work on a TreeDBM: see killed_writers.h.
#include <cstddef>
#include <cstdint>
#include <string>

#include "dbm/killed_writers.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "support/checked_value.h"
#include "support/direct_file.h"

namespace hako {
namespace {

// Small, so that pages are evicted and loaded, and checkpoints follow each other.
const TreeOptions kUnlogged = {.page_size = 512, .cache_bytes = 1 << 20, .checkpoint_bytes = 32 << 10, .durability = Durability::kNone};
const TreeOptions kLogged = {.page_size = 512, .cache_bytes = 1 << 20, .checkpoint_bytes = 32 << 10, .durability = Durability::kProcess};
const TreeOptions kDurable = {.page_size = 512, .cache_bytes = 1 << 20, .checkpoint_bytes = 32 << 10, .durability = Durability::kPower};

template <class FileT>
struct TreeSubject {
  using Database = TreeOn<FileT>;
  using Options = TreeOptions;
  static constexpr const char* kCounter = "counter";
  static constexpr bool kAppends = true;
  static std::string Prefix(int writer) { return std::to_string(writer) + "/"; }
  static std::string Key(const std::string& prefix, std::uint64_t i) { return prefix + std::to_string(i); }
  static std::string Clock(int writer) { return Prefix(writer) + "clock"; }
  static std::string RangeEnd(const std::string& key) { return key + "5"; }
  static std::string Value(const std::string& key, std::size_t size, std::uint64_t salt) { return CheckedValue(key, size, salt); }
};

template <class FileT>
class TreeCrashTest : public testing::Test {};
using RealFiles = testing::Types<MemoryMapParallelFile, PositionalParallelFile, DirectFile<512>>;
TYPED_TEST_SUITE(TreeCrashTest, RealFiles);

TYPED_TEST(TreeCrashTest, KilledWriterLeavesTheStateAfterOneOfItsOperations) { KillWorkers<TreeSubject<TypeParam>>(1, kUnlogged, 40); }
TYPED_TEST(TreeCrashTest, KilledWritersLeaveTheStateOfOneMoment) { KillWorkers<TreeSubject<TypeParam>>(3, kUnlogged, 40); }
TYPED_TEST(TreeCrashTest, KilledWriterWithALogLosesNothing) { KillWorkers<TreeSubject<TypeParam>>(1, kLogged, 40); }
TYPED_TEST(TreeCrashTest, KilledWritersWithALogLoseNothing) { KillWorkers<TreeSubject<TypeParam>>(3, kLogged, 40); }
TYPED_TEST(TreeCrashTest, KilledWritersOfDurableUpdatesLoseNothing) { KillWorkers<TreeSubject<TypeParam>>(3, kDurable, 15); }

}  // namespace
}  // namespace hako
