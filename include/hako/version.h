// The version of the library, by Semantic Versioning; CMakeLists.txt reads it from here. File
// formats have separate numbers, stored in each file.
#pragma once

#include <string_view>

// The three parts of the version.
#define HAKO_VERSION_MAJOR 0
#define HAKO_VERSION_MINOR 1
#define HAKO_VERSION_PATCH 0

// The version as a string literal, "MAJOR.MINOR.PATCH".
#define HAKO_VERSION_QUOTE_INNER(x) #x
#define HAKO_VERSION_QUOTE(x) HAKO_VERSION_QUOTE_INNER(x)
#define HAKO_VERSION_STRING \
  HAKO_VERSION_QUOTE(HAKO_VERSION_MAJOR) "." HAKO_VERSION_QUOTE(HAKO_VERSION_MINOR) "." HAKO_VERSION_QUOTE(HAKO_VERSION_PATCH)

namespace hako {

// A version by Semantic Versioning.
struct Version {
  // Its three parts.
  int major;
  int minor;
  int patch;
};

// The version of the headers that the program was compiled with.
inline constexpr Version kVersion{HAKO_VERSION_MAJOR, HAKO_VERSION_MINOR, HAKO_VERSION_PATCH};
inline constexpr std::string_view kVersionString = HAKO_VERSION_STRING;

}  // namespace hako
