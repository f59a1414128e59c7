// Formats numbers in messages. hako/base/parse_number.h parses them.
#pragma once

#include <cstdint>
#include <string>

namespace hako::tool {

// Formats 1234567 as "1,234,567".
inline std::string GroupDigits(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

inline std::string CountOfRecords(std::uint64_t number) { return GroupDigits(number) + (number == 1 ? " record" : " records"); }

inline std::string CountOfRows(std::uint64_t number) { return GroupDigits(number) + (number == 1 ? " row" : " rows"); }

}  // namespace hako::tool
