# The top level of the repository is exactly these names, and dot-files.
cmake_minimum_required(VERSION 3.25)
set(expected CMakeLists.txt CMakePresets.json LICENSE README.md benchmark cmake findings include src test)

execute_process(COMMAND git -c safe.directory=* ls-files WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE files RESULT_VARIABLE result
  ERROR_QUIET)
if(NOT result EQUAL 0 OR files STREQUAL "")
  message("skipped: not a git checkout, or nothing is tracked")
  return()
endif()

string(REGEX REPLACE "/[^\n]*" "" names "${files}")
string(REPLACE "\n" ";" names "${names}")
list(REMOVE_DUPLICATES names)
list(FILTER names EXCLUDE REGEX "^(\\..*)?$")
list(SORT names)
if(NOT names STREQUAL expected)
  message(FATAL_ERROR "The top level is\n  ${names}\nbut must be\n  ${expected}")
endif()
