// Errors. Every fallible call of hako returns absl::Status or absl::StatusOr<T>; nothing throws.
//
//   NotFound            the key is absent; always with an empty message, so that it costs no allocation
//   AlreadyExists       a record is there and the caller asked not to overwrite it (empty message)
//   Aborted             a CompareExchange found something else than expected (empty message)
//   InvalidArgument     the caller's mistake: an option, a file of another type, a value that is not a number
//   OutOfRange          a key, a value or a number beyond its documented limit
//   FailedPrecondition  the database is read-only or closed, refuses writes after a failed write or sync, or was called by its own visitor
//   ResourceExhausted   no space on the device, or no memory; nothing was changed
//   Unavailable         another process or another handle has the file open
//   Unimplemented       the file is of a format that this version does not read
//   DataLoss            bytes in the file do not validate; the message names the offset
//   Unknown, Internal   the system reported something else; the message names the call
//
// Debian 12 builds abseil with a string_view of its own, to which std::string_view does not convert. This header is the only place
// that bridges the two; the rest of hako speaks std::string_view.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace hako {

using absl::Status;
using absl::StatusOr;

inline constexpr absl::string_view ToAbsl(std::string_view s) { return {s.data(), s.size()}; }
inline constexpr std::string_view ToStd(absl::string_view s) { return {s.data(), s.size()}; }

// The outcomes of normal operation: one word, no allocation.
inline Status AbsentError() { return Status(absl::StatusCode::kNotFound, absl::string_view()); }
inline Status PresentError() { return Status(absl::StatusCode::kAlreadyExists, absl::string_view()); }
inline Status MismatchError() { return Status(absl::StatusCode::kAborted, absl::string_view()); }

inline Status DataLossError(std::string_view what, std::uint64_t offset) {
  return absl::DataLossError(absl::StrCat(ToAbsl(what), " at offset ", offset));
}

[[gnu::cold]] inline Status TooLargeError(std::string_view what, std::uint64_t size, std::uint64_t limit) {
  return absl::OutOfRangeError(absl::StrCat(ToAbsl(what), " of ", size, " bytes; the limit is ", limit));
}

// Why a database refuses updates.
[[gnu::cold]] inline Status ReadOnlyError() { return absl::FailedPreconditionError("the database was opened read-only"); }
[[gnu::cold]] inline Status NoMoreWritesError(const Status& failure) {
  return absl::FailedPreconditionError(
      absl::StrCat("no more writes after an error; close the database and open it again: ", failure.message()));
}

// A failed system call on the data path. NotFound means "absent key" to callers, so the errno values that abseil maps to it (ENOENT,
// ENXIO, ENODEV) become Unknown: a dying disk must not read as an absent key.
inline Status SystemError(int error_number, std::string_view what) {
  if (error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG || error_number == ENOMEM)
    return absl::ResourceExhaustedError(absl::ErrnoToStatus(error_number, ToAbsl(what)).message());
  Status status = absl::ErrnoToStatus(error_number, ToAbsl(what));
  return absl::IsNotFound(status) ? absl::UnknownError(status.message()) : status;
}

#define HAKO_STATUS_CONCAT_INNER(a, b) a##b
#define HAKO_STATUS_CONCAT(a, b) HAKO_STATUS_CONCAT_INNER(a, b)

#define HAKO_RETURN_IF_ERROR(expression)                                           \
  do {                                                                             \
    if (absl::Status hako_status_ = (expression); !hako_status_.ok()) [[unlikely]] \
      return hako_status_;                                                         \
  } while (false)

// HAKO_ASSIGN_OR_RETURN(auto x, F()): x is the value, or the enclosing function returns the error.
#define HAKO_ASSIGN_OR_RETURN(declaration, expression) \
  HAKO_ASSIGN_OR_RETURN_INNER(HAKO_STATUS_CONCAT(hako_status_or_, __LINE__), declaration, expression)
#define HAKO_ASSIGN_OR_RETURN_INNER(temporary, declaration, expression) \
  auto temporary = (expression);                                        \
  if (!temporary.ok()) [[unlikely]]                                     \
    return std::move(temporary).status();                               \
  declaration = *std::move(temporary)

}  // namespace hako
