#include "hako/file/replace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "hako/base/random_seed.h"
#include "hako/file/path.h"
#include "hako/file/positional_io.h"

namespace hako {
namespace {

namespace fs = std::filesystem;

// Follows symbolic links at the end of `path`, even one that leads to no file, and resolves the
// folder.
StatusOr<std::string> ResolveLinks(const std::string& path) {
  constexpr int kLinksMax = 40;  // the kernel's limit
  const std::string what = absl::StrCat("cannot replace ", path);
  std::error_code error;
  fs::path file = fs::absolute(path, error);
  for (int links = 0; !error; ++links) {
    const fs::path folder = fs::canonical(file.parent_path(), error);
    if (error) break;
    file = folder / file.filename();
    std::error_code is_no_link;
    const fs::path to = fs::read_symlink(file, is_no_link);
    if (is_no_link) return file.string();
    if (links == kLinksMax) error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
    file = folder / to;
  }
  if (error.value() == ENOENT) {
    return absl::FailedPreconditionError(absl::StrCat(what, ": there is no directory ", file.parent_path().string()));
  }
  return SystemError(error.value(), what);
}

}  // namespace

FileReplacement& FileReplacement::operator=(FileReplacement&& other) noexcept {
  if (this == &other) return *this;
  Abandon();
  target_ = std::move(other.target_);
  path_ = std::exchange(other.path_, {});
  fd_ = std::exchange(other.fd_, -1);
  old_ = other.old_;
  old_fd_ = std::exchange(other.old_fd_, -1);
  lock_ = std::move(other.lock_);
  return *this;
}

void FileReplacement::Abandon() {
  if (!path_.empty()) unlink(path_.c_str());
  path_.clear();
  if (fd_ >= 0) close(std::exchange(fd_, -1));
  lock_.reset();  // before its descriptor is closed
  if (old_fd_ >= 0) close(std::exchange(old_fd_, -1));
}

StatusOr<FileReplacement> FileReplacement::Begin(const std::string& path, std::chrono::milliseconds lock_timeout,
                                                 std::optional<FileLock::Key> held) {
  FileReplacement replacement;
  HAKO_ASSIGN_OR_RETURN(replacement.target_, ResolveLinks(path));
  const auto deadline = std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(lock_timeout, std::chrono::hours(24 * 365));
  for (bool is_locked = false; !is_locked;) {
    HAKO_ASSIGN_OR_RETURN(is_locked, replacement.LockOld(deadline, held));
  }
  HAKO_RETURN_IF_ERROR(replacement.CreateNew());
  return replacement;
}

// Returns false if the name was given to another file while this thread waited for the lock.
StatusOr<bool> FileReplacement::LockOld(std::chrono::steady_clock::time_point deadline, std::optional<FileLock::Key> held) {
  const std::string what = absl::StrCat("cannot replace ", target_);
  struct stat named;
  old_.reset();
  if (lstat(target_.c_str(), &named) != 0) {
    if (errno == ENOENT) return true;
    return SystemError(errno, what);
  }
  if (!S_ISREG(named.st_mode)) return absl::InvalidArgumentError(absl::StrCat(target_, " is not a regular file"));
  old_ = {.mode = named.st_mode & 07777, .owner = named.st_uid, .group = named.st_gid};
  const FileLock::Key key = {.device = named.st_dev, .inode = named.st_ino};
  if (held == key) return true;
  old_fd_ = open(target_.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (old_fd_ < 0 && errno == ENOENT) return false;
  if (old_fd_ < 0) return SystemError(errno, what);
  struct stat opened;
  if (fstat(old_fd_, &opened) != 0) return SystemError(errno, what);
  const FileLock::Key opened_key = {.device = opened.st_dev, .inode = opened.st_ino};
  auto lock = std::make_unique<FileLock>();
  if (opened_key == key) HAKO_RETURN_IF_ERROR(lock->Acquire(old_fd_, key, /*writer=*/true, deadline, target_));
  if (opened_key == key && lstat(target_.c_str(), &named) == 0 && named.st_dev == key.device && named.st_ino == key.inode) {
    lock_ = std::move(lock);
    return true;
  }
  lock.reset();
  close(std::exchange(old_fd_, -1));
  return false;
}

Status FileReplacement::CreateNew() {
  constexpr std::size_t kStemMax = 200;  // a name may have 255 bytes
  const fs::path target(target_);
  const std::string stem = target.filename().string().substr(0, kStemMax);
  const mode_t mode = old_ ? 0600 : 0644;
  int created;
  do {
    const auto number = static_cast<std::uint32_t>(RandomSeed());
    path_ = (target.parent_path() / absl::StrCat(stem, ".", absl::Hex(number, absl::kZeroPad8), ".hako-new")).string();
    created = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  } while (created < 0 && (errno == EEXIST || errno == EINTR));
  const int error = errno;
  fd_ = MoveAboveStandardStreams(created);
  if (fd_ >= 0) return absl::OkStatus();
  if (created < 0) path_.clear();  // there is no new file to remove
  return SystemError(created < 0 ? error : errno, absl::StrCat("cannot create a new file for ", target_));
}

// Never grants more than the old file did: if the group cannot be kept, the new group gets the
// permissions of others. The access list is the one that setfacl(1) makes.
Status FileReplacement::TakeOverPermissions() const {
  if (!old_) return absl::OkStatus();
  constexpr const char* kAccessList = "system.posix_acl_access";
  const std::string what = absl::StrCat("cannot keep the permissions of ", target_);
  unsigned mode = old_->mode;
  struct stat mine;
  if (fstat(fd_, &mine) != 0) return SystemError(errno, what);
  if ((mine.st_uid != old_->owner || mine.st_gid != old_->group) && fchown(fd_, old_->owner, old_->group) != 0) {
    mode &= 0777;  // drops set-user-id and the like, which were meant for another owner
    if (mine.st_gid != old_->group && fchown(fd_, static_cast<uid_t>(-1), old_->group) != 0) mode = (mode & 0707) | (mode & 07) << 3;
  }
  if (fchmod(fd_, mode) != 0) return SystemError(errno, what);
  std::array<char, 4096> list;
  const ssize_t size = getxattr(target_.c_str(), kAccessList, list.data(), list.size());
  if (size > 0 && fsetxattr(fd_, kAccessList, list.data(), static_cast<std::size_t>(size), 0) != 0) return SystemError(errno, what);
  return absl::OkStatus();
}

Status FileReplacement::Commit() {
  HAKO_RETURN_IF_ERROR(TakeOverPermissions());
  int result;
  do {
    result = fsync(fd_);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return SystemError(errno, absl::StrCat("cannot sync ", path_));
  struct stat mine, named;
  if (fstat(fd_, &mine) != 0) return SystemError(errno, absl::StrCat("cannot stat ", path_));
  if (lstat(path_.c_str(), &named) != 0 || mine.st_dev != named.st_dev || mine.st_ino != named.st_ino) {
    return absl::FailedPreconditionError(absl::StrCat(path_, " was removed or replaced while it was written"));
  }
  const Status renamed = RenameDurably(path_, target_);
  if (lstat(path_.c_str(), &named) != 0) path_.clear();  // the rename has taken effect, though a power cut may still undo it
  return renamed;
}

}  // namespace hako
