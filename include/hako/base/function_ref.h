// FunctionRef: a reference to a function object, as C++26's std::function_ref. Two pointers; it
// owns nothing and allocates nothing. A function that takes one is compiled once; a template over
// the object's type is compiled once for each type.
//
// Unlike absl::FunctionRef it also calls objects that are not const. Unlike both, a FunctionRef
// that returns void refuses objects that return something: a caller could not see the result, such
// as false for "stop" or an error. OwnedFunction has the same rules and owns its object.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "hako/base/language.h"

namespace hako {

// Whether a call with these arguments returns R or a type that converts to R. If R is void, the
// call must return nothing.
template <class F, class R, class... Args>
inline constexpr bool kReturns = std::is_invocable_r_v<R, F&, Args...>;
template <class F, class... Args>
requires std::is_invocable_v<F&, Args...>
inline constexpr bool kReturns<F, void, Args...> = std::is_void_v<std::invoke_result_t<F&, Args...>>;

template <class Signature>
class FunctionRef;

// REQUIRES: the object exists when it is called (unchecked: a reference does not know its object's life)
template <class R, class... Args>
class FunctionRef<R(Args...)> {
  template <class F>
  static constexpr bool kAccepts = !std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && kReturns<F, R, Args...>;

 public:
  // Implicit, so that a lambda can be an argument.
  template <class F, std::enable_if_t<kAccepts<F>, int> = 0>
  constexpr FunctionRef(F&& function) : call_(&Call<std::remove_reference_t<F>>) {
    if constexpr (std::is_function_v<std::remove_reference_t<F>>)
      object_ = reinterpret_cast<void*>(&function);
    else
      object_ = const_cast<void*>(static_cast<const volatile void*>(std::addressof(function)));
  }

  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  // An argument that does not fit into two registers is passed by reference, so that it is not
  // copied.
  template <class T>
  using Passed = std::conditional_t<std::is_trivially_copyable_v<T> && sizeof(T) <= 2 * sizeof(void*), T, const T&>;

  template <class F>
  static R Call(void* object, Passed<Args>... args) {
    if constexpr (std::is_function_v<F>)
      return static_cast<R>(reinterpret_cast<F*>(object)(args...));
    else
      return static_cast<R>((*static_cast<F*>(object))(args...));
  }

  void* object_;
  R (*call_)(void*, Passed<Args>...);
};

// A function object of any type, or none: a std::function that refuses the objects that FunctionRef
// refuses. For options that are used after the call that receives them.
template <class Signature>
class OwnedFunction;
template <class R, class... Args>
class OwnedFunction<R(Args...)> : public std::function<R(Args...)> {
 public:
  // Holds no function.
  OwnedFunction() = default;
  OwnedFunction(std::nullptr_t) {}
  // Implicit, so that a lambda can be an option.
  template <class F, std::enable_if_t<!std::is_base_of_v<OwnedFunction, std::remove_cvref_t<F>> && kReturns<F, R, Args...>, int> = 0>
  OwnedFunction(F&& object) : std::function<R(Args...)>(std::forward<F>(object)) {}
};

}  // namespace hako
