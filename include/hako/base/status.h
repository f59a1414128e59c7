// Errors. Every fallible call of hako returns absl::Status or absl::StatusOr<T>; nothing throws.
//
//   NotFound            the key is absent; always with an empty message, so that it costs no
//                       allocation
//   AlreadyExists       a record exists and the caller asked not to overwrite it (empty message)
//   Aborted             the record is not as CompareExchange expects (empty message), or a visitor
//                       aborted a ProcessMulti
//   InvalidArgument     an error of the caller: a wrong option, a file of another type, a value
//                       that is not a number
//   OutOfRange          a key, a value or a number exceeds its documented limit
//   FailedPrecondition  the database is read-only or closed, refuses updates after a failed write,
//                       or was called by its own visitor
//   ResourceExhausted   no space on the device, no memory, no file descriptor, no thread, or the
//                       size limit of the database is reached; nothing was changed, unless the
//                       function says otherwise
//   PermissionDenied    the system does not allow access to a file
//   Cancelled           a query was stopped (table/query_effort.h)
//   Unavailable         another process or another handle has the file open
//   Unimplemented       the file has a format that this version does not read, or the kind of
//                       database lacks the operation
//   DataLoss            bytes in the file do not validate; the message names the offset
//   Unknown, Internal   the system reported another error; the message names the call and the error
//
// Debian 12 builds abseil with its own string_view type, to which std::string_view does not
// convert. Only this header bridges the two; the rest of hako uses std::string_view.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "hako/base/inline.h"

namespace hako {

using absl::Status;
using absl::StatusOr;

// Converts between the two string_view types.
inline constexpr absl::string_view ToAbsl(std::string_view s) { return {s.data(), s.size()}; }
inline constexpr std::string_view ToStd(absl::string_view s) { return {s.data(), s.size()}; }

// Results of normal operation: they take one word and no allocation.
HAKO_INLINE Status AbsentError() { return Status(absl::StatusCode::kNotFound, absl::string_view()); }
inline Status PresentError() { return Status(absl::StatusCode::kAlreadyExists, absl::string_view()); }
inline Status MismatchError() { return Status(absl::StatusCode::kAborted, absl::string_view()); }

// DataLoss: `what` was found damaged at this offset of the file.
inline Status DataLossError(std::string_view what, std::uint64_t offset) {
  return absl::DataLossError(absl::StrCat(ToAbsl(what), " at offset ", offset));
}

// OutOfRange: `what`, such as "a key", is longer than its limit.
[[gnu::cold]] inline Status TooLargeError(std::string_view what, std::uint64_t size, std::uint64_t limit) {
  return absl::OutOfRangeError(absl::StrCat(ToAbsl(what), " of ", size, " bytes exceeds the limit of ", limit, " bytes"));
}

// The error of an update of a database that was opened read-only. NoMoreWritesError
// (base/no_memory.h) is that of a database whose device has failed.
[[gnu::cold]] inline Status ReadOnlyError() { return absl::FailedPreconditionError("the database was opened read-only"); }

// The error of a scan of one moment whose remaining records were removed by Clear.
[[gnu::cold]] inline Status ClearedError() {
  return absl::AbortedError("all records were removed while they were copied; start the copy again");
}

// Returns the code for a failed system call. Errors that are not listed become Unknown, because
// callers act on the meaning of each code above. For example, ENXIO from a failing disk does not
// mean an absent key, and ENOLCK or EAGAIN does not mean that another process has the file.
inline absl::StatusCode CodeOfSystemError(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case EINVAL:
    case ENAMETOOLONG:
      return absl::StatusCode::kInvalidArgument;
    case EISDIR:
    case ENOTDIR:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kUnknown;
  }
}

// Returns the error of a failed system call: `what`, such as "cannot read x", and the system's
// text.
[[gnu::cold]] inline Status SystemError(int error_number, std::string_view what) {
  return Status(CodeOfSystemError(error_number), absl::ErrnoToStatus(error_number, ToAbsl(what)).message());
}
// As SystemError, for a call that names a file: NotFound, with a message, if the file does not
// exist.
[[gnu::cold]] inline Status PathError(int error_number, std::string_view what) {
  const Status status = SystemError(error_number, what);
  return error_number == ENOENT ? absl::NotFoundError(status.message()) : status;
}

// Joins two tokens after expanding them.
#define HAKO_STATUS_CONCAT_INNER(a, b) a##b
#define HAKO_STATUS_CONCAT(a, b) HAKO_STATUS_CONCAT_INNER(a, b)

// HAKO_RETURN_IF_ERROR(F()): returns the error from the enclosing function, if there is one.
#define HAKO_RETURN_IF_ERROR(expression)                                           \
  do {                                                                             \
    if (absl::Status hako_status_ = (expression); !hako_status_.ok()) [[unlikely]] \
      return hako_status_;                                                         \
  } while (false)

// HAKO_ASSIGN_OR_RETURN(auto x, F()): declares x with the value, or returns the error from the
// enclosing function.
#define HAKO_ASSIGN_OR_RETURN(declaration, expression) \
  HAKO_ASSIGN_OR_RETURN_INNER(HAKO_STATUS_CONCAT(hako_status_or_, __LINE__), declaration, expression)
#define HAKO_ASSIGN_OR_RETURN_INNER(temporary, declaration, expression) \
  auto temporary = (expression);                                        \
  if (!temporary.ok()) [[unlikely]]                                     \
    return std::move(temporary).status();                               \
  declaration = *std::move(temporary)

}  // namespace hako
