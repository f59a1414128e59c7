#include "hako/file/file_identity.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "hako/base/hash.h"
#include "hako/file/positional_io.h"

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000U
#endif
#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000U
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
  // A lack of descriptors or memory passes; it must not make another boot of this one.
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
  if (digit_count != 32) {  // without /proc: an id that no other process has, so that no two opens are taken for the same boot
    std::random_device random;
    for (std::byte& byte : id) byte = static_cast<std::byte>(random());
  }
  return id;
}

// The folder of the mounted file system below /sys/fs, as "ext4/sda1"; empty where there is none or
// its name is not known.
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
  if (static_cast<unsigned long>(info.f_type) == EXT4_SUPER_MAGIC) type = "ext4/";  // that of ext2 and ext3 too
  if (static_cast<unsigned long>(info.f_type) == XFS_SUPER_MAGIC) type = "xfs/";
  if (type.empty()) return {};
  std::array<char, 512> target;
  const std::string link = "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
  const ssize_t size = readlink(link.c_str(), target.data(), target.size());
  if (size <= 0) return {};
  const std::string_view whole(target.data(), static_cast<std::size_t>(size));
  return std::string(type) + std::string(whole.substr(whole.rfind('/') + 1));
}

// A number that the file system has from mount to unmount, and that no other one gets in this boot;
// 0 where the system tells none.
std::uint64_t MountedFileSystemOf(int fd, dev_t device) {
  // Its folder in sysfs has such an inode number, which bind mounts and containers share.
  if (const std::string name = SysfsNameOf(fd, device); !name.empty()) {
    const std::string path = "/sys/fs/" + name;
    struct stat folder;
    struct statfs info;
    if (statfs(path.c_str(), &info) == 0 && static_cast<unsigned long>(info.f_type) == SYSFS_MAGIC && stat(path.c_str(), &folder) == 0)
      return folder.st_ino;
  }
  // Otherwise the mount counts, although there may be several of one file system. Before Linux 6.8
  // its number may come again.
  struct statx info;
  for (const unsigned mask : {STATX_MNT_ID_UNIQUE, STATX_MNT_ID}) {
    if (statx(fd, "", AT_EMPTY_PATH, mask, &info) == 0 && (info.stx_mask & mask) != 0) return info.stx_mnt_id;
  }
  return 0;
}

// What a new file that gets the inode number of a removed one has another value of.
std::uint64_t GenerationOf(int fd) {
  std::array<int, 2> generation{};  // the kernel writes an int, although the ioctl is declared for a long
  return ioctl(fd, FS_IOC_GETVERSION, generation.data()) == 0 ? static_cast<std::uint32_t>(generation[0]) : 0;
}

}  // namespace

StatusOr<FileIdentity> IdentityOf(int fd, const struct stat& opened) {
  static std::mutex mutex;
  static std::optional<std::array<std::byte, 16>> boot_id;  // of the process: one that is made up must not change
  const std::lock_guard lock(mutex);
  if (!boot_id) {
    HAKO_ASSIGN_OR_RETURN(boot_id, ReadBootId());
  }
  FileIdentity identity = {.boot_id = *boot_id, .device = opened.st_dev, .inode = opened.st_ino};
  const std::uint64_t life = MixBits(MixBits(MountedFileSystemOf(fd, opened.st_dev)) + GenerationOf(fd));
  for (std::size_t i = 0; i < sizeof(life); ++i) identity.boot_id[i] ^= static_cast<std::byte>(life >> 8 * i);
  return identity;
}

}  // namespace hako
