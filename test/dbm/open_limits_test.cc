// Opening files that are not databases, and opening with options that cannot be met.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "support/file_system.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

template <class D>
class OpenLimitsTest : public testing::Test {
 protected:
  TempDir dir_{TempDir::MemoryParent()};
};
using Databases = testing::Types<HashDBM<>, TreeDBM<>>;
TYPED_TEST_SUITE(OpenLimitsTest, Databases);

TYPED_TEST(OpenLimitsTest, ForeignSparseFileStaysSparse) {
  const std::string path = this->dir_.File("image");
  WriteWhole(path, "another kind of file");
  std::filesystem::resize_file(path, std::uint64_t{6} << 30);
  EXPECT_FALSE(TypeParam::Open(path).ok());
  EXPECT_LT(StatOf(path).st_blocks * 512, 1 << 20);
  EXPECT_EQ(StatOf(path).st_size, std::int64_t{6} << 30);
}

TEST(OpenLimits, TooManyExpectedRecordsAllocateNothing) {
  TempDir dir;
  const std::string path = dir.File("db");
  EXPECT_THAT(HashDBM<>::Open(path, {.num_records = std::uint64_t{1} << 40}), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace hako
