// AnyDBM over arrays in files.
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/positional_array_dbm.h"
#include "hako/dbm/restore.h"
#include "hako/dbm/salvage.h"

namespace hako {

namespace {

ArrayOptions ArrayOptionsOf(const AnyOptions& options) {
  ArrayOptions array;
  internal::TakeSharedOptions(options, &array);
  array.width = options.width.value_or(array.width);
  return array;
}

}  // namespace

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenArrayFile(const AnyOptions& options) {
  return OpenInFile<ArrayDBM<>, ArrayDBM<PositionalParallelFile>>(options, ArrayOptionsOf(options));
}

StatusOr<SalvageReport> AnyDBM::SalvageArrayFile(const std::string& from, const std::string& to, const FileOptions& options) {
  return hako::Salvage<ArrayDBM<>>(from, to, options);
}

StatusOr<RestoreReport> AnyDBM::RestoreArrayFile(const std::string& copy, const std::string& archive, const std::string& to,
                                                 const RestoreOptions& options) {
  return hako::Restore<ArrayDBM<>>(copy, archive, to, options);
}

}  // namespace hako
