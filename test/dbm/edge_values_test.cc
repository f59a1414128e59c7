// Results of operations at the limits of their arguments.
#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/baby_dbm.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

TEST(BabyDBM, EveryOperationRefusesTooLongKeys) {
  ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open());
  const std::string key(kTreeKeySizeMax + 1, 'k');
  const std::string_view keys[] = {"short", key};
  std::string value;
  const auto refused = StatusIs(absl::StatusCode::kOutOfRange);
  EXPECT_THAT(db->Get(key, &value), refused);
  EXPECT_THAT(db->Contains(key).status(), refused);
  EXPECT_THAT(db->Set(key, "value"), refused);
  EXPECT_THAT(db->Remove(key), refused);
  EXPECT_THAT(db->GetMulti(keys, [](std::size_t, std::optional<std::string_view>) {}), refused);
  EXPECT_THAT(db->Get(std::string(kTreeKeySizeMax, 'k'), &value), StatusIs(absl::StatusCode::kNotFound));
}

TEST(BabyDBM, CompareExchangeOfAbsentKeyEmptiesActualValue) {
  ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open());
  std::string actual = "of another call";
  bool found = true;
  EXPECT_THAT(db->CompareExchange("absent", Expect::Any(), Action::Remove(), &actual, &found), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(actual, "");
  EXPECT_FALSE(found);
}

}  // namespace
}  // namespace hako
