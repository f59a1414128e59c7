// Tkrzw's TreeDBM on its positional parallel file, or the mapped one. Its cache counts pages, full
// ones as they are in the file: in memory they take more.
#include <tkrzw_dbm_tree.h>

#include "large_tkrzw.h"

namespace hako::compare {

class LargeTkrzwTree : public LargeTkrzwEngine<tkrzw::TreeDBM> {
 public:
  static constexpr std::string_view kName = "tkrzw_tree";

  bool Open(const LargeOptions& options, bool create) {
    tkrzw::TreeDBM::TuningParameters tuning;
    tuning.max_page_size = static_cast<std::int32_t>(options.page_size);
    tuning.max_cached_pages = static_cast<std::int32_t>(options.buffer_pool_bytes / options.page_size);
    tuning.min_read_size = ReadSize(options.FirstRead(512));
    return OpenFile(options, create, tuning);
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::LargeMain<hako::compare::LargeTkrzwTree>(argc, argv); }
