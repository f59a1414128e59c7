// Tkrzw's BabyDBM with default options; in memory only.
#include <tkrzw_dbm_baby.h>

#include "tkrzw.h"

namespace hako::compare {

class TkrzwBabyEngine : public TkrzwEngine<tkrzw::BabyDBM> {
 public:
  static constexpr std::string_view kName = "tkrzw_baby";
  static constexpr bool kOnDisk = false;

  bool Open(const std::string&, std::uint64_t) {
    dbm_ = std::make_unique<tkrzw::BabyDBM>();
    return true;
  }
  // Process shows the record where it lies; Get would copy it.
  template <class Visit>
  bool ScanFrom(std::string_view key, std::size_t count, Visit visit) {
    Processor<Visit> processor(visit);
    const auto it = dbm_->MakeIterator();
    tkrzw::Status status = it->Jump(key);
    for (; status.IsOK() && count > 0; --count) {
      status = it->Process(&processor, false);
      if (status.IsOK() && count > 1) status = it->Next();
    }
    return status.IsOK() || status == tkrzw::Status::NOT_FOUND_ERROR;
  }
  bool Close() {
    dbm_.reset();  // it was never opened on a file
    return true;
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::TkrzwBabyEngine>(argc, argv); }
