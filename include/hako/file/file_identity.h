// Which page cache of which file: what tells a killed process's successor whether the kernel still holds all that was stored.
//
// Stores through a map live in the page cache, which goes with the boot and with the mounted file system: after an unmount or a shutdown of
// the file system some of them may never have reached the device. So an identity names the boot, the mounted file system and the inode.
// Other bytes that are written over a file within the same boot do not change it.
#pragma once

#include <sys/stat.h>

#include "hako/file/file.h"

namespace hako {

// The identity of the open file `fd`, whose fstat is `opened`.
FileIdentity IdentityOf(int fd, const struct stat& opened);

}  // namespace hako
