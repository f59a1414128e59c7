// A directory that can lose power, with a database, its log, and all files of its subdirectory
// "archive": DirectoryCrashFile is opened by path, and can be replaced (file/replace_file.h).
//
// The files themselves are real and empty: they give names, locks and permissions. Their bytes are in
// a CrashMemory for each inode. The device has the names as of the last fsync of their directory
// or, each by itself, as they are now. This header defines fsync, unless failing_calls_definitions.h
// does so in another file of the program.
//
// One thread. One directory at a time is observed.
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/file/file_lock.h"
#include "hako/file/path.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/file/replace_file.h"
#include "support/crash_memory.h"
#include "support/failing_calls.h"
#include "support/random.h"

namespace hako {

class CrashDirectory {
 public:
  // Where an event is; kNames: the fsync of a directory.
  enum class Place { kDatabase, kLog, kArchive, kNames };
  using Memories = std::map<std::string, std::shared_ptr<CrashMemory>>;  // by name

  static CrashDirectory& Instance() {
    static CrashDirectory directory;
    return directory;
  }

  // What a kill leaves: the files by their names, and by the names that are durable.
  struct Killed {
    Memories now, durable;
  };

  // Puts these files into an empty directory, whose names are durable.
  void Put(const std::string& directory, const Memories& memories) {
    HAKO_ASSERT(mkdir((directory + "/archive").c_str(), 0700) == 0);
    for (const auto& [name, memory] : memories) {
      const std::string path = directory + "/" + name;
      const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
      HAKO_ASSERT(fd >= 0);
      Add(KeyOf(fd), memory, fd, PlaceOf(path));
    }
  }
  // From now on on_event runs before writes and syncs of files and directories, and the names of this
  // directory are those that Kill and Crash have.
  void Observe(const std::string& directory) {
    observed_ = directory;
    durable_ = Names();
    FailingCalls::Instance().on_fsync = [](int fd) {
      struct stat info;
      if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) Instance().SyncNames(KeyOf(info));
    };
  }
  // Does both with what KillWithNames has returned: the next process does not know which names are durable.
  void PutAndObserve(const std::string& directory, const Killed& killed) {
    Put(directory, killed.durable);
    Observe(directory);
    for (const auto& [name, memory] : killed.durable)
      HAKO_ASSERT(killed.now.contains(name) || unlink((directory + "/" + name).c_str()) == 0);
    for (const auto& [name, memory] : killed.now) {
      const auto durable = killed.durable.find(name);
      if (durable != killed.durable.end() && durable->second == memory) continue;
      const std::string path = directory + "/" + name, other = path + ".new";
      const int fd = open(other.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
      HAKO_ASSERT(fd >= 0 && rename(other.c_str(), path.c_str()) == 0);
      Add(KeyOf(fd), memory, fd, PlaceOf(path));
    }
  }
  // Forgets all files.
  void Clear() {
    FailingCalls::Instance().on_fsync = nullptr;
    on_event = nullptr;
    for (const auto& [key, file] : files_) close(file.fd);
    files_.clear();
    durable_.clear();
  }

  std::function<void(Place)> on_event;
  bool is_full = false;          // the database cannot be written
  bool archive_is_full = false;  // the archive cannot

  // The files that the next process finds if this one is killed now.
  Memories Kill() {
    Memories left;
    for (const auto& [name, key] : Names()) left[name] = files_.at(key).memory->Kill();
    return left;
  }
  Killed KillWithNames() {
    std::map<FileLock::Key, std::shared_ptr<CrashMemory>> killed;
    const auto by_name = [&](const NamedKeys& names) {
      Memories left;
      for (const auto& [name, key] : names) {
        auto& memory = killed[key];
        if (memory == nullptr) memory = files_.at(key).memory->Kill();
        left[name] = memory;
      }
      return left;
    };
    return {by_name(Names()), by_name(durable_)};
  }
  // A state that the device may have after a power cut now.
  Memories Crash(Random& random, std::uint8_t boot) {
    const auto now = Names();
    Memories left;
    std::set<std::string> names;
    for (const NamedKeys* const map : {&now, &std::as_const(durable_)}) {
      for (const auto& [name, key] : *map) names.insert(name);
    }
    for (const std::string& name : names) {
      const auto& from = random.OneIn(2) ? now : durable_;
      if (const auto it = from.find(name); it != from.end())
        left[name] = std::make_shared<CrashMemory>(files_.at(it->second).memory->Crash(random), boot);
    }
    return left;
  }

  // The bytes of the open file that this handle has locked.
  std::shared_ptr<CrashMemory> MemoryOf(const std::string& path, FileLock::Key key) {
    if (!files_.contains(key)) {
      const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
      HAKO_ASSERT(fd >= 0);
      Add(key, std::make_shared<CrashMemory>(CrashMemory::Image{}, 1), fd, PlaceOf(path));
    }
    return files_.at(key).memory;
  }
  void NoteEvent(Place place) const {
    if (on_event) on_event(place);
  }
  bool IsFull(Place place) const { return place == Place::kDatabase ? is_full : place == Place::kArchive && archive_is_full; }
  static Place PlaceOf(const std::string& path) {
    if (path.ends_with("-log")) return Place::kLog;
    return path.find("/archive/") != std::string::npos ? Place::kArchive : Place::kDatabase;
  }

  // The files that come while it exists are forgotten at its end. REQUIRES: they are closed then
  class Visit {
   public:
    Visit() {
      for (const auto& [key, file] : Instance().files_) before_.insert(key);
    }
    Visit(const Visit&) = delete;
    ~Visit() {
      std::erase_if(Instance().files_, [this](const auto& file) {
        const bool is_new = !before_.contains(file.first);
        if (is_new) close(file.second.fd);
        return is_new;
      });
    }

   private:
    std::set<FileLock::Key> before_;
  };

 private:
  struct Entry {
    std::shared_ptr<CrashMemory> memory;
    int fd;  // open, so that no other file gets the inode
  };

  static FileLock::Key KeyOf(int fd) {
    struct stat info;
    HAKO_ASSERT(fstat(fd, &info) == 0);
    return KeyOf(info);
  }
  static FileLock::Key KeyOf(const struct stat& info) { return {info.st_dev, info.st_ino}; }
  void Add(FileLock::Key key, std::shared_ptr<CrashMemory> memory, int fd, Place place) {
    memory->on_event = [this, place] { NoteEvent(place); };
    files_[key] = {std::move(memory), fd};
  }
  using NamedKeys = std::map<std::string, FileLock::Key>;
  NamedKeys Names() const {
    NamedKeys names;
    const auto add = [&](const std::string& name) {
      struct stat info;
      if (stat((observed_ + "/" + name).c_str(), &info) == 0 && files_.contains(KeyOf(info))) names[name] = KeyOf(info);
    };
    add("db");
    add("db-log");
    const auto archived = NamesIn(observed_ + kArchive);
    HAKO_ASSERT(archived.ok());
    for (const std::string& name : *archived) add("archive/" + name);
    return names;
  }
  // The names in this directory are durable, if it is observed.
  void SyncNames(FileLock::Key directory) {
    struct stat top, archive;
    if (stat(observed_.c_str(), &top) != 0 || stat((observed_ + kArchive).c_str(), &archive) != 0) return;
    const bool is_archive = directory == KeyOf(archive);
    if (!is_archive && directory != KeyOf(top)) return;
    NoteEvent(Place::kNames);
    const auto is_synced = [&](const auto& named) { return named.first.starts_with("archive/") == is_archive; };
    std::erase_if(durable_, is_synced);
    for (const auto& named : Names()) {
      if (is_synced(named)) durable_.insert(named);
    }
  }

  static constexpr const char* kArchive = "/archive";

  std::string observed_;
  std::map<FileLock::Key, Entry> files_;
  NamedKeys durable_;
};

class DirectoryCrashFile : public MappedCrashFile {
 public:
  static StatusOr<DirectoryCrashFile> Open(const std::string& path, const FileOptions& options = {}) {
    HAKO_ASSIGN_OR_RETURN(PositionalParallelFile locked, PositionalParallelFile::Open(path, options));
    auto memory = CrashDirectory::Instance().MemoryOf(path, locked.lock_key());
    return DirectoryCrashFile(std::move(locked), std::move(memory), CrashDirectory::PlaceOf(path));
  }

  bool IsWritable() const { return locked_.IsWritable(); }
  FileLock::Key lock_key() const { return locked_.lock_key(); }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) {
    CrashDirectory::Instance().NoteEvent(place_);
    if (CrashDirectory::Instance().IsFull(place_)) return absl::ResourceExhaustedError("full");
    return MappedCrashFile::WriteAt(offset, in);
  }
  // The first one also syncs the directory.
  Status Sync() { return SyncRange(0, Size()); }
  Status SyncRange(std::uint64_t offset, std::size_t size) {
    HAKO_RETURN_IF_ERROR(MappedCrashFile::SyncRange(offset, size));
    return std::exchange(is_named_, true) ? absl::OkStatus() : locked_.Sync();
  }
  Status Close() { return locked_.Close(); }

 private:
  DirectoryCrashFile(PositionalParallelFile locked, std::shared_ptr<CrashMemory> memory, CrashDirectory::Place place)
      : MappedCrashFile(std::move(memory)), locked_(std::move(locked)), place_(place) {}

  PositionalParallelFile locked_;
  CrashDirectory::Place place_;
  bool is_named_ = false;  // durably
};

static_assert(ReplaceableFile<DirectoryCrashFile> && MappedFile<DirectoryCrashFile> && KernelBackedFile<DirectoryCrashFile>);

}  // namespace hako

extern "C" [[gnu::weak]] int fsync(int fd) {
  const auto on_fsync = hako::FailingCalls::Instance().on_fsync.load();
  if (on_fsync == nullptr) return static_cast<int>(syscall(SYS_fsync, fd));
  on_fsync(fd);
  return 0;
}
