// KeyValue, the argument of operations on many records.
#pragma once

#include <string_view>

namespace hako {

// A key and its value, as views of bytes owned elsewhere.
struct KeyValue {
  std::string_view key;    // any bytes
  std::string_view value;  // any bytes
};

}  // namespace hako
