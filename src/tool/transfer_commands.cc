// The commands import and export: records to and from text, as streams.
//
// What import has set when it stops, be it at the end, at a malformed line or by a signal, is in the database and survives a power cut.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tool/command.h"
#include "tool/database.h"
#include "tool/interrupt.h"
#include "tool/numbers.h"
#include "tool/output.h"
#include "tool/progress.h"
#include "tool/record_format.h"

namespace hako::tool {
namespace {

struct TransferOptions {
  DatabaseOptions database;
  std::string path;  // of the text; empty or "-" = standard input or output
  std::string format;
  bool no_progress = false;
  bool no_escape = false;  // import
  bool print = false;      // export

  bool IsStandardStream() const { return path.empty() || path == "-"; }
  RecordFormat Format() const {
    if (!format.empty()) return *FormatOfName(format);
    return FormatOfPath(path).value_or(RecordFormat::kTsv);
  }
};

// A file descriptor that is closed with it; those of the standard streams stay open.
class TextFile {
 public:
  TextFile() = default;
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  ~TextFile() { (void)Close(); }

  Status Open(const TransferOptions& options, int flags) {
    const bool is_input = (flags & O_ACCMODE) == O_RDONLY;
    name_ = options.IsStandardStream() ? (is_input ? "standard input" : "standard output") : options.path;
    fd_ = is_input ? STDIN_FILENO : STDOUT_FILENO;
    if (options.IsStandardStream()) return absl::OkStatus();
    fd_ = open(options.path.c_str(), flags | O_CLOEXEC, 0644);
    if (fd_ >= 0) return absl::OkStatus();
    // Not NotFound, whose advice is for databases.
    return errno == ENOENT ? absl::InvalidArgumentError("there is no such file") : absl::ErrnoToStatus(errno, "cannot open");
  }
  Status Close() {
    const int fd = std::exchange(fd_, -1);
    return fd <= STDERR_FILENO || close(fd) == 0 ? absl::OkStatus() : SystemError(errno, "close");
  }

  int fd() const { return fd_; }
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

bool IsSameFile(const std::string& a, const std::string& b) {
  struct stat x;
  struct stat y;
  return stat(a.c_str(), &x) == 0 && stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// Where an import came to its end.
struct ImportResult {
  std::uint64_t num_records = 0;
  Status input;     // Cancelled: a signal
  Status database;  // of the Set that failed
};

template <class D>
ImportResult ImportRecords(const TransferOptions& options, const TextFile& text, const Interrupt& interrupt, D& db) {
  ImportResult result;
  LineReader lines(text.fd(), [&interrupt](int fd) { return interrupt.Wait(fd); });
  const auto reader = RecordReader::Make(options.Format(), !options.no_escape, &lines);
  Progress progress(Progress::Stream(!options.no_progress), text.Remaining());
  std::string key;
  std::string value;
  while (interrupt.signal() == 0) {
    const StatusOr<bool> more = reader->Next(&key, &value);
    result.input = more.status();
    if (!more.ok() || !*more) return result;
    result.database = db.Set(key, value);
    if (!result.database.ok()) return result;
    ++result.num_records;
    progress.Update(lines.consumed(), result.num_records);
  }
  result.input = absl::CancelledError("");
  return result;
}

int RunImport(TransferOptions options) {
  if (IsSameFile(options.database.path, options.path)) return FailUsage("import", "the database and the text are the same file");
  TextFile text;
  if (const Status opened = text.Open(options, O_RDONLY); !opened.ok()) return Fail(text.name(), opened);
  options.database.mode = OpenMode::kCreate;
  const Interrupt interrupt;
  const int code = WithDatabase(options.database, [&](auto& db) -> int {
    const ImportResult result = ImportRecords(options, text, interrupt, db);
    const Status synced = db.Synchronize(SyncMode::kHard);
    const bool is_stopped = absl::IsCancelled(result.input);
    std::fprintf(stderr, "hako: %s: %s records imported%s\n", options.database.path.c_str(), GroupDigits(result.num_records).c_str(),
                 is_stopped ? ", then stopped by a signal" : "");
    if (!result.database.ok()) return FailDatabase(options.database, result.database);
    if (!synced.ok()) return FailDatabase(options.database, synced);
    if (is_stopped) return kExitSignal + interrupt.signal();
    return result.input.ok() ? kExitDone : Fail(text.name(), result.input);
  });
  return code;
}

template <class D>
Status ExportRecords(const TransferOptions& options, Output& output, D& db) {
  const WriterOptions format{.format = options.Format(), .print = options.print};
  Progress progress(Progress::Stream(!options.no_progress), db.Count());
  std::uint64_t num_records = 0;
  AppendHeader(format, output.buffer());
  auto it = db.MakeIterator();
  for (it.First(); it.Valid() && output.ok(); it.Next()) {
    AppendRecord(format, it.key(), it.value(), output.buffer());
    output.MaybeFlush();
    ++num_records;
    progress.Update(num_records, num_records);
  }
  if (it.status().ok()) AppendFooter(format, output.buffer());  // a dump that is not whole has no end
  return it.status();
}

int RunExport(const TransferOptions& options) {
  if (options.print && options.Format() != RecordFormat::kDump) return FailUsage("export", "--print is for --format dump");
  if (IsSameFile(options.database.path, options.path)) return FailUsage("export", "the database and the text are the same file");
  return WithDatabase(options.database, [&options](auto& db) -> int {
    TextFile text;
    if (const Status opened = text.Open(options, O_WRONLY | O_CREAT | O_TRUNC); !opened.ok()) return Fail(text.name(), opened);
    Output output(text.fd());
    const Status scanned = ExportRecords(options, output, db);
    Status written = output.Flush();
    if (const Status closed = text.Close(); written.ok()) written = closed;
    if (!written.ok()) return Fail(text.name(), written);
    return scanned.ok() ? kExitDone : FailDatabase(options.database, scanned);
  });
}

void AddTransferOptions(CLI::App* app, TransferOptions* options, Access access) {
  AddDatabaseOptions(app, &options->database, access);
  app->add_option("TEXT", options->path,
                  access == Access::kWrite ? "What to read; standard input unless given" : "What to write; standard output unless given")
      ->type_name("");
  app->add_option("--format", options->format,
                  "tsv, jsonl (JSON Lines) or dump (of mdb_dump, db_dump); else by the ending of TEXT, else tsv")
      ->check(CLI::IsMember({"tsv", "jsonl", "dump"}))
      ->type_name("FORMAT");
  app->add_flag("--no-progress,--no_progress", options->no_progress, "No progress line on a terminal");
}

}  // namespace

void AddImportCommand(Commands& commands) {
  const auto options = std::make_shared<TransferOptions>();
  CLI::App* app =
      commands.Add("import", "Store the records of a text; makes the database if there is none", [options] { return RunImport(*options); });
  AddTransferOptions(app, options.get(), Access::kWrite);
  app->add_flag("--no_escape,--no-escape", options->no_escape, "Backslashes in TSV stand for themselves");
}

void AddExportCommand(Commands& commands) {
  const auto options = std::make_shared<TransferOptions>();
  CLI::App* app = commands.Add("export", "Write all records as text", [options] { return RunExport(*options); });
  AddTransferOptions(app, options.get(), Access::kRead);
  app->add_flag("--print", options->print, "Dump: readable text (format=print) instead of hexadecimal digits");
}

}  // namespace hako::tool
