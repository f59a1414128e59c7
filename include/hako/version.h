// The version of the library, by Semantic Versioning; CMakeLists.txt reads it from here. It says nothing about files: the format of a
// file has a number of its own, in its superblock.
#pragma once

#include <string_view>

#define HAKO_VERSION_MAJOR 0
#define HAKO_VERSION_MINOR 1
#define HAKO_VERSION_PATCH 0

#define HAKO_VERSION_QUOTE_INNER(x) #x
#define HAKO_VERSION_QUOTE(x) HAKO_VERSION_QUOTE_INNER(x)
#define HAKO_VERSION_STRING \
  HAKO_VERSION_QUOTE(HAKO_VERSION_MAJOR) "." HAKO_VERSION_QUOTE(HAKO_VERSION_MINOR) "." HAKO_VERSION_QUOTE(HAKO_VERSION_PATCH)

namespace hako {

struct Version {
  int major;
  int minor;
  int patch;
};

inline constexpr Version kVersion{HAKO_VERSION_MAJOR, HAKO_VERSION_MINOR, HAKO_VERSION_PATCH};
inline constexpr std::string_view kVersionString = HAKO_VERSION_STRING;

}  // namespace hako
