// HAKO_INLINE: for the small functions of the hot path. A look-up is some 150 instructions in a dozen functions; how many look-ups a
// processor overlaps is bounded by how many instructions it holds in flight, so a call that the compiler thinks not worth inlining is.
//
// A build that is not for speed may define HAKO_INLINE as inline: it compiles in half the time.
#pragma once

#ifndef HAKO_INLINE
#define HAKO_INLINE [[gnu::always_inline]] inline
#endif
