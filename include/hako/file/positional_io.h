// Whole transfers at an offset: pread and pwrite until complete. Hides short transfers,
// interruptions and the system's limit of 2 GiB.
//
// Both return 0 or an errno value: EIO if the file ends too early or a write makes no progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hako/base/language.h"

namespace hako {

int ReadFully(int fd, std::uint64_t offset, std::span<std::byte> out);
int WriteFully(int fd, std::uint64_t offset, std::span<const std::byte> in);

// Returns `fd`. If it is the descriptor of standard input, output or error, replaces it by a copy
// with another number, because a stray print would overwrite a database. Returns -1, with errno, if
// `fd` is -1 or no descriptor is left.
int MoveAboveStandardStreams(int fd);

}  // namespace hako
