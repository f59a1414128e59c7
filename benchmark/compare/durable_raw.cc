// The device: a commit overwrites 4 KiB of a file of 64 MiB, at random, and calls fdatasync,
// whatever the batch. Threads have a descriptor each.
#include <fcntl.h>
#include <sys/stat.h>

#include "durable.h"

namespace hako::compare {

class DurableRaw {
 public:
  static constexpr std::string_view kName = "raw";

  bool Open(const DurableOptions& options) {
    path_ = options.path;
    const int file = open(path_.c_str(), O_CREAT | O_WRONLY, 0644);
    const std::vector<char> zeros(kBlock);
    bool good = file >= 0;
    for (std::uint64_t i = 0; i < kBlocks && good; ++i) good = pwrite(file, zeros.data(), kBlock, static_cast<off_t>(i * kBlock)) == kBlock;
    return good && fsync(file) == 0 && close(file) == 0;
  }
  bool Close() { return true; }

  class Writer {
   public:
    explicit Writer(DurableRaw& engine) : file_(open(engine.path_.c_str(), O_WRONLY)) {}
    Writer(const Writer&) = delete;
    ~Writer() { close(file_); }
    bool Commit(std::span<const Record> records) {
      std::uint64_t word;
      std::memcpy(&word, records[0].value.data(), sizeof(word));
      std::memcpy(block_.data(), &word, sizeof(word));
      return pwrite(file_, block_.data(), kBlock, static_cast<off_t>(word % kBlocks * kBlock)) == kBlock && fdatasync(file_) == 0;
    }

   private:
    const int file_;
    std::vector<char> block_ = std::vector<char>(kBlock);
  };

 private:
  static constexpr std::int64_t kBlock = 4096, kBlocks = (64 << 20) / kBlock;
  std::string path_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::DurableMain<hako::compare::DurableRaw>(argc, argv); }
