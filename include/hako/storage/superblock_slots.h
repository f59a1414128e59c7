// The common beginning of the database files: two slots of 512 bytes, 4096 apart, for a superblock.
// The newer valid slot counts.
//
// A Block has magic, version, sequence and check; a function CheckOf(block) computes the check.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/archive_format.h"
#include "hako/format/array_format.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/log_format.h"
#include "hako/format/snapshot_format.h"
#include "hako/format/tree_file_format.h"

namespace hako::storage {

inline constexpr std::uint64_t kSlotDistance = 4096;

struct FileKind {
  std::string_view name;  // "hash", as in "hako hash database"
  std::array<char, 16> magic;
  std::uint32_t oldest, newest;  // versions that are read
};

// Returns what a file with this magic is and how to open it, for an error of an opener that expects
// another kind.
inline std::string_view OtherKindOf(const std::array<char, 16>& magic) {
  constexpr std::pair<const std::array<char, 16>&, std::string_view> kKinds[] = {
      {format::kHashFileMagic, "it is a hash database: open it as a HashDBM (dbm=hash)"},
      {format::kTreeFileMagic, "it is a tree database: open it as a TreeDBM (dbm=tree), or a TableDBM if it has a table"},
      {format::kArrayFileMagic, "it is an array database: open it as an ArrayDBM (dbm=array)"},
      {format::kSnapshotMagic, "it is a snapshot: open it as a TinyDBM (dbm=tiny), BabyDBM (dbm=baby) or MemoryArrayDBM"},
      {format::kLogMagic, "it is the log of a database: open that, whose name is the same without -log"},
      {format::kArchiveMagic, "it is a segment of a log archive: 'hako log DIRECTORY' lists it, 'hako restore' uses it"}};
  for (const auto& [of_kind, text] : kKinds) {
    if (magic == of_kind) return text;
  }
  return "it is a file of another program, or its beginning is damaged: check the path";
}
template <File FileT>
Status NotOfKindError(const FileT& file, std::string_view what, const std::array<char, 16>& magic) {
  return absl::InvalidArgumentError(
      absl::StrCat("not a hako ", ToAbsl(what), ": ", file.Size(), " bytes, bad magic at offset 0; ", ToAbsl(OtherKindOf(magic))));
}

// Whether the file is empty, or has only zeros, as an unfinished creation leaves it. False for
// files that are too large for that.
template <File FileT>
StatusOr<bool> HasOnlyZeros(const FileT& file) {
  constexpr std::uint64_t kBlankMax = 4 << 20;
  const std::uint64_t size = file.Size();
  if (size > kBlankMax) return false;
  std::array<char, 4096> bytes;
  for (std::uint64_t at = 0; at < size; at += bytes.size()) {  // usually ends after the first part
    const std::string_view part(bytes.data(), std::min<std::uint64_t>(size - at, bytes.size()));
    HAKO_RETURN_IF_ERROR(file.ReadAt(at, {reinterpret_cast<std::byte*>(bytes.data()), part.size()}));
    if (part.find_first_not_of('\0') != part.npos) return false;
  }
  return true;
}

// Whether a database is to be created in the file.
template <File FileT>
StatusOr<bool> IsBlankFile(const FileT& file, const FileKind& kind) {
  if (file.Size() == 0 && !file.IsWritable())
    return absl::DataLossError(absl::StrCat("the file is empty: not a hako ", ToAbsl(kind.name), " database"));
  return file.IsWritable() ? HasOnlyZeros(file) : StatusOr<bool>(false);
}

// Reads the newer valid slot. `least` is the size of the smallest file of this kind.
template <class Block, File FileT>
StatusOr<Block> ReadNewerSlot(const FileT& file, const FileKind& kind, std::uint64_t least) {
  const auto not_ours = [&](const std::array<char, 16>& magic) {
    return NotOfKindError(file, absl::StrCat(ToAbsl(kind.name), " database"), magic);
  };
  if (file.Size() < least) {
    std::array<char, 16> magic{};
    const std::size_t size = std::min<std::uint64_t>(file.Size(), magic.size());
    HAKO_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(magic).first(size))));
    if (magic != kind.magic) return not_ours(magic);
    return absl::InvalidArgumentError(
        absl::StrCat("not a hako ", ToAbsl(kind.name), " database any more: the file ends at offset ", file.Size(), "; restore a copy"));
  }
  Block slots[2];
  bool valid[2];
  for (unsigned i = 0; i < 2; ++i) {
    HAKO_RETURN_IF_ERROR(file.ReadAt(i * kSlotDistance, {reinterpret_cast<std::byte*>(&slots[i]), sizeof(slots[i])}));
    valid[i] = slots[i].magic == kind.magic && slots[i].check == CheckOf(slots[i]);
  }
  if (!valid[0] && !valid[1]) {
    if (slots[0].magic != kind.magic && slots[1].magic != kind.magic) return not_ours(slots[0].magic);
    return DataLossError("both superblocks fail their checksums", 0);
  }
  const Block& newer = valid[0] && (!valid[1] || slots[0].sequence > slots[1].sequence) ? slots[0] : slots[1];
  const std::uint32_t version = newer.version;
  const auto unknown = [&](const char* is, const char* limit, std::uint32_t number) {
    return absl::UnimplementedError(absl::StrCat(ToAbsl(kind.name), " file format ", version, is, limit, number));
  };
  if (version > kind.newest) return unknown(" is newer than the newest", " this library knows, ", kind.newest);
  if (version < kind.oldest) return unknown(" is older than the oldest", " this library reads, ", kind.oldest);
  return newer;
}

}  // namespace hako::storage
