// Openings that fail or die: from each state that a process, a kill or a power cut leaves, one or two
// openings with other options fail by themselves, at a system call or an allocation, or are killed there.
// The right opening that follows finds exactly what was promised, and the failed ones leave no file.
//
// HAKO_OPENINGS=100000 has the test try that many; HAKO_OPENING=17 only this one of them.
#include "dbm/openings.h"

#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "support/allocation_counter.h"
#include "support/crash_states.h"
#include "support/failing_calls.h"
#include "support/hash_superblocks.h"
#include "support/random.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

// One change: sets the key, or removes it.
struct Change {
  std::string key;
  std::optional<std::string> value;
};
void Apply(const Change& change, Records* records) {
  if (change.value)
    (*records)[change.key] = *change.value;
  else
    records->erase(change.key);
}

class Trial {
 public:
  explicit Trial(std::uint64_t seed) : random_(seed) {}

  // The first mistake, empty if there is none.
  std::string Run() {
    Choose();
    if (std::string mistake = Prepare(); !mistake.empty()) return mistake;
    const int num_openings = random_.OneIn(3) ? 2 : 1;
    for (int i = 0; i < num_openings; ++i) {
      if (std::string mistake = Disturb(); !mistake.empty()) return mistake;
    }
    return OpenRightly();
  }
  const std::string& story() const { return story_; }
  int num_failed() const { return num_failed_; }
  int num_killed() const { return num_killed_; }
  int num_opened() const { return num_opened_; }
  int num_left() const { return num_left_; }

 private:
  bool HasSuperBlock() const { return !base_.kind.IsInMemory(); }
  template <class... Parts>
  void Tell(const Parts&... parts) {
    absl::StrAppend(&story_, parts...);
  }

  void Choose() {
    base_.kind = kKinds[random_.Below(kKinds.size())];
    if (random_.OneIn(3)) base_.kind = kKinds[0];  // the one with most states
    base_.level = std::array{Durability::kNone, Durability::kProcess, Durability::kPower}[random_.Below(3)];
    base_.has_archive = base_.level != Durability::kNone && random_.OneIn(3);
    base_.expires = base_.kind.HasExpiry() && random_.OneIn(4);
    base_.keeps_log = base_.kind.IsMappedHash() && base_.level != Durability::kNone && random_.OneIn(4);
    const std::uint64_t left = random_.Below(16);
    left_ = left == 0   ? Left::kAbsent
            : left == 1 ? (random_.OneIn(2) || !HasSuperBlock() ? Left::kEmpty : Left::kZeros)
            : left < 5  ? Left::kClosed
            : left < 12 ? Left::kKilled
                        : Left::kCut;
    Tell(std::string(base_.kind.name), ", level ", static_cast<int>(base_.level), base_.has_archive ? ", archive" : "",
         base_.expires ? ", expiry" : "", base_.keeps_log ? ", keeps its log" : "", ", left ",
         std::array{"absent", "empty", "zeros", "begun", "closed", "killed", "cut"}[static_cast<std::size_t>(left_)]);
  }

  AnyOptions Options() const { return OptionsOf(base_, dir_); }

  std::vector<Change> Changes(std::size_t count) {
    std::vector<Change> changes(count);
    for (Change& change : changes) {
      change.key = std::to_string(random_.Below(60));
      if (random_.OneIn(4)) continue;
      change.value = random_.Bytes(base_.kind.IsArray() ? kWidth : random_.OneIn(30) ? 9000 : random_.SkewedSize(8));
    }
    return changes;
  }
  static Status Make(AnyDBM& db, const std::vector<Change>& changes) {
    for (const Change& change : changes) {
      const Status status = change.value ? db.Set(change.key, *change.value) : db.Remove(change.key);
      if (!status.ok() && !absl::IsNotFound(status)) return status;
    }
    return absl::OkStatus();
  }

  // Another process makes the database, and closes it or dies.
  std::string Prepare() {
    fs::create_directory(dir_.File("archive"));
    if (left_ == Left::kAbsent) return "";
    if (left_ == Left::kEmpty) return WriteWhole(path_, ""), "";
    if (left_ == Left::kZeros) return WriteWhole(path_, std::string(40'000, '\0')), "";
    const std::vector<Change> before = Changes(random_.Below(80)), after = Changes(random_.Below(80));
    const bool closes_between = random_.OneIn(3);
    const std::string cut = dir_.File("cut");
    const Outcome outcome = RunProcess([&](auto say) {
      const auto fails = [&](const Status& status) { return say(status.ToString()), !status.ok(); };
      auto db = AnyDBM::Open(Options());
      if (fails(db.status())) return 1;
      if (fails(Make(**db, before)) || fails((*db)->Synchronize(SyncMode::kHard))) return 1;
      if (closes_between) {
        if (fails((*db)->Close())) return 1;
        db = AnyDBM::Open(Options());
        if (fails(db.status())) return 1;
      }
      if (left_ == Left::kCut) CopyFiles(dir_.path(), cut);
      if (fails(Make(**db, after))) return 1;
      if (left_ == Left::kClosed && fails((*db)->Close())) return 1;
      (void)db->release();  // it dies
      return 0;
    });
    if (outcome.is_killed || outcome.result != 0) return "cannot make the database: " + outcome.said;
    for (const Change& change : before) Apply(change, &expected_);
    const Records synced = expected_;
    for (const Change& change : after) Apply(change, &expected_);
    const bool survives_kills = base_.HasLog() || base_.kind.IsMappedHash();
    if (left_ == Left::kKilled && !survives_kills) expected_ = synced;
    if (left_ == Left::kCut) {
      // The device has nothing later than the synchronization, except a log with kPower.
      const bool has_newest_log = base_.level == Durability::kPower || (base_.HasLog() && random_.OneIn(2));
      if (!has_newest_log) expected_ = synced;
      PowerCut(cut, has_newest_log);
    }
    return "";
  }
  static void CopyFiles(const std::string& from, const std::string& to) {
    fs::create_directory(to);
    fs::create_directory(to + "/archive");
    for (const std::string folder : {"", "/archive"}) {
      for (const auto& entry : fs::directory_iterator(from + folder)) {
        if (entry.is_regular_file()) fs::copy_file(entry.path(), to + folder + "/" + entry.path().filename().string());
      }
    }
  }
  void PowerCut(const std::string& cut, bool has_newest_log) {
    fs::rename(cut + "/db", path_);
    if (base_.kind.kind == AnyOptions::kHash) MoveToAnotherBoot(path_);
    if (!has_newest_log) {
      fs::remove(path_ + "-log");
      if (fs::exists(cut + "/db-log")) fs::rename(cut + "/db-log", path_ + "-log");
      fs::remove_all(dir_.File("archive"));
      fs::rename(cut + "/archive", dir_.File("archive"));
    }
    fs::remove_all(cut);
  }

  std::set<std::string> Names() const { return NamesBelow(dir_.path()); }

  // Changes the options to those of a mistake, or of a change of mind.
  void Vary(AnyOptions* options) {
    if (random_.OneIn(3)) {
      options->durability = std::array{Durability::kNone, Durability::kProcess, Durability::kPower}[random_.Below(3)];
      Tell(", level ", static_cast<int>(options->durability));
    }
    switch (random_.Below(8)) {
      case 0:
        options->log_archive = random_.OneIn(2) ? "" : std::string(kNoLogArchive);
        ends_history_ = ends_history_ || !options->log_archive.empty();  // once it is durable, even if a later step fails
        Tell(options->log_archive.empty() ? ", no archive" : ", end of the history");
        break;
      case 1:
        options->log_archive = dir_.File("nowhere");
        Tell(", archive nowhere");
        break;
      case 2:
        options->log_archive = dir_.File("archive");
        Tell(", archive");
        break;
      case 3:
        fs::create_directory(dir_.File("other"));
        options->log_archive = dir_.File("other");
        Tell(", other archive");
        break;
      case 4:
        MakeForeignArchive();
        options->log_archive = dir_.File("foreign");
        Tell(", foreign archive");
        break;
      default:
        break;
    }
    switch (random_.Below(12)) {
      case 0:
        options->expiry = !options->expiry;
        Tell(", expiry ", options->expiry);
        break;
      case 1:
        options->width = options->width ? 0 : kWidth;
        Tell(", width ", *options->width);
        break;
      case 2:
        options->page_size = 64;
        options->align_pow = 9;
        options->width = 9999;
        Tell(", sizes out of range");
        break;
      case 3:
        options->device = options->device == "pos" ? "mmap" : "pos";
        Tell(", ", options->device);
        break;
      case 4:
        options->file.mode = random_.OneIn(2) ? OpenMode::kReadOnly : OpenMode::kReadWrite;
        Tell(", mode ", static_cast<int>(options->file.mode));
        break;
      case 5:
        options->file.reserve_bytes = 8192;
        Tell(", no address space");
        break;
      case 6:
        options->keep_log = !options->keep_log;
        Tell(", keeps its log ", options->keep_log);
        break;
      default:
        break;
    }
  }
  void MakeForeignArchive() {
    if (fs::exists(dir_.File("foreign"))) return;
    fs::create_directory(dir_.File("foreign"));
    RunProcess([&](auto) {
      AnyOptions options;
      options.path = dir_.File("owner.hkh");
      options.log_archive = dir_.File("foreign");
      auto db = AnyDBM::Open(options);
      if (db.ok()) (void)(*db)->Set("a", "b"), (void)(*db)->Close();
      return 0;
    });
  }

  // One opening in a process of its own, which fails, dies, or succeeds and closes the database or dies.
  std::string Disturb() {
    AnyOptions options = Options();
    Tell("; open");
    Vary(&options);
    const std::uint64_t how = random_.Below(16);
    const bool fails_call = how >= 4 && how < 8, kills_at_call = how >= 8 && how < 11, kills_at_allocation = how >= 11 && how < 14,
               fails_allocation = how >= 14;
    CallFault fault;
    fault.names = true;
    fault.removes = kills_at_call;  // nothing can be taken back if these fail
    fault.how = kills_at_call ? CallFault::How::kKills
                              : std::array{CallFault::How::kFails, CallFault::How::kFails, CallFault::How::kPartial,
                                           CallFault::How::kInterrupted}[random_.Below(4)];
    fault.error = std::array{EIO, ENOSPC, EMFILE}[random_.Below(3)];
    fault.forever = !kills_at_call && fault.how == CallFault::How::kFails && random_.OneIn(2);
    if (fault.how == CallFault::How::kInterrupted) fault.syncs = fault.lengthens = fault.names = false;  // they are not
    fault.call = 1 + random_.Below(24);
    const std::uint64_t allocation = 1 + random_.Below(random_.OneIn(2) ? 400 : 150);
    const bool from_then_on = random_.OneIn(2), dies = random_.OneIn(2);
    if (fails_call || kills_at_call)
      Tell(kills_at_call ? ", killed at call " : ", fails at call ", fault.call, " how ", static_cast<int>(fault.how), " error ",
           fault.error, fault.forever ? " forever" : "");
    if (fails_allocation || kills_at_allocation)
      Tell(kills_at_allocation ? ", killed at allocation " : ", fails at allocation ", allocation, from_then_on ? " forever" : "");
    const std::set<std::string> before = Names();
    const Outcome outcome = RunProcess([&](auto say) {
      std::optional<FailingAllocation> failing;
      if (fails_call || kills_at_call) FailingCalls::Instance().Arm(fault);
      if (fails_allocation || kills_at_allocation) {
        failing.emplace(allocation,
                        kills_at_allocation ? FailingAllocation::Which::kKills
                        : from_then_on      ? FailingAllocation::Which::kFromThenOn
                                            : FailingAllocation::Which::kOnce,
                        FailingAllocation::Whose::kAllThreads);
      }
      auto db = AnyDBM::Open(options);
      failing.reset();
      FailingCalls::Instance().Disarm();
      if (!db.ok()) return say(db.status().ToString()), kFailed;
      if (!dies) {
        if (const Status closed = (*db)->Close(); !closed.ok()) say(closed.ToString());
      }
      (void)db->release();
      return kOpened;
    });
    Tell(outcome.is_killed           ? " -> killed"
         : outcome.result == kOpened ? dies ? " -> opened, died" : " -> opened, closed"
                                     : " -> ",
         outcome.said);
    num_killed_ += outcome.is_killed;
    num_failed_ += outcome.result == kFailed;
    num_opened_ += outcome.result == kOpened;
    has_succeeded_ = has_succeeded_ || outcome.is_killed || outcome.result == kOpened;
    has_failed_sync_ = has_failed_sync_ || outcome.said.find("cannot sync") != outcome.said.npos;
    if (outcome.is_killed || outcome.result == kOpened) return "";
    if (outcome.result != kFailed) return "the process ended with " + std::to_string(outcome.result);
    const std::set<std::string> after = Names();
    if (after == before) return "";
    // A log that is not needed any more may be gone, and be in the archive, durably. A superblock that could
    // not be synced may name a log, which is there then.
    const bool log_is_gone = before.contains("db-log") && !after.contains("db-log");
    // Then the history goes on in that archive: this is durable, even if a later step fails.
    ends_history_ = ends_history_ || (log_is_gone && options.log_archive == dir_.File("other"));
    std::string mistake;
    for (const std::string& name : after) {
      const bool is_archived = name.find('/') != name.npos && (log_is_gone || fails_call);
      const bool may_be_named = fails_call && (left_ > Left::kZeros || has_succeeded_);
      if (is_archived || (name == "db-log" && may_be_named)) {
        num_left_ += !before.contains(name);
        continue;
      }
      if (!before.contains(name)) mistake += " +" + name;
    }
    for (const std::string& name : before) {
      const bool may_go = name == "db-log" || name == "db-readers";  // that of killed readers goes with the next one
      if (!may_go && !after.contains(name)) mistake += " -" + name;
    }
    return mistake.empty() ? "" : "a failed opening changed the files:" + mistake;
  }

  // Opens it with the options or, if its history has ended or is in another archive, with one that it may have.
  // That is so after an opening that succeeded, or that failed once its superblock named the archive.
  StatusOr<std::unique_ptr<AnyDBM>> OpenInItsArchive(AnyOptions* options) {
    auto db = AnyDBM::Open(*options);
    const bool is_archived = db.status().message().find("has a log archive") != std::string_view::npos;
    if (!absl::IsFailedPrecondition(db.status()) || (!has_succeeded_ && !ends_history_ && !is_archived)) return db;
    num_left_ += !has_succeeded_ && !ends_history_;
    for (const char* const archive : {"other", "fresh", ""}) {
      options->log_archive = *archive == '\0' ? std::string(kNoLogArchive) : dir_.File(archive);
      if (*archive != '\0') fs::create_directory(options->log_archive);
      if (db = AnyDBM::Open(*options); db.ok()) break;
    }
    return db;
  }
  static bool IsUnproven(const Status& status) {
    return absl::IsFailedPrecondition(status) && status.message().find("unproven=accept") != std::string_view::npos;
  }

  std::string OpenRightly() {
    Tell("; the right one");
    AnyOptions options = Options();
    auto db = AnyDBM::Open(options);
    if (has_succeeded_ && db.status().message().find("option expiry") != std::string_view::npos &&
        left_ <= Left::kZeros) {  // it was created otherwise
      options.expiry = !options.expiry;
      db = AnyDBM::Open(options);
    }
    // A file that an opening could not sync may lack updates (UnprovenUpdates), and the opening may have ended its
    // history before. Nothing is wrong with the device here.
    if (IsUnproven(db.status()) && has_failed_sync_) {
      AnyOptions accepting = options;
      accepting.device = "mmap";
      accepting.unproven_updates = UnprovenUpdates::kAccept;
      db = OpenInItsArchive(&accepting);
      if (!db.ok()) return "accepting: " + db.status().ToString();
      if (const Status closed = (*db)->Close(); !closed.ok()) return closed.ToString();
      db = AnyDBM::Open(options);
    }
    if (absl::IsFailedPrecondition(db.status()) && has_succeeded_ && base_.kind.kind == AnyOptions::kHash) {
      AnyOptions mapped = options;  // its updates are found only by mapping the file again
      mapped.device = "mmap";
      db = AnyDBM::Open(mapped);
      if (absl::IsFailedPrecondition(db.status())) {  // its archive is not the one that the options name
        mapped.log_archive = kNoLogArchive;
        db = AnyDBM::Open(mapped);
      }
      if (db.ok()) {
        if (const Status closed = (*db)->Close(); !closed.ok()) return closed.ToString();
        db = AnyDBM::Open(options);
      }
    }
    if (absl::IsFailedPrecondition(db.status())) db = OpenInItsArchive(&options);
    if (!db.ok()) return db.status().ToString();
    std::string mistake = Compare(**db);
    if (mistake.empty()) mistake = Continue(**db);
    if (mistake.empty() && fs::exists(path_ + "-log")) mistake = "Close leaves a log";
    db->reset();
    if (!mistake.empty()) return mistake;
    db = AnyDBM::Open(options);
    if (!db.ok()) return "again: " + db.status().ToString();
    mistake = Compare(**db);
    return mistake.empty() ? "" : "again: " + mistake;
  }
  std::string Compare(AnyDBM& db) const {
    Records found;
    const Status shown = db.ProcessEach([&](std::string_view key, std::string_view value) { found.emplace(key, value); });
    if (!shown.ok()) return shown.ToString();
    if (found == expected_) return "";
    return absl::StrCat("found ", found.size(), " records, not the ", expected_.size(), " expected");
  }
  std::string Continue(AnyDBM& db) {
    if (const Status verified = db.Verify(); !verified.ok()) return verified.ToString();
    const std::vector<Change> changes = Changes(5);
    if (const Status made = Make(db, changes); !made.ok()) return made.ToString();
    for (const Change& change : changes) Apply(change, &expected_);
    const Status closed = db.Close();
    return closed.ok() ? "" : closed.ToString();
  }

  Random random_;
  TempDir dir_{TempDir::MemoryParent()};
  const std::string path_ = dir_.File("db");
  Base base_;
  Left left_ = Left::kAbsent;
  Records expected_;
  bool has_succeeded_ = false, has_failed_sync_ = false, ends_history_ = false;
  int num_failed_ = 0, num_killed_ = 0, num_opened_ = 0, num_left_ = 0;
  std::string story_;
};

std::uint64_t Number(const char* name, std::uint64_t usual) {
  const char* const given = std::getenv(name);
  return given != nullptr ? std::strtoull(given, nullptr, 0) : usual;
}

TEST(OpeningsTest, FailedAndKilledOnesChangeNothing) {
  // The same trials each time; long runs by hand draw others.
  const std::uint64_t seed = Number("HAKO_TEST_SEED", 3870814363), num_trials = Number("HAKO_OPENINGS", 2000),
                      only = Number("HAKO_OPENING", ~std::uint64_t{0});
  std::uint64_t num_failed = 0, num_killed = 0, num_opened = 0, num_left = 0, num_mistakes = 0;
  for (std::uint64_t i = only == ~std::uint64_t{0} ? 0 : only; i < num_trials && (only == ~std::uint64_t{0} || i == only); ++i) {
    Trial trial(Random::Mix(seed + i));
    const std::string mistake = trial.Run();
    num_failed += static_cast<std::uint64_t>(trial.num_failed());
    num_killed += static_cast<std::uint64_t>(trial.num_killed());
    num_opened += static_cast<std::uint64_t>(trial.num_opened());
    num_left += static_cast<std::uint64_t>(trial.num_left());
    if (mistake.empty()) continue;
    if (++num_mistakes <= 20) ADD_FAILURE() << "HAKO_OPENING=" << i << ": " << trial.story() << "\n  " << mistake;
  }
  EXPECT_EQ(num_mistakes, 0u);
  if (only != ~std::uint64_t{0}) return;
  std::printf("%llu files were left that a superblock names\n", static_cast<unsigned long long>(num_left));
  EXPECT_LT(num_left, num_trials / 50);
  EXPECT_GT(num_failed, num_trials / 10) << "hardly any opening failed";
  EXPECT_GT(num_killed, num_trials / 10) << "hardly any opening was killed";
  EXPECT_GT(num_opened, num_trials / 20) << "hardly any opening succeeded";
  ReportCount("failures", "openings failed", num_failed);
  ReportCount("kills", "openings killed", num_killed);
  ReportCount("states", "openings compared", num_trials);
}

}  // namespace
}  // namespace hako
