// A key and its value, as views of bytes owned elsewhere.
#pragma once

#include <string_view>

namespace hako {

struct KeyValue {
  std::string_view key;
  std::string_view value;
};

}  // namespace hako
