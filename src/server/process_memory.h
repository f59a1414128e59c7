// The resident memory of this process.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace hako::server {

inline std::uint64_t ResidentBytes() {
  unsigned long pages = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "r"); file != nullptr) {
    if (std::fscanf(file, "%*u %lu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace hako::server
