#include "hako/base/status.h"

#include <cerrno>
#include <cstring>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

using Code = absl::StatusCode;

// The codes that tell a caller what to do (the head of base/status.h). All others of the system's errors
// are Unknown, whatever absl::ErrnoToStatus makes of them.
TEST(SystemErrorTest, OnlyErrorsOfOneMeaningHaveACodeOfTheirOwn) {
  const std::set<int> exhausted = {ENOSPC, EDQUOT, EFBIG, ENOMEM, EMFILE, ENFILE}, denied = {EACCES, EPERM, EROFS},
                      invalid = {EINVAL, ENAMETOOLONG}, failed = {EISDIR, ENOTDIR};
  for (int error = 1; error < 134; ++error) {
    const Code code = exhausted.contains(error) ? Code::kResourceExhausted
                      : denied.contains(error)  ? Code::kPermissionDenied
                      : invalid.contains(error) ? Code::kInvalidArgument
                      : failed.contains(error)  ? Code::kFailedPrecondition
                                                : Code::kUnknown;
    EXPECT_THAT(SystemError(error, "cannot read x"),
                StatusIs(code, testing::AllOf(testing::HasSubstr("cannot read x: "), testing::HasSubstr(std::strerror(error)))))
        << error;
    EXPECT_THAT(PathError(error, "cannot open x"),
                StatusIs(error == ENOENT ? Code::kNotFound : code, testing::HasSubstr("cannot open x: ")));
  }
}

}  // namespace
}  // namespace hako
