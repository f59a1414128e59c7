# The rules of locks that clang checks (sync/mutex.h): the trees keep them, and copies of their
# headers that break one each do not compile.
cmake_minimum_required(VERSION 3.25)
find_program(clang clang++-14)
if(NOT clang)
  message("skipped: no clang++-14")
  return()
endif()
set(tree ${BINARY_DIR}/lock_rules_test)

# check(<header> <old> <new> <expected>): with <new> in place of <old> in the header, a program with
# <code> is refused with a message that matches <expected>, or accepted ("OK").
function(check header old new expected)
  file(REMOVE_RECURSE ${tree})
  file(COPY ${SOURCE_DIR}/include/hako DESTINATION ${tree})
  file(READ ${tree}/hako/${header} text)
  string(FIND "${text}" "${old}" found)
  if(found EQUAL -1)
    message(SEND_ERROR "${header} has no '${old}'")
    return()
  endif()
  string(REPLACE "${old}" "${new}" text "${text}")
  file(WRITE ${tree}/hako/${header} "${text}")
  file(WRITE ${tree}/program.cc "${code}")
  execute_process(COMMAND ${clang} -std=c++20 -fsyntax-only -Werror=thread-safety -Wthread-safety-beta -I ${tree} ${tree}/program.cc
    OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
  if(expected STREQUAL "OK")
    if(NOT result EQUAL 0)
      message(SEND_ERROR "${header} was refused:\n${output}")
    endif()
  elseif(result EQUAL 0 OR NOT output MATCHES "${expected}")
    message(SEND_ERROR "${header} with '${new}' for '${old}': expected '${expected}', got ${result}:\n${output}")
  endif()
endfunction()

set(pool "#include \"hako/file/positional_parallel_file.h\"
#include \"hako/tree/file/checkpointer.h\"
template class hako::tree::BufferPool<hako::PositionalParallelFile>;
template class hako::tree::SharedPageMap<hako::PositionalParallelFile>;
")
set(code "${pool}")
check(tree/lock_order.h "#pragma once" "#pragma once" OK)
# State is used without its mutex.
set(code "#include \"hako/tree/file/long_values.h\"\n")
check(tree/file/long_values.h "sync::MutexLock lock(mutex_);" "" "'unsaved_' requires holding mutex 'mutex_'")
set(code "${pool}")
check(tree/file/buffer_pool.h "sync::MutexLock lock(clock_.states.mutex);" "" "'Set' requires holding mutex 'clock_.states.mutex'")
check(tree/file/shared_page_map.h "mutex_.AssertHeld()" "(void)mutex_" "'ReadNode' requires holding mutex 'mutex_'")
# A mutex is not released.
set(code "#include \"hako/tree/file/page_read_ahead.h\"\n")
check(tree/file/page_read_ahead.h "sync::MutexLock lock(mutex_);" "mutex_.Lock();" "mutex 'mutex_' is still held at the end of function")
# The order is wrong: within one class, and between two.
set(code "${pool}")
check(tree/file/shared_page_map.h "sync::MutexLock map_lock(mutex_);
    sync::MutexLock cut_lock(cut_mutex_);" "sync::MutexLock cut_lock(cut_mutex_);
    sync::MutexLock map_lock(mutex_);" "mutex 'mutex_' must be acquired before 'cut_mutex_'")
set(code "#include \"hako/tree/file/page_states.h\"\n")
check(tree/file/page_states.h "sync::Mutex mutex ABSL_ACQUIRED_AFTER(kMaintenanceLocks) ABSL_ACQUIRED_BEFORE(kPoolLocks)"
  "sync::Mutex mutex ABSL_ACQUIRED_BEFORE(kMaintenanceLocks); sync::Mutex late ABSL_ACQUIRED_AFTER(kPoolLocks);
  void TakeBoth() { sync::MutexLock first(late); sync::MutexLock second(mutex); }" "mutex 'mutex' must be acquired before 'late'")
# The same of the hash table: a mutex without its lock, and an order that goes against the ranks.
set(code "#include \"hako/hash/file/victims.h\"\n")
check(hash/file/victims.h "sync::MutexLock lock(mutex_);" "" "'held_' requires holding mutex 'mutex_'")
set(code "#include \"hako/hash/free/free_block_pool.h\"\n")
check(hash/free/free_block_pool.h "mutable sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kPoolLocks)"
  "sync::Mutex last_ ABSL_ACQUIRED_AFTER(kInnermostLocks); void TakeBoth() { sync::MutexLock a(last_); sync::MutexLock b(mutex_); }
  mutable sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kPoolLocks)" "mutex 'mutex_' must be acquired before 'last_'")
file(REMOVE_RECURSE ${tree})
