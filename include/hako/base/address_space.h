// Divides the address space of the process among the structures that reserve a part of it: files
// that are mapped, and memory that grows without moving.
//
// A reservation says how much it needs at least and how much it can use at most. It gets a share of
// the addresses that the process has left (RLIMIT_AS, ulimit -v). The share shrinks as the number
// of reservations grows, so the first databases of a process can grow to their full size, and tens
// of thousands can still be open. A structure that reaches the end of its share reports
// ResourceExhausted. Reserved addresses take no memory until their bytes are used.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hako/base/language.h"

namespace hako {

// Reserved addresses.
struct AddressRange {
  std::byte* base = nullptr;
  std::uint64_t size = 0;
  bool is_share = false;  // whether the size is a share of the address space: `least` was below `most`
};

namespace internal {

// Returns how many bytes one more reservation may take beyond its minimum.
std::uint64_t AddressShare();
// Registers a range, after returning all but its first `kept` bytes to the system.
AddressRange KeepAddresses(std::byte* base, std::uint64_t size, std::uint64_t kept, bool is_share);

}  // namespace internal

// Reserves from `least` to `most` bytes by map(size), which returns nullptr where the system
// refuses. After a refusal it tries smaller sizes, and keeps only a part of the first that
// succeeds, so that other structures get some too. If the system refuses even `least` bytes, the
// base is nullptr and errno is that of the last call.
template <class Map>
AddressRange ReserveAddresses(std::uint64_t least, std::uint64_t most, Map&& map) {
  constexpr std::uint64_t kUnit = 64 << 10;  // at least a page of the system
  const auto limited = [=](std::uint64_t size) { return std::max(size / kUnit * kUnit, least); };
  const bool is_share = least < most;
  const std::uint64_t share = is_share ? internal::AddressShare() : 0;
  const std::uint64_t first = share < most - least ? limited(least + share) : most;
  for (std::uint64_t size = first;; size = limited(size / 2)) {
    if (std::byte* const base = map(size); base != nullptr) {
      const std::uint64_t kept = size == first ? size : limited(size / 4);
      return internal::KeepAddresses(base, size, kept, is_share);
    }
    if (size == least) return {};
  }
}

// Unmaps the range. Returns false and sets errno if the system refuses.
bool ReleaseAddresses(const AddressRange& range);

// The advice at the end of errors that a larger share would have avoided.
inline constexpr const char* kAddressSpaceHint =
    "; the address space of the process is limited (ulimit -v) or divided among many databases";

}  // namespace hako
