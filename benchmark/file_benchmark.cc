// The devices alone: reading, writing and syncing 4 KiB at random places of a file, on each kind of
// file. What an engine costs above that shows in dbm_benchmark.
//
// The file is small enough for the page cache, so this is the price of the calls, except for
// `sync`: a write and a Sync, which waits for the device. Every block begins with its number and
// ends with its version; both are checked. Files lie in $TMPDIR, else /tmp.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "hako/hako.h"
#include "workload.h"

namespace hako {
namespace {

using benchmark::State;

constexpr std::size_t kBlockSize = 4096;

struct Block {
  std::uint64_t words[kBlockSize / 8] = {};

  void Set(std::uint64_t number, std::uint64_t version) {
    words[0] = number;
    words[std::size(words) - 1] = version;
  }
  bool Is(std::uint64_t number, std::uint64_t version) const { return words[0] == number && words[std::size(words) - 1] == version; }
};

// A file of blocks of version 0, removed with the object.
template <class F>
class BlockFile {
 public:
  explicit BlockFile(std::uint64_t num_blocks) : versions_(num_blocks), file_(Open(path_)) {
    if (file_.ok()) status_ = file_->Resize(num_blocks * kBlockSize);
    for (std::uint64_t i = 0; i < num_blocks && ok(); ++i) {
      block_.Set(i, 0);
      status_ = file_->WriteAt(i * kBlockSize, std::as_bytes(std::span(block_.words)));
    }
  }
  ~BlockFile() { std::filesystem::remove(path_); }

  bool ok() const { return file_.ok() && status_.ok(); }
  std::string error() const { return (file_.ok() ? status_ : file_.status()).ToString(); }

  bool Read(std::uint64_t i) {
    return file_->ReadAt(i * kBlockSize, std::as_writable_bytes(std::span(block_.words))).ok() && block_.Is(i, versions_[i]);
  }
  bool Write(std::uint64_t i) {
    block_.Set(i, ++versions_[i]);
    return file_->WriteAt(i * kBlockSize, std::as_bytes(std::span(block_.words))).ok();
  }
  bool Sync() { return file_->Sync().ok(); }

 private:
  static StatusOr<F> Open(const std::string& path) {
    if constexpr (std::same_as<F, MemoryFile>) {
      return MemoryFile();
    } else {
      return F::Open(path, FileOptions{.mode = OpenMode::kTruncate});
    }
  }

  const std::string path_ = std::filesystem::temp_directory_path() / ("hako_file_benchmark." + std::to_string(getpid()));
  std::vector<std::uint64_t> versions_;
  StatusOr<F> file_;
  Status status_;
  Block block_;
};

// Runs op(file, number of a block) for random blocks, and then looks at all blocks.
template <class F, class Op>
void AtRandomBlocks(State& state, Op op) {
  const auto num_blocks = static_cast<std::uint32_t>(state.range(0));
  BlockFile<F> file(num_blocks);
  workload::Random random(1978);
  bool good = file.ok();
  if (good) {
    for (auto _ : state) good &= op(file, random.Below(num_blocks));
    for (std::uint64_t i = 0; i < num_blocks; ++i) good &= file.Read(i);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kBlockSize));
  if (!good) state.SkipWithError(("a block is wrong: " + file.error()).c_str());
}

template <class F>
void Register(const std::string& name, std::int64_t num_blocks) {
  const auto add = [&](const char* operation, void (*function)(State&)) {
    benchmark::RegisterBenchmark((operation + ("/" + name)).c_str(), function)->ArgName("blocks")->Arg(num_blocks)->UseRealTime();
  };
  add("read", [](State& state) { AtRandomBlocks<F>(state, [](auto& file, std::uint64_t i) { return file.Read(i); }); });
  add("write", [](State& state) { AtRandomBlocks<F>(state, [](auto& file, std::uint64_t i) { return file.Write(i); }); });
  add("sync", [](State& state) { AtRandomBlocks<F>(state, [](auto& file, std::uint64_t i) { return file.Write(i) && file.Sync(); }); });
}

void RegisterAll() {
  benchmark::AddCustomContext("hako", HAKO_VERSION_STRING);
  benchmark::AddCustomContext("build", HAKO_BUILD_FACTS);
  const std::int64_t num_blocks = std::getenv("HAKO_BENCHMARK_SMOKE") != nullptr ? 16 : 16384;
  Register<MemoryMapParallelFile>("mmap", num_blocks);
  Register<PositionalParallelFile>("pos", num_blocks);
  Register<MemoryFile>("memory", num_blocks);
  Register<AnyFile>("any", num_blocks);
}
[[maybe_unused]] const bool registered = (RegisterAll(), true);

}  // namespace
}  // namespace hako
