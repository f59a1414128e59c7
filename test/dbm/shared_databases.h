// Databases on files that several tests use. The program of all tests of the databases compiles
// them once, in shared_hash_databases.cc, shared_tree_databases.cc and shared_memory_databases.cc
// (HAKO_SHARE_TEST_DATABASES, test/CMakeLists.txt). A test that is compiled alone, as
// test/seeded/run does, compiles those that it uses.
#pragma once

#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/positional_hash_dbm.h"
#include "hako/dbm/positional_tree_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/any_file.h"
#include "hako/file/memory_file.h"
#include "support/archetypes.h"
#include "support/fault_file.h"
#include "support/hooked_file.h"
#include "support/test_file.h"

#define HAKO_SHARED_HASH_DATABASES(KEYWORD)                                     \
  HAKO_HASH_DBM_TEMPLATES(KEYWORD, MemoryFile, hash::MappedRecords);            \
  HAKO_HASH_DBM_TEMPLATES(KEYWORD, MappedTestFile, hash::MappedRecords);        \
  HAKO_HASH_DBM_TEMPLATES(KEYWORD, FaultFile<MemoryFile>, hash::MappedRecords); \
  HAKO_HASH_DBM_TEMPLATES(KEYWORD, AnyFile, hash::PositionalRecords);           \
  HAKO_HASH_DBM_TEMPLATES(KEYWORD, TestFile, hash::PositionalRecords);          \
  HAKO_HASH_DBM_TEMPLATES(KEYWORD, HookedFile, hash::PositionalRecords);        \
  HAKO_HASH_DBM_TEMPLATES(KEYWORD, ArchetypeFile, hash::PositionalRecords)
#define HAKO_SHARED_TREE_DATABASES(KEYWORD)                \
  HAKO_TREE_DBM_TEMPLATES(KEYWORD, MemoryFile);            \
  HAKO_TREE_DBM_TEMPLATES(KEYWORD, MappedTestFile);        \
  HAKO_TREE_DBM_TEMPLATES(KEYWORD, FaultFile<MemoryFile>); \
  HAKO_TREE_DBM_TEMPLATES(KEYWORD, TestFile);              \
  HAKO_TREE_DBM_TEMPLATES(KEYWORD, HookedFile)

namespace hako::internal {
using TestTinySpace = log::LoggedSpace<hash::RecordArena, log::LogFileOf<MemoryFile>>;
using TestBabySpace = log::LoggedSpace<tree::PageArena, log::LogFileOf<MemoryFile>>;
}  // namespace hako::internal

// Of those in memory, what a file without a path has.
#define HAKO_SHARED_MEMORY_DATABASES(KEYWORD)                                                                                              \
  KEYWORD template class Operations<TinyDBM<MemoryFile>>;                                                                                  \
  KEYWORD template class MultiOperations<TinyDBM<MemoryFile>>;                                                                             \
  KEYWORD template class HashCursor<TinyDBM<MemoryFile>, hash::BucketIndex<internal::TestTinySpace>, internal::TestTinySpace>;             \
  KEYWORD template class HashOperations<TinyDBM<MemoryFile>, internal::TestTinySpace>;                                                     \
  KEYWORD template class EngineOperations<TinyDBM<MemoryFile>, internal::TestTinySpace, hash::BucketIndex<internal::TestTinySpace>>;       \
  KEYWORD template class hash::BucketIndex<internal::TestTinySpace>;                                                                       \
  KEYWORD template class Operations<BabyDBM<MemoryFile>>;                                                                                  \
  KEYWORD template class MultiOperations<BabyDBM<MemoryFile>>;                                                                             \
  KEYWORD template class TreeCursor<BabyDBM<MemoryFile>, tree::PageTree<internal::TestBabySpace, BytewiseComparator>, BytewiseComparator>; \
  KEYWORD template class OrderedOperations<BabyDBM<MemoryFile>, BytewiseComparator>;                                                       \
  KEYWORD template class TreeOperations<BabyDBM<MemoryFile>, internal::TestBabySpace, BytewiseComparator>;                                 \
  KEYWORD template class EngineOperations<BabyDBM<MemoryFile>, internal::TestBabySpace,                                                    \
                                          tree::PageTree<internal::TestBabySpace, BytewiseComparator>>;                                    \
  KEYWORD template class tree::PageTree<internal::TestBabySpace, BytewiseComparator>

#ifdef HAKO_SHARE_TEST_DATABASES
namespace hako {
HAKO_SHARED_HASH_DATABASES(extern);
HAKO_SHARED_TREE_DATABASES(extern);
HAKO_SHARED_MEMORY_DATABASES(extern);
}  // namespace hako
#endif
