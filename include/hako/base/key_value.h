// KeyValue and KeyRange, the arguments of operations on many records.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "hako/base/language.h"
#include "hako/base/string_arg.h"

namespace hako {

// A key and its value, as views of bytes owned elsewhere.
struct KeyValue {
  StringArg key;    // any bytes
  StringArg value;  // any bytes
  // When the record expires, in milliseconds since 1970; 0 = never.
  std::uint64_t expire_at = 0;
};

// A half-open range of keys: [from, to), or all keys from `from` on if there is no `to`.
struct KeyRange {
  std::string_view from;               // the first key
  std::optional<std::string_view> to;  // the bound above the last key, exclusive
  bool has_from = true;                // false: the range begins with the least key, whatever `from` is
};

}  // namespace hako
