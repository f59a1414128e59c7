// Opening files that are not databases, and opening with few resources.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "support/child_process.h"
#include "support/file_system.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

template <class D>
class OpenLimitsTest : public testing::Test {
 protected:
  TempDir dir_{std::filesystem::exists("/dev/shm") ? "/dev/shm" : TempDir::DefaultParent()};  // where a sync takes no time
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

TYPED_TEST(OpenLimitsTest, OpensInTwoGigabytesOfAddressSpace) {
#if defined(HAKO_ASAN) || defined(HAKO_TSAN)
  GTEST_SKIP() << "a sanitizer takes all address space for itself";
#else
  ChildProcess child([&](ChildProcess&) {
    const rlimit limit = {.rlim_cur = 2'000'000 * 1024ul, .rlim_max = 2'000'000 * 1024ul};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
    auto db = TypeParam::Open(this->dir_.File("db"));
    if (!db.ok()) return 2;
    for (int i = 0; i < 100'000; ++i) {
      if (!(*db)->Set(std::to_string(i), std::string(100, 'v')).ok()) return 3;
    }
    return (*db)->Close().ok() ? 0 : 4;
  });
  EXPECT_EQ(child.Result(), 0);
#endif
}

TYPED_TEST(OpenLimitsTest, OpensHundredsAtOnce) {
  if (kSlowdown > 1) GTEST_SKIP() << "a sanitizer leaves less address space";
  std::vector<std::unique_ptr<TypeParam>> all;
  for (int i = 0; i < 150; ++i) {
    ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->dir_.File(std::to_string(i))));
    all.push_back(std::move(db));
  }
}

TEST(OpenLimits, TooManyExpectedRecordsAllocateNothing) {
  TempDir dir;
  const std::string path = dir.File("db");
  EXPECT_THAT(HashDBM<>::Open(path, {.num_records = std::uint64_t{1} << 40}), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_LT(StatOf(path).st_blocks * 512, 4 << 20);
}

}  // namespace
}  // namespace hako
