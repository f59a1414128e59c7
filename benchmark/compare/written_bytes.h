// What a process has had written to disk, and what all processes together have.
#pragma once

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace hako::compare {

struct WrittenBytes {
  // Of pages that this process has made dirty (/proc/self/io), whether they are written yet or not.
  // The file system's journal is not in it. A page is counted with all of its folio, which where a
  // file system has large ones makes it too much for engines that overwrite pages in place.
  std::uint64_t process = 0;
  // Of the device that has `path`, by all processes and the kernel; 0 if it has none, as a tmpfs.
  std::uint64_t device = 0;

  static WrittenBytes Now(const std::string& path) {
    WrittenBytes written;
    std::ifstream io("/proc/self/io");
    for (std::string name; io >> name;) {
      std::uint64_t value = 0;
      io >> value;
      if (name == "write_bytes:") written.process = value;
    }
    struct stat facts;
    if (stat(path.c_str(), &facts) != 0) return written;
    std::ifstream device("/sys/dev/block/" + std::to_string(major(facts.st_dev)) + ":" + std::to_string(minor(facts.st_dev)) + "/stat");
    std::uint64_t field = 0;
    for (int i = 0; i < 7 && device >> field; ++i) written.device = i == 6 ? field * 512 : 0;
    return written;
  }
  WrittenBytes operator-(const WrittenBytes& other) const { return {process - other.process, device - other.device}; }
};

}  // namespace hako::compare
