// Tkrzw's HashDBM on its memory-mapped parallel file (its default and fastest), with as many
// buckets as records; else as it comes.
#include <tkrzw_dbm_hash.h>
#include <tkrzw_file_mmap.h>

#include "tkrzw.h"

namespace hako::compare {

class TkrzwHashEngine : public TkrzwEngine<tkrzw::HashDBM> {
 public:
  static constexpr std::string_view kName = "tkrzw_hash";
  static constexpr bool kOnDisk = true;

  bool Open(const std::string& path, std::uint64_t n) {
    dbm_ = std::make_unique<tkrzw::HashDBM>(std::make_unique<tkrzw::MemoryMapParallelFile>());
    tkrzw::HashDBM::TuningParameters tuning;
    if (IsTuned()) tuning.num_buckets = static_cast<std::int64_t>(n);
    return dbm_->OpenAdvanced(path, true, tkrzw::File::OPEN_DEFAULT, tuning).IsOK();
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::TkrzwHashEngine>(argc, argv); }
