// The kinds of databases in files that log their updates, for typed tests of the log.
#pragma once

#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/file.h"

namespace hako {

// A kind of database that logs its updates. A copied file of a mapped HashDBM looks like one after a
// power cut.
template <class FileT>
struct LoggedTree {
  using Database = TreeDBM<FileT>;
  static constexpr bool kIsTree = true, kIsInMemory = false;
  static inline const TreeOptions kOptions = {.page_size = 512};
  template <class F>
  using On = LoggedTree<F>;
};
template <class FileT>
struct LoggedHash {
  using Database = HashDBM<FileT>;
  static constexpr bool kIsTree = false, kIsInMemory = false;
  static inline const HashOptions kOptions = {.durability = MappedFile<FileT> ? Durability::kPower : Durability::kProcess};
  template <class F>
  using On = LoggedHash<F>;
};

}  // namespace hako
