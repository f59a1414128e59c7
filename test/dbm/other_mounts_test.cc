// Files of killed processes that are reached through another mount, as a container that is started again
// reaches them, and copies of such files: every update that was promised is there, or Open refuses.
//
// Mounting requires privileges; without them these tests are skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hako/dbm/any_dbm.h"
#include "hako/file/memory_map_parallel_file.h"
#include "support/child_process.h"
#include "support/crash_states.h"
#include "support/failing_calls.h"
#include "support/file_system.h"
#include "support/hash_superblocks.h"
#include "support/loop_image.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

namespace fs = std::filesystem;

constexpr int kSynced = 100, kAll = 300;
constexpr const char* kUnproven = "unproven=accept";

struct Database {
  std::string name, options;
  Durability level;

  bool IsMappedHash() const { return name.starts_with("mapped"); }
  // The records that a kill leaves.
  int Promised() const { return level == Durability::kNone && !IsMappedHash() ? kSynced : kAll; }
  // Whether only the page cache has them.
  bool IsInMapOnly() const { return IsMappedHash() && level != Durability::kPower; }
  StatusOr<std::unique_ptr<AnyDBM>> Open(const std::string& folder, std::string_view more = "") const {
    AnyOptions defaults;
    defaults.durability = level;
    defaults.file.lock_timeout = std::chrono::seconds(10);
    HAKO_ASSIGN_OR_RETURN(const AnyOptions parsed,
                          ParseAnyOptions(absl::StrCat(folder, "/", name, "?", options, ",", std::string(more)), defaults));
    return AnyDBM::Open(parsed);
  }
  // Opens it in a process that dies once it has set the records.
  void FillAndDie(const std::string& folder) const {
    ChildProcess child([&](ChildProcess&) {
      auto db = Open(folder);
      if (!db.ok()) return 1;
      for (int i = 0; i < kAll; ++i) {
        if (!(*db)->Set(std::to_string(i), "value " + std::to_string(i)).ok()) return 2;
        if (i == kSynced - 1 && !(*db)->Synchronize(SyncMode::kHard).ok()) return 3;
      }
      (void)db->release();
      return 0;
    });
    ASSERT_EQ(child.Result(), 0) << name;
  }
};

std::vector<Database> Databases() {
  std::vector<Database> all;
  int number = 0;
  for (const Durability level : {Durability::kNone, Durability::kProcess, Durability::kPower}) {
    for (const auto& [name, options] : {std::pair("mapped", "dbm=hash"),
                                        {"positional", "dbm=hash,file=pos"},
                                        {"tree", "dbm=tree"},
                                        {"tree_pos", "dbm=tree,file=pos"},
                                        {"array", "dbm=array,width=16"},
                                        {"tiny", "dbm=tiny"},
                                        {"baby", "dbm=baby"}}) {
      all.push_back({name + std::to_string(number++), options, level});
    }
  }
  return all;
}

void ExpectRecords(AnyDBM& db, int expected, std::string_view name) {
  EXPECT_EQ(db.Count(), static_cast<std::uint64_t>(expected)) << std::string(name);
  for (int i = 0; i < expected; i += 7) {
    ASSERT_OK_AND_ASSIGN(const std::string value, db.Get(std::to_string(i)));
    EXPECT_TRUE(value.starts_with("value " + std::to_string(i)));
  }
  EXPECT_THAT(db.Verify(), IsOk()) << std::string(name);
}
auto IsRefusal() { return StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr(kUnproven)); }

void FillAll(const std::string& folder) {
  for (const Database& database : Databases()) ASSERT_NO_FATAL_FAILURE(database.FillAndDie(folder));
}
// All that was promised is there; a hash table whose updates only the page cache had is refused until it
// is accepted, unless the system proves that they are there.
void ExpectAll(const std::string& folder, bool is_proved) {
  for (const Database& database : Databases()) {
    if (!is_proved && database.IsInMapOnly()) {
      const std::string before = ReadWhole(folder + "/" + database.name);
      EXPECT_THAT(database.Open(folder), IsRefusal()) << database.name;
      EXPECT_THAT(database.Open(folder, "mode=read"), IsRefusal()) << database.name;
      EXPECT_THAT(database.Open(folder, "file=pos"), IsRefusal()) << database.name;
      EXPECT_TRUE(ReadWhole(folder + "/" + database.name) == before) << "refused and changed";
      ASSERT_OK_AND_ASSIGN(auto accepted, database.Open(folder, kUnproven));
      ASSERT_NO_FATAL_FAILURE(ExpectRecords(*accepted, kAll, database.name));
      (void)accepted->Close();
    }
    ASSERT_OK_AND_ASSIGN(auto db, database.Open(folder));
    ASSERT_NO_FATAL_FAILURE(ExpectRecords(*db, database.Promised(), database.name));
    EXPECT_THAT(db->Close(), IsOk());
  }
}

// A mount for one scope.
class Mounted {
 public:
  Mounted(const char* type, const std::string& source, const std::string& folder, const std::string& data = "", unsigned long flags = 0)
      : folder_(folder), is_mounted_(mount(source.c_str(), folder.c_str(), type, flags, data.c_str()) == 0) {}
  Mounted(const Mounted&) = delete;
  ~Mounted() {
    if (is_mounted_) umount2(folder_.c_str(), MNT_DETACH);
  }
  explicit operator bool() const { return is_mounted_; }

 private:
  const std::string folder_;
  const bool is_mounted_;
};

class OtherMountsTest : public testing::Test {
 protected:
  std::string Folder(const std::string& name) const {
    const std::string path = directory_.File(name);
    fs::create_directory(path);
    return path;
  }
  TempDir directory_{TempDir::MemoryParent()};
};

TEST_F(OtherMountsTest, TmpfsThroughAnotherBindMountHasAll) {
  const std::string tmpfs = Folder("tmpfs"), one = Folder("one"), other = Folder("other");
  const Mounted memory("tmpfs", "tmpfs", tmpfs, "size=256m");
  if (!memory) GTEST_SKIP() << "cannot mount a tmpfs";
  {
    const Mounted bound(nullptr, tmpfs, one, "", MS_BIND);
    ASSERT_TRUE(bound);
    ASSERT_NO_FATAL_FAILURE(FillAll(one));
  }
  const Mounted bound(nullptr, tmpfs, other, "", MS_BIND);
  ASSERT_TRUE(bound);
  ExpectAll(other, true);
}

// The newest file system, as the system numbers them.
std::string FileSystemsOfDevices() {
  std::string names;
  for (const std::string type : {"ext4", "xfs", "btrfs"}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator("/sys/fs/" + type, error)) {
      if (struct stat info; stat(entry.path().c_str(), &info) == 0) absl::StrAppend(&names, entry.path().string(), " ", info.st_ino, "\n");
    }
  }
  return names;
}

// That the layer below was not mounted again is proved only while no other file system is mounted, as
// another test might do: then it is refused.
TEST_F(OtherMountsTest, OverlayThatIsMountedAgainHasAll) {
  Folder("lower"), Folder("upper"), Folder("work");
  const std::string merged = Folder("merged"), data = "lowerdir=" + directory_.File("lower") + ",upperdir=" + directory_.File("upper") +
                                                      ",workdir=" + directory_.File("work");
  const std::string before = FileSystemsOfDevices();
  {
    const Mounted overlay("overlay", "overlay", merged, data);
    if (!overlay) GTEST_SKIP() << "cannot mount an overlay";
    ASSERT_NO_FATAL_FAILURE(FillAll(merged));
  }
  const Mounted overlay("overlay", "overlay", merged, data);
  ASSERT_TRUE(overlay);
  const bool was_refused = absl::IsFailedPrecondition(Databases()[0].Open(merged, "mode=read").status());
  EXPECT_TRUE(!was_refused || FileSystemsOfDevices() != before);
  ExpectAll(merged, !was_refused);
}

class DeviceMountsTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(FileSystems, DeviceMountsTest, testing::Values("ext4", "xfs", "btrfs"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(DeviceMountsTest, AnotherBindMountHasAll) {
  LoopImage image(GetParam());
  if (!image.is_mounted()) GTEST_SKIP() << image.reason();
  TempDir directory;
  const std::string one = directory.File("one"), other = directory.File("other");
  fs::create_directory(one), fs::create_directory(other);
  {
    const Mounted bound(nullptr, image.folder(), one, "", MS_BIND);
    ASSERT_TRUE(bound);
    ASSERT_NO_FATAL_FAILURE(FillAll(one));
  }
  const Mounted bound(nullptr, image.folder(), other, "", MS_BIND);
  ASSERT_TRUE(bound);
  ExpectAll(other, true);
}

// The bytes are there, but a device that was taken away meanwhile would look the same.
TEST_P(DeviceMountsTest, MountedAgainHasAllOrIsRefused) {
  LoopImage image(GetParam());
  if (!image.is_mounted()) GTEST_SKIP() << image.reason();
  ASSERT_NO_FATAL_FAILURE(FillAll(image.folder()));
  ASSERT_TRUE(image.Remount());
  ExpectAll(image.folder(), false);
}

class CopiedFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(from_);
    fs::create_directory(to_);
  }
  void Copy(const std::string& name) const {
    for (const std::string ending : {"", "-log"}) {
      fs::remove(to_ + "/" + name + ending);
      if (fs::exists(from_ + "/" + name + ending)) fs::copy_file(from_ + "/" + name + ending, to_ + "/" + name + ending);
    }
  }
  static Database Mapped() { return {"mapped", "dbm=hash", Durability::kProcess}; }
  std::string CopyOfMapped() const { return to_ + "/mapped"; }

  TempDir directory_{TempDir::MemoryParent()};
  const std::string from_ = directory_.File("from"), to_ = directory_.File("to");
};

TEST_F(CopiedFilesTest, CopiesOfKilledFilesHaveAllOrAreRefused) {
  ASSERT_NO_FATAL_FAILURE(FillAll(from_));
  for (const Database& database : Databases()) Copy(database.name);
  ExpectAll(to_, false);
  ExpectAll(from_, true);
}

TEST_F(CopiedFilesTest, DroppedUpdatesLeaveTheSynchronizedState) {
  ASSERT_NO_FATAL_FAILURE(Mapped().FillAndDie(from_));
  for (const char* const device : {"file=mmap", "file=pos"}) {
    Copy("mapped");
    for (const char* const how : {"unproven=drop", "unproven=refuse", "unproven=accept"}) {
      ASSERT_OK_AND_ASSIGN(auto db, Mapped().Open(to_, absl::StrCat(device, ",", how)));
      ASSERT_NO_FATAL_FAILURE(ExpectRecords(*db, kSynced, how));
      EXPECT_THAT(db->Close(), IsOk());
    }
  }
}

TEST_F(CopiedFilesTest, AfterABootTheSynchronizedStateCounts) {
  ASSERT_NO_FATAL_FAILURE(Mapped().FillAndDie(from_));
  Copy("mapped");
  MoveToAnotherBoot(CopyOfMapped());
  for (const char* const how : {"mode=read", "unproven=accept", ""}) {
    ASSERT_OK_AND_ASSIGN(auto db, Mapped().Open(to_, how));
    ASSERT_NO_FATAL_FAILURE(ExpectRecords(*db, kSynced, how));
    (void)db->Close();
  }
}

// Where a copy lacks pages, as one that was made while the process wrote.
TEST_F(CopiedFilesTest, IncompleteCopyIsNotAccepted) {
  ASSERT_NO_FATAL_FAILURE(Mapped().FillAndDie(from_));
  const std::string whole = ReadWhole(from_ + "/mapped");
  int num_refused = 0;
  for (std::size_t at = format::kFirstExtent; at + 4096 <= whole.size(); at += 4096) {
    std::string torn = whole;
    if (torn.compare(at, 4096, std::string(4096, '\0')) == 0) continue;
    torn.replace(at, 4096, 4096, '\0');
    WriteWhole(CopyOfMapped(), torn);
    const auto db = Mapped().Open(to_, kUnproven);
    if (db.ok()) {
      EXPECT_NE((*db)->Count(), 0u);
      continue;
    }
    ++num_refused;
    EXPECT_THAT(db, StatusIs(absl::StatusCode::kDataLoss)) << at;
    EXPECT_TRUE(ReadWhole(CopyOfMapped()) == torn) << "refused and changed";
  }
  EXPECT_GT(num_refused, 3);
}

TEST_F(CopiedFilesTest, CopyWithHolesIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Mapped().FillAndDie(from_));
  ASSERT_EQ(std::system(("cp --sparse=always " + from_ + "/mapped " + CopyOfMapped()).c_str()), 0);
  EXPECT_THAT(Mapped().Open(to_), IsRefusal());
}

// A process that accepts the updates is killed at each of its calls: the next one can accept them.
TEST_F(CopiedFilesTest, KilledAcceptanceCanBeRepeated) {
  ASSERT_NO_FATAL_FAILURE(Mapped().FillAndDie(from_));
  std::uint64_t num_killed = 0;
  for (std::uint64_t call = 1;; ++call) {
    Copy("mapped");
    ChildProcess child([&](ChildProcess&) {
      FailingCalls::Instance().Arm({.how = CallFault::How::kKills, .call = call, .names = true, .removes = true});
      auto db = Mapped().Open(to_, kUnproven);
      FailingCalls::Instance().Disarm();
      (void)db->release();
      return 0;
    });
    const bool is_killed = child.Result() != 0;
    num_killed += is_killed;
    auto db = Mapped().Open(to_);
    if (!db.ok()) db = Mapped().Open(to_, kUnproven);
    ASSERT_THAT(db.status(), IsOk()) << call;
    ASSERT_NO_FATAL_FAILURE(ExpectRecords(**db, kAll, "accepted"));
    if (!is_killed) break;
  }
  EXPECT_GT(num_killed, 3u) << "the program does not have the calls of support/failing_calls_definitions.h";
  ReportCount("kills", "openings killed", num_killed);
}

}  // namespace
}  // namespace hako
