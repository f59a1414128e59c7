// Visitors and sinks as an engine sees them: which argument a visitor takes, and references to them.
//
// ActionT is the visitor's decision, or void if the visitor only reads. The layer dbm documents
// visitors and sinks (dbm/dbm.h).
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

#include "hako/base/function_ref.h"
#include "hako/base/inline.h"

namespace hako {

// Whether the visitor takes the value. Otherwise it takes a bool: whether the record exists.
template <class ActionT, class V>
inline constexpr bool kReadsValue = std::is_void_v<ActionT> || std::is_invocable_v<V&, std::optional<std::string_view>>;

template <class V>
inline constexpr bool kIsFunctionRef = false;
template <class Signature>
inline constexpr bool kIsFunctionRef<FunctionRef<Signature>> = true;

// The type of a visitor on rare paths, so that they are compiled once for all visitors of a kind.
template <class ActionT, class V>
using VisitorRef =
    std::conditional_t<kReadsValue<ActionT, V>, FunctionRef<ActionT(std::optional<std::string_view>)>, FunctionRef<ActionT(bool)>>;

// References to the visitor of several records, to that of all records, and to the sink of a value.
template <class ActionT>
using MultiVisitorRef = FunctionRef<std::optional<ActionT>(std::size_t, std::optional<std::string_view>)>;
using EachRef = FunctionRef<void(std::string_view key, std::string_view value)>;
using SinkRef = FunctionRef<char*(std::size_t)>;

// A sink that may want only the first bytes of a value: cut(value, &size) reads the value, lowers
// the size, and returns where to copy that many bytes to. A value read while a writer changes it
// may be garbage; then the engine discards the result and calls the sink again, in either form.
template <class S>
concept CuttingSink = requires(S& sink, const char* shared, std::size_t* size) {
  { sink.Cut(shared, size) } -> std::same_as<char*>;
};
// Returns where to copy the first *size bytes of a short value to.
template <class S>
HAKO_INLINE char* RoomFor(S& sink, [[maybe_unused]] const char* shared, std::size_t* size) {
#ifndef HAKO_TSAN  // with TSAN the check of a record is computed from the copy
  if constexpr (CuttingSink<S>) return sink.Cut(shared, size);
#endif
  return sink(*size);
}

}  // namespace hako
