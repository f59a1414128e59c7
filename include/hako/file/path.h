// What is done to files by name, so that it survives a power cut.
//
// A name lives in its directory, and the directory is a file of its own: creating or renaming is durable only once the directory is
// synced too. file/replace_file.h replaces whole files.
#pragma once

#include <string>

#include "hako/base/status.h"

namespace hako {

// Syncs the directory that holds `path`, so that creating, renaming or removing `path` survives a power cut.
Status SyncDirectoryOf(const std::string& path);
// The same; false if the directory cannot be opened, and nothing was synced.
bool TrySyncDirectoryOf(const std::string& path, Status* status);

// Renames `from` to `to`, replacing what was there, durably. Both in one file system. REQUIRES: the content of `from` is synced.
Status RenameDurably(const std::string& from, const std::string& to);

// Removes the file of that name; NotFound, with a message, where there is none.
Status RemoveFile(const std::string& path);

}  // namespace hako
