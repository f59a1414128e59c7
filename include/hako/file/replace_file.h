// Replaces a whole file atomically: readers and power cuts see the old file or the new one, never a
// part of either.
//
// Order: the new file is created beside the old one under an unused name, synced and renamed over
// it, then the directory is synced. A symbolic link is kept; the file that it leads to is replaced.
// The new file gets the permissions, owner and group of the old one; if there is no old one, it
// gets the defaults of a new file. An error leaves the old file unchanged and removes the new one.
// A killed process may leave a file NAME.XXXXXXXX.hako-new, which can be removed.
//
// The old file stays locked until the new one is in place. A database that is open in any process
// is never replaced: the call returns Unavailable.
#pragma once

#include <chrono>
#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/file/file_lock.h"

namespace hako {

// One replacement, from Begin to Commit. The destructor removes a new file that was not committed.
// One thread.
class FileReplacement {
 public:
  // Resolves `path`, locks the file there, waiting up to `lock_timeout` for its holder, and creates
  // an empty new file. If the caller has locked that file itself, `held` is the key of its lock.
  static StatusOr<FileReplacement> Begin(const std::string& path, std::chrono::milliseconds lock_timeout = {},
                                         std::optional<FileLock::Key> held = std::nullopt);

  // Movable, not copyable.
  FileReplacement(FileReplacement&& other) noexcept { *this = std::move(other); }
  FileReplacement& operator=(FileReplacement&& other) noexcept;
  ~FileReplacement() { Abandon(); }

  const std::string& target() const { return target_; }  // absolute; without a symbolic link as its last component
  const std::string& path() const { return path_; }      // of the new file
  int fd() const { return fd_; }                         // of the new file, open for writing
  // Whether the new file is at the target. A power cut may still undo that.
  bool is_in_place() const { return path_.empty(); }

  // Syncs the new file and renames it over the old one.
  Status Commit();

 private:
  FileReplacement() = default;
  StatusOr<bool> LockOld(std::chrono::steady_clock::time_point deadline, std::optional<FileLock::Key> held);
  Status CreateNew();
  Status TakeOverPermissions() const;
  void Abandon();

  struct Permissions {
    unsigned mode, owner, group;
  };

  std::string target_;
  std::string path_;  // empty = nothing to remove
  int fd_ = -1;
  std::optional<Permissions> old_;  // of the old file; nullopt = there is no old file
  int old_fd_ = -1;                 // the old file, if it is locked here
  std::unique_ptr<FileLock> lock_;
};

// A file type whose open and locked handle ReplaceFile can exchange for that of the new file. If
// the type has NoteRenamed(std::string&&), ReplaceFile passes it the new path.
template <class F>
concept ReplaceableFile = PathFile<F> && requires(const F& file) {
  { file.lock_key() } -> std::same_as<FileLock::Key>;
};

// Replaces the file at `path` by one that `write` fills: write(F&), or write(F), which closes the
// file. A caller that has the file at `path` open passes it as `held`. After the rename *held is
// the new file, open and locked, even if the rename could not be made durable. `options.mode` is
// ignored. From the rename on it needs no memory.
template <PathFile F, class Write>
Status ReplaceFile(const std::string& path, Write&& write, FileOptions options = {}, F* held = nullptr) {
  std::optional<FileLock::Key> key;
  if constexpr (requires { held->lock_key(); }) {
    if (held != nullptr) key = held->lock_key();
  }
  HAKO_ASSIGN_OR_RETURN(FileReplacement replacement, FileReplacement::Begin(path, options.lock_timeout, key));
  options.mode = OpenMode::kReadWrite;
  HAKO_ASSIGN_OR_RETURN(F file, F::Open(replacement.path(), options));
  std::string target = replacement.target();
  if constexpr (std::invocable<Write&, F&>) {
    const Status status = CatchNoMemory([&]() -> Status {
      HAKO_RETURN_IF_ERROR(write(file));
      HAKO_RETURN_IF_ERROR(file.Resize(file.Size()));  // gives back space allocated ahead before the sync, not after
      HAKO_RETURN_IF_ERROR(file.Sync());
      // Rename while it is still locked, so that no other writer can open it in between.
      return replacement.Commit();
    });
    if (replacement.is_in_place() && held != nullptr) {
      std::swap(*held, file);
      if constexpr (requires { held->NoteRenamed(std::move(target)); }) held->NoteRenamed(std::move(target));
    }
    const Status closed = file.Close();
    return status.ok() ? closed : status;
  } else {
    HAKO_RETURN_IF_ERROR(write(std::move(file)));
    return replacement.Commit();
  }
}

}  // namespace hako
