// AnyDBM over hash tables in mapped files.
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/restore.h"

namespace hako {

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenHashFile(const AnyOptions& options) {
  return OpenInFile<HashDBM<>>(options, HashOptionsOf(options));
}

StatusOr<RestoreReport> AnyDBM::RestoreHashFile(const std::string& copy, const std::string& archive, const std::string& to,
                                                const RestoreOptions& options) {
  return hako::Restore<HashDBM<>>(copy, archive, to, options);
}

}  // namespace hako
