// The functions of failing_calls.h, to be included by one file of a test program. They behave as
// usual until a fault is armed.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include "support/failing_calls.h"

namespace hako::internal {

inline constexpr std::size_t kPartOfATransfer = 512;

template <class Call>
ssize_t TransferOrFail(CallKind kind, const iovec* parts, int count, Call call) {
  CallFault::How how;
  int error;
  if (!FailingCalls::Instance().Next(kind, &how, &error)) return call(parts, count);
  if (how != CallFault::How::kPartial) {
    errno = how == CallFault::How::kInterrupted ? EINTR : error;
    return -1;
  }
  // The first part, or half of it if that is more, in whole sectors.
  const std::size_t half = parts[0].iov_len / 2 / kPartOfATransfer * kPartOfATransfer;
  const iovec first = {parts[0].iov_base, std::max(half, std::min(kPartOfATransfer, parts[0].iov_len))};
  return call(&first, 1);
}

template <class Call>
int DoOrFail(CallKind kind, Call call) {
  CallFault::How how;
  int error;
  if (!FailingCalls::Instance().Next(kind, &how, &error)) return call();
  errno = how == CallFault::How::kInterrupted ? EINTR : error;
  return -1;
}

// Tests with faults have no power cuts, so while faults are armed syncs need not reach the device.
inline int SyncOrNot(int fd, long number) { return FailingCalls::Instance().armed() ? 0 : static_cast<int>(syscall(number, fd)); }

// The transfers that wait to be submitted, which are all of one kind.
inline CallKind KindOfSubmitted(const io_uring* ring, CallKind otherwise) {
  if (ring->sq.sqe_head == ring->sq.sqe_tail) return otherwise;
  return ring->sq.sqes[ring->sq.sqe_head & *ring->sq.kring_mask].opcode == IORING_OP_READV ? CallKind::kRead : CallKind::kWrite;
}

// A complete transfer is reported as failed or partial; the caller must repeat it, or the rest.
inline void ChangeCompletions(io_uring* ring, CallKind kind) {
  unsigned head = *ring->cq.khead;
  const unsigned tail = io_uring_smp_load_acquire(ring->cq.ktail);
  for (; head != tail; ++head) {
    io_uring_cqe& completion = ring->cq.cqes[head & *ring->cq.kring_mask];
    CallFault::How how;
    int error;
    if (completion.res <= 0 || !FailingCalls::Instance().Next(kind, &how, &error, true)) continue;
    const int part = completion.res / 2 / static_cast<int>(kPartOfATransfer) * static_cast<int>(kPartOfATransfer);
    completion.res = how == CallFault::How::kInterrupted ? -EINTR : how == CallFault::How::kFails ? -error : part;
  }
}

}  // namespace hako::internal

extern "C" {

ssize_t preadv(int fd, const iovec* parts, int count, off_t at) {
  return hako::internal::TransferOrFail(hako::CallKind::kRead, parts, count, [fd, at](const iovec* some, int so_many) {
    return static_cast<ssize_t>(syscall(SYS_preadv, fd, some, so_many, at, 0));
  });
}

ssize_t pwritev(int fd, const iovec* parts, int count, off_t at) {
  return hako::internal::TransferOrFail(hako::CallKind::kWrite, parts, count, [fd, at](const iovec* some, int so_many) {
    return static_cast<ssize_t>(syscall(SYS_pwritev, fd, some, so_many, at, 0));
  });
}

int fdatasync(int fd) {
  return hako::internal::DoOrFail(hako::CallKind::kSync, [fd] { return hako::internal::SyncOrNot(fd, SYS_fdatasync); });
}

int fsync(int fd) {
  const auto on_fsync = hako::FailingCalls::Instance().on_fsync.load();
  if (on_fsync != nullptr) return on_fsync(fd), 0;
  const auto result = hako::FailingCalls::Instance().on_fsync_result.load();
  if (const int error = result != nullptr ? result(fd) : 0; error != 0) return errno = error, -1;
  return hako::internal::DoOrFail(hako::CallKind::kSync, [fd] { return hako::internal::SyncOrNot(fd, SYS_fsync); });
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
  return hako::internal::DoOrFail(hako::CallKind::kLengthen,
                                  [=] { return static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, size)); });
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const unsigned mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, unsigned) : 0;
  va_end(arguments);
  return hako::internal::DoOrFail(hako::CallKind::kName,
                                  [=] { return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode)); });
}

int ftruncate(int fd, off_t size) noexcept {
  return hako::internal::DoOrFail(hako::CallKind::kRemove, [=] { return static_cast<int>(syscall(SYS_ftruncate, fd, size)); });
}

int rename(const char* from, const char* to) noexcept {
  return hako::internal::DoOrFail(hako::CallKind::kName, [=] { return static_cast<int>(syscall(SYS_rename, from, to)); });
}

int unlink(const char* path) noexcept {
  return hako::internal::DoOrFail(hako::CallKind::kRemove, [=] { return static_cast<int>(syscall(SYS_unlink, path)); });
}

int msync(void* pages, size_t size, int flags) {
  return hako::internal::DoOrFail(hako::CallKind::kName, [=] {
    return hako::FailingCalls::Instance().armed() ? 0 : static_cast<int>(syscall(SYS_msync, pages, size, flags));
  });
}

int io_uring_queue_init(unsigned entries, io_uring* ring, unsigned flags) {
  if (hako::FailingCalls::Instance().refuses_rings()) return -EPERM;
  static const auto real = reinterpret_cast<int (*)(unsigned, io_uring*, unsigned)>(dlsym(RTLD_NEXT, "io_uring_queue_init"));
  return real != nullptr ? real(entries, ring, flags) : -ENOSYS;
}

int io_uring_submit_and_wait(io_uring* ring, unsigned count) {
  static const auto real = reinterpret_cast<int (*)(io_uring*, unsigned)>(dlsym(RTLD_NEXT, "io_uring_submit_and_wait"));
  if (real == nullptr) return -ENOSYS;
  static thread_local hako::CallKind kind = hako::CallKind::kRead;
  kind = hako::internal::KindOfSubmitted(ring, kind);
  if (const int error = hako::FailingCalls::Instance().NextSubmissionError(); error != 0) return -error;
  const int result = real(ring, count);
  if (hako::FailingCalls::Instance().armed()) hako::internal::ChangeCompletions(ring, kind);
  return result;
}

}  // extern "C"
