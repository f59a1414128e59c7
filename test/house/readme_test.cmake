# The programs of test/consumer are C++ blocks of the top README and of that of include/hako/dbm, letter by letter; the consumer tests
# compile and run them.
cmake_minimum_required(VERSION 3.25)
foreach(place README.md:main include/hako/dbm/README.md:operations include/hako/dbm/README.md:ranges include/hako/dbm/README.md:tree)
  string(REPLACE ":" ";" place ${place})
  list(GET place 0 page)
  list(GET place 1 name)
  file(READ ${SOURCE_DIR}/${page} text)
  file(READ ${SOURCE_DIR}/test/consumer/${name}.cc program)
  string(FIND "${text}" "\n```cpp\n${program}```\n" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "${page} has no ```cpp block that equals test/consumer/${name}.cc")
  endif()
endforeach()
