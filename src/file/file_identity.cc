#include "hako/file/file_identity.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "hako/base/hash.h"
#include "hako/file/positional_io.h"
#include "hako/sync/mutex.h"

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000U
#endif
#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000U
#endif
#ifndef OVERLAYFS_SUPER_MAGIC
#define OVERLAYFS_SUPER_MAGIC 0x794c7630
#endif
#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

namespace hako {
namespace {

struct SysfsPath {  // struct fs_sysfs_path of newer kernel headers
  std::uint8_t size;
  std::array<char, 128> name;
};
constexpr unsigned long kGetSysfsPath = _IOR(0x15, 1, SysfsPath);

StatusOr<std::array<std::byte, 16>> ReadBootId() {
  std::array<std::byte, 16> id{};
  std::array<std::byte, 36> text{};  // 8-4-4-4-12 hexadecimal digits
  const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  // A lack of descriptors or memory is temporary; it must not make this boot look like another one.
  if (fd < 0 && CodeOfSystemError(errno) == absl::StatusCode::kResourceExhausted)
    return SystemError(errno, "cannot read the id of the boot");
  std::size_t digit_count = 0;
  if (fd >= 0) {
    if (ReadFully(fd, 0, text) == 0) {
      for (const std::byte byte : text) {
        const char c = std::to_integer<char>(byte);
        const std::size_t digit = std::string_view("0123456789abcdef").find(c);
        if (digit == std::string_view::npos || digit_count == 32) continue;
        id[digit_count / 2] |= static_cast<std::byte>(digit_count % 2 == 0 ? digit << 4 : digit);
        ++digit_count;
      }
    }
    close(fd);
  }
  if (digit_count != 32) {  // without /proc: a random id, so that no two processes seem to be of the same boot
    std::random_device random;
    for (std::byte& byte : id) byte = static_cast<std::byte>(random());
  }
  return id;
}

// Returns the folder of the mounted file system below /sys/fs, such as "ext4/sda1"; empty if there
// is none or its name is unknown.
std::string SysfsNameOf(int fd, dev_t device) {
  SysfsPath path{};
  if (ioctl(fd, kGetSysfsPath, &path) == 0 && path.size <= path.name.size()) return std::string(path.name.data(), path.size);
  struct statfs info;
  if (fstatfs(fd, &info) != 0) return {};
  if (static_cast<unsigned long>(info.f_type) == BTRFS_SUPER_MAGIC) {
    btrfs_ioctl_fs_info_args args{};
    if (ioctl(fd, BTRFS_IOC_FS_INFO, &args) != 0) return {};
    std::string name = "btrfs/";
    for (int i = 0; i < 16; ++i) {
      std::array<char, 4> hex;
      std::snprintf(hex.data(), hex.size(), "%02x", args.fsid[i]);
      if (i == 4 || i == 6 || i == 8 || i == 10) name += '-';
      name += hex.data();
    }
    return name;
  }
  std::string_view type;
  if (static_cast<unsigned long>(info.f_type) == EXT4_SUPER_MAGIC) type = "ext4/";  // ext2 and ext3 have the same number
  if (static_cast<unsigned long>(info.f_type) == XFS_SUPER_MAGIC) type = "xfs/";
  if (type.empty()) return {};
  std::array<char, 512> target;
  const std::string link = "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
  const ssize_t size = readlink(link.c_str(), target.data(), target.size());
  if (size <= 0) return {};
  const std::string_view whole(target.data(), static_cast<std::size_t>(size));
  return std::string(type) + std::string(whole.substr(whole.rfind('/') + 1));
}

bool IsOnSysfs(const std::string& path) {
  struct statfs info;
  return statfs(path.c_str(), &info) == 0 && static_cast<unsigned long>(info.f_type) == SYSFS_MAGIC;
}

// Returns a number that changes whenever a file system on a device is mounted: the largest inode
// number of the folders of mounted file systems, because these numbers only grow. Returns 0 if
// there is no such number.
std::uint64_t NewestFileSystem() {
  std::uint64_t newest = 0;
  for (const char* const type : {"/sys/fs/ext4", "/sys/fs/xfs", "/sys/fs/btrfs", "/sys/fs/f2fs"}) {
    if (!IsOnSysfs(type)) continue;
    DIR* const folder = opendir(type);
    if (folder == nullptr) {
      if (errno != ENOENT) return 0;
      continue;
    }
    while (const dirent* const entry = readdir(folder)) {
      if (entry->d_name[0] != '.') newest = std::max<std::uint64_t>(newest, entry->d_ino);
    }
    closedir(folder);
  }
  return newest;
}

// Identifies a mounted file system. `number` stays the same from mount to unmount, and no other
// file system has it in this boot; 0 = there is no such number. `device` is set if the number is
// not that of the mount.
struct FileSystemLife {
  std::uint64_t number = 0, device = 0;
};

FileSystemLife LifeOf(int fd, dev_t device) {
  struct statfs system;
  if (fstatfs(fd, &system) == 0) {
    const auto type = static_cast<unsigned long>(system.f_type);
    const std::uint64_t id = static_cast<std::uint32_t>(system.f_fsid.__val[0]) |
                             static_cast<std::uint64_t>(static_cast<std::uint32_t>(system.f_fsid.__val[1])) << 32;
    if (type == TMPFS_MAGIC && id != 0) return {id, id};
    if (type == OVERLAYFS_SUPER_MAGIC && id != 0) {
      if (const std::uint64_t newest = NewestFileSystem(); newest != 0) return {newest, id};
    }
  }
  // The inode number of the folder in sysfs is such a number; bind mounts and containers share it.
  if (const std::string name = SysfsNameOf(fd, device); !name.empty()) {
    const std::string path = "/sys/fs/" + name;
    struct stat folder;
    if (IsOnSysfs(path) && stat(path.c_str(), &folder) == 0) return {folder.st_ino, device};
  }
  // Otherwise take the number of the mount, although one file system may have several mounts.
  // Before Linux 6.8 the number may be used again.
  struct statx info;
  for (const unsigned mask : {STATX_MNT_ID_UNIQUE, STATX_MNT_ID}) {
    if (statx(fd, "", AT_EMPTY_PATH, mask, &info) == 0 && (info.stx_mask & mask) != 0) return {info.stx_mnt_id, device};
  }
  return {0, device};
}

// Returns a value that tells a new file from a removed one with the same inode number: the
// generation and the creation time, as far as the file system has them.
std::uint64_t GenerationOf(int fd) {
  std::array<int, 2> generation{};  // the kernel writes an int, although the ioctl is declared for a long
  std::uint64_t number = ioctl(fd, FS_IOC_GETVERSION, generation.data()) == 0 ? static_cast<std::uint32_t>(generation[0]) : 0;
  struct statx info;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &info) == 0 && (info.stx_mask & STATX_BTIME) != 0)
    number += MixBits(static_cast<std::uint64_t>(info.stx_btime.tv_sec) * 1'000'000'000 + info.stx_btime.tv_nsec);
  return number;
}

}  // namespace

StatusOr<FileIdentity> IdentityOf(int fd, const struct stat& opened) {
  static sync::Mutex mutex;
  static std::optional<std::array<std::byte, 16>> boot_id ABSL_GUARDED_BY(mutex);  // kept, as a random id must not change
  const sync::MutexLock lock(mutex);
  if (!boot_id) {
    HAKO_ASSIGN_OR_RETURN(boot_id, ReadBootId());
  }
  const FileSystemLife system = LifeOf(fd, opened.st_dev);
  FileIdentity identity = {
      .boot_id = *boot_id, .device = system.device, .inode = opened.st_ino, .boot = Hash64(boot_id->data(), boot_id->size(), 0) | 1};
  const std::uint64_t life = MixBits(MixBits(system.number) + GenerationOf(fd));
  for (std::size_t i = 0; i < sizeof(life); ++i) identity.boot_id[i] ^= static_cast<std::byte>(life >> 8 * i);
  return identity;
}

}  // namespace hako
