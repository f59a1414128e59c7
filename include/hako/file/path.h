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
// cut. Needs memory only for an error.
Status SyncDirectoryOf(const std::string& path);
// As SyncDirectoryOf, with the result in *status. Returns false if nothing was synced, because the
// directory cannot be opened or its file system does not sync directories; *status is then an
// error.
bool TrySyncDirectoryOf(const std::string& path, Status* status);

// Renames `from` to `to` durably, replacing an existing file. Both must be in one file system.
// REQUIRES: the content of `from` is synced (unchecked: the system does not tell)
Status RenameDurably(const std::string& from, const std::string& to);

// Returns the absolute path without symbolic links, or `path` itself if the system cannot resolve
// it.
std::string CanonicalOf(const std::string& path);

// Returns the names in a directory, in order, or an error if it cannot be read.
StatusOr<std::vector<std::string>> NamesIn(const std::string& directory);

// Returns AlreadyExists if there is a file or a link at `path`. The message says that `what`
// creates a new file.
Status RefuseExisting(const std::string& path, std::string_view what);

// Removes the file. Returns NotFound, with a message, if it does not exist.
Status RemoveFile(const std::string& path);

}  // namespace hako
