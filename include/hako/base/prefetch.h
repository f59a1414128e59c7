// A hint that the cache line at an address will be read. Harmless for any address.
#pragma once

#include "hako/base/inline.h"

namespace hako {

HAKO_INLINE void Prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");  // otherwise gcc treats functions that only prefetch as without effect, and drops their calls
}

}  // namespace hako
