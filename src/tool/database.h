// From a file name to an open database: the one place that knows which kinds there are.
//
// WithDatabase opens what the options say, calls body(db) with it, and closes it. A body is written once, as a generic lambda over the
// DBM concept, and compiled for every kind; what only some kinds have, it asks for with `if constexpr (requires ...)`. A new kind of
// database is a new branch here and nothing else.
#pragma once

#include <chrono>
#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/options.h"
#include "hako/file/file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "tool/command.h"

namespace hako::tool {

enum class Access { kRead, kWrite };

struct DatabaseOptions {
  std::string path;
  std::string kind = "auto";
  std::string device = "mmap";
  double wait_seconds = 0;
  bool sync_hard = false;
  OpenMode mode = OpenMode::kReadOnly;
  HashOptions hash;
  ExitCode on_damage = kExitFile;  // verify: kExitNo
};

// The positional FILE and the options that every command on a database takes.
void AddDatabaseOptions(CLI::App* app, DatabaseOptions* options, Access access);

// "hash" for a path that ends in .hkh; "" where the ending says nothing.
std::string_view KindOfPath(std::string_view path);

FileOptions MakeFileOptions(const DatabaseOptions& options);

// Fail for the database itself.
int FailDatabase(const DatabaseOptions& options, const Status& status);

// How a command ends where the kind is unknown: told on stderr.
int FailUnknownKind(const DatabaseOptions& options);

// Runs `body` on a database that was opened, and closes it. A failed close is a failed command, whatever the body returned.
template <class D, class Body>
int RunAndClose(const DatabaseOptions& options, StatusOr<std::unique_ptr<D>> db, Body&& body) {
  static_assert(DBM<D>);
  if (!db.ok()) return FailDatabase(options, db.status());
  const int code = body(**db);
  Status status;
  if (options.sync_hard) status = (*db)->Synchronize(SyncMode::kHard);
  const Status closed = (*db)->Close();
  if (status.ok()) status = closed;
  return status.ok() ? code : FailDatabase(options, status);
}

template <class FileT, class Body>
int WithDatabaseOn(const DatabaseOptions& options, Body&& body) {
  const std::string_view kind = options.kind == "auto" ? KindOfPath(options.path) : std::string_view(options.kind);
  if (kind == "hash") {
    return RunAndClose(options, HashDBM<FileT>::Open(options.path, options.hash, MakeFileOptions(options)), std::forward<Body>(body));
  }
  return FailUnknownKind(options);
}

template <class Body>
int WithDatabase(const DatabaseOptions& options, Body&& body) {
  if (options.device == "pos") return WithDatabaseOn<PositionalParallelFile>(options, std::forward<Body>(body));
  return WithDatabaseOn<MemoryMapParallelFile>(options, std::forward<Body>(body));
}

}  // namespace hako::tool
