# re2::re2: regular expressions. Debian's package brings no CMake configuration of its own. Installed beside hako-config.cmake, which uses
# it too.
find_path(re2_INCLUDE_DIR re2/re2.h)
find_library(re2_LIBRARY re2)
mark_as_advanced(re2_INCLUDE_DIR re2_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(re2 REQUIRED_VARS re2_LIBRARY re2_INCLUDE_DIR)

if(re2_FOUND AND NOT TARGET re2::re2)
  add_library(re2::re2 UNKNOWN IMPORTED)
  set_target_properties(re2::re2 PROPERTIES IMPORTED_LOCATION ${re2_LIBRARY})
  target_include_directories(re2::re2 SYSTEM INTERFACE ${re2_INCLUDE_DIR})
endif()
