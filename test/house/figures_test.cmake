# The plot of the top README shows the tables of benchmark/README.md.
cmake_minimum_required(VERSION 3.25)
find_program(python3 python3)
if(NOT python3)
  message("skipped: no python3")
  return()
endif()
execute_process(COMMAND ${python3} ${SOURCE_DIR}/benchmark/figures.py --check COMMAND_ERROR_IS_FATAL ANY)
