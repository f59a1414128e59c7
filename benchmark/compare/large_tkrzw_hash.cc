// Tkrzw's HashDBM on its positional parallel file, or the mapped one, with as many buckets as
// records if those are more than its default.
#include <tkrzw_dbm_hash.h>

#include "large_tkrzw.h"

namespace hako::compare {

class LargeTkrzwHash : public LargeTkrzwEngine<tkrzw::HashDBM> {
 public:
  static constexpr std::string_view kName = "tkrzw_hash";

  bool Open(const LargeOptions& options, bool create) {
    tkrzw::HashDBM::TuningParameters tuning;
    tuning.num_buckets = std::max(static_cast<std::int64_t>(options.records), tkrzw::HashDBM::DEFAULT_NUM_BUCKETS);
    tuning.min_read_size = ReadSize(options.FirstRead(16));
    return OpenFile(options, create, tuning);
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::LargeMain<hako::compare::LargeTkrzwHash>(argc, argv); }
