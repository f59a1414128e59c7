// Matchers for absl::Status and absl::StatusOr<T>:
//   EXPECT_THAT(file.Sync(), IsOk());
//   EXPECT_THAT(Parse("7"), IsOkAndHolds(7));
//   EXPECT_THAT(file.Resize(n), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("allocate")));
//
// and ASSERT_OK_AND_ASSIGN(auto file, Open(path)), which ends the test function where there is no
// value.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>

#include "hako/base/status.h"

namespace hako {

inline const Status& StatusOf(const Status& status) { return status; }
template <class T>
const Status& StatusOf(const StatusOr<T>& value) {
  return value.status();
}

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

MATCHER_P(IsOkAndHolds, value_matcher,
          "is OK and its value " + testing::DescribeMatcher<typename std::decay_t<arg_type>::value_type>(value_matcher, negation)) {
  if (!arg.ok()) {
    *result_listener << StatusOf(arg).ToString();
    return false;
  }
  return testing::ExplainMatchResult(value_matcher, *arg, result_listener);
}

MATCHER_P(StatusIs, code, "has code " + absl::StatusCodeToString(code)) {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code;
}

MATCHER_P2(StatusIs, code, message_matcher,
           "has code " + absl::StatusCodeToString(code) + " and a message that " +
               testing::DescribeMatcher<std::string>(message_matcher, negation)) {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         testing::ExplainMatchResult(message_matcher, std::string(StatusOf(arg).message()), result_listener);
}

}  // namespace hako

#define ASSERT_OK_AND_ASSIGN(declaration, expression) \
  HAKO_ASSERT_OK_AND_ASSIGN_INNER(HAKO_STATUS_CONCAT(assert_status_or_, __LINE__), declaration, expression)
#define HAKO_ASSERT_OK_AND_ASSIGN_INNER(temporary, declaration, expression) \
  auto temporary = (expression);                                            \
  ASSERT_THAT(temporary, ::hako::IsOk());                                   \
  declaration = *std::move(temporary)
