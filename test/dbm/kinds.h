// The kinds of databases, each with its default options.
#pragma once

#include <memory>
#include <string>

#include "dbm/shared_databases.h"
#include "gtest/gtest.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/positional_parallel_file.h"

namespace hako {

// kIsReserved: its data is in address space that was reserved when it was opened.
template <class D>
struct InMemory {
  using DB = D;
  static constexpr bool kInFile = false, kIsReserved = true;
  static StatusOr<std::unique_ptr<D>> Open(const std::string&) { return D::Open(); }
};
template <class D, bool kMapped = true, bool kDirect = false>
struct InFile {
  using DB = D;
  static constexpr bool kInFile = true, kIsReserved = kMapped;
  static StatusOr<std::unique_ptr<D>> Open(const std::string& path) { return D::Open(path, {}, {.direct = kDirect}); }
};

namespace kinds {
using Tiny = InMemory<TinyDBM<>>;
using Baby = InMemory<BabyDBM<>>;
using Hash = InFile<HashDBM<>>;
using Tree = InFile<TreeDBM<>>;
using PositionalHash = InFile<HashDBM<PositionalParallelFile>, false>;
using PositionalTree = InFile<TreeDBM<PositionalParallelFile>, false>;
using DirectHash = InFile<HashDBM<PositionalParallelFile>, false, true>;
using DirectTree = InFile<TreeDBM<PositionalParallelFile>, false, true>;

using Default = testing::Types<Tiny, Baby, Hash, Tree, PositionalHash, PositionalTree>;
using All = testing::Types<Tiny, Baby, Hash, Tree, PositionalHash, PositionalTree, DirectHash, DirectTree>;
}  // namespace kinds

}  // namespace hako
