// Accesses to a device as the system counts them: the bytes of this process, from /proc, with those
// of its major faults, and the number of all accesses to the device.
#pragma once

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "support/file_system.h"

namespace hako {

struct SystemCounts {
  std::uint64_t read_bytes = 0, written_bytes = 0, reads = 0, writes = 0;
  long major_faults = 0;  // pages of the program that were no longer in memory were read

  static std::optional<SystemCounts> Of(const std::string& path) {
    SystemCounts counts;
    std::ifstream io("/proc/self/io");
    for (std::string name; io >> name;) {
      std::uint64_t number;
      io >> number;
      if (name == "read_bytes:") counts.read_bytes = number;
      if (name == "write_bytes:") counts.written_bytes = number;
    }
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    counts.major_faults = usage.ru_majflt;
    const dev_t device = StatOf(path).st_dev;
    std::ifstream stat("/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device)) + "/stat");
    std::uint64_t merged, sectors, milliseconds;
    if (!(stat >> counts.reads >> merged >> sectors >> milliseconds >> counts.writes)) return std::nullopt;
    return counts;
  }
};

}  // namespace hako
