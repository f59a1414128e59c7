// Opens and uses a database whose files come from an input.
#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "fuzz/file_set.h"
#include "fuzz/forged_checks.h"
#include "fuzz/seeds.h"
#include "fuzz/target.h"
#include "hako/array/record_key.h"
#include "hako/dbm/any_dbm.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/format/hash_file_format.h"
#include "support/failing_calls.h"
#include "support/temp_dir.h"

namespace hako::fuzz {

// How an input uses the database: a bit each of its mode.
inline constexpr unsigned kPositional = 1, kSameBoot = 2, kReadOnly = 4, kNoLog = 8, kUpdates = 16, kMaintenance = 32, kClears = 64;

// The folder of the files of all inputs, in memory if the system has such a place.
class Folder {
 public:
  static Folder& Instance() {
    static Folder folder;
    return folder;
  }
  std::string Path(std::string_view name) const { return directory_.File(name); }
  void Empty() const {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path(), ignored)) std::filesystem::remove(entry, ignored);
  }

 private:
  TempDir directory_{TempDir::MemoryParent()};
};

inline AnyOptions OptionsOf(std::string_view kind, unsigned mode, const std::string& path) {
  AnyOptions options;
  options.path = path;
  options.kind = kind;
  options.device = (mode & kPositional) != 0 ? "pos" : "mmap";
  options.durability = (mode & kNoLog) != 0 ? Durability::kNone : Durability::kProcess;
  options.file.mode = (mode & kReadOnly) != 0 ? OpenMode::kReadOnly : OpenMode::kCreate;
  options.file.reserve_bytes = std::uint64_t{64} << 20;
  options.file.grow_min = 4096;
  if (kind == AnyOptions::kTree || kind == AnyOptions::kArray) options.cache_bytes = 1 << 20;
  if (kind == AnyOptions::kBaby) options.max_bytes = std::uint64_t{64} << 20;
  return options;
}

// Makes the live state of a hash file that of this boot and inode, as a killed process leaves it.
inline void ClaimLiveState(const std::string& path) {
  std::string file = ReadWhole(path);
  auto live = LoadFrom<format::LiveState>(file, format::kLiveStateOffset);
  auto opened = MemoryMapParallelFile::Open(path, {.mode = OpenMode::kReadOnly});
  if (!live || !opened.ok()) return;
  const FileIdentity identity = opened->Identity();
  (void)opened->Close();
  live->boot_id = identity.boot_id;
  live->device = identity.device;
  live->inode = identity.inode;
  StoreTo(file, format::kLiveStateOffset, *live);
  WriteWhole(path, file);
}

// How the next system calls fail.
inline CallFault FaultOf(Bytes& bytes) {
  const unsigned kind = bytes.Byte();
  CallFault fault;
  fault.how = std::array{CallFault::How::kFails, CallFault::How::kPartial, CallFault::How::kInterrupted}[kind % 3];
  fault.error = kind % 2 == 0 ? EIO : ENOSPC;
  fault.forever = kind / 8 % 2 != 0 && fault.how == CallFault::How::kFails;
  fault.call = 1 + bytes.Byte() % 32;
  return fault;
}
// The input of a target for one file: without a log.
inline FileSet DecodeOneFile(std::string_view input) {
  FileSet set = FileSet::Decode(input);
  set.mode |= kNoLog;
  set.files.resize(1);
  return set;
}

// Writes the files of an input.
inline void WriteFiles(const FileSet& set, const std::string& path) {
  Folder::Instance().Empty();
  if (!set.files.empty()) WriteWhole(path, set.files[0]);
  if (set.files.size() > 1) WriteWhole(path + "-log", set.files[1]);
  if ((set.mode & kSameBoot) != 0) ClaimLiveState(path);
}

// Reads all records in every way; after a Verify that finds nothing these agree.
inline std::vector<std::string> ReadAll(AnyDBM& db) {
  std::vector<std::string> keys;
  std::uint64_t shown = 0, listed = 0;
  const Status scan = db.ProcessEach([&](std::string_view key, std::string_view) {
    if (keys.size() < 50) keys.emplace_back(key);
    ++shown;
  });
  auto it = db.MakeIterator();
  for (it.First(); it.Valid(); it.Next()) ++listed;
  const Status list = it.status();
  std::uint64_t reversed = listed;
  if (db.IsOrdered()) {
    reversed = 0;
    for (it.Last(); it.Valid(); it.Previous()) ++reversed;
    (void)db.CountRange("a", "b");
    (void)db.CountRange("1");  // of an array
  }
  bool finds_all = true;
  for (const std::string& key : keys) {
    finds_all = finds_all && db.Get(key).ok();
    it.Jump(key);
  }
  const Status verified = db.Verify();
  if (!verified.ok()) return keys;
  Require(scan.ok() && list.ok() && finds_all, "after Verify a record cannot be read:", scan.ok() ? list : scan);
  Require(shown == db.Count() && listed == shown && reversed == shown, "after Verify a scan does not show Count records");
  return keys;
}

inline void Update(AnyDBM& db, const std::vector<std::string>& keys) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i % 3 == 0) (void)db.Remove(keys[i]);
    if (i % 3 == 1) (void)db.Set(keys[i], std::string(i % 4 == 0 ? 5000 : i, 'u'));
    if (i % 3 == 2) (void)db.Append(keys[i], "more");
  }
  for (int i = 0; i < 40; ++i) (void)db.Set("new " + std::to_string(i * 7), std::string(static_cast<std::size_t>(i), 'n'));
  for (int i = 0; i < 10; ++i) (void)db.Set(std::to_string(i * i * 12'345), "n");  // of an array
  (void)db.Synchronize(SyncMode::kHard);
}

inline void Maintain(AnyDBM& db) {
  (void)db.ShouldBeRebuilt();
  (void)db.Rebuild();
  for (int i = 0; i < 100; ++i) {
    const auto progress = db.Scrub();
    if (!progress.ok() || progress->is_complete) break;
  }
  (void)db.CopyTo(Folder::Instance().Path("copy"));
  (void)db.Inspect();
}

// Opens the database of the input, and uses it as the mode says. Opened again, it is as it was closed.
inline void RunDatabase(std::string_view kind, const FileSet& set) {
  const std::string path = Folder::Instance().Path("db");
  WriteFiles(set, path);
  const AnyOptions options = OptionsOf(kind, set.mode, path);
  auto db = AnyDBM::Open(options);
  if (!db.ok()) return;
  std::vector<std::string> keys = ReadAll(**db);
  if ((set.mode & kUpdates) != 0) Update(**db, keys);
  if ((set.mode & kClears) != 0) (void)(*db)->Clear();
  if ((set.mode & kMaintenance) != 0) Maintain(**db);
  keys = ReadAll(**db);
  const std::uint64_t count = (*db)->Count();
  const bool is_sound = (*db)->Verify().ok();
  if (!(*db)->Close().ok() || !is_sound) return;
  db = AnyDBM::Open(options);
  Require(db.ok(), "a sound database was closed and is refused:", db.status());
  ReadAll(**db);
  Require((*db)->Verify().ok() && (*db)->Count() == count, "a sound database was closed and is not as it was:", (*db)->Verify());
}

// For seeds: the files of a database that is open.
inline std::string SeedOf(unsigned mode, const std::string& path) {
  FileSet set;
  set.mode = mode;
  set.files.push_back(ReadWhole(path));
  if (std::filesystem::exists(path + "-log")) set.files.push_back(ReadWhole(path + "-log"));
  return set.Encode();
}
// Some records, some of which are replaced and removed after a synchronization.
inline void Fill(AnyDBM& db, int count, std::size_t longest) {
  const auto set = [&](int i, char c) {
    const auto n = static_cast<std::size_t>(i);
    Require(db.Set("key" + std::to_string(i * i), std::string(n % 10 == 7 ? longest : n, c)).ok(), "cannot fill");
  };
  for (int i = 0; i < count; ++i) set(i, 'a');
  Require(db.Synchronize(SyncMode::kHard).ok(), "cannot synchronize");
  for (int i = 0; i < count; i += 3) set(i, 'b');
  for (int i = 1; i < count; i += 5) Require(db.Remove("key" + std::to_string(i * i)).ok(), "cannot remove");
}
// Adds the database while it is open, and after it was closed.
inline void AddSeeds(AnyOptions options, unsigned mode, int count, std::size_t longest, std::vector<std::string>* seeds) {
  Folder::Instance().Empty();
  auto db = AnyDBM::Open(options);
  Require(db.ok(), "cannot make a seed:", db.status());
  Fill(**db, count, longest);
  seeds->push_back(SeedOf(mode, options.path));
  Require((*db)->Close().ok(), "cannot close");
  seeds->push_back(SeedOf(mode, options.path));
}
// Adds an array with a log, while it is open, and after it was closed. It has several directory pages.
inline void AddArraySeeds(unsigned mode, unsigned width, std::vector<std::string>* seeds) {
  Folder::Instance().Empty();
  AnyOptions options = OptionsOf(AnyOptions::kArray, mode, Folder::Instance().Path("db"));
  options.width = width;
  auto db = AnyDBM::Open(options);
  Require(db.ok(), "cannot make a seed:", db.status());
  const auto set = [&](std::uint64_t id, char c) {
    Require((*db)->Set(RecordKey(id).view(), std::string(1 + id % width, c)).ok(), "cannot fill");
  };
  for (std::uint64_t i = 0; i < 40; ++i) set(i < 30 ? i * 3 : i * 9'000'000'000, 'a');
  Require((*db)->Synchronize(SyncMode::kHard).ok(), "cannot synchronize");
  for (std::uint64_t i = 0; i < 40; i += 4) set(i * 2, 'b');
  WriteBatch batch;
  batch.RemoveRange("20", "40");
  batch.RemoveRange(RecordKey(kRecordIdMax / 2).view());
  batch.Set("30", "c");
  batch.Remove("3");
  batch.SetAppliedIndex(5);
  Require((*db)->Write(batch).ok() && (*db)->RemoveRange("6", "9").ok(), "cannot write a batch");
  set(kRecordIdMax, 'd');
  Require((*db)->WaitDurable((*db)->LastLsn()).ok() || (mode & kNoLog) != 0, "cannot wait");
  seeds->push_back(SeedOf(mode, options.path));
  Require((*db)->Close().ok(), "cannot close");
  seeds->push_back(SeedOf(mode, options.path));
}
// For Target::input_of: the file of a database.
template <unsigned kMode>
std::string InputOf(std::string_view file) {
  return FileSet{.mode = kMode, .files = {std::string(file)}}.Encode();
}

}  // namespace hako::fuzz
