# The engines refuse a space that lacks an operation at their static_assert, not somewhere in a template, and a keyword table made at compile
# time refuses what is no set of keywords: small programs that must compile, and programs that must not.
cmake_minimum_required(VERSION 3.25)
set(work ${BINARY_DIR}/concepts_test)
file(REMOVE_RECURSE ${work})
file(MAKE_DIRECTORY ${work})

# The headers are compiled once for all programs.
file(WRITE ${work}/all.h "#include \"hako/base/keyword_table.h\"
#include \"hako/hash/bucket_index.h\"
#include \"hako/tree/page_tree.h\"
#include \"support/toy_page_space.h\"
#include \"support/toy_record_space.h\"\n")
set(flags -std=c++20 -I${SOURCE_DIR}/include -I${SOURCE_DIR}/test -Wno-pragma-once-outside-header)
execute_process(COMMAND ${CXX} ${flags} -x c++-header ${work}/all.h -o ${work}/all.h.gch ERROR_VARIABLE output RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "the headers do not compile:\n${output}")
endif()

set(hash_free "using namespace hako;
struct NoCommit : ToyRecordSpace<false> { void Commit() = delete; };")
set(tree_space "using namespace hako;
struct NoMarkDirty : ToyPageSpace<true> { void MarkDirty() = delete; };")

# check(<space> <type> <expected>): `type` is accepted ("OK") or refused with a message that matches `expected`.
function(check space type expected)
  file(WRITE ${work}/program.cc "${space}
auto Size() { return sizeof(${type}); }\n")
  execute_process(COMMAND ${CXX} ${flags} -include ${work}/all.h -fsyntax-only ${work}/program.cc
    OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
  if(expected STREQUAL "OK")
    if(NOT result EQUAL 0)
      message(SEND_ERROR "${type} was refused:\n${output}")
    endif()
  elseif(result EQUAL 0 OR NOT output MATCHES "${expected}")
    message(SEND_ERROR "${type}: expected '${expected}', got ${result}:\n${output}")
  endif()
endfunction()

check("${hash_free}" "hash::BucketIndex<ToyRecordSpace<false>>" OK)
check("${tree_space}" "tree::PageTree<ToyPageSpace<true>, BytewiseComparator>" OK)
check("${hash_free}" "hash::BucketIndex<NoCommit>" "bucket_index.h:[0-9:]+ error: static.assert")
check("${tree_space}" "tree::PageTree<NoMarkDirty, BytewiseComparator>" "page_tree.h:[0-9:]+ error: static.assert")

# check_keywords(<literals> <expected>): the same for a table of these keywords.
function(check_keywords literals expected)
  check("constexpr auto kTable = hako::MakeKeywordTable(${literals});" "decltype(kTable)" "${expected}")
endfunction()
check_keywords([=["get", "set", "sets"]=] OK)
check_keywords([=["get", "set", "GET"]=] "TwoKeywordsDifferOnlyInCase")
check_keywords([=["get", "gr\xc3\xbc\xc3\x9f"]=] "KeywordIsNotAscii")
file(REMOVE_RECURSE ${work})
