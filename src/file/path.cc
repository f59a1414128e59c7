#include "hako/file/path.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

namespace hako {

bool TrySyncDirectoryOf(const std::string& path, Status* status) {
  // Needs no memory, because the caller of a sync may have none.
  std::array<char, PATH_MAX> directory{"."};
  if (const std::size_t slash = path.rfind('/'); slash != path.npos) {
    const std::size_t size = std::min(std::max<std::size_t>(slash, 1), directory.size() - 1);
    directory[path.copy(directory.data(), size)] = '\0';
  }
  const int fd = open(directory.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    *status = SystemError(errno, absl::StrCat("cannot open directory ", directory.data()));
    return false;
  }
  int result;
  do {
    result = fsync(fd);
  } while (result != 0 && errno == EINTR);
  const int error = errno;
  close(fd);
  if (result != 0 && (error == EINVAL || error == EOPNOTSUPP || error == ENOSYS)) {
    *status = SystemError(error, absl::StrCat("the file system cannot sync directory ", directory.data()));
    return false;
  }
  *status = result == 0 ? absl::OkStatus() : SystemError(error, absl::StrCat("cannot sync directory ", directory.data()));
  return true;
}

Status SyncDirectoryOf(const std::string& path) {
  Status status;
  (void)TrySyncDirectoryOf(path, &status);
  return status;
}

std::string CanonicalOf(const std::string& path) {
  std::error_code error;
  const std::string canonical = std::filesystem::canonical(path, error).string();
  return error ? path : canonical;
}

Status RenameDurably(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) return PathError(errno, absl::StrCat("cannot rename ", from, " to ", to));
  return SyncDirectoryOf(to);
}

StatusOr<std::vector<std::string>> NamesIn(const std::string& directory) {
  // Not std::filesystem, which ends the process if memory runs out here.
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(directory.c_str()), &closedir);
  std::vector<std::string> names;
  const dirent* entry = nullptr;
  while (folder != nullptr && (errno = 0, entry = readdir(folder.get())) != nullptr) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return SystemError(errno, absl::StrCat("cannot read directory ", directory));
  std::ranges::sort(names);
  return names;
}

Status RefuseExisting(const std::string& path, std::string_view what) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(path, ": the file exists; ", ToAbsl(what), " creates a new one"));
}

Status RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) != 0) return PathError(errno, absl::StrCat("cannot remove ", path));
  return absl::OkStatus();
}

}  // namespace hako
