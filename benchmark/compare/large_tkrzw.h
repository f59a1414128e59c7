// The common part of the Tkrzw engines for data larger than memory.
#pragma once

#include <tkrzw_file_mmap.h>
#include <tkrzw_file_pos.h>

#include <map>

#include "large.h"
#include "tkrzw.h"

namespace hako::compare {

template <class DbmT>
class LargeTkrzwEngine : public TkrzwEngine<DbmT> {
 public:
  // Its GetMulti is a loop of Gets into a map; the copy out of that takes some tens of nanoseconds.
  bool GetMulti(std::span<const std::string_view> keys, std::span<std::optional<std::string>> values) {
    std::map<std::string, std::string> found;
    if (!this->dbm_->GetMulti(std::vector<std::string_view>(keys.begin(), keys.end()), &found).IsOK()) return false;
    for (std::size_t i = 0; i < keys.size(); ++i) values[i] = found[std::string(keys[i])];
    return true;
  }
  bool Sync() { return Good(this->dbm_->Synchronize(true)); }

 protected:
  static bool Good(const tkrzw::Status& status) {
    if (!status.IsOK()) std::fprintf(stderr, "tkrzw: %s\n", tkrzw::ToString(status).c_str());
    return status.IsOK();
  }

  bool OpenFile(const LargeOptions& options, bool create, typename DbmT::TuningParameters tuning) {
    std::unique_ptr<tkrzw::File> file;
    if (options.mmap != 0) {
      file = std::make_unique<tkrzw::MemoryMapParallelFile>();
    } else {
      auto positional = std::make_unique<tkrzw::PositionalParallelFile>();
      std::int32_t access = 0;
      // The size of its page cache is not to be chosen.
      if (options.cache_bytes != 0) access |= tkrzw::PositionalFile::ACCESS_PAGECACHE;
      if (options.direct != 0) access |= tkrzw::PositionalFile::ACCESS_DIRECT | tkrzw::PositionalFile::ACCESS_PADDING;
      if (!Good(positional->SetAccessStrategy(static_cast<std::int64_t>(options.block_size), access))) return false;
      file = std::move(positional);
      tuning.cache_buckets = 1;
    }
    if (options.align_pow != 0) tuning.align_pow = static_cast<std::int32_t>(options.align_pow);
    this->dbm_ = std::make_unique<DbmT>(std::move(file));
    return Good(this->dbm_->OpenAdvanced(options.path, true, create ? tkrzw::File::OPEN_TRUNCATE : tkrzw::File::OPEN_NO_CREATE, tuning));
  }

  static std::int32_t ReadSize(std::uint64_t size) { return size == 0 ? -1 : static_cast<std::int32_t>(size); }
};

}  // namespace hako::compare
