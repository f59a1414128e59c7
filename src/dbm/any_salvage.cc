// AnyDBM::Salvage: determines the kind of database in a damaged file.
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/salvage.h"
#include "hako/format/array_format.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/damaged_file.h"
#include "hako/storage/superblock_slots.h"

namespace hako {
namespace {

enum class FileKind { kUnknown, kHash, kTree, kArray };

// Determines the kind by the magic numbers of the superblocks, or else by the file's name.
StatusOr<FileKind> KindOf(const std::string& path, const FileOptions& options) {
  FileOptions reading;
  reading.mode = OpenMode::kReadOnly;
  reading.lock_timeout = options.lock_timeout;
  HAKO_ASSIGN_OR_RETURN(const PositionalParallelFile file, PositionalParallelFile::Open(path, reading));
  SalvageReport unused;
  const storage::DamagedFile source(file, unused);
  for (std::uint64_t slot = 0; slot < 2; ++slot) {
    std::array<char, 16> magic{};
    HAKO_RETURN_IF_ERROR(source.ReadAt(slot * storage::kSlotDistance, std::as_writable_bytes(std::span(magic))));
    if (magic == format::kHashFileMagic) return FileKind::kHash;
    if (magic == format::kTreeFileMagic) return FileKind::kTree;
    if (magic == format::kArrayFileMagic) return FileKind::kArray;
  }
  if (absl::EndsWith(path, ".hkh")) return FileKind::kHash;
  if (absl::EndsWith(path, ".hkt")) return FileKind::kTree;
  return absl::EndsWith(path, ".hka") ? FileKind::kArray : FileKind::kUnknown;
}

}  // namespace

StatusOr<SalvageReport> AnyDBM::Salvage(const std::string& from, const std::string& to, const FileOptions& options) HAKO_TRY {
  HAKO_ASSIGN_OR_RETURN(const FileKind kind, KindOf(from, options));
  switch (kind) {
    case FileKind::kHash:
      return hako::Salvage<HashDBM<>>(from, to, options);
    case FileKind::kTree:
      return SalvageTreeFile(from, to, options, &hako::Salvage<TreeDBM<>>);
    case FileKind::kArray:
      return SalvageArrayFile(from, to, options);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(from, ": only a hash table, a tree or an array in a file can be salvaged, and this is none"));
  }
}
HAKO_OR_NO_MEMORY

}  // namespace hako
