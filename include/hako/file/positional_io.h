// Whole transfers at an offset: pread and pwrite until all is done. The system may transfer less than it was asked for, be interrupted,
// or refuse more than 2 GiB at once; callers of these never see that.
//
// Both return 0 or an errno value. A file that ends too early, and a write that makes no progress, are EIO.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hako {

int ReadFully(int fd, std::uint64_t offset, std::span<std::byte> out);
int WriteFully(int fd, std::uint64_t offset, std::span<const std::byte> in);

// `fd`, or a copy of it in its place where it is that of standard input, output or error: a stray print
// would land in a database. -1, with errno, where `fd` is that or there is no descriptor left.
int MoveAboveStandardStreams(int fd);

}  // namespace hako
