// Identifies a file and its page cache. A process that opens the file of a killed process can tell
// by it whether the kernel still holds all stores of that process.
//
// Stores through a map live in the page cache. The page cache is lost at the end of the boot, and
// when the file system is unmounted or shut down, and some writes may never have reached the
// device. So an identity names the boot, the mounted file system and the inode, with the inode's
// generation and creation time. Overwriting a file with other bytes within one boot does not change
// it.
//
// An identity names the file system rather than the mount, because one file system may be mounted
// many times: a container that is started again reaches its files through another mount.
//   ext4, xfs, btrfs  the inode number of the file system's folder in /sys/fs, which changes at
//                     each mount
//   tmpfs             its f_fsid, which is random for each instance; the bytes are lost with the
//                     instance
//   overlay           its f_fsid, and that no ext4, xfs or btrfs was mounted since, so the one
//                     below the overlay was not mounted again. An overlay over other file systems
//                     counts as the same.
//   others            the mount
#pragma once

#include <sys/stat.h>

#include "hako/file/file.h"

namespace hako {

// Returns the identity of the open file `fd`, whose fstat is `opened`. Returns ResourceExhausted if
// it finds no free descriptor.
StatusOr<FileIdentity> IdentityOf(int fd, const struct stat& opened);

}  // namespace hako
