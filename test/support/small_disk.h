// A small file system to be filled: a tmpfs mounted for one test. Mounting requires privileges;
// without them the test is skipped.
//   SmallDisk disk(1 << 20);
//   if (!disk.is_mounted()) GTEST_SKIP() << "cannot mount a small file system";
#pragma once

#include <sys/mount.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "support/temp_dir.h"

namespace hako {

class SmallDisk {
 public:
  explicit SmallDisk(std::uint64_t size) {
    is_mounted_ = mount("tmpfs", dir_.path().c_str(), "tmpfs", 0, ("size=" + std::to_string(size)).c_str()) == 0;
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (is_mounted_) umount2(dir_.path().c_str(), MNT_DETACH);
  }

  bool is_mounted() const { return is_mounted_; }
  bool Enlarge(std::uint64_t size) {
    return mount("tmpfs", dir_.path().c_str(), "tmpfs", MS_REMOUNT, ("size=" + std::to_string(size)).c_str()) == 0;
  }
  std::string File(std::string_view name) const { return dir_.File(name); }

 private:
  TempDir dir_;
  bool is_mounted_ = false;
};

}  // namespace hako
