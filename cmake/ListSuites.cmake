# Writes the tests of one program for ctest, a suite each: cmake -D PROGRAM= -D LAYER= -D FILTER= -D FIRST=<suites that start first>
# -D TIMEOUT=<seconds of a suite> -D RESULTS=<folder> -D SUITES=<file to write>
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${PROGRAM} --gtest_list_tests "--gtest_filter=${FILTER}" OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "[][;]" "_" output "${output}")
string(REPLACE "\n" ";" lines "${output}")
file(MAKE_DIRECTORY ${RESULTS})

# An image of a file that a test copies thousands of times stays in the heap, where the kernel need not clear its pages each time.
set(tunables GLIBC_TUNABLES=glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=1073741824)

# Names of its tests rather than Suite.*, for the filter may take a part of a suite.
set(text "")
set(suite "")
set(tests "")
macro(write_suite)
  if(tests)
    string(MAKE_C_IDENTIFIER "${LAYER}_${suite}" file)
    list(JOIN tests ":" filter)
    string(APPEND text "add_test([==[${LAYER}/${suite}]==] [==[${PROGRAM}]==] [==[--gtest_filter=${filter}]==]"
      " --gtest_brief=1 [==[--gtest_output=xml:${RESULTS}/${file}.xml]==])\n"
      "set_tests_properties([==[${LAYER}/${suite}]==] PROPERTIES LABELS ${LAYER} TIMEOUT ${TIMEOUT} COST ${cost}"
      " ENVIRONMENT ${tunables})\n")
  endif()
  set(tests "")
endmacro()
list(FILTER lines EXCLUDE REGEX "^  DISABLED_|^DISABLED_")
foreach(line IN LISTS lines)
  string(REGEX REPLACE " +#.*" "" line "${line}")
  if(line MATCHES "^  (.+)$")
    list(APPEND tests "${suite}.${CMAKE_MATCH_1}")
  elseif(line MATCHES "^([^ ]+)\\.$")
    set(next "${CMAKE_MATCH_1}")
    write_suite()
    set(suite "${next}")
    set(cost 0)
    if("${LAYER}/${suite}" MATCHES "${FIRST}")
      set(cost 10)
    endif()
  endif()
endforeach()
write_suite()
file(WRITE ${SUITES} "${text}")
