// The live state that a process has left in a hash file (format::LiveState): whether it counts, and
// whether it is damaged.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hako/base/hash.h"
#include "hako/base/status.h"
#include "hako/file/file_identity.h"
#include "hako/format/hash_file_format.h"

namespace hako::hash {

// Whether the live state was left by a killed process, and counts.
inline bool IsOf(const format::LiveState& live, const FileIdentity& identity) {
  return live.in_use == 1 && live.boot_id == identity.boot_id && live.device == identity.device && live.inode == identity.inode &&
         live.poisoned == 0;
}

// The identity as the superblock names it.
inline std::uint64_t CheckOf(const FileIdentity& identity) {
  return Hash64(&identity.boot_id, sizeof(identity.boot_id), MixBits(identity.device) ^ identity.inode) | 1;
}
// The field of the live state that is damaged, nullptr if there is none. Only known if the process
// that mapped the file last did so in this boot: otherwise the device may have any of its states.
// REQUIRES: the file was not closed
inline const char* DamagedField(const format::LiveState& live, const format::HashSuperBlock& super, const FileIdentity& identity,
                                std::uint64_t size) {
  const bool is_here = super.map_identity == CheckOf(identity);
  const bool is_published = live.published == format::kPublished, is_withdrawn = live.published == format::kWithdrawn;
  const bool is_new = super.sequence == 1 && live.in_use == 0 && live.published == 0;  // nothing is stored yet
  if (is_here && !is_published && !is_withdrawn && !is_new) return "published";
  if (is_here && live.in_use != 1 && (is_published || live.in_use != 0)) return "in_use";
  if (live.in_use != 1) return nullptr;
  const bool is_of = live.boot_id == identity.boot_id && live.device == identity.device && live.inode == identity.inode;
  if (is_here && !is_of) return "identity";
  if (is_here && live.poisoned != 0 && live.poisoned != format::kPoisoned) return "poisoned";
  if (!IsOf(live, identity)) return nullptr;
  const std::uint64_t tail = format::UnsealLive(live.tail),
                      tail_max = std::uint64_t{1} << (32 + std::min<std::uint32_t>(super.align_pow, 6));
  if (tail < super.tail || tail % format::kExtentUnit != 0 || tail > std::min(size, tail_max)) return "tail";
  if (format::UnsealLive(live.index_extents) > format::kIndexExtentsMax) return "index_extents";
  if (format::UnsealLive(live.num_lines) == ~std::uint64_t{0}) return "num_lines";
  if (format::UnsealLive(live.epoch) == ~std::uint64_t{0}) return "epoch";
  if (format::UnsealLive(live.oldest_retired_epoch) == ~std::uint64_t{0}) return "oldest_retired_epoch";
  if (super.clock != 0 && !format::IsSealedClock(live.clock)) return "clock";
  return live.clearing != 0 && live.clearing != format::kClearing ? "clearing" : nullptr;
}

// A damaged live state is not taken for none: updates that were acknowledged would be dropped.
inline Status CheckLiveState(const format::LiveState& live, const format::HashSuperBlock& super, const FileIdentity& identity,
                             std::uint64_t size) {
  const char* const field = DamagedField(live, super, identity, size);
  if (field == nullptr) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the live state at offset ", format::kLiveStateOffset,
                                          ", which a killed process has left, is damaged: ", field,
                                          "; hako salvage finds the records of the last synchronization"));
}

}  // namespace hako::hash
