// Turns std::bad_alloc of standard containers into ResourceExhausted.
//
// hako's calls return a Status and throw no exceptions. Internally, containers may throw:
// destructors release locks and busy flags, nothing is published before all memory that it needs is
// allocated, and the public call turns the exception into a Status. A try block costs nothing
// unless an exception is thrown. In a program compiled without exceptions, the standard library
// ends the process when memory runs out, and these macros do nothing.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/status.h"

// HAKO_TRY { ... } HAKO_CATCH(const E& e, statements): the statements run after an exception of
// that type. Several may follow each other.
#if defined(__cpp_exceptions)
#define HAKO_TRY try
#define HAKO_CATCH(exception, ...) \
  catch (exception) {              \
    __VA_ARGS__                    \
  }
#else
#define HAKO_TRY
#define HAKO_CATCH(exception, ...)
#endif
#define HAKO_CATCH_NO_MEMORY(...) HAKO_CATCH(const std::bad_alloc&, __VA_ARGS__)
// For a function that returns a Status or a StatusOr: Status F() HAKO_TRY { ... } HAKO_OR_NO_MEMORY
#define HAKO_OR_NO_MEMORY HAKO_CATCH_NO_MEMORY(return ::hako::NoMemoryError();)

namespace hako {

[[gnu::cold, gnu::noinline]] inline Status NoMemoryError() {
  HAKO_TRY { return absl::ResourceExhaustedError("out of memory"); }
  HAKO_CATCH_NO_MEMORY()
#if defined(__cpp_exceptions)
  return Status(absl::StatusCode::kResourceExhausted, absl::string_view());  // takes no memory
#endif
}

// Returns the error of an update that is refused because of an earlier failure. The error has no
// text if there is no memory for it.
[[gnu::cold, gnu::noinline]] inline Status NoMoreWritesError(const Status& failure) {
  HAKO_TRY {
    return absl::FailedPreconditionError(
        absl::StrCat("updates are refused after an error until the database is reopened: ", failure.message()));
  }
  HAKO_CATCH_NO_MEMORY()
#if defined(__cpp_exceptions)
  return Status(absl::StatusCode::kFailedPrecondition, absl::string_view());
#endif
}

[[noreturn, gnu::cold]] inline void ThrowNoMemory() {
#if defined(__cpp_exceptions)
  throw std::bad_alloc();
#else
  std::abort();  // as the standard library does
#endif
}

// Appends to a container. Returns false if there is no memory.
template <class Container, class T>
bool TryPushBack(Container& container, T&& value) {
  HAKO_TRY { return container.push_back(std::forward<T>(value)), true; }
  HAKO_CATCH_NO_MEMORY()
#if defined(__cpp_exceptions)
  return false;
#endif
}

// Resizes a container. Returns false if there is no memory. Not inlined, because a try block within
// a lock-free look-up would force the variables of the look-up into memory.
template <class Container>
[[gnu::noinline]] bool TryResize(Container& container, std::size_t size) {
  HAKO_TRY { return container.resize(size), true; }
  HAKO_CATCH_NO_MEMORY()
#if defined(__cpp_exceptions)
  return false;
#endif
}

// Calls body(), which returns a Status or a StatusOr. Returns its result, or ResourceExhausted if
// it ran out of memory.
template <class Body>
[[gnu::always_inline]] inline auto CatchNoMemory(Body&& body) -> decltype(body()) {
  HAKO_TRY { return body(); }
  HAKO_CATCH_NO_MEMORY(return NoMemoryError();)
}

}  // namespace hako
