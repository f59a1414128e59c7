// The places of the tests' databases: a directory for files opened by path, shared bytes for
// others. A Surroundings outlives its databases and reopens them; dbm_conformance.h states its
// interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dbm/shared_databases.h"
#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/options.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/file/any_file.h"
#include "hako/file/file.h"
#include "hako/file/memory_file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "support/direct_file.h"
#include "support/temp_dir.h"

namespace hako {

// Files by name.
template <class FileT>
class FileStore {
 public:
  StatusOr<FileOf<FileT>> Open(const std::string& name, OpenMode mode = OpenMode::kCreate) {
    return FileT::Open(Path(name), {.mode = mode});
  }
  std::string Path(const std::string& name) const { return directory_.File(name); }

 private:
  TempDir directory_;
};

template <>
class FileStore<MemoryFile> {
 public:
  StatusOr<MemoryFile> Open(const std::string& name, OpenMode = OpenMode::kCreate) {
    return files_.try_emplace(name, std::uint64_t{1} << 32).first->second.Share();
  }

 private:
  std::map<std::string, MemoryFile> files_;
};

// Opens a database by its path, as D::Open does, on a file as FileT would open it.
template <class FileT, class DatabaseT, class Options>
struct DatabaseOn {
  using Database = DatabaseT;
  static StatusOr<std::unique_ptr<Database>> Open(const std::string& path, const Options& options = {},
                                                  const FileOptions& file_options = {}) {
    if constexpr (std::is_same_v<FileOf<FileT>, FileT>) {
      return Database::Open(path, options, file_options);
    } else {
      FileOptions direct = FileT::WithDirectIo(file_options);
      auto db = Database::Open(path, options, direct);
      if (!absl::IsInvalidArgument(db.status())) return db;
      direct.direct = false;  // the file system has none
      return Database::Open(path, options, direct);
    }
  }
};
template <class FileT>
using HashOn = DatabaseOn<FileT, HashDBM<FileOf<FileT>>, HashOptions>;
template <class FileT>
using TreeOn = DatabaseOn<FileT, TreeDBM<FileOf<FileT>>, TreeOptions>;

template <class FileT>
std::vector<std::byte> ReadWholeFile(const FileT& file) {
  std::vector<std::byte> bytes(file.Size());
  if (!file.ReadAt(0, bytes).ok()) bytes.clear();
  return bytes;
}

template <class FileT>
class HashSurroundings {
 public:
  using FileType = FileOf<FileT>;
  using Database = HashDBM<FileType>;
  using Options = HashOptions;
  using Opened = StatusOr<std::unique_ptr<Database>>;

  Opened Open(std::uint64_t num_records = 0) { return OpenWith({.num_records = num_records}); }

  Opened OpenWith(const Options& options, OpenMode mode = OpenMode::kCreate, const std::string& name = "db") {
    HAKO_ASSIGN_OR_RETURN(FileType file, files.Open(name, mode));
    return Database::Open(std::move(file), options);
  }

  Opened Reopen(std::unique_ptr<Database> db) {
    HAKO_RETURN_IF_ERROR(db->Close());
    db.reset();
    return Open();
  }

  FileStore<FileT> files;
};

// The Surroundings sets the page size and the cache size, regardless of the options. With tiny
// pages and the smallest cache, pages are constantly evicted and loaded.
inline constexpr std::uint64_t kSmallestCache = 1 << 20;
// Those of TreeOptions, which are no constants for clang.
inline constexpr unsigned kUsualPageSize = 8192;
inline constexpr std::uint64_t kUsualCache = std::uint64_t{256} << 20;
template <class FileT, unsigned kPageSize = kUsualPageSize, std::uint64_t kCacheBytes = kUsualCache>
class TreeSurroundings {
 public:
  TreeSurroundings() { HAKO_ASSERT(TreeOptions().page_size == kUsualPageSize && TreeOptions().cache_bytes == kUsualCache); }

  using FileType = FileOf<FileT>;
  using Database = TreeDBM<FileType>;
  using Options = TreeOptions;
  using Opened = StatusOr<std::unique_ptr<Database>>;

  Opened Open(std::uint64_t = 0) { return OpenWith({}); }

  Opened OpenWith(Options options, OpenMode mode = OpenMode::kCreate, const std::string& name = "db") {
    options.page_size = kPageSize;
    options.cache_bytes = kCacheBytes;
    HAKO_ASSIGN_OR_RETURN(FileType file, files.Open(name, mode));
    return Database::Open(std::move(file), options);
  }

  Opened Reopen(std::unique_ptr<Database> db) {
    HAKO_RETURN_IF_ERROR(db->Close());
    db.reset();
    return Open();
  }

  FileStore<FileT> files;
};

// A limit for databases in memory, so that their tests run with one too: HAKO_TEST_CAPACITY, in bytes. It
// has to be so large that nothing is evicted.
inline std::uint64_t TestCapacity() {
  const char* const bytes = std::getenv("HAKO_TEST_CAPACITY");
  return bytes != nullptr ? std::strtoull(bytes, nullptr, 10) : 0;
}

// To reopen a database in memory, saves it and loads another from the snapshot.
template <class FileT, class DatabaseT>
class MemorySurroundings {
 public:
  using FileType = FileT;
  using Database = DatabaseT;
  using Opened = StatusOr<std::unique_ptr<Database>>;

  // Into a database that was just opened.
  Opened Reload(std::unique_ptr<Database> db, std::unique_ptr<Database> opened) {
    HAKO_ASSIGN_OR_RETURN(FileT snapshot, files.Open("snapshot"));
    HAKO_RETURN_IF_ERROR(snapshot.Resize(0));
    HAKO_RETURN_IF_ERROR(db->Save(snapshot));
    HAKO_RETURN_IF_ERROR(db->Close());
    HAKO_RETURN_IF_ERROR(opened->Load(snapshot));
    HAKO_RETURN_IF_ERROR(snapshot.Close());
    return opened;
  }

  FileStore<FileT> files;
};

template <class FileT>
class TinySurroundings : public MemorySurroundings<FileT, TinyDBM<FileT>> {
 public:
  using Database = TinyDBM<FileT>;
  using Opened = StatusOr<std::unique_ptr<Database>>;

  Opened Open(std::uint64_t num_records = 0) { return Database::Open({.num_records = num_records, .capacity_bytes = TestCapacity()}); }
  Opened Reopen(std::unique_ptr<Database> db) {
    HAKO_ASSIGN_OR_RETURN(auto opened, Open());
    return this->Reload(std::move(db), std::move(opened));
  }
};

// With tiny pages, splits and merges are constant.
template <class FileT, unsigned kPageSize = 8192>
class BabySurroundings : public MemorySurroundings<FileT, BabyDBM<FileT>> {
 public:
  using Database = BabyDBM<FileT>;
  using Opened = StatusOr<std::unique_ptr<Database>>;

  Opened Open(std::uint64_t = 0) { return Database::Open({.page_size = kPageSize, .capacity_bytes = TestCapacity()}); }
  Opened Reopen(std::unique_ptr<Database> db) {
    HAKO_ASSIGN_OR_RETURN(auto opened, Open());
    return this->Reload(std::move(db), std::move(opened));
  }
};

}  // namespace hako
