# xxhash::xxhash: the header xxhash.h, which hako includes with XXH_INLINE_ALL; no library is linked. Debian's package brings no CMake
# configuration of its own. Installed beside hako-config.cmake, which uses it too.
find_path(xxhash_INCLUDE_DIR xxhash.h)
mark_as_advanced(xxhash_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(xxhash REQUIRED_VARS xxhash_INCLUDE_DIR)

if(xxhash_FOUND AND NOT TARGET xxhash::xxhash)
  add_library(xxhash::xxhash INTERFACE IMPORTED)
  target_include_directories(xxhash::xxhash SYSTEM INTERFACE ${xxhash_INCLUDE_DIR})
endif()
