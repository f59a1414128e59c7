#include "hako/dbm/log_place.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "hako/file/path.h"

namespace hako {

std::string LogPathOf(const std::string& path) { return CanonicalOf(path) + std::string(kLogEnding); }

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
