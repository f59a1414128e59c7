// FunctionRef: a reference to a function object, as C++26's std::function_ref. Two pointers; it
// owns nothing and allocates nothing. A function that takes one is compiled once, a template over
// the type of the object once for each type.
//
// Unlike absl::FunctionRef it also calls objects that are not const.
#pragma once

#include <memory>
#include <type_traits>

namespace hako {

template <class Signature>
class FunctionRef;

// REQUIRES: the object exists when it is called
template <class R, class... Args>
class FunctionRef<R(Args...)> {
  template <class F>
  static constexpr bool kAccepts = !std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, Args...>;

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

}  // namespace hako
