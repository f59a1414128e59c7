// AnyDBM::Restore: determines the kind of database of a copy.
#include <string>

#include "absl/strings/str_cat.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/log_summary.h"
#include "hako/dbm/restore.h"
#include "hako/format/array_format.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/snapshot_format.h"

namespace hako {

StatusOr<RestoreReport> AnyDBM::Restore(const std::string& copy, const std::string& archive, const std::string& to,
                                        const RestoreOptions& options) HAKO_TRY {
  HAKO_ASSIGN_OR_RETURN(PositionalParallelFile file, internal::OpenCopy(copy, to, options));
  const auto magic = FindMagic(file);
  if (!magic.ok()) return Status(magic.status().code(), absl::StrCat(copy, ": ", magic.status().message()));
  HAKO_RETURN_IF_ERROR(file.Close());
  if (*magic == format::kSnapshotMagic) return RestoreSnapshot(copy, archive, to, options);
  if (*magic == format::kHashFileMagic) return RestoreHashFile(copy, archive, to, options);
  if (*magic == format::kArrayFileMagic) return RestoreArrayFile(copy, archive, to, options);
  return RestoreTreeFile(copy, archive, to, options);
}
HAKO_OR_NO_MEMORY

}  // namespace hako
