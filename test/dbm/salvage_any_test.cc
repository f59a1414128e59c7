// AnyDBM::Salvage finds out the kind, order and codec of a damaged file.
#include <filesystem>
#include <string>
#include <string_view>

#include "dbm/salvage_files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/comparator.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/any_tree.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

// An order that no other test registers.
struct NumberOrder {
  static constexpr std::string_view kName = "number of a salvage";
  static int Compare(std::string_view a, std::string_view b) { return DecimalComparator::Compare(a, b); }
};

class SalvageAnyTest : public testing::Test {
 protected:
  Records Make(const std::string& name) {
    Records records;
    auto db = AnyDBM::Open(name);
    EXPECT_THAT(db.status(), IsOk());
    for (std::uint64_t i = 0; i < 500; ++i) {
      records[std::to_string(i)] = CheckedValue(std::to_string(i), i, 1);
      EXPECT_THAT((*db)->Set(std::to_string(i), records[std::to_string(i)]), IsOk());
    }
    EXPECT_THAT((*db)->Close(), IsOk());
    return records;
  }
  Records Read(const std::string& path, const std::string& kind) {
    auto db = AnyDBM::Open(path + "?dbm=" + kind);
    EXPECT_THAT(db.status(), IsOk());
    EXPECT_THAT((*db)->Verify(), IsOk());
    return ListByProcessEach(**db).records;
  }

  TempDir dir_;
  const std::string to_ = dir_.File("to");
};

TEST_F(SalvageAnyTest, ContentTellsTheKind) {
  for (const std::string kind : {"hash", "tree"}) {
    const std::string path = dir_.File("misnamed_" + kind);
    const Records records = Make(path + "?dbm=" + kind);
    std::string image = ReadWhole(path);
    image.replace(0, 100, std::string(100, 'x'));
    WriteWhole(path, image);
    ASSERT_OK_AND_ASSIGN(const SalvageReport report, AnyDBM::Salvage(path, to_));
    EXPECT_EQ(report.num_lost, std::optional<std::uint64_t>(0));
    EXPECT_EQ(Difference(records, Read(to_, kind)), "none");
    std::filesystem::remove(to_);
  }
}

TEST_F(SalvageAnyTest, OrderOfTheTreeIsKept) {
  const std::string path = dir_.File("numbers.hkt");
  AddTreeToAnyDBM<NumberOrder>();
  const Records records = Make(path + "?order=" + std::string(NumberOrder::kName));
  std::string image = ReadWhole(path);
  const std::size_t at = image.find(records.at("300"));
  ASSERT_NE(at, image.npos);
  image[at] ^= 1;
  WriteWhole(path, image);
  ASSERT_OK_AND_ASSIGN(const SalvageReport report, AnyDBM::Salvage(path, to_));
  ASSERT_EQ(report.lost_ranges.size(), 1u);
  EXPECT_LE(std::stoi(report.lost_ranges[0].from), 300);
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(to_ + "?dbm=tree"));
  int before = -1;
  std::uint64_t found = 0;
  auto it = db->MakeIterator();
  for (it.First(); it.Valid(); it.Next()) {
    const std::string key(it.key());
    EXPECT_LT(before, std::stoi(key));
    before = std::stoi(key);
    EXPECT_EQ(it.value(), records.at(key));
    ++found;
  }
  EXPECT_THAT(it.status(), IsOk());
  EXPECT_EQ(found, report.num_records);
  EXPECT_EQ(found + report.num_lost.value(), records.size());
}

TEST_F(SalvageAnyTest, RefusesWhatItCannotSalvage) {
  const std::string snapshot = dir_.File("a.hks"), hash = dir_.File("a.hkh");
  Make(snapshot);
  Make(hash);
  EXPECT_THAT(AnyDBM::Salvage(snapshot, to_).status(), StatusIs(absl::StatusCode::kInvalidArgument));
  std::string image = ReadWhole(hash);
  image.replace(0, 8192, std::string(8192, '\0'));
  WriteWhole(hash, image);
  EXPECT_THAT(AnyDBM::Salvage(hash, to_).status(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(AnyDBM::Salvage(dir_.File("absent.hkh"), to_).status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(std::filesystem::exists(to_));
}

}  // namespace
}  // namespace hako
