// The live state that a process has left in a hash file (format::LiveState): whether it counts, and
// whether it is damaged.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hako/base/assert.h"
#include "hako/base/hash.h"
#include "hako/base/status.h"
#include "hako/file/file_identity.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/log_format.h"

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
// Whether the file may lack updates of a killed process of this boot that had it mapped. This is so
// if the file is a copy, or was unmounted since, or if the Open that found the updates could not
// sync it, unless a log has them.
inline bool IsUnproven(const format::LiveState& live, const format::HashSuperBlock& super, const FileIdentity& identity) {
  const bool has_log = super.log_id != decltype(super.log_id){} && (super.log_sequence & format::kLogEnded) == 0;
  const bool is_elsewhere = super.map_identity != CheckOf(identity), is_doubtful = live.in_use == 1 && live.poisoned == format::kDoubtful;
  return super.clean != 1 && identity.boot != 0 && super.map_boot == identity.boot && (is_elsewhere || is_doubtful) && !has_log;
}
inline Status UnprovenError() {
  return absl::FailedPreconditionError(
      "a process that had the file mapped did not close it, and its updates after the last synchronization are not known to be here: the "
      "file is a copy, or its file system was mounted again, or an earlier Open could not sync it. If it was copied after the process had "
      "ended, or unmounted cleanly, open "
      "it once with HashOptions::unproven_updates kAccept (hako rebuild 'PATH?unproven=accept'), else with kDrop (?unproven=drop), which "
      "returns to the last synchronized state");
}

// Returns the name of a damaged field of a live state in use; nullptr if there is none.
inline const char* DamagedFieldInUse(const format::LiveState& live, const format::HashSuperBlock& super, std::uint64_t size) {
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
// Returns the name of a damaged field of the live state; nullptr if there is none. Damage is known
// only if the last process that mapped the file did so in this boot. Otherwise the device may have
// any of the earlier live states.
// REQUIRES: the file was not closed
inline const char* DamagedField(const format::LiveState& live, const format::HashSuperBlock& super, const FileIdentity& identity,
                                std::uint64_t size) {
  HAKO_DCHECK(super.clean != 1);
  const bool is_here = super.map_identity == CheckOf(identity);
  const bool is_published = live.published == format::kPublished, is_withdrawn = live.published == format::kWithdrawn;
  const bool is_new = super.sequence == 1 && live.in_use == 0 && live.published == 0;  // nothing is stored yet
  if (is_here && !is_published && !is_withdrawn && !is_new) return "published";
  if (is_here && live.in_use != 1 && (is_published || live.in_use != 0)) return "in_use";
  if (live.in_use != 1) return nullptr;
  const bool is_of = live.boot_id == identity.boot_id && live.device == identity.device && live.inode == identity.inode;
  if (is_here && !is_of) return "identity";
  if (is_here && live.poisoned != 0 && live.poisoned != format::kPoisoned && live.poisoned != format::kDoubtful) return "poisoned";
  return IsOf(live, identity) ? DamagedFieldInUse(live, super, size) : nullptr;
}

inline Status LiveStateError(const char* field) {
  return absl::DataLossError(absl::StrCat("the live state at offset ", format::kLiveStateOffset,
                                          ", which a killed process has left, is damaged: ", field,
                                          "; hako salvage finds the records of the last synchronization"));
}
// A damaged live state is not treated as absent, because acknowledged updates would be lost.
inline Status CheckLiveState(const format::LiveState& live, const format::HashSuperBlock& super, const FileIdentity& identity,
                             std::uint64_t size) {
  const char* const field = DamagedField(live, super, identity, size);
  return field == nullptr ? absl::OkStatus() : LiveStateError(field);
}
// Whether an unproven live state counts once it is accepted. If not, the last synchronized state
// has everything. Returns DataLoss if the live state is damaged.
inline StatusOr<bool> MayAccept(const format::LiveState& live, const format::HashSuperBlock& super, std::uint64_t size) {
  const bool is_withdrawn = live.published == format::kWithdrawn && live.in_use <= 1;
  const bool is_new = live.published == 0 && live.in_use == 0;  // nothing is stored yet
  if (is_withdrawn || is_new || live.poisoned == format::kPoisoned) return false;
  if (live.published != format::kPublished) return LiveStateError("published");
  if (live.in_use != 1) return LiveStateError("in_use");
  if (live.poisoned != 0 && live.poisoned != format::kDoubtful) return LiveStateError("poisoned");
  const char* const field = DamagedFieldInUse(live, super, size);
  if (field != nullptr) return LiveStateError(field);
  return true;
}

}  // namespace hako::hash
