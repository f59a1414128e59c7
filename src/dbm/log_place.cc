#include "hako/dbm/log_place.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "hako/file/path.h"
#include "hako/file/positional_parallel_file.h"

namespace hako {

std::string LogPathOf(const std::string& path) { return CanonicalOf(path) + std::string(kLogEnding); }

Status RefuseLogBeside(const std::string& path) {
  const LogPlace<PositionalParallelFile> place(path, FileOptions{});
  HAKO_ASSIGN_OR_RETURN(const auto found, place.Look([](const auto&) { return false; }));
  if (!found.is_other) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "nothing is put at ", path, ": beside it is the log ", LogPathOf(path),
      ", which may have the newest updates of a database that was there. Open and close that database first; if it was moved, move the log "
      "too, to its name followed by -log; if it was lost, restore it; else remove the log"));
}

FileNumber NumberOf(const std::string& path) {
  struct stat found;
  return stat(path.c_str(), &found) == 0 ? FileNumber{found.st_dev, found.st_ino} : FileNumber{};
}

Status TakePermissionsOfDatabase(const std::string& path) {
  struct stat database, log;
  const std::string of = path.substr(0, path.size() - kLogEnding.size());
  if (stat(of.c_str(), &database) != 0) return SystemError(errno, absl::StrCat("cannot look at ", of));
  if (stat(path.c_str(), &log) != 0) return SystemError(errno, absl::StrCat("cannot look at ", path));
  // Only root may give a file to another user.
  if (database.st_uid != log.st_uid || database.st_gid != log.st_gid) (void)!chown(path.c_str(), database.st_uid, database.st_gid);
  if (((database.st_mode ^ log.st_mode) & 07777) == 0 || chmod(path.c_str(), database.st_mode & 07777) == 0) return absl::OkStatus();
  return SystemError(errno, absl::StrCat("cannot set the permissions of ", path));
}

}  // namespace hako
