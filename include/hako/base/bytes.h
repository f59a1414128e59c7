// Bytes and text. Files and formats use std::byte, keys and values use char. Only this header casts
// between the two. A view owns nothing and must not outlive its bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "hako/base/language.h"

namespace hako {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

inline Bytes AsBytes(std::string_view chars) { return {reinterpret_cast<const std::byte*>(chars.data()), chars.size()}; }
inline MutableBytes AsMutableBytes(std::span<char> chars) { return {reinterpret_cast<std::byte*>(chars.data()), chars.size()}; }
inline std::string_view AsChars(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace hako
