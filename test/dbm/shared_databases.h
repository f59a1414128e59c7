// Databases on files that several tests use. The program of all tests of the databases compiles
// them once, in shared_hash_databases.cc and shared_tree_databases.cc (HAKO_SHARE_TEST_DATABASES,
// test/CMakeLists.txt). A test that is compiled alone, as test/seeded/run does, compiles those that
// it uses.
#pragma once

#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/positional_hash_dbm.h"
#include "hako/dbm/positional_tree_dbm.h"
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

#ifdef HAKO_SHARE_TEST_DATABASES
namespace hako {
HAKO_SHARED_HASH_DATABASES(extern);
HAKO_SHARED_TREE_DATABASES(extern);
}  // namespace hako
#endif
