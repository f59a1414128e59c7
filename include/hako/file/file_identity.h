// Identifies a file and its page cache: tells the successor of a killed process whether the kernel
// still holds all its stores.
//
// Stores through a map live in the page cache, which ends with the boot and with the mount: after
// an unmount or a shutdown of the file system some of them may never have reached the device. So an
// identity names the boot, the mounted file system and the inode. Overwriting a file with other
// bytes within one boot does not change it.
#pragma once

#include <sys/stat.h>

#include "hako/file/file.h"

namespace hako {

// Returns the identity of the open file `fd`, whose fstat is `opened`. ResourceExhausted if there is no
// descriptor left to find it out.
StatusOr<FileIdentity> IdentityOf(int fd, const struct stat& opened);

}  // namespace hako
