#include "tool/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

#include "hako/format/array_format.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/snapshot_format.h"
#include "hako/format/tree_file_format.h"
#include "tool/command.h"

namespace hako::tool {
namespace {

constexpr char kIsDirectory[] = "is a directory";

// Closes the file, but leaves standard streams open.
Status CloseFile(int* fd) {
  const int closed = std::exchange(*fd, -1);
  return closed <= STDERR_FILENO || close(closed) == 0 ? absl::OkStatus() : SystemError(errno, "cannot close");
}

}  // namespace

bool IsSameFile(const std::string& a, const std::string& b) {
  struct stat x;
  struct stat y;
  return stat(a.c_str(), &x) == 0 && stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool HoldsDatabase(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  std::array<char, 16> head{};
  const ssize_t size = pread(fd, head.data(), head.size(), 0);
  close(fd);
  return size == ssize_t{head.size()} && (head == format::kHashFileMagic || head == format::kTreeFileMagic ||
                                          head == format::kArrayFileMagic || head == format::kSnapshotMagic);
}

bool IsNamedAsDatabase(std::string_view path) {
  constexpr std::string_view kSuffixes[] = {".hkh", ".hkt", ".hka", ".hks", ".hktb"};
  return std::any_of(std::begin(kSuffixes), std::end(kSuffixes), [path](std::string_view suffix) { return path.ends_with(suffix); });
}

int FailText(const std::string& name, const Status& status) {
  if (absl::IsInvalidArgument(status) && status.message() != kIsDirectory) {  // the text is malformed
    Complain(absl::StrCat(name, ": ", status.message(), "; what is before it is stored, so mend this place and import the text again"));
    return kExitFile;
  }
  if (!absl::IsNotFound(status)) return Fail(name, status);
  Complain(absl::StrCat(name, ": no such file or directory; check the name"));
  return kExitFile;
}

TextInput::~TextInput() { (void)CloseFile(&fd_); }

Status TextInput::Open(const std::string& path) {
  name_ = IsStandardStream(path) ? "standard input" : path;
  fd_ = STDIN_FILENO;
  if (IsStandardStream(path)) return absl::OkStatus();
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) return absl::ErrnoToStatus(errno, "cannot open");
  struct stat info;
  if (fstat(fd_, &info) == 0 && S_ISDIR(info.st_mode)) return absl::InvalidArgumentError(kIsDirectory);
  return absl::OkStatus();
}

StatusOr<std::size_t> TextInput::Read(const Interrupt& interrupt, std::span<char> buffer) const {
  while (true) {
    HAKO_RETURN_IF_ERROR(interrupt.Wait(fd_, Interrupt::For::kReading));
    const ssize_t size = read(fd_, buffer.data(), buffer.size());
    if (size >= 0) return static_cast<std::size_t>(size);
    if (errno != EINTR && errno != EAGAIN) return SystemError(errno, "cannot read");
  }
}

std::uint64_t TextInput::Remaining() const {
  struct stat info;
  const off_t offset = lseek(fd_, 0, SEEK_CUR);
  if (fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode) || offset < 0) return 0;
  return static_cast<std::uint64_t>(std::max<off_t>(0, info.st_size - offset));
}

TextOutput::~TextOutput() { (void)CloseFile(&fd_); }

Status TextOutput::Open(const std::string& path) {
  name_ = IsStandardStream(path) ? "standard output" : path;
  fd_ = STDOUT_FILENO;
  if (IsStandardStream(path)) return absl::OkStatus();
  fd_ = -1;
  struct stat info;
  const bool is_there = stat(path.c_str(), &info) == 0;
  if (is_there && S_ISDIR(info.st_mode)) return absl::InvalidArgumentError(kIsDirectory);
  if (!is_there || S_ISREG(info.st_mode)) {
    HAKO_ASSIGN_OR_RETURN(replacement_, FileReplacement::Begin(path));
    return absl::OkStatus();
  }
  fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  return fd_ >= 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "cannot open");
}

// Writes to a pipe in pieces that fit, so that a signal need not wait for the reader of the pipe.
Status TextOutput::Write(const Interrupt& interrupt, std::string_view bytes) {
  const int fd = replacement_ ? replacement_->fd() : fd_;
  while (!bytes.empty()) {
    if (!replacement_) HAKO_RETURN_IF_ERROR(interrupt.Wait(fd, Interrupt::For::kWriting));
    const ssize_t size = write(fd, bytes.data(), replacement_ ? bytes.size() : std::min<std::size_t>(bytes.size(), PIPE_BUF));
    if (size < 0 && errno != EINTR && errno != EAGAIN) return WriteError(errno);
    if (size > 0) bytes.remove_prefix(static_cast<std::size_t>(size));
  }
  return absl::OkStatus();
}

Status TextOutput::Commit() { return replacement_ ? replacement_->Commit() : CloseFile(&fd_); }

}  // namespace hako::tool
