// HAKO_INLINE: forces inlining of small functions of the hot path. A look-up is about 150
// instructions in a dozen functions. The number of look-ups that a processor overlaps is bounded by
// its instructions in flight, so inlining pays where the compiler's heuristics would emit a call.
//
// A build that need not be fast may define HAKO_INLINE as inline, and compiles in half the time.
#pragma once

#include "hako/base/language.h"

#ifndef HAKO_INLINE
#define HAKO_INLINE [[gnu::always_inline]] inline
#endif
