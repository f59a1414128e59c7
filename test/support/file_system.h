// Reads and writes files independently of hako.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "hako/base/assert.h"

namespace hako {

inline struct stat StatOf(const std::string& path) {
  struct stat status = {};
  HAKO_ASSERT(stat(path.c_str(), &status) == 0);
  return status;
}

inline std::string ReadWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string content;
  for (std::size_t size = 0; in; content.resize(size)) {
    content.resize(size + (1 << 20));
    size += static_cast<std::size_t>(in.read(content.data() + size, 1 << 20).gcount());
  }
  return content;
}

inline void WriteWhole(const std::string& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  HAKO_ASSERT(out.flush().good());
}

// How many descriptors of this process are open on `path`, by the name it was opened by.
inline int CountDescriptors(const std::string& path) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    count += std::filesystem::read_symlink(entry, error) == path;
  return count;
}

}  // namespace hako
