# liburing::liburing: io_uring without the raw system calls. Debian's package brings no CMake configuration of its own. Installed beside
# hako-config.cmake, which uses it too.
find_path(liburing_INCLUDE_DIR liburing.h)
find_library(liburing_LIBRARY uring)
mark_as_advanced(liburing_INCLUDE_DIR liburing_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(liburing REQUIRED_VARS liburing_LIBRARY liburing_INCLUDE_DIR)

if(liburing_FOUND AND NOT TARGET liburing::liburing)
  add_library(liburing::liburing UNKNOWN IMPORTED)
  set_target_properties(liburing::liburing PROPERTIES IMPORTED_LOCATION ${liburing_LIBRARY})
  target_include_directories(liburing::liburing SYSTEM INTERFACE ${liburing_INCLUDE_DIR})
endif()
