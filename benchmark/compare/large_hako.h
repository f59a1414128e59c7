// The common part of hako's engines for data larger than memory.
#pragma once

#include <memory>
#include <utility>

#include "hako/file/file.h"
#include "hako/file/positional_parallel_file.h"
#include "hako_engine.h"
#include "large.h"

namespace hako::compare {

template <class DbmT>
class LargeHakoEngine : public HakoEngine<DbmT> {
 public:
  bool GetMulti(std::span<const std::string_view> keys, std::span<std::optional<std::string>> values) {
    return this->Good(this->dbm_->GetMulti(keys, values));
  }
  bool Sync() { return this->Good(this->dbm_->Synchronize(SyncMode::kHard)); }
  LargeCounters Counters() {
    const Stats stats = this->dbm_->GetStats();
    return {{"device_reads", stats.device_reads},
            {"device_writes", stats.device_writes},
            {"device_read_bytes", stats.device_read_bytes},
            {"device_written_bytes", stats.device_written_bytes},
            {"second_reads", stats.second_reads}};
  }

 protected:
  template <class Options>
  static StatusOr<std::unique_ptr<DbmT>> OpenFile(const LargeOptions& options, bool create, const Options& of_database) {
    const FileOptions of_file = OfFile(options, create);
    if constexpr (requires(PositionalParallelFile file) { DbmT::Open(std::move(file), of_database); }) {
      if (options.no_batching) {
        HAKO_ASSIGN_OR_RETURN(auto file, PositionalParallelFile::OpenUnbatched(options.path, of_file));
        return DbmT::Open(std::move(file), of_database);
      }
    }
    return DbmT::Open(options.path, of_database, of_file);
  }

 private:
  static FileOptions OfFile(const LargeOptions& options, bool create) {
    FileOptions file;
    file.mode = create ? OpenMode::kTruncate : OpenMode::kReadWrite;
    if (options.mmap != 0) return file;
    file.direct = options.direct != 0;
    file.block_size = options.block_size;
    file.cache_bytes = options.cache_bytes;
    return file;
  }
};

}  // namespace hako::compare
