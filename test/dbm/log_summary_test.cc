// SummarizeLog: what it says about logs that are whole, torn, damaged, missing or not there.
//
// A process is killed here by copying its files as they are in the page cache.
#include "hako/dbm/log_summary.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "dbm/salvage_files.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/positional_hash_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using format::LogOp;
using testing::HasSubstr;

struct ListedUpdate {
  std::uint64_t lsn;
  LogOp op;
  std::string key, value;
};

template <class D>
class LogSummaryTest : public testing::Test {
 protected:
  // Copies the files of the open database.
  std::string Kill(const std::string& name = "killed") {
    const std::string copy = dir_.File(name);
    std::filesystem::copy_file(path_, copy, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::copy_file(path_ + "-log", copy + "-log", std::filesystem::copy_options::overwrite_existing);
    return copy;
  }
  LogSummary Summarize(const std::string& path) {
    updates_.clear();
    const std::string before = ReadWhole(path), log = ReadWhole(path + "-log");
    auto summary = SummarizeLog(path, [this](std::uint64_t lsn, std::span<const format::LogEntry> run) {
      for (const auto& entry : run) updates_.push_back({lsn, entry.op, std::string(entry.key), std::string(entry.value)});
    });
    EXPECT_THAT(summary.status(), IsOk());
    EXPECT_TRUE(ReadWhole(path) == before && ReadWhole(path + "-log") == log) << "the files were changed";
    return summary.ok() ? *std::move(summary) : LogSummary();
  }
  // Changes a byte of the log where this text is.
  static void Damage(const std::string& path, const std::string& text) {
    std::string log = ReadWhole(path + "-log");
    const std::size_t at = log.find(text);
    ASSERT_NE(at, log.npos);
    log[at] ^= 1;
    WriteWhole(path + "-log", log);
  }

  TempDir dir_;
  const std::string path_ = dir_.File("casket");
  std::vector<ListedUpdate> updates_;
};

using LoggedDatabases = testing::Types<HashDBM<PositionalParallelFile>, TreeDBM<>, BabyDBM<>>;
TYPED_TEST_SUITE(LogSummaryTest, LoggedDatabases);

TYPED_TEST(LogSummaryTest, ShowsTheUpdatesSinceTheCheckpoint) {
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->path_));
  ASSERT_THAT(db->Set("old", "in the checkpoint"), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  const std::uint64_t checkpoint = db->LastLsn();
  ASSERT_THAT(db->Set("first", "value"), IsOk());
  const std::uint64_t first = db->LastLsn();
  ASSERT_THAT(db->Remove("old"), IsOk());
  WriteBatch batch;
  batch.Set("second", "2");
  batch.Set("third", "3");
  batch.SetAppliedIndex(77);
  ASSERT_THAT(db->Write(batch), IsOk());

  const LogSummary summary = this->Summarize(this->Kill());
  EXPECT_TRUE(summary.IsNamed());
  EXPECT_THAT(summary.damage, IsOk());
  EXPECT_FALSE(summary.is_torn);
  EXPECT_EQ(summary.checkpoint.lsn, checkpoint);
  EXPECT_EQ(summary.end, db->LastLsn());
  EXPECT_EQ(summary.num_runs, 3u);
  EXPECT_EQ(summary.num_updates, 5u);
  EXPECT_EQ(summary.bytes, std::filesystem::file_size(this->dir_.File("killed-log")));
  ASSERT_EQ(this->updates_.size(), 5u);
  EXPECT_EQ(this->updates_[0].lsn, first);
  EXPECT_EQ(this->updates_[0].op, LogOp::kSet);
  EXPECT_EQ(this->updates_[0].key + "=" + this->updates_[0].value, "first=value");
  EXPECT_EQ(this->updates_[1].op, LogOp::kRemove);
  EXPECT_EQ(this->updates_[1].key, "old");
  EXPECT_EQ(this->updates_[4].lsn, db->LastLsn());
}

TYPED_TEST(LogSummaryTest, TellsATornTail) {
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->path_));
  ASSERT_THAT(db->Set("key", "the one before"), IsOk());
  const std::uint64_t before = db->LastLsn();
  ASSERT_THAT(db->Set("key", "the last one"), IsOk());
  const std::string killed = this->Kill();
  ASSERT_NO_FATAL_FAILURE(this->Damage(killed, "the last one"));
  const LogSummary summary = this->Summarize(killed);
  EXPECT_TRUE(summary.is_torn);
  EXPECT_THAT(summary.damage, IsOk());
  EXPECT_EQ(summary.end, before);
  EXPECT_EQ(summary.num_updates, 1u);
}

TYPED_TEST(LogSummaryTest, TellsDamageBelowTheDurableMark) {
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->path_));
  ASSERT_THAT(db->Set("key", "a good one"), IsOk());
  const std::uint64_t good = db->LastLsn();
  for (const char* const value : {"a durable one", "another"}) {
    ASSERT_THAT(db->Set("key", value), IsOk());
    ASSERT_THAT(db->WaitDurable(db->LastLsn()), IsOk());  // the second one leaves a mark of the first
  }
  const std::string killed = this->Kill();
  EXPECT_GT(this->Summarize(killed).durable, good);
  ASSERT_NO_FATAL_FAILURE(this->Damage(killed, "a durable one"));
  const LogSummary summary = this->Summarize(killed);
  EXPECT_THAT(summary.damage, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("were durable")));
  EXPECT_EQ(summary.num_updates, 1u);
  EXPECT_EQ(summary.end, good);
  EXPECT_GT(summary.durable, good);
}

TYPED_TEST(LogSummaryTest, ListsSegments) {
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->path_));
  const std::string value(1000, 'v');
  for (std::uint64_t i = 0; i < 300; ++i) ASSERT_THAT(db->Set(NumberedKey(i), value), IsOk());
  const LogSummary summary = this->Summarize(this->Kill());
  EXPECT_THAT(summary.damage, IsOk());
  EXPECT_EQ(summary.num_updates, 300u);
  std::uint64_t num_needed = 0, sequence = 0, reached = 0;
  for (const LogSummary::Part& part : summary.segments) {
    EXPECT_GT(part.segment.sequence, sequence);
    sequence = part.segment.sequence;
    if (!part.is_needed) continue;
    ++num_needed;
    if (num_needed > 1) {
      EXPECT_LE(part.segment.first, reached);
    }
    reached = part.segment.end();
  }
  EXPECT_GT(num_needed, 3u);
  EXPECT_GE(reached, summary.end);
}

TYPED_TEST(LogSummaryTest, SaysThatALogIsMissing) {
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->path_));
  ASSERT_THAT(db->Set("key", "value"), IsOk());
  const std::string killed = this->Kill();
  std::filesystem::remove(killed + "-log");
  const LogSummary summary = this->Summarize(killed);
  EXPECT_TRUE(summary.IsNamed());
  EXPECT_THAT(summary.damage, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("missing")));
}

TYPED_TEST(LogSummaryTest, ClosedDatabaseHasNone) {
  const auto ignore = [](std::uint64_t, std::span<const format::LogEntry>) {};
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->path_));
  ASSERT_THAT(db->Set("key", "value"), IsOk());
  EXPECT_THAT(SummarizeLog(this->path_, ignore), StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_THAT(db->Close(), IsOk());
  EXPECT_FALSE(this->Summarize(this->path_).IsNamed());
  WriteWhole(this->path_, std::string(20'000, 'x'));
  EXPECT_THAT(SummarizeLog(this->path_, ignore), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace hako
