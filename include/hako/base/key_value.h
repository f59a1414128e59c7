// A key and its value, as views of bytes that others own.
#pragma once

#include <string_view>

namespace hako {

struct KeyValue {
  std::string_view key;
  std::string_view value;
};

}  // namespace hako
