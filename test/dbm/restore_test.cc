// Restore: the state after each update, from copies of different moments, over lives of the database
// that end in different ways; and its errors.
#include "hako/dbm/restore.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "dbm/restore_lives.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/log_summary.h"
#include "support/system_counts.h"

namespace hako {
namespace {

using testing::HasSubstr;

template <class D>
class RestoreTest : public testing::Test {
 protected:
  using End = typename Lives<D>::End;

  static std::uint64_t LsnOf(const std::string& copy) {
    auto file = PositionalParallelFile::Open(copy, {.mode = OpenMode::kReadOnly});
    EXPECT_THAT(file.status(), IsOk());
    const auto named = FindNamedLog(*file);
    EXPECT_THAT(named.status(), IsOk());
    EXPECT_TRUE(named.ok() && named->HasEnded()) << "the copy needs a log";
    return named.ok() ? named->from.lsn : 0;
  }
  // Restores to a new file and returns its records.
  Records RestoreAt(const std::string& copy, const RestoreOptions& options) {
    const std::string to = lives_.File("restored");
    std::filesystem::remove(to);
    const auto report = Restore<D>(copy, lives_.archive(), to, options);
    EXPECT_THAT(report.status(), IsOk());
    if (!report.ok()) return {};
    report_ = *report;
    Records records;
    auto db = D::Open(to);
    EXPECT_THAT(db.status(), IsOk());
    if (!db.ok()) return {};
    records = ListByIterator(**db).records;
    EXPECT_THAT((*db)->Verify(), IsOk());
    EXPECT_THAT((*db)->Set("goes on", "with a log"), IsOk());
    EXPECT_THAT((*db)->Close(), IsOk());
    return records;
  }

  Lives<D> lives_;
  RestoreReport report_;
};

using Kinds = testing::Types<HashDBM<>, HashDBM<PositionalParallelFile>, TreeDBM<>, TinyDBM<>, BabyDBM<>>;
TYPED_TEST_SUITE(RestoreTest, Kinds);

TYPED_TEST(RestoreTest, HasTheStateAfterEachUpdateOfAllLives) {
  Random random(TestSeed());
  auto& lives = this->lives_;
  std::vector<std::string> copies;
  for (int i = 0; i < 7; ++i) {
    const auto end = i > 0 && random.OneIn(3) ? TestFixture::End::kKilledAnywhere  // without a copy
                     : random.OneIn(2)        ? TestFixture::End::kDie
                                              : TestFixture::End::kClose;
    const int num_writers = end == TestFixture::End::kKilledAnywhere ? 1 : static_cast<int>(random.Between(1, 3));
    std::string copy;
    if (end != TestFixture::End::kKilledAnywhere) copies.push_back(copy = lives.File("copy" + std::to_string(i)));
    lives.Live(random, end, num_writers, 150, copy);
    if (this->HasFatalFailure()) return;
    if (random.OneIn(3)) lives.OpenOnly();
    if (end == TestFixture::End::kClose) {
      copies.push_back(lives.File("closed" + std::to_string(i)));
      std::filesystem::copy_file(lives.path(), copies.back());
    }
  }
  lives.Live(random, TestFixture::End::kClose, 2, 50);
  lives.OpenOnly();
  const std::vector<std::uint64_t> lsns = lives.Lsns();
  int num_restored = 0;
  for (const std::string& copy : copies) {
    const std::uint64_t from = this->LsnOf(copy);
    std::vector<std::uint64_t> later;
    std::ranges::copy_if(lsns, std::back_inserter(later), [from](std::uint64_t lsn) { return lsn > from; });
    ASSERT_FALSE(later.empty()) << "the last life follows each copy";
    for (int i = 0; i < 6; ++i) {
      const std::uint64_t lsn = later[random.Below(later.size())] - random.Below(2);
      SCOPED_TRACE(testing::Message() << copy << " of LSN " << from << " to LSN " << lsn);
      EXPECT_EQ(Difference(lives.StateAt(lsn), this->RestoreAt(copy, {.until_lsn = lsn})), "none");
      ++num_restored;
      if (this->HasFailure()) return;
    }
    EXPECT_EQ(Difference(lives.StateAt(lsns.back()), this->RestoreAt(copy, {})), "none");
  }
  EXPECT_GE(num_restored, 6);
}

// The rest is the same for all kinds, so a tree and a table in memory stand for them.
template <class D>
class RestoreErrorTest : public RestoreTest<D> {
 protected:
  void SetUp() override { std::filesystem::create_directory(other_archive_); }
  auto Open(const std::string& path, const std::string& archive) { return D::Open(path, ArchivingOptions<D>(archive)); }
  // Sets some records, which take several segments.
  static void Fill(D& db, int from, int to) {
    Random random(1);
    for (int i = from; i < to; ++i) ASSERT_THAT(db.Set(NumberedKey(static_cast<std::uint64_t>(i)), random.Bytes(2000)), IsOk());
  }
  // A database with an archive of several segments, closed, and a copy of its first records.
  void MakeHistory() {
    ASSERT_OK_AND_ASSIGN(auto db, Open(path_, archive_));
    Fill(*db, 0, 20);
    ASSERT_THAT(CopyDatabase(*db, copy_), IsOk());
    copy_lsn_ = db->LastLsn();
    Fill(*db, 20, 100);
    last_lsn_ = db->LastLsn();
    ASSERT_THAT(db->Verify(), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    ASSERT_OK_AND_ASSIGN(segments_, log::ListArchive(archive_));
    ASSERT_GT(segments_.size(), 4u);
  }
  Status RestoreStatus(const std::string& copy, const std::string& archive, const RestoreOptions& options = {}) {
    const std::string before = ReadWhole(copy), to = this->lives_.File("restored");
    const Status status = Restore<D>(copy, archive, to, options).status();
    EXPECT_EQ(std::filesystem::exists(to), status.ok());
    EXPECT_TRUE(ReadWhole(copy) == before) << "the copy was changed";
    std::filesystem::remove(to);
    return status;
  }

  const std::string& path_ = this->lives_.path();
  const std::string& archive_ = this->lives_.archive();
  const std::string copy_ = this->lives_.File("copy"), other_archive_ = this->lives_.File("other_archive");
  std::uint64_t copy_lsn_ = 0, last_lsn_ = 0;
  std::vector<log::ArchivedSegment> segments_;
};
using SomeKinds = testing::Types<TreeDBM<>, TinyDBM<>>;
TYPED_TEST_SUITE(RestoreErrorTest, SomeKinds);

TYPED_TEST(RestoreErrorTest, PointOutsideTheHistoryIsOutOfRange) {
  ASSERT_NO_FATAL_FAILURE(this->MakeHistory());
  const Status early = this->RestoreStatus(this->copy_, this->archive_, {.until_lsn = this->copy_lsn_ - 1});
  EXPECT_TRUE(absl::IsOutOfRange(early)) << early;
  EXPECT_THAT(early.message(), HasSubstr("copy, which has LSN " + std::to_string(this->copy_lsn_)));
  const Status late = this->RestoreStatus(this->copy_, this->archive_, {.until_lsn = this->last_lsn_ + 1000});
  EXPECT_TRUE(absl::IsOutOfRange(late)) << late;
  EXPECT_THAT(late.message(), HasSubstr("the last update has LSN " + std::to_string(this->last_lsn_)));
  const Status old = this->RestoreStatus(this->copy_, this->archive_, {.until_time = 1'000'000});
  EXPECT_TRUE(absl::IsOutOfRange(old)) << old;
  EXPECT_THAT(this->RestoreStatus(this->copy_, this->archive_, {.until_lsn = this->copy_lsn_}), IsOk());
  EXPECT_THAT(this->RestoreStatus(this->copy_, this->archive_, {.until_lsn = this->last_lsn_}), IsOk());
}

TYPED_TEST(RestoreErrorTest, MissingSegmentIsDataLossBehindItOnly) {
  ASSERT_NO_FATAL_FAILURE(this->MakeHistory());
  const auto& missing = this->segments_[this->segments_.size() - 2];
  std::filesystem::remove(missing.path);
  for (const RestoreOptions& options : {RestoreOptions{}, RestoreOptions{.until_lsn = this->last_lsn_}}) {
    const Status status = this->RestoreStatus(this->copy_, this->archive_, options);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("lacks segment " + std::to_string(missing.segment.sequence)));
  }
  EXPECT_THAT(this->RestoreStatus(this->copy_, this->archive_, {.until_lsn = missing.segment.first}), IsOk());
}

TYPED_TEST(RestoreErrorTest, DamagedRecordIsDataLossWithFileAndOffset) {
  ASSERT_NO_FATAL_FAILURE(this->MakeHistory());
  const auto& damaged = this->segments_[this->segments_.size() - 2];
  std::string bytes = ReadWhole(damaged.path);
  bytes[bytes.size() / 2] ^= 1;
  WriteWhole(damaged.path, bytes);
  const Status status = this->RestoreStatus(this->copy_, this->archive_);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr(damaged.path));
  EXPECT_THAT(status.message(), HasSubstr("at offset "));
  EXPECT_THAT(this->RestoreStatus(this->copy_, this->archive_, {.until_lsn = damaged.segment.first}), IsOk());
}

TYPED_TEST(RestoreErrorTest, ArchiveOfAnotherDatabaseIsRefused) {
  ASSERT_NO_FATAL_FAILURE(this->MakeHistory());
  const std::string other = this->lives_.File("other");
  {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(other, this->other_archive_));
    this->Fill(*db, 0, 60);
    ASSERT_THAT(db->Close(), IsOk());
  }
  const Status restored = this->RestoreStatus(this->copy_, this->other_archive_);
  EXPECT_TRUE(absl::IsFailedPrecondition(restored)) << restored;
  EXPECT_THAT(restored.message(), HasSubstr("another database"));
  const Status opened = this->Open(other, this->archive_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(opened)) << opened;
  EXPECT_TRUE(absl::IsFailedPrecondition(this->Open(this->lives_.File("new"), this->archive_).status()));
  const Status unnamed = [&] {
    auto db = TypeParam::Open(this->lives_.File("plain"));
    EXPECT_THAT((*db)->Set("key", "value"), IsOk());
    EXPECT_THAT((*db)->Close(), IsOk());
    return this->RestoreStatus(this->lives_.File("plain"), this->archive_);
  }();
  EXPECT_TRUE(absl::IsFailedPrecondition(unnamed)) << unnamed;
  std::filesystem::create_directory(this->lives_.File("empty"));
  const Status empty = this->RestoreStatus(this->copy_, this->lives_.File("empty"));
  EXPECT_TRUE(absl::IsFailedPrecondition(empty)) << empty;
}

TYPED_TEST(RestoreErrorTest, BranchesOfAHistoryAreNotMixed) {
  ASSERT_NO_FATAL_FAILURE(this->MakeHistory());
  const std::string restored = this->lives_.File("branch"), branch_copy = this->lives_.File("branch_copy");
  ASSERT_THAT(Restore<TypeParam>(this->copy_, this->archive_, restored, {.until_lsn = this->segments_[3].segment.first}).status(), IsOk());
  EXPECT_TRUE(absl::IsFailedPrecondition(this->Open(restored, this->archive_).status()));
  // An older copy is a branch, too.
  EXPECT_TRUE(absl::IsFailedPrecondition(this->Open(this->copy_, this->archive_).status()));
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(restored, this->other_archive_));
  this->Fill(*db, 0, 60);
  ASSERT_THAT(CopyDatabase(*db, branch_copy), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  EXPECT_TRUE(absl::IsFailedPrecondition(this->RestoreStatus(branch_copy, this->archive_)));
  EXPECT_TRUE(absl::IsFailedPrecondition(this->RestoreStatus(this->copy_, this->other_archive_)));
}

// A copy that was made within the last segment of the archive is older than its end.
TYPED_TEST(RestoreErrorTest, OlderCopyDoesNotGoOnBehindTheLastSegment) {
  const std::string path = this->lives_.File("db"), copy = this->lives_.File("older");
  {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(path, this->other_archive_));
    EXPECT_THAT(db->Set("in both", "1"), IsOk());
    ASSERT_THAT(CopyDatabase(*db, copy), IsOk());
    EXPECT_THAT(db->Set("newer", "2"), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
  }
  const Status older = this->Open(copy, this->other_archive_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(older)) << older;
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(path, this->other_archive_));
  EXPECT_EQ(db->Count(), 2u);
  ASSERT_THAT(CopyDatabase(*db, copy), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(auto same, this->Open(copy, this->other_archive_));  // as new as the archive
  EXPECT_EQ(same->Count(), 2u);
  EXPECT_THAT(same->Close(), IsOk());
}

TYPED_TEST(RestoreErrorTest, NeverReplacesAFile) {
  ASSERT_NO_FATAL_FAILURE(this->MakeHistory());
  const std::string to = this->lives_.File("there");
  WriteWhole(to, "precious");
  EXPECT_TRUE(absl::IsAlreadyExists(Restore<TypeParam>(this->copy_, this->archive_, to).status()));
  EXPECT_EQ(ReadWhole(to), "precious");
}

TYPED_TEST(RestoreErrorTest, BatchIsThereAsAWholeOrNot) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_, this->archive_));
  ASSERT_THAT(db->Set("before", "1"), IsOk());
  ASSERT_THAT(CopyDatabase(*db, this->copy_), IsOk());
  WriteBatch batch;
  for (int i = 0; i < 50; ++i) batch.Set(NumberedKey(static_cast<std::uint64_t>(i)), std::string(1000, 'x'));
  const std::uint64_t before = db->LastLsn();
  ASSERT_THAT(db->Write(batch), IsOk());
  const std::uint64_t after = db->LastLsn();
  ASSERT_THAT(db->Close(), IsOk());
  for (std::uint64_t lsn = before; lsn < after; lsn += 5000) EXPECT_EQ(this->RestoreAt(this->copy_, {.until_lsn = lsn}).size(), 1u) << lsn;
  EXPECT_EQ(this->RestoreAt(this->copy_, {.until_lsn = after - 1}).size(), 1u);
  EXPECT_EQ(this->RestoreAt(this->copy_, {.until_lsn = after}).size(), 51u);
}

TYPED_TEST(RestoreErrorTest, TimeChoosesTheUpdatesBeforeIt) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_, this->archive_));
  ASSERT_THAT(CopyDatabase(*db, this->copy_), IsOk());
  std::vector<std::uint64_t> times;
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(db->Set(NumberedKey(static_cast<std::uint64_t>(i)), "value"), IsOk());
    usleep(150'000);
    times.push_back(CoarseWallClock());
    usleep(150'000);
  }
  ASSERT_THAT(db->Close(), IsOk());
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(this->RestoreAt(this->copy_, {.until_time = times[i]}).size(), i + 1);
    EXPECT_LE(this->report_.time, times[i]);
  }
}

// The last two segments are in the log only.
TYPED_TEST(RestoreErrorTest, LogBesideALostDatabaseHasTheLastUpdates) {
  Random random(TestSeed());
  auto& lives = this->lives_;
  lives.Live(random, Lives<TypeParam>::End::kClose, 1, 40, this->copy_);
  lives.Live(random, Lives<TypeParam>::End::kDie, 2, 60);
  if (this->HasFatalFailure()) return;
  std::filesystem::remove(lives.path());
  const std::vector<std::uint64_t> lsns = lives.Lsns();
  EXPECT_EQ(Difference(lives.StateAt(lsns.back()), this->RestoreAt(this->copy_, {.until_lsn = lsns.back(), .log = lives.path() + "-log"})),
            "none");
  EXPECT_EQ(Difference(lives.StateAt(lsns.back()), this->RestoreAt(this->copy_, {.log = lives.path() + "-log"})), "none");
}

TYPED_TEST(RestoreErrorTest, HistoryGoesOnOverOpeningsWithoutAnUpdate) {
  ASSERT_NO_FATAL_FAILURE(this->MakeHistory());
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_, this->archive_));
    ASSERT_THAT(db->Close(), IsOk());
  }
  {
    ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->path_, ArchivingOptions<TypeParam>(this->archive_), {.mode = OpenMode::kReadOnly}));
    ASSERT_THAT(db->Verify(), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_, this->archive_));
  ASSERT_THAT(db->Set("later", "1"), IsOk());
  EXPECT_GT(db->LastLsn(), this->last_lsn_);
  ASSERT_THAT(db->Close(), IsOk());
  const Records restored = this->RestoreAt(this->copy_, {});
  EXPECT_EQ(restored.size(), 101u);
  EXPECT_EQ(restored.count("later"), 1u);
}

TYPED_TEST(RestoreErrorTest, AHistoryEndsWhereItIsAskedTo) {
  ASSERT_NO_FATAL_FAILURE(this->MakeHistory());
  EXPECT_TRUE(absl::IsFailedPrecondition(TypeParam::Open(this->path_).status()));
  {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_, std::string(kNoLogArchive)));
    ASSERT_THAT(db->Set("unknown", "to the archive"), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
  }
  const Status status = this->Open(this->path_, this->archive_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_, this->other_archive_));
  ASSERT_THAT(db->Verify(), IsOk());
}

// Without the directory for a while, the database takes updates, and nothing is lost.
TYPED_TEST(RestoreErrorTest, LogGrowsWhileTheArchiveCannotBeWritten) {
  const std::string away = this->lives_.File("away");
  std::uint64_t middle = 0;
  {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_, this->archive_));
    ASSERT_THAT(CopyDatabase(*db, this->copy_), IsOk());
    std::filesystem::rename(this->archive_, away);
    this->Fill(*db, 0, 100);
    EXPECT_FALSE(db->Synchronize(SyncMode::kHard).ok());
    EXPECT_FALSE(db->GetHealth().ok());
    this->Fill(*db, 100, 200);
    EXPECT_FALSE(db->Synchronize(SyncMode::kHard).ok());
    this->Fill(*db, 200, 220);
    std::filesystem::rename(away, this->archive_);
    EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    EXPECT_THAT(db->GetHealth(), IsOk());
    middle = db->LastLsn();
    std::filesystem::rename(this->archive_, away);
    this->Fill(*db, 220, 320);
    EXPECT_FALSE(db->Close().ok());
    EXPECT_TRUE(std::filesystem::exists(this->path_ + "-log"));
  }
  std::filesystem::rename(away, this->archive_);
  {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path_, this->archive_));
    EXPECT_THAT(db->GetHealth(), IsOk());
    EXPECT_EQ(db->Count(), 320);
    ASSERT_THAT(db->Verify(), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    EXPECT_FALSE(std::filesystem::exists(this->path_ + "-log"));
  }
  EXPECT_EQ(this->RestoreAt(this->copy_, {.until_lsn = middle}).size(), 220u);
  EXPECT_EQ(this->RestoreAt(this->copy_, {}).size(), 320u);
}

TYPED_TEST(RestoreErrorTest, ArchiveNeedsALogAndADirectory) {
  auto options = ArchivingOptions<TypeParam>(this->archive_);
  options.durability = Durability::kNone;
  EXPECT_TRUE(absl::IsInvalidArgument(TypeParam::Open(this->path_, options).status()));
  const Status nowhere = this->Open(this->path_, this->lives_.File("nowhere")).status();
  EXPECT_THAT(nowhere.message(), HasSubstr("nowhere"));
  EXPECT_FALSE(nowhere.ok());
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->path_));
  ASSERT_THAT(db->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
