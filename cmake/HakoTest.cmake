# hako_add_tests(<layer>): one program from the *_test.cc files below test/<layer>/. ctest knows each suite of it as <layer>/<Suite> and runs
# it in a separate process, which writes the result of each test to gtest/ in the build folder. A layer without a test file is skipped.
#
# Of the library's tests a build may take a part:
#   HAKO_TEST_PART     all; plain: the files that test/CMakeLists.txt names in plain_tests, strided_tests and long_tests; sanitized: all
#                      but plain_tests; asan: of the databases those that it names in asan_dbm_tests, of the other layers all
#                      but plain_tests and long_tests
#   HAKO_TEST_REPEATS  whether the suites of test/*/repeats are among them, which run again what others have, on other files,
#                      and the house tests that compile much of hako once more
#   HAKO_TEST_TIMEOUT  seconds that a suite may take
#   HAKO_TEST_FILTER   of the layers above file, the tests that match this filter of GoogleTest
include(TestUnits)
set(HAKO_TEST_PART all CACHE STRING "Tests: all, plain, sanitized or asan")
set(HAKO_TEST_FILTER "*" CACHE STRING "Tests: a filter for those of the layers above file")
set(HAKO_TEST_TIMEOUT 900 CACHE STRING "Tests: seconds that a suite may take")
option(HAKO_TEST_REPEATS "Tests: also the suites of test/*/repeats" ON)
option(HAKO_TEST_PRECOMPILE "Tests: compile the headers that all of them use once" OFF)

# One precompiled header is that of the tests of the databases, the other that of all other tests, and with clang of what is tested: there
# the library is compiled as programs are, without position-independent code of its own.
set(precompiled_headers <algorithm> <array> <atomic> <filesystem> <map> <memory> <mutex> <optional> <string> <thread> <vector> <gmock/gmock.h>
  <gtest/gtest.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <hako/dbm/baby_dbm.h> <hako/dbm/hash_dbm.h> <hako/dbm/tiny_dbm.h>
  <hako/dbm/tree_dbm.h> <hako/file/any_file.h>)
function(hako_precompile)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cc "")
  add_library(hako_precompiled OBJECT ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cc)
  target_compile_features(hako_precompiled PRIVATE cxx_std_20)
  target_include_directories(hako_precompiled PRIVATE ${PROJECT_SOURCE_DIR}/test ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(hako_precompiled PRIVATE absl::status absl::statusor absl::strings GTest::gmock_main Threads::Threads xxhash::xxhash)
  target_precompile_headers(hako_precompiled PRIVATE ${precompiled_headers})
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    return()
  endif()
  set_target_properties(hako PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/base/hash_avx2.cc TARGET_DIRECTORY hako PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  foreach(target hako hako-commands hako-tool hako-server-commands hako-server)
    if(TARGET ${target})
      target_precompile_headers(${target} REUSE_FROM hako_precompiled)
    endif()
  endforeach()
endfunction()
if(HAKO_TEST_PRECOMPILE)
  hako_precompile()
endif()

function(hako_add_tests layer)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/${layer}/*_test.cc)
  if(NOT HAKO_TEST_REPEATS)
    list(FILTER sources EXCLUDE REGEX "/repeats/")
  endif()
  list(JOIN plain_tests "|" plain_names)
  list(JOIN strided_tests "|" strided_names)
  list(JOIN long_tests "|" long_names)
  if(HAKO_TEST_PART STREQUAL plain)
    list(FILTER sources INCLUDE REGEX "/test/(${plain_names}|${strided_names}|${long_names})_test.cc$")
  elseif(HAKO_TEST_PART STREQUAL sanitized)
    list(FILTER sources EXCLUDE REGEX "/test/(${plain_names})_test.cc$")
  elseif(HAKO_TEST_PART STREQUAL asan AND layer STREQUAL dbm)
    list(JOIN asan_dbm_tests "|" names)
    list(FILTER sources INCLUDE REGEX "/test/dbm/(${names})_test.cc$")
  elseif(HAKO_TEST_PART STREQUAL asan)
    list(FILTER sources EXCLUDE REGEX "/test/(${plain_names}|${long_names})_test.cc$")
  endif()
  if(NOT sources)
    return()
  endif()
  if(CMAKE_UNITY_BUILD)
    hako_unite_tests(sources ${layer} ${${layer}_units})
  endif()
  set(filter "${HAKO_TEST_FILTER}")
  if(layer MATCHES "^(base|sync|file)$")
    set(filter "*")
  endif()
  set(program hako_${layer}_test)
  add_executable(${program} ${sources})
  set_target_properties(${program} PROPERTIES UNITY_BUILD OFF)
  target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}/test)
  target_link_libraries(${program} PRIVATE hako::hako GTest::gmock_main)
  if(HAKO_TEST_PRECOMPILE AND layer STREQUAL dbm)
    target_precompile_headers(${program} PRIVATE ${precompiled_headers} <dbm/shared_databases.h> <dbm/listing.h> <hako/dbm/any_dbm.h>
      <hako/dbm/array_dbm.h> <hako/dbm/restore.h> <hako/dbm/salvage.h> <support/checked_value.h> <support/crash_child.h> <support/random.h>
      <support/status_matchers.h>)
  elseif(HAKO_TEST_PRECOMPILE)
    target_precompile_headers(${program} REUSE_FROM hako_precompiled)
  endif()
  set(suites ${CMAKE_CURRENT_BINARY_DIR}/${program}.cmake)
  add_custom_command(TARGET ${program} POST_BUILD BYPRODUCTS ${suites} VERBATIM COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${program}>
    -D LAYER=${layer} -D "FILTER=${filter}" -D "FIRST=${first_suites}" -D TIMEOUT=${HAKO_TEST_TIMEOUT} -D RESULTS=${PROJECT_BINARY_DIR}/gtest -D SUITES=${suites}
    -P ${PROJECT_SOURCE_DIR}/cmake/ListSuites.cmake)
  set(include_file ${CMAKE_CURRENT_BINARY_DIR}/${program}_include.cmake)
  file(WRITE ${include_file} "include([==[${suites}]==] OPTIONAL RESULT_VARIABLE found)\nif(NOT found)\n  add_test(${program}_NOT_BUILT false)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include_file})
endfunction()
