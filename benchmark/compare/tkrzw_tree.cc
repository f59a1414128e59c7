// Tkrzw's TreeDBM on its memory-mapped parallel file (its default and fastest), with a cache of 256
// MiB; else as it comes.
#include <tkrzw_dbm_tree.h>
#include <tkrzw_file_mmap.h>

#include "tkrzw.h"

namespace hako::compare {

class TkrzwTreeEngine : public TkrzwOrderedEngine<tkrzw::TreeDBM> {
 public:
  static constexpr std::string_view kName = "tkrzw_tree";
  static constexpr bool kOnDisk = true;

  bool Open(const std::string& path, std::uint64_t) {
    dbm_ = std::make_unique<tkrzw::TreeDBM>(std::make_unique<tkrzw::MemoryMapParallelFile>());
    // Its cache counts pages, and a page takes up to max_page_size bytes in the file;
    // in memory, where each record is an allocation, it takes up to three times as much. Counted as
    // in the file and as full, to its advantage: 33,018 pages, where the default is 10,000.
    tkrzw::TreeDBM::TuningParameters tuning;
    if (IsTuned()) tuning.max_cached_pages = (256 << 20) / tkrzw::TreeDBM::DEFAULT_MAX_PAGE_SIZE;
    return dbm_->OpenAdvanced(path, true, tkrzw::File::OPEN_DEFAULT, tuning).IsOK();
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::TkrzwTreeEngine>(argc, argv); }
