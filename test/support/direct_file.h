// A positional file with direct I/O, as a type of its own: for suites that are given the type of a file and no options for it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/file/positional_parallel_file.h"

namespace hako {

// With small blocks in the smallest cache, so that blocks come and go all the time, or without a cache. Where the file system has no direct
// I/O, without it.
template <std::uint64_t kBlockSize, std::uint64_t kCacheBytes = 1>
class DirectFile : public PositionalParallelFile {
 public:
  static StatusOr<DirectFile> Open(const std::string& path, FileOptions options = {}) {
    options.block_size = kBlockSize;
    options.cache_bytes = kCacheBytes;
    options.direct = true;
    auto file = PositionalParallelFile::Open(path, options);
    options.direct = false;
    if (absl::IsInvalidArgument(file.status())) file = PositionalParallelFile::Open(path, options);
    HAKO_RETURN_IF_ERROR(file.status());
    return DirectFile(*std::move(file));
  }

 private:
  explicit DirectFile(PositionalParallelFile&& file) : PositionalParallelFile(std::move(file)) {}
};

}  // namespace hako
