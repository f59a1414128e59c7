// The archive of a log: the segments that it stores, their order, and those that the log keeps
// while it cannot.
#include "hako/log/log_archive.h"

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/log/record_log.h"
#include "support/failing_calls.h"
#include "support/failing_calls_definitions.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako::log {
namespace {

using format::LogOp;

constexpr DatabaseId kLog = {std::byte{7}}, kBefore = {std::byte{6}};
constexpr std::uint64_t kSecret = 42, kFirstLsn = 1000;

class LogArchiveTest : public testing::Test {
 protected:
  using File = PositionalParallelFile;
  LogArchiveTest() { std::filesystem::create_directory(directory_); }

  // A log that continues the history behind segment 4 of another one, with some segments.
  std::unique_ptr<RecordLog<File>> MakeLog() {
    auto file = File::Open(dir_.File("log"), {.mode = OpenMode::kTruncate});
    EXPECT_THAT(file.status(), IsOk());
    auto log = RecordLog<File>::Open(*std::move(file), kLog, kSecret);
    EXPECT_THAT(log.status(), IsOk());
    (*log)->ContinueHistory({kBefore, 4}, kFirstLsn);
    EXPECT_THAT((*log)->Begin({}), IsOk());
    EXPECT_EQ((*log)->position(), (Position{kFirstLsn, 5}));
    Append(**log, 30);
    return *std::move(log);
  }
  void Append(RecordLog<File>& log, int num) {
    for (int i = 0; i < num; ++i) {
      const std::string key = std::to_string(++num_), value = Random(static_cast<std::uint64_t>(num_)).Bytes(5000);
      ASSERT_THAT(log.Append({LogOp::kSet, key, value}).status(), IsOk());
    }
    ASSERT_THAT(log.WaitDurable(log.tail()), IsOk());
  }
  LogArchive<File> MakeArchive() {
    LogArchive<File> archive(directory_);
    EXPECT_THAT(archive.Load(), IsOk());
    if (archive.last().IsNone()) archive.set_last({kBefore, 4});
    return archive;
  }
  // The archive has the history from its first segment to this LSN.
  void ExpectHistoryTo(Lsn end) {
    ASSERT_OK_AND_ASSIGN(const auto segments, ListArchive(directory_));
    Link last{kBefore, 4};
    Lsn at = kFirstLsn;
    for (const ArchivedSegment& piece : segments) {
      EXPECT_EQ(piece.segment.before(), last);
      EXPECT_EQ(piece.segment.first, at);
      EXPECT_EQ(piece.segment.secret, kSecret);
      EXPECT_NE(piece.segment.time, 0u);
      last = piece.link();
      at = piece.segment.limit;
    }
    EXPECT_EQ(at, end);
  }

  TempDir dir_;
  const std::string directory_ = dir_.File("archive");
  int num_ = 0;
};

TEST_F(LogArchiveTest, HasEachSegmentBeforeAPosition) {
  const auto log = MakeLog();
  auto archive = MakeArchive();
  const Position position = log->position();
  ASSERT_GT(position.sequence, 7u);
  ASSERT_THAT(log->Archive(archive, position.sequence), IsOk());
  EXPECT_EQ(archive.last(), (Link{kLog, position.sequence - 1}));
  ASSERT_OK_AND_ASSIGN(const auto segments, ListArchive(directory_));
  ASSERT_EQ(segments.size(), position.sequence - 5);
  ExpectHistoryTo(segments.back().segment.limit);
  ASSERT_THAT(log->Archive(archive, RecordLog<File>::kAll), IsOk());
  ExpectHistoryTo(log->tail());
  EXPECT_EQ(MakeArchive().last(), archive.last());
}

TEST_F(LogArchiveTest, SkipsASegmentWithoutARecord) {
  auto file = File::Open(dir_.File("log"), {.mode = OpenMode::kTruncate});
  ASSERT_THAT(file.status(), IsOk());
  ASSERT_OK_AND_ASSIGN(auto log, RecordLog<File>::Open(*std::move(file), kLog, kSecret));
  log->ContinueHistory({kBefore, 4}, kFirstLsn);
  ASSERT_THAT(log->Begin({}), IsOk());
  auto archive = MakeArchive();
  ASSERT_THAT(log->Archive(archive, RecordLog<File>::kAll), IsOk());
  EXPECT_EQ(archive.last(), (Link{kBefore, 4}));
  EXPECT_EQ(log->LinkAt(log->tail(), archive), (Link{kBefore, 4}));
}

TEST_F(LogArchiveTest, LogKeepsSegmentsThatAreNotArchived) {
  const auto log = MakeLog();
  log->Release(log->position());
  const std::uint64_t before = log->file_bytes();
  Append(*log, 30);
  EXPECT_GT(log->file_bytes(), before + 100'000) << "segments were used again";
  auto archive = MakeArchive();
  ASSERT_THAT(log->Archive(archive, RecordLog<File>::kAll), IsOk());
  ExpectHistoryTo(log->tail());
}

TEST_F(LogArchiveTest, ReusesSegmentsThatAreArchived) {
  const auto log = MakeLog();
  auto archive = MakeArchive();
  ASSERT_THAT(log->Archive(archive, log->position().sequence), IsOk());
  log->Release(log->position());
  const std::uint64_t before = log->file_bytes();
  Append(*log, 10);
  EXPECT_EQ(log->file_bytes(), before);
  ASSERT_THAT(log->Archive(archive, RecordLog<File>::kAll), IsOk());
  ExpectHistoryTo(log->tail());
}

// Each write, sync and lengthening of the archive's files and its directory fails once.
TEST_F(LogArchiveTest, LosesNothingWhenACallFails) {
  int num_failures = 0;
  for (std::uint64_t call = 1;; ++call) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directory(directory_);
    num_ = 0;
    const auto log = MakeLog();
    auto archive = MakeArchive();
    FailingCalls::Instance().Arm({.error = ENOSPC, .call = call, .reads = false});
    const Status archived = log->Archive(archive, log->position().sequence);
    const bool has_failed = FailingCalls::Instance().fired() != 0;
    FailingCalls::Instance().Disarm();
    EXPECT_EQ(archived.ok(), !has_failed) << archived;
    if (!has_failed) break;
    ++num_failures;
    EXPECT_THAT(log->Health(), IsOk());
    log->Release(log->position());
    Append(*log, 20);
    ASSERT_THAT(log->Archive(archive, RecordLog<File>::kAll), IsOk());
    ExpectHistoryTo(log->tail());
  }
  EXPECT_GT(num_failures, 10);
}

struct DirectorySyncs {
  std::string directory;
  std::vector<std::size_t> num_segments;  // that had their names when the directory was synced
};
DirectorySyncs syncs;
std::size_t NumSegments(const std::string& directory) {
  const auto names = NamesIn(directory);
  return names.ok() ? static_cast<std::size_t>(std::ranges::count_if(*names, IsArchiveName)) : 0;
}

// Power cuts: the log releases a segment only after the directory was synced with it.
TEST_F(LogArchiveTest, SyncsTheDirectoryAfterEachSegment) {
  const auto log = MakeLog();
  auto archive = MakeArchive();
  syncs = {directory_, {}};
  FailingCalls::Instance().on_fsync = [](int fd) {
    struct stat info;
    if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) syncs.num_segments.push_back(NumSegments(syncs.directory));
  };
  const std::uint64_t end = log->position().sequence;
  for (std::uint64_t sequence = 5; sequence < end; ++sequence) {
    ASSERT_THAT(log->Archive(archive, sequence + 1), IsOk());
    ASSERT_FALSE(syncs.num_segments.empty());
    EXPECT_EQ(syncs.num_segments.back(), sequence - 4);
  }
  FailingCalls::Instance().on_fsync = nullptr;
}

TEST_F(LogArchiveTest, DamagedHeaderIsDataLoss) {
  const auto log = MakeLog();
  auto archive = MakeArchive();
  ASSERT_THAT(log->Archive(archive, RecordLog<File>::kAll), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto segments, ListArchive(directory_));
  ASSERT_OK_AND_ASSIGN(auto file, File::Open(segments.back().path, {.mode = OpenMode::kReadWrite}));
  const std::byte damage{0x55};
  ASSERT_THAT(file.WriteAt(50, std::span(&damage, 1)), IsOk());
  ASSERT_THAT(file.Close(), IsOk());
  EXPECT_TRUE(absl::IsDataLoss(ListArchive(directory_).status()));
  EXPECT_TRUE(absl::IsDataLoss(LogArchive<File>(directory_).Load()));
  ASSERT_EQ(truncate(segments.back().path.c_str(), 100), 0);
  EXPECT_TRUE(absl::IsDataLoss(ListArchive(directory_).status()));
}

// An update that comes later than the last mark by more than a tenth of a second has a mark before it.
TEST_F(LogArchiveTest, MarksHaveTheTimeOfUpdates) {
  const std::uint64_t begin = CoarseWallClock();
  const auto log = MakeLog();
  usleep(150'000);
  const std::uint64_t later = CoarseWallClock();
  const std::string key = "later";
  ASSERT_THAT(log->Append({LogOp::kSet, key, key}).status(), IsOk());
  ASSERT_THAT(log->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(auto file, File::Open(dir_.File("log"), {.mode = OpenMode::kReadOnly}));
  LogSegments<File> segments(file, kLog);
  ASSERT_THAT(segments.Load(), IsOk());
  ASSERT_THAT(segments.Follow({kFirstLsn, 5}), IsOk());
  LogReader<File> reader(file, segments.used(), {}, kSecret);
  std::uint64_t last = 0;
  const auto visit = [&](std::span<const LogEntry> run, Position, RunTime when) {
    EXPECT_GE(when.time, last);
    EXPECT_GE(when.time, begin);
    if (run[0].key == "later") {
      EXPECT_GE(when.time, later);
      EXPECT_LE(when.time, CoarseWallClock());
    } else {
      EXPECT_LT(when.time, later);
    }
    last = when.time;
    return absl::OkStatus();
  };
  EXPECT_THAT(reader.Read(kFirstLsn, visit).status(), IsOk());
  EXPECT_GE(last, later);
}

}  // namespace
}  // namespace hako::log
