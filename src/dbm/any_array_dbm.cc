// AnyDBM over arrays in mapped files.
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/array_dbm.h"
#include "hako/dbm/restore.h"
#include "hako/dbm/salvage.h"

namespace hako {

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenArrayFile(const AnyOptions& options) {
  return OpenInFile<ArrayDBM<>>(options, ArrayOptionsOf(options));
}

StatusOr<SalvageReport> AnyDBM::SalvageArrayFile(const std::string& from, const std::string& to, const FileOptions& options) {
  return hako::Salvage<ArrayDBM<>>(from, to, options);
}

StatusOr<RestoreReport> AnyDBM::RestoreArrayFile(const std::string& copy, const std::string& archive, const std::string& to,
                                                 const RestoreOptions& options) {
  return hako::Restore<ArrayDBM<>>(copy, archive, to, options);
}

}  // namespace hako
