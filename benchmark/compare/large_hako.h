// What hako's engines share where data is larger than memory.
#pragma once

#include "hako/file/file.h"
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
  static FileOptions OfFile(const LargeOptions& options, bool create) {
    FileOptions file;
    file.mode = create ? OpenMode::kTruncate : OpenMode::kReadWrite;
    if (options.mmap != 0) return file;
    file.direct = options.direct != 0;
    file.block_size = options.block_size;
    file.cache_bytes = options.cache_bytes;
    file.batching = !options.no_batching;
    return file;
  }
};

}  // namespace hako::compare
