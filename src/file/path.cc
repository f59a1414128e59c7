#include "hako/file/path.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace hako {

Status SyncDirectoryOf(const std::string& path) {
  std::string directory = std::filesystem::path(path).parent_path().string();
  if (directory.empty()) directory = ".";
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError(errno, absl::StrCat("cannot open directory ", directory));
  int result;
  do {
    result = fsync(fd);
  } while (result != 0 && errno == EINTR);
  const int error = errno;
  close(fd);
  return result == 0 ? absl::OkStatus() : SystemError(error, absl::StrCat("cannot sync directory ", directory));
}

Status RenameDurably(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename ", from, " to ", to));
  return SyncDirectoryOf(to);
}

Status RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", path));
  return absl::OkStatus();
}

}  // namespace hako
