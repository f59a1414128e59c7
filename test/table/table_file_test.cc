// A table in a file that is mapped, read and written by position, or opened for direct I/O: with a
// cache that holds a part of it, through all operations, closed and opened again in another way.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/table/table_dbm.h"
#include "support/file_system.h"
#include "support/small_disk.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

enum class Way { kMapped, kPositional, kDirect };

class TableFileTest : public testing::TestWithParam<Way> {
 protected:
  static TableOptions Options(Way way, OpenMode mode = OpenMode::kCreate) {
    TableOptions options;
    options.tree.page_size = 512;
    options.tree.cache_bytes = 1 << 20;  // the least
    options.file.mode = mode;
    options.file.direct = way == Way::kDirect;
    options.file.cache_bytes = 0;
    options.positional = way == Way::kPositional;
    return options;
  }
  // Whether the file is mapped into this process.
  bool IsMapped() const { return ReadWhole("/proc/self/maps").find(path_ + "\n") != std::string::npos; }
  // Whether a descriptor of the file has direct I/O.
  bool IsDirect() const {
    for (int fd = 3; fd < 100; ++fd) {
      char name[4096];
      const ssize_t size = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof(name));
      if (size > 0 && std::string_view(name, static_cast<std::size_t>(size)) == path_ && (fcntl(fd, F_GETFL) & O_DIRECT) != 0) return true;
    }
    return false;
  }

  const TempDir dir_;
  const std::string path_ = dir_.File("t.hktb");
};

constexpr int kRows = 600;

Status Fill(TableDBM& table) {
  HAKO_RETURN_IF_ERROR(table.SetColumn("n", {.type = ColumnType::kInt64, .not_null = true}));
  HAKO_RETURN_IF_ERROR(table.CreateIndex({.columns = {{"n", IndexKind::kNumeric}}}));
  TableBatch batch;
  for (int i = 0; i < kRows; ++i) {
    const std::string number = std::to_string(i);
    batch.Put("row" + number, {{"n", i}, {"t", "word" + std::to_string(i % 50) + " and " + number}, {"fill", std::string(1500, 'x')}});
    if (i % 100 != 99) continue;
    HAKO_RETURN_IF_ERROR(table.Write(batch));
    batch.Clear();
  }
  HAKO_RETURN_IF_ERROR(table.CreateIndex({.columns = {{"t", IndexKind::kToken}}}));
  return table.CreateIndex({.columns = {{"t", IndexKind::kQGram}}});
}

void ExpectAnswers(TableDBM& table) {
  EXPECT_THAT(table.Count(), IsOkAndHolds(std::uint64_t{kRows}));
  EXPECT_THAT(table.Select().Where(Column("n").Between(500, 502)).OrderBy("n").Keys(),
              IsOkAndHolds(ElementsAre("row500", "row501", "row502")));
  EXPECT_THAT(table.Select().Where(Column("t").HasAll("word7 and")).Keys(), IsOkAndHolds(SizeIs(kRows / 50)));
  EXPECT_THAT(table.Select().Where(Column("t").Contains("nd 59")).Keys(), IsOkAndHolds(SizeIs(11)));
  EXPECT_THAT(table.Select().Where(Column("fill") == "y").Count(), IsOkAndHolds(0u));
}

TEST_P(TableFileTest, AnswersAndChangesInEachWay) {
  auto opened = TableDBM::Open(path_, Options(GetParam()));
  if (GetParam() == Way::kDirect && absl::IsInvalidArgument(opened.status())) GTEST_SKIP() << "no direct I/O here";
  ASSERT_OK_AND_ASSIGN(auto table, std::move(opened));
  EXPECT_EQ(IsMapped(), GetParam() == Way::kMapped);
  EXPECT_EQ(IsDirect(), GetParam() == Way::kDirect);
  ASSERT_THAT(Fill(*table), IsOk());
  ExpectAnswers(*table);
  EXPECT_THAT(table->Select().Where(Column("n") < 10).Update({{"t", "changed"}}), IsOkAndHolds(10u));
  EXPECT_THAT(table->Select().Where(Column("t") == "changed").Count(), IsOkAndHolds(10u));
  for (int i = 0; i < 10; ++i)
    ASSERT_THAT(table->Update("row" + std::to_string(i), {{"t", "word" + std::to_string(i % 50) + " and " + std::to_string(i)}}), IsOk());
  ASSERT_THAT(table->Rebuild(), IsOk());
  ASSERT_THAT(table->Synchronize(SyncMode::kHard), IsOk());
  const std::string copy = dir_.File("copy.hktb");
  ASSERT_THAT(table->CopyTo(copy), IsOk());
  ASSERT_THAT(table->Verify(), IsOk());
  ASSERT_THAT(table->Close(), IsOk());
  for (const Way other : {Way::kMapped, Way::kPositional, Way::kDirect}) {
    ASSERT_OK_AND_ASSIGN(table, TableDBM::Open(other == GetParam() ? copy : path_, Options(other, OpenMode::kReadOnly)));
    ExpectAnswers(*table);
    EXPECT_THAT(table->Verify(), IsOk());
    ASSERT_THAT(table->Close(), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(table, TableDBM::Open(path_, Options(GetParam())));
  ASSERT_THAT(table->Clear(), IsOk());
  EXPECT_THAT(table->Count(), IsOkAndHolds(0u));
  EXPECT_THAT(table->Verify(), IsOk());
}

// Another process, or handle, reads the last checkpoint while the table is written (file/readers_file.h).
TEST_P(TableFileTest, ReadersShowTheLastCheckpointBesideAWriter) {
  ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path_, Options(GetParam())));
  for (int i = 0; i < 500; ++i) ASSERT_THAT(table->Put("row" + std::to_string(i), {{"n", i}}), IsOk());
  ASSERT_THAT(table->Synchronize(SyncMode::kHard), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto reader, TableDBM::Open(path_, Options(GetParam(), OpenMode::kReadOnly)));
  for (int round = 0; round < 4; ++round) {
    EXPECT_THAT(table->Select().Update({{"n", 1000 + round}}), IsOkAndHolds(500u));
    ASSERT_THAT(table->Synchronize(SyncMode::kHard), IsOk());
  }
  EXPECT_THAT(reader->Select().Where(Column("n") < 500).Count(), IsOkAndHolds(500u));
  EXPECT_THAT(reader->Verify(), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto newer, TableDBM::Open(path_, Options(GetParam(), OpenMode::kReadOnly)));
  EXPECT_THAT(newer->Select().Where(Column("n") == 1003).Count(), IsOkAndHolds(500u));
}

// A page of 128 bytes: keys of rows and values of indices up to their limits, as in any other.
TEST_P(TableFileTest, SmallestPagesTakeTheLongestKeys) {
  TableOptions options = Options(GetParam());
  options.tree.page_size = 128;
  auto opened = TableDBM::Open(path_, options);
  if (GetParam() == Way::kDirect && absl::IsInvalidArgument(opened.status())) GTEST_SKIP() << "no direct I/O here";
  ASSERT_OK_AND_ASSIGN(const auto table, std::move(opened));
  ASSERT_THAT(table->CreateIndex({.columns = {{"s"}}}), IsOk());
  for (char c = 'a'; c < 'f'; ++c) ASSERT_THAT(table->Put(std::string(TableLimits::kKeySize, c), {{"s", std::string(2000, c)}}), IsOk());
  EXPECT_THAT(table->Select().Where(Column("s").BeginsWith("bb")).Keys(),
              IsOkAndHolds(ElementsAre(std::string(TableLimits::kKeySize, 'b'))));
  EXPECT_THAT(table->Verify(), IsOk());
}

// A table in a database in memory that has a snapshot file.
TEST(TableSnapshotTest, SynchronizeAndWaitDurableSaveTheRows) {
  const TempDir dir;
  const std::string path = dir.File("t.hks"), copy = dir.File("copy.hks");
  const auto rows_in_file = [&]() -> StatusOr<std::uint64_t> {
    std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing);
    HAKO_ASSIGN_OR_RETURN(auto tree, BabyDBM<>::Open(copy));
    HAKO_ASSIGN_OR_RETURN(const auto table, TableDBM::Open(std::move(tree)));
    return table->Count();
  };
  ASSERT_OK_AND_ASSIGN(auto tree, BabyDBM<>::Open(path, {.durability = Durability::kNone}));
  ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(std::move(tree)));
  ASSERT_THAT(table->Put("a", {{"n", 1}}), IsOk());
  ASSERT_THAT(table->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_THAT(rows_in_file(), IsOkAndHolds(1u));
  ASSERT_THAT(table->Put("b", {{"n", 2}}), IsOk());
  ASSERT_THAT(table->WaitDurable(table->LastLsn()), IsOk());
  EXPECT_THAT(rows_in_file(), IsOkAndHolds(2u));
  EXPECT_THAT(table->CopyTo(dir.File("other")), StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(table->Close(), IsOk());
}

// The posting lists of a row that goes are written again, and an index that goes is marked first.
TEST(TableOnAFullDiskTest, RowsAndIndicesCanBeRemoved) {
  SmallDisk disk(8 << 20);
  if (!disk.is_mounted()) GTEST_SKIP() << "cannot mount a small file system";
  ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(disk.File("t.hktb"), {.tree = {.log_bytes = 1 << 16}}));
  for (const bool positions : {false, true}) {
    ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}, .positions = positions}), IsOk());
    ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kQGram}}, .positions = positions}), IsOk());
  }
  ASSERT_THAT(table->CreateIndex({.columns = {{"n"}}}), IsOk());
  const auto row = [](int i) { return "row" + std::to_string(i); };
  for (int i = 0; i < 300; ++i) ASSERT_THAT(table->Put(row(i), {{"t", "every row has word" + std::to_string(i % 7)}, {"n", i}}), IsOk());
  const std::string fill(30'000, 'f');
  std::uint64_t num_fill = 0;
  for (; num_fill < 500 && !absl::IsResourceExhausted(table->GetHealth()); ++num_fill) {
    if (!table->Put("fill" + std::to_string(num_fill), {{"fill", fill}}).ok()) break;
    (void)table->Synchronize(SyncMode::kHard);
  }
  const auto is_refused = StatusIs(absl::StatusCode::kResourceExhausted);
  ASSERT_THAT(table->GetHealth(), is_refused);
  EXPECT_THAT(table->Put("more", {{"t", "word1"}}), is_refused);
  EXPECT_THAT(table->Update(row(1), {{"t", "every row has word1 and others"}}), is_refused);
  EXPECT_THAT(table->CreateIndex({.name = "other", .columns = {{"t", IndexKind::kQGram}}}), is_refused);
  EXPECT_THAT(table->Indices(), SizeIs(5));
  EXPECT_THAT(table->Count(), IsOkAndHolds(300 + num_fill));

  EXPECT_THAT(table->Remove(row(0)), IsOk());
  EXPECT_THAT(table->Select().Where(Column("t").HasPhrase("has word3")).Remove(), IsOkAndHolds(43u));
  EXPECT_THAT(table->DropIndex("t:qgram"), IsOk());
  EXPECT_THAT(table->DropIndex("n"), IsOk());
  EXPECT_THAT(table->Indices(), SizeIs(3));
  EXPECT_THAT(table->Select().Where(Column("t").HasAll("every")).Count(), IsOkAndHolds(256u));
  EXPECT_THAT(table->Select().Where(Column("t").Contains("word3")).Count(), IsOkAndHolds(0u));

  EXPECT_THAT(table->Select().Where(Column("fill").IsNotNull()).Remove(), IsOkAndHolds(num_fill));
  ASSERT_THAT(table->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_THAT(table->Put("more", {{"t", "every word1"}}), IsOk());
  EXPECT_THAT(table->Select().Where(Column("t").HasAll("every")).Count(), IsOkAndHolds(257u));
  EXPECT_THAT(table->Verify(), IsOk());
}

INSTANTIATE_TEST_SUITE_P(Ways, TableFileTest, testing::Values(Way::kMapped, Way::kPositional, Way::kDirect), [](const auto& way) {
  return std::string(way.param == Way::kMapped ? "Mapped" : way.param == Way::kPositional ? "Positional" : "Direct");
});

}  // namespace
}  // namespace hako
