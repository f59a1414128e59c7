// The places of the tests' arrays: a file of each type, and memory with a snapshot.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "hako/base/status.h"
#include "hako/dbm/array_dbm.h"
#include "hako/dbm/memory_array_dbm.h"
#include "hako/dbm/positional_array_dbm.h"
#include "support/temp_dir.h"

namespace hako {

// Where a database is: opened, and opened again with the same records.
template <class FileT, bool kDirect = false>
struct InFile {
  using Database = ArrayDBM<FileT>;
  static constexpr std::uint64_t kSmallest = 1 << 20;

  StatusOr<std::unique_ptr<Database>> Open(unsigned width, std::uint64_t cache_bytes = kSmallest) {
    FileOptions file;
    if (kDirect) file = DirectFile<FileT>(file);
    auto db = Database::Open(directory.File("db.hka"), {.width = width, .cache_bytes = cache_bytes}, file);
    if (!absl::IsInvalidArgument(db.status()) || !file.direct) return db;
    file.direct = false;  // the file system has none
    return Database::Open(directory.File("db.hka"), {.width = width, .cache_bytes = cache_bytes}, file);
  }
  StatusOr<std::unique_ptr<Database>> Reopen(std::unique_ptr<Database> db) {
    HAKO_RETURN_IF_ERROR(db->Close());
    db.reset();
    return Open(0);
  }
  template <class F>
  static FileOptions DirectFile(FileOptions options) {
    options.direct = true;
    return options;
  }

  TempDir directory;
};
struct InMemory {
  using Database = MemoryArrayDBM<>;

  StatusOr<std::unique_ptr<Database>> Open(unsigned width) {
    last_width = width;
    return Database::Open(directory.File("db.hks"), {.width = width});
  }
  StatusOr<std::unique_ptr<Database>> Reopen(std::unique_ptr<Database> db) {
    HAKO_RETURN_IF_ERROR(db->Close());
    db.reset();
    return Open(last_width);
  }

  TempDir directory;
  unsigned last_width = 0;
};

}  // namespace hako
