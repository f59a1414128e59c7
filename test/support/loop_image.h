// A file system in an image file, mounted for one test, for file systems that this machine does not
// use. Mounting requires privileges and a loop device; without them the test is skipped with the
// reason.
//   LoopImage image("xfs");
//   if (!image.is_mounted()) GTEST_SKIP() << image.reason();
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "support/file_system.h"
#include "support/temp_dir.h"

namespace hako {

class LoopImage {
 public:
  static constexpr std::uint64_t kSize = std::uint64_t{320} << 20;  // xfs takes no less; the image is sparse

  // `type` is one that Maker supports, or "tmpfs", which needs no image.
  explicit LoopImage(std::string_view type) : type_(type) {
    std::filesystem::create_directory(folder_);
    if (type == "tmpfs") {
      is_mounted_ = Mount();
      return;
    }
    WriteWhole(image_, "");
    std::error_code error;
    std::filesystem::resize_file(image_, kSize, error);
    if (error || !Runs(Maker(type_) + " " + image_)) {
      reason_ = "cannot make a file system of type " + type_;
      return;
    }
    is_mounted_ = Mount();
  }
  LoopImage(const LoopImage&) = delete;
  LoopImage& operator=(const LoopImage&) = delete;
  ~LoopImage() {
    if (is_mounted_ && !Runs("umount " + folder_)) Runs("umount -l " + folder_);
  }

  bool is_mounted() const { return is_mounted_; }
  const std::string& reason() const { return reason_; }  // why it is not
  const std::string& folder() const { return folder_; }
  std::string File(std::string_view name) const { return folder_ + "/" + std::string(name); }

  // REQUIRES: no file is open there
  bool Remount() {
    // A process that was killed just now may hold it a little longer.
    for (int i = 0; !Runs("umount " + folder_); ++i) {
      if (i == 300) return false;
      usleep(100'000);
    }
    return Mount();
  }

 private:
  static std::string Maker(const std::string& type) {
    if (type == "ext2") return "mkfs.ext2 -q -F";
    if (type == "ext4") return "mkfs.ext4 -q -F";
    if (type == "xfs") return "mkfs.xfs -q -f";
    if (type == "btrfs") return "mkfs.btrfs -q -f";
    return "false";
  }
  static bool Runs(const std::string& command) {
    return std::system(("PATH=$PATH:/usr/sbin:/sbin " + command + " >/dev/null 2>&1").c_str()) == 0;
  }
  bool Mount() {
    is_mounted_ = type_ == "tmpfs" ? Runs("mount -t tmpfs -o size=256m tmpfs " + folder_) : Runs("mount -o loop " + image_ + " " + folder_);
    if (!is_mounted_) reason_ = "cannot mount a file system of type " + type_;
    return is_mounted_;
  }

  const std::string type_;
  TempDir dir_{TempDir::MemoryParent()};
  const std::string image_ = dir_.File("image"), folder_ = dir_.File("mounted");
  std::string reason_;
  bool is_mounted_ = false;
};

}  // namespace hako
