// Openings that fail, from a few states: each allocation of an opening fails, calls of the file system, or there
// is no room for the log. They leave no file that the next opening does not need.
#include <signal.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "dbm/openings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/table/table_dbm.h"
#include "support/allocation_counter.h"
#include "support/crash_states.h"
#include "support/failing_calls.h"
#include "support/file_system.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

// Each allocation of an opening fails, once or from then on.
class MemoryForOpenings {
 public:
  MemoryForOpenings(const Base& base, Left left, bool archive_is_new)
      : base_(base), left_(left), archive_is_new_(archive_is_new), options_(OptionsOf(base, directory_)) {
    if (base.kind.HasInterval()) options_.sync_interval = std::chrono::hours(1);
    fs::create_directory(directory_.File("archive"));
  }

  void Run() {
    for (const auto which : {FailingAllocation::Which::kOnce, FailingAllocation::Which::kFromThenOn}) {
      Prepare();
      // Where all later ones fail, too, neighbours take the same path.
      const std::uint64_t step = kSlowdown > 1 && which == FailingAllocation::Which::kFromThenOn ? 4 : 1;
      for (std::uint64_t n = 1; TryWithout(n, which); n += step) {
      }
    }
  }
  std::uint64_t num_failed() const { return num_failed_; }

 private:
  std::string Name() const {
    return absl::StrCat(std::string(base_.kind.name), base_.has_archive ? archive_is_new_ ? ", a new archive" : ", archive" : "", ", ",
                        left_ == Left::kAbsent   ? "absent"
                        : left_ == Left::kClosed ? "closed"
                        : left_ == Left::kBegun  ? "killed by its creation"
                                                 : "killed");
  }
  // Makes the files that the openings find.
  void Prepare() {
    fs::remove_all(directory_.File("archive"));
    fs::create_directory(directory_.File("archive"));
    fs::remove(options_.path);
    fs::remove(options_.path + "-log");
    AnyOptions before = options_;
    if (archive_is_new_) before.log_archive.clear();
    if (left_ == Left::kBegun) return Begin(before);
    if (left_ == Left::kAbsent) return;
    const Outcome outcome = RunProcess([&](auto say) {
      auto db = AnyDBM::Open(before);
      if (!db.ok()) return say(db.status().ToString()), 1;
      if (!(*db)->Set("1", std::string(kWidth, 'a')).ok()) return 1;
      if (left_ == Left::kClosed && !(*db)->Close().ok()) return 1;
      (void)db->release();
      return 0;
    });
    ASSERT_EQ(outcome.result, 0) << Name() << ": " << outcome.said;
  }
  // A process is killed that has the first superblock in the file, and no log yet.
  void Begin(const AnyOptions& options) {
    for (std::uint64_t call = 1; call < 100; ++call) {
      fs::remove(options.path);
      fs::remove(options.path + "-log");
      CallFault fault{.how = CallFault::How::kKills, .call = call};
      fault.names = fault.removes = true;
      const Outcome outcome = RunProcess([&](auto) {
        FailingCalls::Instance().Arm(fault);
        return AnyDBM::Open(options).ok() ? kOpened : kFailed;
      });
      ASSERT_TRUE(outcome.is_killed) << Name();
      const std::string bytes = fs::exists(options.path) ? ReadWhole(options.path) : "";
      if (bytes.find_first_not_of('\0') != bytes.npos) return;
    }
    FAIL() << Name() << ": no call lies between";
  }
  // Opens the database without the n-th allocation. False if there are not so many.
  bool TryWithout(std::uint64_t n, FailingAllocation::Which which) {
    const std::set<std::string> before = NamesBelow(directory_.path());
    std::optional<FailingAllocation> failing;
    failing.emplace(n, which, FailingAllocation::Whose::kThisThread);
    auto db = AnyDBM::Open(options_);
    const bool has_failed = failing->HasFailed();
    failing.reset();
    if (db.ok()) {
      EXPECT_EQ((*db)->Count(), left_ > Left::kZeros && left_ != Left::kBegun ? 1u : 0u) << Name();
      EXPECT_THAT((*db)->Close(), IsOk()) << Name();
    } else {
      ++num_failed_;
      const std::set<std::string> after = NamesBelow(directory_.path());
      // Its log may be in the archive.
      const bool log_is_gone = before.contains("db-log") && !after.contains("db-log");
      std::string more;
      for (const std::string& name : after) {
        const bool is_archived = log_is_gone && name.starts_with("archive/");
        if (!before.contains(name) && !is_archived) absl::StrAppend(&more, " ", name);
      }
      EXPECT_EQ(more, "") << Name() << ", without allocation " << n
                          << (which == FailingAllocation::Which::kOnce ? "" : " and all later ones");
      if (after == before) return has_failed;
    }
    db = absl::UnknownError("");
    Prepare();
    return has_failed;
  }
  const TempDir directory_{TempDir::MemoryParent()};
  const Base base_;
  const Left left_;
  const bool archive_is_new_;
  AnyOptions options_;
  std::uint64_t num_failed_ = 0;
};

// Nothing needs memory once a superblock, or a snapshot, names the log.
TEST(OpeningFilesTest, WithoutMemoryLeaveNoFile) {
  std::uint64_t num_failed = 0;
  for (const Kind& kind : kKinds) {
    for (const Left left : {Left::kAbsent, Left::kBegun, Left::kClosed, Left::kKilled}) {
      for (const int archive : {0, 1, 2}) {
        if (left == Left::kBegun && (archive != 0 || kind.IsInMemory())) continue;
        MemoryForOpenings trials({kind, Durability::kProcess, archive > 0, kind.HasExpiry(), kind.IsMappedHash()}, left, archive == 2);
        trials.Run();
        num_failed += trials.num_failed();
      }
    }
  }
  ReportCount("failures", "openings without memory", num_failed);
}

// The same for a table, which needs more once its tree is open: it gives the log up again.
TEST(OpeningFilesTest, TablesWithoutMemoryLeaveNoFile) {
  for (const bool exists : {false, true}) {
    for (const bool has_archive : {false, true}) {
      for (const auto which : {FailingAllocation::Which::kOnce, FailingAllocation::Which::kFromThenOn}) {
        bool has_failed = true;
        for (std::uint64_t n = 1; has_failed; ++n) {
          const TempDir directory(TempDir::MemoryParent());
          const std::string path = directory.File("db");
          fs::create_directory(directory.File("archive"));
          TableOptions options;
          options.tree.cache_bytes = 1 << 20;
          options.tree.sync_interval = std::chrono::hours(1);
          if (has_archive) options.tree.log_archive = directory.File("archive");
          if (exists) {
            ASSERT_OK_AND_ASSIGN(auto made, TableDBM::Open(path, options));
            ASSERT_THAT(made->Put("a", {{"column", Value(1)}}), IsOk());
            ASSERT_THAT(made->Close(), IsOk());
          }
          const std::set<std::string> before = NamesBelow(directory.path());
          std::optional<FailingAllocation> failing;
          failing.emplace(n, which, FailingAllocation::Whose::kThisThread);
          auto table = TableDBM::Open(path, options);
          has_failed = failing->HasFailed();
          failing.reset();
          if (table.ok()) continue;
          ASSERT_EQ(NamesBelow(directory.path()), before) << "without allocation " << n << ", archive " << has_archive;
          ASSERT_OK_AND_ASSIGN(table, TableDBM::Open(path, options));
          EXPECT_THAT((*table)->Count(), IsOkAndHolds(exists ? 1u : 0u));
          ASSERT_THAT((*table)->Close(), IsOk());
        }
      }
    }
  }
}

// An opening that cannot sync, or is killed, may leave a log that no superblock names. The next one for writing
// removes it, though it has none itself.
TEST(OpeningFilesTest, OnesWithoutALogRemoveAnUnneededOne) {
  std::uint64_t num_left = 0;
  for (const Kind& kind : kKinds) {
    for (const bool had_log : {false, true}) {
      for (const bool kills : {false, true}) {
        SCOPED_TRACE(testing::Message() << kind.name << (had_log ? ", killed with a log" : ", closed") << (kills ? ", kill" : ", failure"));
        for (std::uint64_t call = 1, is_over = 0; is_over == 0; ++call) {
          ASSERT_LT(call, 200u);
          const TempDir directory(TempDir::MemoryParent());
          const std::string log = directory.File("db-log");
          AnyOptions without = OptionsOf({kind, Durability::kNone}, directory), with = without;
          with.durability = Durability::kPower;
          const Outcome made = RunProcess([&](auto) {
            auto db = AnyDBM::Open(had_log ? with : without);
            if (!db.ok() || !(*db)->Set("1", std::string(kWidth, 'a')).ok()) return 1;
            if (!had_log && !(*db)->Close().ok()) return 1;
            (void)db->release();
            return 0;
          });
          ASSERT_EQ(made.result, 0);
          ASSERT_EQ(fs::exists(log), had_log);
          const Outcome disturbed = RunProcess([&](auto) {
            CallFault fault{.how = kills ? CallFault::How::kKills : CallFault::How::kFails, .call = call, .forever = true, .reads = false};
            fault.names = kills;
            FailingCalls::Instance().Arm(fault);
            const bool is_open = AnyDBM::Open(had_log ? without : with).ok();
            FailingCalls::Instance().Disarm();
            return is_open ? kOpened : kFailed;
          });
          is_over = disturbed.result == kOpened;
          num_left += !is_over && fs::exists(log) && !had_log;
          auto db = AnyDBM::Open(without);
          if (had_log && kind.IsMappedHash() && absl::IsFailedPrecondition(db.status())) {  // it could not be synced
            without.unproven_updates = UnprovenUpdates::kAccept;
            db = AnyDBM::Open(without);
          }
          ASSERT_THAT(db, IsOk()) << "call " << call;
          EXPECT_THAT((*db)->Get("1"), IsOkAndHolds(std::string(kWidth, 'a'))) << "call " << call;
          EXPECT_FALSE(fs::exists(log)) << "call " << call;
          ASSERT_THAT((*db)->Close(), IsOk());
        }
      }
    }
  }
  EXPECT_GT(num_left, 10u);
}

// An unfinished creation leaves zeros, in which no update needs a proof.
TEST(OpeningFilesTest, ZerosAreABlankFileWhateverIsUnproven) {
  for (const Kind& kind : kKinds) {
    if (!kind.IsMappedHash()) continue;  // the others have no such option
    for (const UnprovenUpdates unproven : {UnprovenUpdates::kRefuse, UnprovenUpdates::kDrop, UnprovenUpdates::kAccept}) {
      SCOPED_TRACE(testing::Message() << kind.name << ", " << static_cast<int>(unproven));
      const TempDir directory(TempDir::MemoryParent());
      AnyOptions options = OptionsOf({kind, Durability::kNone}, directory);
      options.unproven_updates = unproven;
      WriteWhole(options.path, std::string(32'768, '\0'));
      ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(options));
      EXPECT_EQ(db->Count(), 0);
      ASSERT_THAT(db->Close(), IsOk());
    }
  }
}

// But not a file that is no log, or one that may be needed.
TEST(OpeningFilesTest, OnesWithoutALogKeepAnythingElse) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const TempDir directory(TempDir::MemoryParent());
    const std::string log = directory.File("db-log");
    const AnyOptions options = OptionsOf({kind, Durability::kNone}, directory);
    const auto open_and_close = [&]() -> Status {
      HAKO_ASSIGN_OR_RETURN(auto db, AnyDBM::Open(options));
      return db->Close();
    };
    WriteWhole(log, "a diary, not a log");
    ASSERT_THAT(open_and_close(), IsOk());
    EXPECT_EQ(ReadWhole(log), "a diary, not a log");
    AnyOptions other = options;
    other.path = directory.File("other");
    other.durability = Durability::kPower;
    ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(other));
    WriteWhole(log, ReadWhole(other.path + "-log"));  // that of another database, but without an update
    ASSERT_THAT(open_and_close(), IsOk());
    EXPECT_FALSE(fs::exists(log));
    fs::rename(other.path + "-log", log);
    EXPECT_THAT(open_and_close(), StatusIs(absl::StatusCode::kUnavailable));  // it is open
    EXPECT_TRUE(fs::exists(log));
    fs::rename(log, other.path + "-log");
    ASSERT_THAT(db->Set("1", std::string(kWidth, 'a')), IsOk());
    const std::string bytes = ReadWhole(other.path + "-log");
    WriteWhole(log, bytes);
    EXPECT_THAT(open_and_close(), StatusIs(absl::StatusCode::kFailedPrecondition));
    EXPECT_EQ(ReadWhole(log), bytes);
    ASSERT_THAT(db->Close(), IsOk());
  }
}

// A snapshot that has no room for the name of a log does not name it.
TEST(OpeningFilesTest, WithoutRoomLeaveNoLog) {
  for (const Kind& kind : kKinds) {
    if (!kind.IsInMemory()) continue;
    for (const int error : {EIO, ENOSPC}) {
      const TempDir directory(TempDir::MemoryParent());
      AnyOptions options = OptionsOf({kind, Durability::kNone}, directory);
      ASSERT_OK_AND_ASSIGN(auto made, AnyDBM::Open(options));
      ASSERT_THAT(made->Set("1", "a"), IsOk());
      ASSERT_THAT(made->Close(), IsOk());
      const std::set<std::string> before = NamesBelow(directory.path());
      options.durability = Durability::kProcess;
      CallFault fault{.error = error, .forever = true, .reads = false, .writes = false, .syncs = false};
      for (bool fails = true; fails; ++fault.call) {
        FailingCalls::Instance().Arm(fault);
        auto db = AnyDBM::Open(options);
        FailingCalls::Instance().Disarm();
        fails = !db.ok();
        ASSERT_LT(fault.call, 100u);
        if (fails) EXPECT_EQ(NamesBelow(directory.path()), before) << kind.name << ", without call " << fault.call << ", error " << error;
        db = absl::UnknownError("closed");
      }
      ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(options));
      EXPECT_THAT(db->Get("1"), IsOkAndHolds("a"));
    }
  }
}

// An opening that fails for what it asks for leaves no file, and nothing in one that was empty.
TEST(OpeningFilesTest, RefusedOnesLeaveNoFile) {
  TempDir directory;
  const std::string file = directory.File("a"), link = directory.File("link");
  fs::create_symlink(file, link);
  for (const bool exists : {false, true}) {
    for (const std::string& path : {file, link}) {
      if (exists) WriteWhole(file, "");
      const auto expect_nothing = [&](const char* what) {
        EXPECT_EQ(fs::exists(file), exists) << what;
        if (exists) EXPECT_EQ(fs::file_size(file), 0u) << what;
        EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator()), exists ? 2 : 1) << what;
      };
      for (const char* const options :
           {"dbm=array", "dbm=array,width=9999", "dbm=tree,page_size=64", "dbm=tree,order=none", "dbm=hash,align_pow=9",
            "dbm=hash,reserve_bytes=4096", "dbm=hash,log_archive=nowhere", "dbm=tree,log_archive=nowhere",
            "dbm=array,width=8,log_archive=nowhere", "dbm=tiny,log_archive=nowhere", "dbm=baby,log_archive=nowhere",
            "dbm=hash,file=pos,log_archive=nowhere", "dbm=tree,file=pos,log_archive=nowhere",
            "dbm=hash,durability=none,log_archive=nowhere", "dbm=tree,cache_bytes=1"}) {
        EXPECT_FALSE(AnyDBM::Open(absl::StrCat(path, "?", options)).ok()) << options;
        expect_nothing(options);
      }
      TableOptions table;
      table.columns = {{"", ColumnOptions()}};
      EXPECT_FALSE(TableDBM::Open(path, table).ok());
      expect_nothing("a table");
      ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(path + "?dbm=hash"));
      ASSERT_THAT(db->Close(), IsOk());
      EXPECT_GT(fs::file_size(file), 0u);
      fs::remove(file);
    }
  }
}

}  // namespace
}  // namespace hako
