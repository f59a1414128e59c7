// Kills processes that work on an ArrayDBM: see killed_writers.h.
#include <cstddef>
#include <cstdint>
#include <string>

#include "dbm/killed_writers.h"
#include "gtest/gtest.h"
#include "hako/dbm/array_dbm.h"
#include "hako/dbm/positional_array_dbm.h"
#include "support/checked_value.h"

namespace hako {
namespace {

constexpr unsigned kWidth = 100;

// All numbers have 12 digits, so they are in the order of strings. Half of a writer's records share pages, the
// others are far apart.
template <class FileT>
struct ArraySubject {
  using Database = ArrayDBM<FileT>;
  using Options = ArrayOptions;
  static constexpr const char* kCounter = "900000000000";
  static constexpr bool kAppends = false;
  static std::string Prefix(int writer) { return "10" + std::to_string(writer); }
  static std::string Key(const std::string& prefix, std::uint64_t i) {
    const std::uint64_t place = i < 1000 ? i : i * 400'000;
    return std::to_string(std::stoull(prefix) * 1'000'000'000 + place);
  }
  static std::string Clock(int writer) { return Prefix(writer) + "999999999"; }
  static std::string RangeEnd(const std::string& key) { return std::to_string(std::stoull(key) + (key.back() == '0' ? 2'000'000 : 20)); }
  static std::string Value(const std::string& key, std::size_t, std::uint64_t salt) { return CheckedValue(key, kWidth, salt); }
};

ArrayOptions OptionsOf(Durability durability) {
  return {.width = kWidth, .cache_bytes = 1 << 20, .checkpoint_bytes = 32 << 10, .durability = durability};
}

template <class FileT>
class ArrayKillTest : public testing::Test {};
using Files = testing::Types<MemoryMapParallelFile, PositionalParallelFile>;
TYPED_TEST_SUITE(ArrayKillTest, Files);

TYPED_TEST(ArrayKillTest, KilledWritersLeaveTheStateOfOneMoment) {
  KillWorkers<ArraySubject<TypeParam>>(2, OptionsOf(Durability::kNone), 3);
}
TYPED_TEST(ArrayKillTest, KilledWritersWithALogLoseNothing) { KillWorkers<ArraySubject<TypeParam>>(3, OptionsOf(Durability::kProcess), 4); }
TYPED_TEST(ArrayKillTest, KilledWritersOfDurableUpdatesLoseNothing) {
  KillWorkers<ArraySubject<TypeParam>>(3, OptionsOf(Durability::kPower), 4);
}

}  // namespace
}  // namespace hako
