// Where memory runs out: std::bad_alloc of the standard library's containers becomes ResourceExhausted.
//
// hako's calls return a Status and let no exception of its own out. Inside, containers may throw: locks, busy flags and whatever else must
// not stay are released by destructors, nothing is published before all it needs is allocated, and the public call turns the exception into
// a Status. A try block costs nothing where nothing is thrown. In a program that is compiled without exceptions, the standard library ends
// the process when memory runs out, and these macros are nothing.
#pragma once

#include <cstdlib>
#include <new>

#include "hako/base/status.h"

#if defined(__cpp_exceptions)
#define HAKO_TRY try
// Follows HAKO_TRY { ... }; the statements run after a std::bad_alloc.
#define HAKO_CATCH_NO_MEMORY(...) \
  catch (const std::bad_alloc&) { \
    __VA_ARGS__                   \
  }
#else
#define HAKO_TRY
#define HAKO_CATCH_NO_MEMORY(...)
#endif

namespace hako {

[[gnu::cold, gnu::noinline]] inline Status NoMemoryError() {
  HAKO_TRY { return absl::ResourceExhaustedError("out of memory"); }
  HAKO_CATCH_NO_MEMORY()
#if defined(__cpp_exceptions)
  return Status(absl::StatusCode::kResourceExhausted, absl::string_view());  // which takes no memory
#endif
}

[[noreturn, gnu::cold]] inline void ThrowNoMemory() {
#if defined(__cpp_exceptions)
  throw std::bad_alloc();
#else
  std::abort();  // as the standard library does
#endif
}

// What body() returns, a Status or a StatusOr, or ResourceExhausted if memory ran out on the way.
template <class Body>
[[gnu::always_inline]] inline auto CatchNoMemory(Body&& body) -> decltype(body()) {
  HAKO_TRY { return body(); }
  HAKO_CATCH_NO_MEMORY(return NoMemoryError();)
}

}  // namespace hako
