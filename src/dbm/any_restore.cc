// AnyDBM::Restore: which kind of database a copy is.
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/restore.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/snapshot_format.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/superblock_slots.h"

namespace hako {
namespace {

// One of its magic numbers.
StatusOr<std::array<char, 16>> MagicOf(const PositionalParallelFile& file) {
  for (std::uint64_t slot = 0; slot < 2; ++slot) {
    std::array<char, 16> magic{};
    if (file.Size() < slot * storage::kSlotDistance + magic.size()) break;
    HAKO_RETURN_IF_ERROR(file.ReadAt(slot * storage::kSlotDistance, std::as_writable_bytes(std::span(magic))));
    if (magic == format::kHashFileMagic || magic == format::kTreeFileMagic || magic == format::kSnapshotMagic) return magic;
  }
  return absl::InvalidArgumentError("not a hako database: bad magic at offset 0");
}

StatusOr<RestoreReport> RestoreSnapshot(PositionalParallelFile& copy, const std::string& archive, const std::string& to,
                                        const RestoreOptions& options) {
  HAKO_ASSIGN_OR_RETURN(const auto source, internal::RestoreSource::Open(copy, archive, options));
  HAKO_RETURN_IF_ERROR(source->has_ranges() ? internal::RestoreTo<BabyDBM<>>(copy, *source, to)
                                            : internal::RestoreTo<TinyDBM<>>(copy, *source, to));
  return source->report();
}

}  // namespace

StatusOr<RestoreReport> AnyDBM::Restore(const std::string& copy, const std::string& archive, const std::string& to,
                                        const RestoreOptions& options) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(internal::RefuseExisting(to));
  FileOptions reading;
  reading.mode = OpenMode::kReadOnly;
  reading.lock_timeout = options.lock_timeout;
  HAKO_ASSIGN_OR_RETURN(PositionalParallelFile file, PositionalParallelFile::Open(copy, reading));
  const auto magic = MagicOf(file);
  if (!magic.ok()) return Status(magic.status().code(), absl::StrCat(copy, ": ", magic.status().message()));
  if (*magic == format::kSnapshotMagic) return RestoreSnapshot(file, archive, to, options);
  HAKO_RETURN_IF_ERROR(file.Close());
  return *magic == format::kHashFileMagic ? hako::Restore<HashDBM<>>(copy, archive, to, options)
                                          : RestoreTreeFile(copy, archive, to, options);
}
HAKO_OR_NO_MEMORY

}  // namespace hako
