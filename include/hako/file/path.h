// Durable operations on file names.
//
// A name lives in its directory, which is a separate file: creating or renaming a file is durable
// only once the directory is synced too. file/replace_file.h replaces whole files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hako/base/status.h"

namespace hako {

// Syncs the directory of `path`, so that creating, renaming or removing `path` survives a power
// cut.
Status SyncDirectoryOf(const std::string& path);
// Does the same. False, and an error, if the directory cannot be opened, or its file system syncs no
// directories; nothing was synced then.
bool TrySyncDirectoryOf(const std::string& path, Status* status);

// Renames `from` to `to` durably, replacing an existing file. Both must be in one file system.
// REQUIRES: the content of `from` is synced (unchecked: the system does not tell)
Status RenameDurably(const std::string& from, const std::string& to);

// The path without symbolic links, from the root. `path` itself if it cannot be had.
std::string CanonicalOf(const std::string& path);

// The names in a directory, in order. An error if it cannot be read.
StatusOr<std::vector<std::string>> NamesIn(const std::string& directory);

// AlreadyExists if there is a file, or a link, at `path`; `what` creates a new one, for the message.
Status RefuseExisting(const std::string& path, std::string_view what);

// Removes the file. NotFound, with a message, if it does not exist.
Status RemoveFile(const std::string& path);

}  // namespace hako
