# hako_add_tests(<layer>): one program from all *_test.cc files below test/<layer>/, each test of it known to ctest as <layer>/<Suite.Name>
# and labelled with the layer. A layer that has no test file yet is passed over.
include(GoogleTest)

function(hako_add_tests layer)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/${layer}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  set(program hako_${layer}_test)
  add_executable(${program} ${sources})
  target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}/test)
  target_link_libraries(${program} PRIVATE hako::hako GTest::gmock_main)
  gtest_discover_tests(${program} TEST_PREFIX ${layer}/ DISCOVERY_TIMEOUT 120 PROPERTIES LABELS ${layer} TIMEOUT 600)
endfunction()
