// The types that a typed suite runs with.
#pragma once

#include <gtest/gtest.h>

namespace hako::internal {

template <class Always, class... Others>
struct TestTypesOf;
template <class... Always, class... Others>
struct TestTypesOf<testing::Types<Always...>, Others...> {
#ifdef HAKO_TEST_SMALL
  using Result = testing::Types<Always...>;
#else
  using Result = testing::Types<Always..., Others...>;
#endif
};

}  // namespace hako::internal

namespace hako {

// Those of the list `Always`, and `Others`, which a small run (HAKO_TEST_SMALL) leaves out: each type
// of a suite takes time to compile, and these take few paths that the suites of others do not.
template <class Always, class... Others>
using TestTypes = typename internal::TestTypesOf<Always, Others...>::Result;

}  // namespace hako
