// What is done to files by name, so that it survives a power cut.
//
// A name lives in its directory, and the directory is a file of its own: creating or renaming is durable only once the directory is
// synced too. Replacing a file is therefore: write another beside it, sync that, rename it over the old one, sync the directory. A cut at
// any moment leaves the old file or the new one, whole.
#pragma once

#include <string>
#include <utility>

#include "hako/base/status.h"
#include "hako/file/file.h"

namespace hako {

// Syncs the directory that holds `path`, so that creating, renaming or removing `path` survives a power cut.
Status SyncDirectoryOf(const std::string& path);

// Renames `from` to `to`, replacing what was there, durably. Both in one file system. REQUIRES: the content of `from` is synced.
Status RenameDurably(const std::string& from, const std::string& to);

// Removes the file of that name; NotFound, with a message, where there is none.
Status RemoveFile(const std::string& path);

// Replaces the file at `path` by one that `write(F&)` fills: all of it or, on any error, nothing. The new file is `path` + ".tmp" until
// it is whole; one that a killed process left there is dropped. `options.mode` is ignored.
template <PathFile F, class Fn>
Status ReplaceFile(const std::string& path, Fn&& write, FileOptions options = {}) {
  const std::string beside = absl::StrCat(path, ".tmp");
  options.mode = OpenMode::kTruncate;
  HAKO_ASSIGN_OR_RETURN(F file, F::Open(beside, options));  // where this fails, the file beside may be another process's
  Status status = std::forward<Fn>(write)(file);
  if (status.ok()) status = file.Resize(file.Size());  // what was allocated ahead goes back before the sync, not after
  if (status.ok()) status = file.Sync();
  // Renamed while it is still locked, so that nobody who writes the same file at the same time can open it in between.
  if (status.ok()) status = RenameDurably(beside, path);
  if (!status.ok()) (void)RemoveFile(beside);
  const Status closed = file.Close();
  return status.ok() ? closed : status;
}

// The same where `write(F)` takes the new file and leaves it closed, its content synced.
template <PathFile F, class Fn>
Status ReplaceFileByClosed(const std::string& path, Fn&& write) {
  const std::string beside = absl::StrCat(path, ".tmp");
  FileOptions options;
  options.mode = OpenMode::kTruncate;
  HAKO_ASSIGN_OR_RETURN(F file, F::Open(beside, options));
  Status status = std::forward<Fn>(write)(std::move(file));
  if (status.ok()) status = RenameDurably(beside, path);
  if (!status.ok()) (void)RemoveFile(beside);
  return status;
}

}  // namespace hako
