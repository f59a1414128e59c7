// Salvages damaged tables. The new table opens, Verify finds nothing, and a naive loop over its rows finds the
// answers of its indices and the number of rows right; each cell is one of the damaged table, under its name or, if
// that is lost, under one that says so. HAKO_SALVAGES is the number of random damages.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/salvage.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/table/table_dbm.h"
#include "support/file_system.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "table/naive_rows.h"

namespace hako {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Rows = std::map<std::string, std::map<std::string, std::string>>;

const std::vector<IndexOptions> kIndices = {{.name = "numbers", .columns = {{"n", IndexKind::kNumeric}}},
                                            {.name = "words", .columns = {{"t", IndexKind::kToken}}, .positions = true},
                                            {.name = "grams", .columns = {{"t", IndexKind::kQGram}}, .where = "status = 'open'"},
                                            {.name = "unique", .columns = {{"u"}}, .unique = true, .covering = {"n"}}};

class SalvageTableTest : public testing::Test {
 protected:
  static constexpr int kRows = 600;
  // Pages are small, so that the damage of one leaves most. Columns have long names, so the catalogue takes several.
  void MakeTable() {
    TableOptions options;
    options.tree.page_size = 512;
    for (int i = 0; i < 4; ++i) options.columns.push_back({LongName(i), {.type = ColumnType::kString}});
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(from_, options));
    for (const IndexOptions& index : kIndices) ASSERT_THAT(table->CreateIndex(index), IsOk());
    TableBatch batch;
    for (int i = 0; i < kRows; ++i) {
      const std::string number = std::to_string(i), t = "word" + std::to_string(i % 30) + " tree" + std::to_string(i % 7);
      batch.Put("k" + number, {{"n", i % 50}, {"t", t}, {"u", "u" + number}, {"status", i % 3 == 0 ? "done" : "open"}});
      if (i % 2 == 0) batch.Update("k" + number, {{LongName(i % 4), "value" + number}});
    }
    ASSERT_THAT(table->Write(batch), IsOk());
    rows_ = NaiveRows(*table).rows();
    ASSERT_THAT(table->Close(), IsOk());
    image_ = ReadWhole(from_);
  }
  static std::string LongName(int i) { return "column" + std::to_string(i) + std::string(230, static_cast<char>('a' + i)); }

  // Salvages the image, and checks all that holds of each salvaged table.
  void Salvage(const std::string& image, SalvageReport* report) {
    WriteWhole(from_, image);
    std::filesystem::remove(to_);
    ASSERT_OK_AND_ASSIGN(*report, TableDBM::Salvage(from_, to_));
    ASSERT_OK_AND_ASSIGN(table_, TableDBM::Open(to_));
    ASSERT_THAT(table_->Verify(), IsOk());
    NaiveRows naive(*table_);
    ASSERT_EQ(naive.CountWrongAnswers(25), 0);
    num_queries_ += naive.num_queries();
    found_ = naive.rows();
    EXPECT_EQ(report->num_records, found_.size());
    if (report->num_lost) EXPECT_EQ(*report->num_lost, rows_.size() - found_.size());
    if (report->IsComplete()) {
      EXPECT_EQ(found_, rows_);
      EXPECT_EQ(table_->Indices().size(), kIndices.size());
    }
    if (table_->Indices().size() < kIndices.size()) EXPECT_THAT(report->notes, Not(IsEmpty()));
    // A column that comes later does not get the cells of another one.
    ASSERT_THAT(table_->Put("later", {{"later", 1}}), AnyOf(IsOk(), StatusIs(absl::StatusCode::kInvalidArgument)));
    const NaiveRows later(*table_);
    for (const auto& [key, row] : later.rows()) {
      if (key == "later") continue;
      ASSERT_TRUE(rows_.contains(key)) << key;
      for (const auto& [name, value] : row) {
        const bool is_lost = name.starts_with("lost_column_");
        const std::string column = is_lost ? NameOf(key, value) : name;
        ASSERT_TRUE(rows_[key].contains(column) && rows_[key][column] == value) << key << " " << name << " = " << value;
      }
      ASSERT_EQ(row.size(), rows_[key].size()) << key;
    }
    ASSERT_THAT(table_->Verify(), IsOk());
    ASSERT_THAT(table_->Close(), IsOk());
  }
  // The column of the damaged table in which a row has this value.
  std::string NameOf(const std::string& key, const std::string& value) {
    for (const auto& [name, other] : rows_[key]) {
      if (other == value) return name;
    }
    return {};
  }

  const TempDir dir_;
  const std::string from_ = dir_.File("from.hktb"), to_ = dir_.File("to.hktb");
  Rows rows_, found_;
  std::string image_;
  std::unique_ptr<TableDBM> table_;
  int num_queries_ = 0;
};

TEST_F(SalvageTableTest, UndamagedTableIsCopiedWithItsIndices) {
  ASSERT_NO_FATAL_FAILURE(MakeTable());
  SalvageReport report;
  ASSERT_NO_FATAL_FAILURE(Salvage(image_, &report));
  EXPECT_TRUE(report.IsComplete()) << testing::PrintToString(report.notes);
  EXPECT_EQ(report.num_places, 0u);
  EXPECT_EQ(found_, rows_);
}

TEST_F(SalvageTableTest, DamagedEntriesCostNothing) {
  ASSERT_NO_FATAL_FAILURE(MakeTable());
  std::string image = image_;
  const std::size_t at = image.rfind("word17");  // in the entries of words, which are behind the rows
  ASSERT_NE(at, image.npos);
  image[at] = 'x';
  SalvageReport report;
  ASSERT_NO_FATAL_FAILURE(Salvage(image, &report));
  EXPECT_TRUE(report.IsComplete() || found_.size() < rows_.size()) << testing::PrintToString(report.notes);
  EXPECT_GT(report.num_places, 0u);
}

TEST_F(SalvageTableTest, LostRowsAreListed) {
  ASSERT_NO_FATAL_FAILURE(MakeTable());
  std::string image = image_;
  const std::size_t at = image.find("value300");
  ASSERT_NE(at, image.npos);
  image[at] = 'x';
  SalvageReport report;
  ASSERT_NO_FATAL_FAILURE(Salvage(image, &report));
  ASSERT_LT(found_.size(), rows_.size());
  ASSERT_FALSE(found_.contains("k300"));
  EXPECT_EQ(report.num_lost, rows_.size() - found_.size());
  ASSERT_EQ(report.lost_ranges.size(), 1u);
  EXPECT_LE(report.lost_ranges[0].from, "k300");
  EXPECT_GT(report.lost_ranges[0].to, "k300");
  for (const auto& [key, row] : rows_) {
    const auto has_key = [&one = key](const SalvageReport::Place& place) { return place.key == one; };
    EXPECT_EQ(std::any_of(report.places.begin(), report.places.end(), has_key), !found_.contains(key)) << key;
  }
}

TEST_F(SalvageTableTest, CellsOfALostColumnKeepTheirRows) {
  ASSERT_NO_FATAL_FAILURE(MakeTable());
  std::string image = image_;
  const std::size_t at = image.find(LongName(2));
  ASSERT_NE(at, image.npos);
  image[at] = 'x';
  SalvageReport report;
  ASSERT_NO_FATAL_FAILURE(Salvage(image, &report));
  EXPECT_EQ(found_.size(), rows_.size());
  EXPECT_EQ(found_["k2"]["lost_column_3"], "value2");
  EXPECT_EQ(found_["k2"].count(LongName(2)), 0u);
  EXPECT_FALSE(report.IsComplete());
  EXPECT_THAT(report.notes, Contains(HasSubstr("'lost_column_3'")));
}

TEST_F(SalvageTableTest, OtherSalvagesRefuseATable) {
  ASSERT_NO_FATAL_FAILURE(MakeTable());
  const auto is_refused = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("TableDBM::Salvage"));
  EXPECT_THAT(AnyDBM::Salvage(from_, to_).status(), is_refused);
  EXPECT_THAT(hako::Salvage<TreeDBM<>>(from_, to_).status(), is_refused);
  EXPECT_FALSE(std::filesystem::exists(to_));
  const std::string tree = dir_.File("tree.hkt");
  { ASSERT_OK_AND_ASSIGN(const auto db, TreeDBM<>::Open(tree)); }
  EXPECT_THAT(TableDBM::Salvage(tree, to_).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a table")));
  EXPECT_FALSE(std::filesystem::exists(to_));
  EXPECT_EQ(ReadWhole(from_), image_);
}

TEST_F(SalvageTableTest, RandomDamageLeavesATableThatAnswersRightly) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  ASSERT_NO_FATAL_FAILURE(MakeTable());
  const char* const given = std::getenv("HAKO_SALVAGES");
  const int wanted = (given != nullptr ? std::atoi(given) : 25) / (kSlowdown > 1 ? 4 : 1);
  int num_lossy = 0;
  for (int number = 0; number < wanted; ++number) {
    std::string image = image_;
    // The superblocks are those of any tree.
    for (std::uint64_t places = 1 + random.Below(5); places > 0; --places) {
      const std::size_t at = random.Between(8192, image.size() - 1);
      image[at] = static_cast<char>(image[at] ^ (1 << random.Below(8)));
    }
    if (random.OneIn(10)) image.resize(random.Between(image.size() / 2, image.size()));
    SalvageReport report;
    ASSERT_NO_FATAL_FAILURE(Salvage(image, &report)) << number;
    num_lossy += report.IsComplete() ? 0 : 1;
  }
  std::printf("%d tables salvaged, %d of them with losses, %d queries compared\n", wanted, num_lossy, num_queries_);
  EXPECT_GT(num_lossy, wanted / 4);
}

}  // namespace
}  // namespace hako
