# A program that opens a database with its default arguments, gets, sets and iterates compiles
# little: the headers bring a bounded number of lines and none of the system's heavy headers, and
# the operations come from the library. Lines and functions are counted, not seconds.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${CXX} --version OUTPUT_VARIABLE version COMMAND_ERROR_IS_FATAL ANY)
if(version MATCHES "clang")
  message("skipped: the bounds are for g++")
  return()
endif()
set(dir ${BINARY_DIR}/compile_cost_test)
file(REMOVE_RECURSE ${dir})
file(MAKE_DIRECTORY ${dir})
set(compile ${CXX} -std=c++20 -O2 -I${SOURCE_DIR}/include)

# check(<name> <header> <most lines> <most functions> <program>)
function(check name header most_lines most_functions program)
  file(WRITE ${dir}/${name}.cc "#include \"hako/${header}\"\n${program}\n")
  execute_process(COMMAND ${compile} -E ${dir}/${name}.cc -o ${dir}/${name}.ii COMMAND_ERROR_IS_FATAL ANY)
  file(STRINGS ${dir}/${name}.ii heavy REGEX "^# [0-9]+ \".*/(immintrin\\.h|regex|filesystem|future)\"")
  if(heavy)
    list(GET heavy 0 first)
    message(SEND_ERROR "${header} includes a heavy header: ${first}")
  endif()
  execute_process(COMMAND ${compile} -E -P ${dir}/${name}.cc COMMAND wc -l OUTPUT_VARIABLE lines COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${compile} -S ${dir}/${name}.cc -o ${dir}/${name}.s COMMAND_ERROR_IS_FATAL ANY)
  file(STRINGS ${dir}/${name}.s functions REGEX "\\.type[ \t]+_ZN[^ ]*4hako.*@function")
  list(LENGTH functions num_functions)
  string(STRIP "${lines}" lines)
  message("${header}: ${lines} lines, ${num_functions} functions of hako compiled")
  if(lines GREATER most_lines)
    message(SEND_ERROR "${header} brings more than ${most_lines} lines")
  endif()
  if(num_functions GREATER most_functions)
    list(JOIN functions "\n" functions)
    message(SEND_ERROR "${name}: more than ${most_functions} functions of hako are compiled in the program:\n${functions}")
  endif()
endfunction()

function(check_database kind type path)
  check(${kind} dbm/${kind}_dbm.h 120000 10 "
#include <string>
int main() {
  auto db = hako::${type}<>::Open(${path}).value();
  std::string value;
  bool ok = db->Set(\"France\", \"Paris\").ok() && db->Get(\"France\", &value).ok() && db->Get(\"France\").ok();
  auto it = db->MakeIterator();
  for (it.First(); it.Valid(); it.Next()) ok = ok && it.key().size() == it.value().size();
  return ok && db->Close().ok() ? 0 : 1;
}")
endfunction()

check_database(hash HashDBM "\"capitals.hkh\"")
check_database(tree TreeDBM "\"capitals.hkt\"")
check_database(tiny TinyDBM "")
check_database(baby BabyDBM "")
check(all hako.h 130000 0 "")
file(REMOVE_RECURSE ${dir})
