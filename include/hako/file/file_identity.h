// Identifies a file and its page cache: tells the successor of a killed process whether the kernel
// still holds all its stores.
//
// Stores through a map live in the page cache, which ends with the boot and when the file system is
// unmounted: after that, or after its shutdown, some of them may never have reached the device. So an
// identity names the boot, the mounted file system and the inode, with its generation and the time of
// its creation. Overwriting a file with other bytes within one boot does not change it.
//
// Not the mount counts, but the file system, which many mounts show: a container that is started again
// reaches its files through another one.
//   ext4, xfs, btrfs  the inode number of its folder in /sys/fs, which is new at each mount of it
//   tmpfs             its f_fsid, which is random; its bytes end with it
//   overlay           its f_fsid, and that no file system of the first line was mounted since: so the
//                     one that has the bytes was not, either. One with the bytes elsewhere is believed.
//   others            the mount
#pragma once

#include <sys/stat.h>

#include "hako/file/file.h"

namespace hako {

// Returns the identity of the open file `fd`, whose fstat is `opened`. ResourceExhausted if there is no
// descriptor left to find it out.
StatusOr<FileIdentity> IdentityOf(int fd, const struct stat& opened);

}  // namespace hako
