// A plain array in a mapped file, and a presence bit for each record: the limit that the hardware sets. It has no lock,
// no check and no limit, and any crash may leave any of its updates.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "array.h"

namespace hako::compare {

class ArrayMapped {
 public:
  static constexpr std::string_view kName = "mapped_array";

  bool Open(const std::string& path, std::uint64_t width, std::uint64_t n) {
    width_ = width;
    records_ = (n / 8 + 4096) & ~std::uint64_t{4095};
    size_ = records_ + n * width;
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(size_)) != 0) return false;
    void* const map = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (map == MAP_FAILED) return false;
    base_ = static_cast<char*>(map);
    return true;
  }
  bool Set(std::uint64_t id, std::string_view value) {
    std::memcpy(base_ + records_ + id * width_, value.data(), width_);
    base_[id / 8] = static_cast<char>(base_[id / 8] | 1 << id % 8);
    end_ = std::max(end_, id + 1);
    return true;
  }
  bool Get(std::uint64_t id, char* out) {
    if ((base_[id / 8] >> id % 8 & 1) == 0) return false;
    std::memcpy(out, base_ + records_ + id * width_, width_);
    return true;
  }
  std::uint64_t Append(std::string_view value) {
    const std::uint64_t id = end_;
    return Set(id, value) ? id : 0;
  }
  template <class Visit>
  bool Scan(Visit visit) {
    for (std::uint64_t id = 0; id < end_; ++id) {
      if ((base_[id / 8] >> id % 8 & 1) != 0) visit(id, std::string_view(base_ + records_ + id * width_, width_));
    }
    return true;
  }
  bool Close() { return munmap(base_, size_) == 0 && close(fd_) == 0; }

 private:
  int fd_ = -1;
  char* base_ = nullptr;
  std::uint64_t width_ = 0, records_ = 0, size_ = 0, end_ = 0;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::ArrayMain<hako::compare::ArrayMapped>(argc, argv); }
