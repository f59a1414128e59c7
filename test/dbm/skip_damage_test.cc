// Iterators that skip damage show all sound records, in order, both ways, and report each damage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "hako/dbm/any_dbm.h"
#include "hako/dbm/transfer.h"
#include "support/file_system.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

constexpr int kRecords = 3000;

std::string Key(int i) { return absl::StrCat("key", 100000 + i); }
// Long values are stored out of line in trees; each contains its number.
std::string Value(int i) { return absl::StrCat("value of ", Key(i), ";", std::string(i % 50 == 0 ? 5000 : 100, 'v')); }

class SkipDamageTest : public testing::TestWithParam<const char*> {
 protected:
  SkipDamageTest() {
    auto db = AnyDBM::Open(name_).value();
    for (int i = 0; i < kRecords; ++i) EXPECT_THAT(db->Set(Key(i), Value(i)), IsOk());
    EXPECT_THAT(db->Close(), IsOk());
  }

  // Changes a byte in the middle of the stored value.
  void Damage(int i) {
    const std::string path = name_.substr(0, name_.find('?'));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const std::string bytes = ReadWhole(path);
    const std::string value = Value(i);
    const std::size_t at = bytes.find(value);
    ASSERT_NE(at, bytes.npos);
    file.seekp(static_cast<std::streamoff>(at + value.size() / 2));
    file.put('x');
  }

  struct Found {
    std::vector<int> records;
    std::vector<std::string> damage;
  };
  static int IndexOf(std::string_view key) { return std::stoi(std::string(key.substr(3))) - 100000; }
  template <class Move>
  Found Scan(AnyDBM::Iterator& it, Move move) {
    Found found;
    const auto note = [&found](const Status& status) { found.damage.emplace_back(status.message()); };
    for (; it.Valid() || it.PassDamage(note); move(it)) {
      found.records.push_back(IndexOf(it.key()));
      EXPECT_EQ(it.value(), Value(found.records.back()));
    }
    EXPECT_THAT(it.status(), IsOk());
    return found;
  }

  TempDir directory_;
  const std::string name_ = directory_.File(std::string("a") + GetParam());
};
INSTANTIATE_TEST_SUITE_P(Kinds, SkipDamageTest, testing::Values(".hkh", ".hkt", ".hkh?file=pos", ".hkt?file=pos"), [](const auto& tested) {
  std::string name = tested.param + 1;
  for (char& c : name) c = c == '?' || c == '=' ? '_' : c;
  return name;
});

TEST_P(SkipDamageTest, IteratorShowsEverySoundRecordOnce) {
  const bool is_tree = name_.find(".hkt") != name_.npos;
  for (const int i : {7, 350, 1500, 2950}) Damage(i);  // two values that lie in their pages, and two that do not
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(name_ + (name_.find('?') == name_.npos ? "?" : ",") + "mode=read"));
  auto it = db->MakeIterator();
  it.First();
  Found found = Scan(it, [](auto& at) { at.Next(); });
  EXPECT_EQ(found.damage.size(), 4u);
  for (const std::string& damage : found.damage) EXPECT_NE(damage, "");
  if (is_tree) {
    EXPECT_TRUE(std::is_sorted(found.records.begin(), found.records.end()));
  }
  const std::set<int> shown(found.records.begin(), found.records.end());
  EXPECT_EQ(shown.size(), found.records.size()) << "none twice";
  for (const int i : {7, 350, 1500, 2950}) EXPECT_EQ(shown.count(i), 0u);
  EXPECT_GE(shown.size(), is_tree ? kRecords - 300u : kRecords - 4u) << "of a tree whole pages are lost";
  if (!is_tree) return;
  it.Last();
  Found backwards = Scan(it, [](auto& at) { at.Previous(); });
  std::reverse(backwards.records.begin(), backwards.records.end());
  EXPECT_EQ(backwards.records, found.records);
  EXPECT_EQ(backwards.damage.size(), 4u);
  it.JumpUpper(Key(7), true);
  EXPECT_EQ(Scan(it, [](auto& at) { at.Next(); }).records,
            std::vector<int>(std::upper_bound(found.records.begin(), found.records.end(), 7), found.records.end()));
  it.JumpLower(Key(1500), true);
  EXPECT_EQ(Scan(it, [](auto& at) { at.Previous(); }).records.front(),
            *(std::lower_bound(found.records.begin(), found.records.end(), 1500) - 1));
}

TEST_P(SkipDamageTest, IteratorStopsAtDamageByDefault) {
  Damage(1500);
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(name_));
  auto it = db->MakeIterator();
  int count = 0;
  for (it.First(); it.Valid(); it.Next()) ++count;
  EXPECT_LT(count, kRecords);
  EXPECT_THAT(it.status(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_TRUE(it.SkipDamage());
  while (it.Valid()) it.Next();
  EXPECT_THAT(it.status(), IsOk());
  EXPECT_FALSE(it.SkipDamage()) << "there is none";
}

TEST_P(SkipDamageTest, ExportSkipsDamagedRecords) {
  Damage(1500);
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(name_));
  std::string text;
  const auto append = [&text](std::string_view more) {
    text.append(more);
    return absl::OkStatus();
  };
  EXPECT_THAT(Export(*db, append).status(), StatusIs(absl::StatusCode::kDataLoss));
  int damaged = 0;
  TransferOptions options;
  options.on_damage = [&damaged](const Status&) { ++damaged; };
  text.clear();
  const TransferResult result = Export(*db, append, options);
  EXPECT_THAT(result.status(), IsOk());
  EXPECT_EQ(damaged, 1);
  EXPECT_EQ(static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n')), result.num_records);
  EXPECT_GE(result.num_records, kRecords - 100u);
}

}  // namespace
}  // namespace hako
