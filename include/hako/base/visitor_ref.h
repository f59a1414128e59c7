// The visitor of one record as an engine sees it: which argument it takes, and a reference to it.
//
// ActionT is the visitor's decision, or void if the visitor only reads. The layer dbm documents
// visitors (dbm/dbm.h).
#pragma once

#include <optional>
#include <string_view>
#include <type_traits>

#include "hako/base/function_ref.h"

namespace hako {

// Whether the visitor takes the value, and not only whether the record exists.
template <class ActionT, class V>
inline constexpr bool kReadsValue = std::is_void_v<ActionT> || std::is_invocable_v<V&, std::optional<std::string_view>>;

template <class V>
inline constexpr bool kIsFunctionRef = false;
template <class Signature>
inline constexpr bool kIsFunctionRef<FunctionRef<Signature>> = true;

// What rare paths take instead of the visitor itself, so that they are compiled once for all
// visitors of a kind.
template <class ActionT, class V>
using VisitorRef =
    std::conditional_t<kReadsValue<ActionT, V>, FunctionRef<ActionT(std::optional<std::string_view>)>, FunctionRef<ActionT(bool)>>;

}  // namespace hako
