// A positional file with direct I/O, as a separate type: for suites that have a file type but no
// options for it. Databases are on FileOf<DirectFile>, which is compiled once for all of them.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/file/positional_parallel_file.h"

namespace hako {

// With small blocks in the smallest cache, so that blocks are constantly evicted, or without a
// cache. Without direct I/O if the file system has none.
template <std::uint64_t kBlockSize, std::uint64_t kCacheBytes = 1>
class DirectFile : public PositionalParallelFile {
 public:
  static FileOptions WithDirectIo(FileOptions options) {
    options.block_size = kBlockSize;
    options.cache_bytes = kCacheBytes;
    options.direct = true;
    return options;
  }
  static StatusOr<DirectFile> Open(const std::string& path, FileOptions options = {}) {
    options = WithDirectIo(options);
    auto file = PositionalParallelFile::Open(path, options);
    options.direct = false;
    if (absl::IsInvalidArgument(file.status())) file = PositionalParallelFile::Open(path, options);
    HAKO_RETURN_IF_ERROR(file.status());
    return DirectFile(*std::move(file));
  }

 private:
  explicit DirectFile(PositionalParallelFile&& file) : PositionalParallelFile(std::move(file)) {}
};

// The type of file that a database has whose file FileT opens.
template <class FileT>
struct OpenedBy : std::type_identity<FileT> {};
template <std::uint64_t kBlockSize, std::uint64_t kCacheBytes>
struct OpenedBy<DirectFile<kBlockSize, kCacheBytes>> : std::type_identity<PositionalParallelFile> {};
template <class FileT>
using FileOf = typename OpenedBy<FileT>::type;

}  // namespace hako
