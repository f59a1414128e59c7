// The commands import and export: records to and from text, as streams.
//
// What import has set when it stops, be it at the end, at a malformed line or by a signal, is in the database and survives a power cut.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"
#include "hako/dbm/transfer.h"
#include "tool/command.h"
#include "tool/database.h"
#include "tool/interrupt.h"
#include "tool/numbers.h"
#include "tool/progress.h"

namespace hako::tool {
namespace {

struct CommandOptions {
  DatabaseOptions database;
  std::string path;  // of the text; empty or "-" = standard input or output
  std::string format;
  bool no_progress = false;
  bool no_escape = false;    // import
  bool print = false;        // export
  std::int64_t mapsize = 0;  // export

  bool IsStandardStream() const { return path.empty() || path == "-"; }
  TextFormat Format() const {
    if (!format.empty()) return *TextFormatOfName(format);
    return TextFormatOfPath(path).value_or(TextFormat::kTsv);
  }
};

// A file descriptor that is closed with it; those of the standard streams stay open.
class TextFile {
 public:
  TextFile() = default;
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  ~TextFile() { (void)Close(); }

  Status Open(const CommandOptions& options, int flags) {
    const bool is_input = (flags & O_ACCMODE) == O_RDONLY;
    name_ = options.IsStandardStream() ? (is_input ? "standard input" : "standard output") : options.path;
    fd_ = is_input ? STDIN_FILENO : STDOUT_FILENO;
    if (options.IsStandardStream()) return absl::OkStatus();
    fd_ = open(options.path.c_str(), flags | O_CLOEXEC, 0644);
    if (fd_ < 0) return absl::ErrnoToStatus(errno, "cannot open");
    struct stat info;
    if (fstat(fd_, &info) == 0 && S_ISDIR(info.st_mode)) return absl::InvalidArgumentError("is a directory");
    return absl::OkStatus();
  }
  Status Close() {
    const int fd = std::exchange(fd_, -1);
    return fd <= STDERR_FILENO || close(fd) == 0 ? absl::OkStatus() : SystemError(errno, "close");
  }

  // Cancelled as soon as a signal has come.
  StatusOr<std::size_t> Read(const Interrupt& interrupt, std::span<char> buffer) const {
    while (true) {
      HAKO_RETURN_IF_ERROR(interrupt.Wait(fd_));
      const ssize_t size = read(fd_, buffer.data(), buffer.size());
      if (size >= 0) return static_cast<std::size_t>(size);
      if (errno != EINTR && errno != EAGAIN) return SystemError(errno, "cannot read");
    }
  }
  Status Write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t size = write(fd_, bytes.data(), bytes.size());
      if (size < 0 && errno != EINTR) return WriteError(errno);
      if (size > 0) bytes.remove_prefix(static_cast<std::size_t>(size));
    }
    return absl::OkStatus();
  }
  const std::string& name() const { return name_; }
  // Bytes of a regular file from here on, which tells how far an import has come; 0 = unknown.
  std::uint64_t Remaining() const {
    struct stat info;
    const off_t offset = lseek(fd_, 0, SEEK_CUR);
    if (fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode) || offset < 0) return 0;
    return static_cast<std::uint64_t>(std::max<off_t>(0, info.st_size - offset));
  }

 private:
  int fd_ = -1;
  std::string name_;
};

// As Fail, whose advice on a file that is not there is for databases.
int FailOpen(const std::string& name, const Status& status) {
  if (!absl::IsNotFound(status)) return Fail(name, status);
  Complain(absl::StrCat(name, ": there is no such file or folder; check the name"));
  return kExitFile;
}

bool IsSameFile(const std::string& a, const std::string& b) {
  struct stat x;
  struct stat y;
  return stat(a.c_str(), &x) == 0 && stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// Lets a transfer stop at a signal and tell how far it is: `done` of the total of `progress` is what `how_far` says.
template <class HowFar>
auto Watch(const Interrupt& interrupt, Progress& progress, HowFar how_far) {
  return [&interrupt, &progress, how_far](const TransferProgress& now) {
    progress.Update(how_far(now), now.num_records);
    return interrupt.signal() == 0 ? absl::OkStatus() : absl::CancelledError("");
  };
}

void Report(const CommandOptions& options, const TransferResult& result, const char* what) {
  Note(absl::StrCat(options.database.path(), ": ", GroupDigits(result.num_records), " records ", what,
                    absl::IsCancelled(result.text) ? ", then stopped by a signal" : ""));
}

int RunImport(CommandOptions options) {
  if (IsSameFile(options.database.path(), options.path)) return FailUsage("import", "the database and the text are the same file");
  if (options.IsStandardStream() && SharedDatabase::IsThere())
    return FailUsage("import", "a shell reads its lines from there; name a file");
  TextFile text;
  if (const Status opened = text.Open(options, O_RDONLY); !opened.ok()) return FailOpen(text.name(), opened);
  options.database.any.file.mode = OpenMode::kCreate;
  const Interrupt interrupt;
  return WithDatabase(options.database, [&](AnyDBM& db) -> int {
    Progress progress(Progress::Stream(!options.no_progress), text.Remaining());
    const TransferResult result = Import(
        db, [&](std::span<char> buffer) { return text.Read(interrupt, buffer); },
        {.format = options.Format(), .escapes = !options.no_escape, .progress = Watch(interrupt, progress, [](const TransferProgress& now) {
                                                                      return now.num_bytes;
                                                                    })});
    progress.Finish();
    const Status synced = db.Synchronize(SyncMode::kHard);
    Report(options, result, "imported");
    if (!result.database.ok()) return FailDatabase(options.database, result.database);
    if (!synced.ok()) return FailDatabase(options.database, synced);
    if (absl::IsCancelled(result.text)) return kExitSignal + interrupt.signal();
    return result.text.ok() ? kExitDone : Fail(text.name(), result.text);
  });
}

int RunExport(const CommandOptions& options) {
  if ((options.print || options.mapsize != 0) && options.Format() != TextFormat::kDump)
    return FailUsage("export", absl::StrCat(options.print ? "--print" : "--mapsize", " is for --format dump"));
  if (IsSameFile(options.database.path(), options.path)) return FailUsage("export", "the database and the text are the same file");
  const Interrupt interrupt;
  return WithDatabase(options.database, [&](AnyDBM& db) -> int {
    TextFile text;
    if (const Status opened = text.Open(options, O_WRONLY | O_CREAT | O_TRUNC); !opened.ok()) return FailOpen(text.name(), opened);
    Progress progress(Progress::Stream(!options.no_progress), db.Count());
    TransferResult result = Export(db, [&text](std::string_view bytes) { return text.Write(bytes); },
                                   {.format = options.Format(),
                                    .dump = {.print = options.print, .mapsize = static_cast<std::uint64_t>(options.mapsize)},
                                    .progress = Watch(interrupt, progress, [](const TransferProgress& now) { return now.num_records; })});
    progress.Finish();
    if (absl::IsCancelled(result.text) && interrupt.signal() != 0) {
      Report(options, result, "exported");
      return kExitSignal + interrupt.signal();
    }
    if (const Status closed = text.Close(); result.text.ok()) result.text = closed;
    if (!result.text.ok()) return Fail(text.name(), result.text);
    return result.database.ok() ? kExitDone : FailDatabase(options.database, result.database);
  });
}

void AddTransferOptions(CLI::App* app, CommandOptions* options, Access access) {
  AddDatabaseOptions(app, &options->database, access);
  app->add_option("TEXT", options->path,
                  access == Access::kWrite ? "What to read; standard input unless given" : "What to write; standard output unless given")
      ->type_name("");
  AddChoice(app, "--format", &options->format, {"tsv", "jsonl", "dump"},
            "JSON Lines or a dump as of mdb_dump and db_dump; else by the ending of TEXT, else tsv");
  app->add_flag("--no-progress,--no_progress", options->no_progress, "No progress line on a terminal");
}

}  // namespace

void AddImportCommand(Commands& commands) {
  const auto options = std::make_shared<CommandOptions>();
  CLI::App* app =
      commands.Add("import", "Store the records of a text; makes the database if there is none", [options] { return RunImport(*options); });
  AddTransferOptions(app, options.get(), Access::kWrite);
  app->add_flag("--no_escape,--no-escape", options->no_escape, "Backslashes in TSV stand for themselves");
}

void AddExportCommand(Commands& commands) {
  const auto options = std::make_shared<CommandOptions>();
  CLI::App* app = commands.Add("export", "Write all records as text", [options] { return RunExport(*options); });
  AddTransferOptions(app, options.get(), Access::kRead);
  app->add_flag("--print", options->print, "Dump: readable text (format=print) instead of hexadecimal digits");
  AddNumber(app, "--mapsize", &options->mapsize, "Dump: how much room mdb_load is to make, in bytes; db_load refuses such a dump", 0,
            std::numeric_limits<std::int64_t>::max());
}

}  // namespace hako::tool
