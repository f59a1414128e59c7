#include "hako/base/function_ref.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "hako/base/visitor_ref.h"

namespace hako {
namespace {

int Twice(int number) { return 2 * number; }

TEST(FunctionRef, CallsTheObjectItselfAndNoCopy) {
  struct Counter {
    int calls = 0;
    int operator()(int add) { return calls += add; }
  } counter;
  const FunctionRef<int(int)> ref(counter);
  EXPECT_EQ(ref(1), 1);
  EXPECT_EQ(ref(2), 3);
  EXPECT_EQ(counter.calls, 3);
}

TEST(FunctionRef, CallsConstObjectsFunctionsAndPointers) {
  const auto next = [](int number) { return number + 1; };
  int (*const pointer)(int) = &Twice;
  EXPECT_EQ(FunctionRef<int(int)>(next)(1), 2);
  EXPECT_EQ(FunctionRef<int(int)>(Twice)(2), 4);
  EXPECT_EQ(FunctionRef<int(int)>(pointer)(3), 6);
}

TEST(FunctionRef, CopyRefersToTheSameObject) {
  int calls = 0;
  auto count = [&calls] { ++calls; };
  FunctionRef<void()> first(count), second(first);
  second();
  EXPECT_EQ(calls, 1);
}

// Options that may have one can be constants.
TEST(FunctionRef, MayBeAbsentInAConstant) {
  static constexpr std::optional<FunctionRef<void()>> kNone;
  static_assert(!kNone);
}

TEST(FunctionRef, ConvertsTheResultAndDropsNone) {
  const auto length = [](std::optional<std::string_view> text) { return text ? text->size() : 0; };
  const FunctionRef<std::optional<std::size_t>(std::optional<std::string_view>)> converts(length);
  static_assert(!std::is_constructible_v<FunctionRef<void(std::optional<std::string_view>)>, decltype(length)>);
  EXPECT_EQ(converts("four"), 4u);
}

TEST(VisitorRef, TakesTheValueWhereTheVisitorDoes) {
  const auto blind = [](bool exists) { return exists ? 1 : 0; };
  const auto sighted = [](std::optional<std::string_view> value) { return value ? 1 : 0; };
  static_assert(std::is_same_v<VisitorRef<int, decltype(blind)>, FunctionRef<int(bool)>>);
  static_assert(std::is_same_v<VisitorRef<int, decltype(sighted)>, FunctionRef<int(std::optional<std::string_view>)>>);
  static_assert(!kIsFunctionRef<decltype(blind)> && kIsFunctionRef<FunctionRef<int(bool)>>);
  EXPECT_EQ((VisitorRef<int, decltype(blind)>(blind)(true)), 1);
}

}  // namespace
}  // namespace hako
