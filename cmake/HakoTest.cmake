# hako_add_tests(<layer>): one program from all *_test.cc files below test/<layer>/, each test of it known to ctest as <layer>/<Suite.Name>
# and labelled with the layer. A layer that has no test file yet is passed over.
include(GoogleTest)
option(HAKO_TEST_REPEATS "Tests: also the suites of test/*/repeats, which run again what the others have, on other files" ON)
option(HAKO_TEST_PRECOMPILE "Tests: the headers that all of them use are compiled once" OFF)

function(hako_add_tests layer)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/${layer}/*_test.cc)
  if(NOT HAKO_TEST_REPEATS)
    list(FILTER sources EXCLUDE REGEX "/repeats/")
  endif()
  if(NOT sources)
    return()
  endif()
  set(program hako_${layer}_test)
  add_executable(${program} ${sources})
  target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}/test)
  target_link_libraries(${program} PRIVATE hako::hako GTest::gmock_main)
  if(HAKO_TEST_PRECOMPILE)
    target_precompile_headers(${program} PRIVATE <algorithm> <array> <atomic> <filesystem> <map> <memory> <mutex> <optional> <string>
      <thread> <vector> <gmock/gmock.h> <gtest/gtest.h> <absl/status/statusor.h> <absl/strings/str_cat.h>)
  endif()
  gtest_discover_tests(${program} TEST_PREFIX ${layer}/ DISCOVERY_TIMEOUT 120 PROPERTIES LABELS ${layer} TIMEOUT 600)
endfunction()
