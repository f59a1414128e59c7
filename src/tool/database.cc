#include "tool/database.h"

#include "absl/strings/str_cat.h"

namespace hako::tool {

void AddDatabaseOptions(CLI::App* app, DatabaseOptions* options, Access access) {
  app->add_option("FILE", options->path, "The database; its kind goes by the ending: .hkh = hash")->required()->type_name("");
  app->add_option("--dbm", options->kind, "The kind of database, where the ending does not tell: hash")
      ->check(CLI::IsMember({"auto", "hash"}))
      ->type_name("KIND");
  app->add_option("--file", options->device, "How the file is accessed: mmap (mapped into memory) or pos (pread, pwrite)")
      ->check(CLI::IsMember({"mmap", "pos"}))
      ->type_name("HOW");
  app->add_option("--wait", options->wait_seconds, "How long to wait where another process has the file open; 0 = not at all")
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("SECONDS");
  if (access == Access::kRead) return;
  options->mode = OpenMode::kReadWrite;
  app->add_flag("--sync_hard", options->sync_hard, "Make the change survive a power cut before the command ends");
}

std::string_view KindOfPath(std::string_view path) { return path.ends_with(".hkh") ? "hash" : ""; }

FileOptions MakeFileOptions(const DatabaseOptions& options) {
  FileOptions file_options;
  file_options.mode = options.mode;
  file_options.lock_timeout = std::chrono::milliseconds(static_cast<std::int64_t>(options.wait_seconds * 1000));
  return file_options;
}

int FailDatabase(const DatabaseOptions& options, const Status& status) {
  const int code = Fail(options.path, status);
  return absl::IsDataLoss(status) ? options.on_damage : code;
}

int FailUnknownKind(const DatabaseOptions& options) {
  return FailUsage("", absl::StrCat(options.path, ": the ending does not tell the kind of database; use .hkh, or say --dbm hash"));
}

}  // namespace hako::tool
