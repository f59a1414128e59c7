// A hint that the cache line at an address is going to be read; harmless for any address.
#pragma once

#include "hako/base/inline.h"

namespace hako {

HAKO_INLINE void Prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");  // or gcc takes a function that only prefetches for one without effect, and drops calls of it
}

}  // namespace hako
