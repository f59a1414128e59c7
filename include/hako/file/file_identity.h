// Identifies a file and its page cache: tells the successor of a killed process whether the kernel
// still holds all its stores.
//
// Stores through a map live in the page cache. It ends with the boot, and when the file system is
// unmounted or shut down; some writes may never have reached the device then. So an identity names
// the boot, the mounted file system and the inode, with the inode's generation and creation time.
// Overwriting a file with other bytes within one boot does not change it.
//
// An identity names the file system rather than the mount, because one file system may be mounted
// many times: a container that is started again reaches its files through another mount.
//   ext4, xfs, btrfs  the inode number of its folder in /sys/fs, which changes each time that it is
//                     mounted
//   tmpfs             its f_fsid, which is random for each instance; its bytes end with it
//   overlay           its f_fsid, and that no file system of the first line was mounted since: so
//                     the one below it was not, either. An overlay over other file systems is taken
//                     to be the same.
//   others            the mount
#pragma once

#include <sys/stat.h>

#include "hako/file/file.h"

namespace hako {

// Returns the identity of the open file `fd`, whose fstat is `opened`. Returns ResourceExhausted if
// it finds no free descriptor.
StatusOr<FileIdentity> IdentityOf(int fd, const struct stat& opened);

}  // namespace hako
