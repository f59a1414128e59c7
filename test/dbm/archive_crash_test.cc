// Cuts the power under a database with a log archive, or kills its process, at any moment: mostly
// before the writes and syncs of files in the archive, and before the syncs of its names. The database,
// its log, the archive and both directories lose power at the same moment, each with the bytes not
// synced. Sometimes the archive has no space.
//
// From a copy of the first state, the archive and the log that are left a database is restored; then
// the one that is left is opened. Both show the same state, which has every update that was durable,
// or after a kill every update that has returned. After that the archive alone has all of the history.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/log_summary.h"
#include "hako/dbm/restore.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/dbm/write_batch.h"
#include "support/checked_value.h"
#include "support/crash_directory.h"
#include "support/crash_states.h"
#include "support/file_system.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using Memories = CrashDirectory::Memories;
using Place = CrashDirectory::Place;

struct Tree {
  using Database = TreeDBM<DirectoryCrashFile>;
  using Restored = TreeDBM<>;
  static TreeOptions With(Durability durability, const std::string& archive) {
    return {
        .page_size = 512, .cache_bytes = 4 << 20, .durability = durability, .log_bytes = std::uint64_t{1} << 40, .log_archive = archive};
  }
};
struct Tiny {
  using Database = TinyDBM<DirectoryCrashFile>;
  using Restored = TinyDBM<>;
  static TinyOptions With(Durability durability, const std::string& archive) {
    return {.seed = 1, .durability = durability, .log_bytes = std::uint64_t{1} << 40, .log_archive = archive};
  }
};
struct Hash {
  using Database = HashDBM<DirectoryCrashFile>;
  using Restored = HashDBM<>;
  static HashOptions With(Durability durability, const std::string& archive) {
    return {.durability = durability, .log_bytes = std::uint64_t{1} << 40, .log_archive = archive, .reclaim_bytes = 0};
  }
};

using Bytes = std::vector<std::byte>;
void WriteBytes(const std::string& path, const Bytes& bytes) {
  WriteWhole(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

const FileOptions kSmall = {.grow_min = 64 << 10};  // thousands of files are made

template <class D>
StatusOr<Records> RecordsAt(const std::string& path) {
  HAKO_ASSIGN_OR_RETURN(auto db, D::Open(path, {}, kSmall));
  Records found = ListByIterator(*db).records;
  HAKO_RETURN_IF_ERROR(db->Verify());
  HAKO_RETURN_IF_ERROR(db->Close());
  return found;
}

// Restores that would have passed over segments of the log without a predecessor, which a power cut
// had lost: they are refused until the database was opened once.
std::uint64_t num_refused = 0;

// Restores and opens what a crash left, whose history begins with the database `copy`.
template <class Kind>
StatusOr<Records> Recover(const Memories& left, const Bytes& copy) {
  using D = typename Kind::Restored;
  const TempDir directory(TempDir::MemoryParent());
  const std::string archive = directory.File("archive"), path = directory.File("db");
  std::filesystem::create_directory(archive);
  for (const auto& [name, memory] : left) WriteBytes(directory.File(name), memory->Live());
  WriteBytes(directory.File("copy"), copy);
  const auto restore = [&](const std::string& name, const std::string& log) -> StatusOr<Records> {
    HAKO_RETURN_IF_ERROR(Restore<D>(directory.File("copy"), archive, directory.File(name), {.log = log}).status());
    return RecordsAt<D>(directory.File(name));
  };
  std::string log;
  {
    HAKO_ASSIGN_OR_RETURN(PositionalParallelFile file, PositionalParallelFile::Open(path, {.mode = OpenMode::kReadOnly}));
    HAKO_ASSIGN_OR_RETURN(const log::NamedLog named, FindNamedLog(file));
    if (named.IsNeeded()) log = path + "-log";
  }
  const StatusOr<Records> restored = restore("restored", log);
  const bool is_refused = !log.empty() && restored.status().message().find("the archive lacks segment") != std::string_view::npos;
  if (is_refused) {
    ++num_refused;
  } else {
    HAKO_RETURN_IF_ERROR(restored.status());
  }
  HAKO_ASSIGN_OR_RETURN(auto db, D::Open(path, Kind::With(Durability::kProcess, archive), kSmall));
  Records found = ListByIterator(*db).records;
  if (!is_refused && found != *restored)
    return absl::DataLossError("the database and the restored state differ: " + Difference(found, *restored));
  HAKO_RETURN_IF_ERROR(db->Set("works", "again"));
  HAKO_RETURN_IF_ERROR(db->Verify());
  HAKO_RETURN_IF_ERROR(db->Close());
  Records again = found;
  again["works"] = "again";
  HAKO_ASSIGN_OR_RETURN(const Records restored_again, restore("again", ""));
  if (restored_again != again) return absl::DataLossError("the archive has a gap: " + Difference(again, restored_again));
  return found;
}

template <class Kind>
class Machine {
  using Database = typename Kind::Database;

 public:
  explicit Machine(std::uint64_t seed) : random_(seed) {}
  ~Machine() { directory_.Clear(); }

  // The first process makes the state with which the history begins.
  void Begin() {
    TempDir place;
    directory_.Put(place.path(), {});
    directory_.Observe(place.path());
    ASSERT_OK_AND_ASSIGN(auto db, Database::Open(place.File("db"), Kind::With(Durability::kProcess, place.File("archive"))));
    ASSERT_THAT(db->Set("first", "record"), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    files_ = directory_.Kill();
    directory_.Clear();
    copy_ = files_.at("db")->Live();
    states_ = {{{"first", "record"}}};
  }
  // One life of a process, which ends by Close, a kill or a power cut.
  void Live(int count) {
    durability_ = random_.OneIn(3) ? Durability::kPower : Durability::kProcess;
    TempDir place;
    directory_.Put(place.path(), files_);
    directory_.Observe(place.path());
    directory_.on_event = [this](Place at) { OnEvent(at); };
    directory_.archive_is_full = random_.OneIn(4);
    auto opened = Database::Open(place.File("db"), Kind::With(durability_, place.File("archive")));
    directory_.archive_is_full = false;
    ASSERT_THAT(opened, IsOk());
    db_ = opened->get();
    const Records found = ListByIterator(*db_).records;
    ASSERT_TRUE(IsOneOf(found, states_, acknowledged_)) << Difference(states_.back(), found);
    ASSERT_NO_FATAL_FAILURE(CheckCrashes());
    states_ = {found};
    acknowledged_ = durable_ = 0;
    for (int i = 0; i < count; ++i) {
      ASSERT_NO_FATAL_FAILURE(Operate());
      ASSERT_NO_FATAL_FAILURE(CheckCrashes());
    }
    if (random_.OneIn(2)) {
      ASSERT_NO_FATAL_FAILURE(Close());
    }
    const bool is_cut = random_.OneIn(2);
    files_ = is_cut ? directory_.Crash(random_, ++boot_) : directory_.Kill();
    if (is_cut) acknowledged_ = durable_;
    directory_.on_event = nullptr;
    (void)db_->Close();  // of the dead process
    opened->reset();
    directory_.Clear();
  }
  std::uint64_t num_crashes() const { return num_crashes_; }
  std::uint64_t num_in_archive() const { return num_in_archive_; }
  std::uint64_t num_full() const { return num_full_; }

 private:
  void Operate() {
    if (random_.OneIn(10)) return Synchronize();
    if (random_.OneIn(15)) {
      ASSERT_THAT(db_->WaitDurable(db_->LastLsn()), IsOk());
      durable_ = states_.size() - 1;
      return;
    }
    ASSERT_THAT(Update(), IsOk());
    acknowledged_ = states_.size() - 1;
    if (durability_ == Durability::kPower) durable_ = acknowledged_;
  }
  Status Update() {
    states_.push_back(states_.back());
    Records& after = states_.back();
    if (random_.OneIn(5)) {
      WriteBatch batch;
      for (std::uint64_t n = random_.Between(2, 8); n > 0; --n) {
        const std::string key = NumberedKey(random_.Below(40));
        if (random_.OneIn(3)) {
          batch.Remove(key);
          after.erase(key);
        } else {
          batch.Set(key, after[key] = SomeValue(key));
        }
      }
      return db_->Write(batch);
    }
    const std::string key = NumberedKey(random_.Below(40));
    if (random_.OneIn(5) && after.erase(key) != 0) return db_->Remove(key);
    return db_->Set(key, after[key] = SomeValue(key));
  }
  // Of a log with segments of 16 and 32 KiB.
  std::string SomeValue(const std::string& key) {
    return CheckedValue(key, random_.OneIn(30) ? random_.Below(40'000) : random_.Below(3000), ++salt_);
  }

  void Synchronize() {
    directory_.archive_is_full = random_.OneIn(4);
    const Status status = db_->Synchronize(SyncMode::kHard);
    NoteEnd(status);
  }
  void Close() {
    directory_.archive_is_full = random_.OneIn(4);
    const Status status = db_->Close();
    ASSERT_NO_FATAL_FAILURE(NoteEnd(status));
    TakeCrash(false);
    CheckCrashes();
  }
  // All updates are durable then, even if the archive lacks some that the log has.
  void NoteEnd(const Status& status) {
    if (!std::exchange(directory_.archive_is_full, false)) {
      ASSERT_THAT(status, IsOk());
    } else if (!status.ok()) {
      ASSERT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
      ++num_full_;
    }
    durable_ = acknowledged_;
  }

  // What a crash at this moment leaves, to be opened once the operation is over.
  struct Crash {
    Memories left;
    bool is_kill;
    std::size_t first;  // of states_, that may be found
  };
  void TakeCrash(bool is_in_archive) {
    const bool is_kill = random_.OneIn(4);
    crashes_.push_back({is_kill ? directory_.Kill() : directory_.Crash(random_, 0), is_kill, is_kill ? acknowledged_ : durable_});
    num_in_archive_ += is_in_archive;
  }
  void OnEvent(Place at) {
    const bool is_in_archive = at == Place::kArchive || at == Place::kNames;
    if (random_.OneIn(is_in_archive ? 4 : 40)) TakeCrash(is_in_archive);
  }
  void CheckCrashes() {
    const auto on_event = std::exchange(directory_.on_event, nullptr);
    for (const Crash& crash : std::exchange(crashes_, {})) {
      ++num_crashes_;
      const char* const what = crash.is_kill ? "after a kill: " : "after a power cut: ";
      const auto found = Recover<Kind>(crash.left, copy_);
      ASSERT_THAT(found, IsOk()) << what;
      ASSERT_TRUE(IsOneOf(*found, states_, crash.first)) << what << Difference(states_.back(), *found);
    }
    directory_.on_event = on_event;
  }

  CrashDirectory& directory_ = CrashDirectory::Instance();
  Random random_;
  Durability durability_ = Durability::kProcess;
  Database* db_ = nullptr;
  Bytes copy_;  // of the database before the first life
  std::uint64_t salt_ = 0;
  std::uint8_t boot_ = 1;  // the number of power cuts, and 1
  std::vector<Crash> crashes_;
  Memories files_;
  std::vector<Records> states_;  // after each update of this life
  // The first of states_ that a kill, or a power cut, may leave.
  std::size_t acknowledged_ = 0, durable_ = 0;
  std::uint64_t num_crashes_ = 0, num_in_archive_ = 0, num_full_ = 0;
};

template <class Kind>
class ArchiveCrashTest : public testing::Test {};
using Kinds = testing::Types<Tree, Tiny, Hash>;
TYPED_TEST_SUITE(ArchiveCrashTest, Kinds);

TYPED_TEST(ArchiveCrashTest, ArchiveAndLogHaveEveryDurableUpdate) {
  SCOPED_TRACE(TestSeed());
  const std::uint64_t wanted = CrashStates(400);
  std::uint64_t num_crashes = 0, num_in_archive = 0, num_full = 0;
  for (std::uint64_t number = 0; num_crashes < wanted; ++number) {
    SCOPED_TRACE(number);
    Machine<TypeParam> machine(Random::Mix(TestSeed()) + number);
    ASSERT_NO_FATAL_FAILURE(machine.Begin());
    for (int life = 0; life < 6; ++life) ASSERT_NO_FATAL_FAILURE(machine.Live(60)) << "life " << life;
    num_crashes += machine.num_crashes();
    num_in_archive += machine.num_in_archive();
    num_full += machine.num_full();
  }
  EXPECT_GE(num_in_archive, num_crashes / 4);
  EXPECT_GT(num_full, 0u);
  EXPECT_LE(std::exchange(num_refused, 0), num_crashes / 50);
  ReportCrashStates(num_crashes);
}

// Each process that opens a mapped table after a kill uses a later epoch. If many are killed before a
// synchronization, Open synchronizes before it replays the log.
TEST(ArchiveOfAKilledTableTest, HasWhatOpenSynchronizes) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  CrashDirectory& directory = CrashDirectory::Instance();
  const auto with_files = [&directory](const Memories& files, const auto& body) {
    const TempDir place;
    directory.Put(place.path(), files);
    directory.Observe(place.path());
    body(place.File("db"), place.File("archive"));
    directory.Clear();
  };
  Memories files;
  Bytes copy;
  with_files({}, [&](const std::string& path, const std::string& archive) {
    {
      ASSERT_OK_AND_ASSIGN(auto db, Hash::Database::Open(path, Hash::With(Durability::kProcess, archive)));
      ASSERT_THAT(db->Set("key", "first"), IsOk());
      ASSERT_THAT(db->Close(), IsOk());
      copy = directory.Kill().at("db")->Live();
    }
    ASSERT_OK_AND_ASSIGN(auto db, Hash::Database::Open(path, Hash::With(Durability::kProcess, archive)));
    ASSERT_THAT(db->Set("key", "durable"), IsOk());
    ASSERT_THAT(db->WaitDurable(db->LastLsn()), IsOk());
    ASSERT_THAT(db->Set("key", "not durable"), IsOk());
    ASSERT_THAT(db->Set("other", "not durable"), IsOk());
    files = directory.Kill();
  });
  const std::vector<Records> states = {{{"key", "durable"}}, {{"key", "not durable"}}, {{"key", "not durable"}, {"other", "not durable"}}};
  // Killed after the first sync, which marks the file as in use.
  for (int i = 0; i < 300; ++i) {
    Memories left;
    with_files(files, [&](const std::string& path, const std::string&) {
      int num_events = 0;
      directory.on_event = [&](Place place) {
        if (place == Place::kDatabase && ++num_events == 2) left = directory.Kill();
      };
      ASSERT_OK_AND_ASSIGN(const auto db, Hash::Database::Open(path, Hash::With(Durability::kNone, kNoLogArchive)));
      directory.on_event = nullptr;
      ASSERT_EQ(ListByIterator(*db).records, states.back());
    });
    files = left;
  }
  std::vector<Memories> crashes;
  with_files(files, [&](const std::string& path, const std::string& archive) {
    directory.on_event = [&](Place) {
      for (int i = 0; i < (kSlowdown > 1 ? 4 : 10); ++i) crashes.push_back(directory.Crash(random, 0));
    };
    ASSERT_OK_AND_ASSIGN(const auto db, Hash::Database::Open(path, Hash::With(Durability::kProcess, archive)));
    directory.on_event = nullptr;
    ASSERT_EQ(ListByIterator(*db).records, states.back());
    ASSERT_THAT(db->Verify(), IsOk());
  });
  for (const Memories& left : crashes) {
    const auto found = Recover<Hash>(left, copy);
    ASSERT_THAT(found, IsOk());
    ASSERT_THAT(states, testing::Contains(*found));
  }
  ReportCrashStates(crashes.size());
}

}  // namespace
}  // namespace hako
