// TreeDBM with compressed pages.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "dbm/shared_databases.h"
#include "gtest/gtest.h"
#include "hako/base/lz4_codec.h"
#include "hako/base/zstd_codec.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "support/checked_value.h"
#include "support/status_matchers.h"
#include "support/test_types.h"

namespace hako {
namespace {

template <class Codec>
class TreeCodecTest : public testing::Test {
 protected:
  using Database = TreeDBM<MemoryFile, BytewiseComparator, Codec>;

  template <class D = Database>
  StatusOr<std::unique_ptr<D>> Open() {
    return D::Open(file_.Share(), {.cache_bytes = 1 << 20});
  }
  static std::string KeyOf(int i) { return "key" + std::to_string(i * 7919 % kRecords); }
  static std::string ValueOf(int i, int version) {
    if (i % 5 == 0) return CheckedValue(KeyOf(i), 100, static_cast<std::uint64_t>(version));  // incompressible
    return std::string(static_cast<std::size_t>(i % 200), static_cast<char>('a' + version));
  }

  static constexpr int kRecords = 20'000;
  MemoryFile file_{std::uint64_t{1} << 32};
};
using Codecs = TestTypes<testing::Types<Lz4Codec>, NoCodec, ZstdCodec<>, ZstdCodec<9>>;
TYPED_TEST_SUITE(TreeCodecTest, Codecs);

TYPED_TEST(TreeCodecTest, KeepsRecordsThroughUpdates) {
  for (int version = 0; version < 3; ++version) {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open());
    for (int i = version; i < this->kRecords; i += version + 1) ASSERT_THAT(db->Set(this->KeyOf(i), this->ValueOf(i, version)), IsOk());
    ASSERT_THAT(db->Verify(), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto db, this->Open());
  EXPECT_EQ(db->Count(), static_cast<std::uint64_t>(this->kRecords));
  for (int i = 0; i < this->kRecords; ++i) {
    int version = 0;
    for (int v = 1; v < 3; ++v) version = i >= v && (i - v) % (v + 1) == 0 ? v : version;
    std::string value;
    ASSERT_THAT(db->Get(this->KeyOf(i), &value), IsOk());
    ASSERT_EQ(value, this->ValueOf(i, version)) << i;
  }
}

TYPED_TEST(TreeCodecTest, MakesTheFileSmaller) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open());
  for (int i = 0; i < this->kRecords; ++i) ASSERT_THAT(db->Set(this->KeyOf(i), this->ValueOf(i, 1)), IsOk());
  ASSERT_THAT(db->Rebuild(), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  const std::uint64_t size = this->file_.Size();
  EXPECT_GT(size, std::uint64_t{500'000});
  if (std::is_same_v<TypeParam, NoCodec>)
    EXPECT_GT(size, std::uint64_t{2'000'000});
  else
    EXPECT_LT(size, std::uint64_t{1'500'000});
}

TYPED_TEST(TreeCodecTest, RefusesAnotherCodec) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open());
  ASSERT_THAT(db->Close(), IsOk());
  db.reset();
  using Other = std::conditional_t<std::is_same_v<TypeParam, Lz4Codec>, NoCodec, Lz4Codec>;
  EXPECT_THAT((this->template Open<TreeDBM<MemoryFile, BytewiseComparator, Other>>()), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace hako
