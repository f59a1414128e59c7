// Makes system calls of this thread fail permanently with an error of the test's choice, by a
// seccomp filter. Threads and processes created later inherit it, so a test does this in a separate
// thread and joins it.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace hako {

// `numbers` are SYS_ constants; with `second`, only calls fail whose second argument this is. Returns
// false if the system does not allow it.
inline bool FailSystemCallsOfThisThread(const std::vector<long>& numbers, int error_number, std::optional<std::uint32_t> second = {}) {
  std::vector<sock_filter> filter;
  if (second) {
    filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + sizeof(std::uint64_t)));
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, *second, 1, 0));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (const long number : numbers) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error_number)));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog program = {.len = static_cast<unsigned short>(filter.size()), .filter = filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace hako
