# A program that a user compiles with -O2 alone executes few more instructions for a Get and a Set of a TreeDBM than with
# -O3 -march=x86-64-v3. The tree has an order of the program's own, so its code is compiled in the program, and it does not matter how
# the library was.
cmake_minimum_required(VERSION 3.25)
# Now 109 and 106: the search of a page takes 13 instructions more by SSE2 than by AVX2, and a look-up searches two or three pages.
set(percent_max 115)

find_program(valgrind valgrind)
execute_process(COMMAND /lib64/ld-linux-x86-64.so.2 --help OUTPUT_VARIABLE levels ERROR_QUIET)
if(NOT valgrind OR NOT levels MATCHES "x86-64-v3 \\(supported")
  message("skipped: no valgrind, or the processor lacks x86-64-v3")
  return()
endif()

set(work ${BINARY_DIR}/user_build)
file(MAKE_DIRECTORY ${work})
execute_process(COMMAND pkg-config --libs absl_status absl_statusor absl_strings re2 liburing libutf8proc OUTPUT_VARIABLE libraries
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(libraries UNIX_COMMAND "${libraries}")
set(compile ${CXX} -std=c++20 -DHAKO_TREE_ONLY -I${SOURCE_DIR}/include -I${SOURCE_DIR}/benchmark ${SOURCE_DIR}/benchmark/instructions.cc)
set(link ${LIBRARY} ${libraries} -lpthread)
execute_process( # both at a time
  COMMAND ${compile} -O2 -o ${work}/plain ${link}
  COMMAND ${compile} -O3 -march=x86-64-v3 -o ${work}/tuned ${link}
  COMMAND_ERROR_IS_FATAL ANY)

foreach(program plain tuned)
  execute_process(COMMAND bash ${SOURCE_DIR}/benchmark/count_instructions.sh ${work}/${program} tree uniq16x100 20000
    OUTPUT_VARIABLE counts COMMAND_ERROR_IS_FATAL ANY)
  foreach(phase get set)
    string(REGEX REPLACE ".*(^|\n)${phase} ([0-9]+).*" "\\2" ${program}_${phase} "${counts}")
  endforeach()
endforeach()
foreach(phase get set)
  math(EXPR percent "100 * ${plain_${phase}} / ${tuned_${phase}}")
  message("${phase}: ${plain_${phase}} instructions with -O2, ${tuned_${phase}} with -O3 -march=x86-64-v3: ${percent} %")
  if(percent GREATER percent_max)
    message(SEND_ERROR "more than ${percent_max} %")
  endif()
endforeach()
