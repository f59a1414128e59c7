// A temporary directory, by default under $TMPDIR or /tmp, removed with its content at the end of
// the scope.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "hako/base/assert.h"

namespace hako {

class TempDir {
 public:
  TempDir() : TempDir(DefaultParent()) {}
  explicit TempDir(const std::string& parent) : path_(parent + "/hako-XXXXXX") { HAKO_ASSERT(mkdtemp(path_.data()) != nullptr); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  static std::string DefaultParent() {
    const char* parent = std::getenv("TMPDIR");
    return parent != nullptr && *parent != '\0' ? parent : "/tmp";
  }

  // Where files are in memory, so that a sync takes no time, if the system has such a place.
  static std::string MemoryParent() { return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : DefaultParent(); }

  const std::string& path() const { return path_; }

  // The path of a file of that name in the directory.
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

}  // namespace hako
