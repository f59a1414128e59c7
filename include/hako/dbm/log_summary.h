// What the log of a database in a file has, for people to read, while no process has the database
// open for writing. Nothing is written, and no update is made.
//
//   HAKO_ASSIGN_OR_RETURN(const auto summary, SummarizeLog("casket.hkt", visitor));
//
// The database itself is read for the name of its log, and for the secret that seeds the checks of
// the records: its superblock, or, of a database in memory, its whole snapshot.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hako/base/function_ref.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/format/log_format.h"
#include "hako/log/log_segments.h"
#include "hako/log/update_log.h"

namespace hako {

// The log of a database.
struct LogSummary {
  // A segment of the file that belongs to this log.
  struct Part {
    log::Segment segment;    // its place and LSNs
    bool is_needed = false;  // has updates since the last checkpoint, or may have; else it is free
  };
  std::string path;               // of the log
  std::uint64_t bytes = 0;        // of its file
  log::DatabaseId id{};           // of the log; zeros: the database has none
  log::Position checkpoint;       // where the updates begin that the database lacks
  std::vector<Part> segments;     // in the order of their sequences
  std::uint64_t end = 0;          // the LSN behind the last update that is whole
  std::uint64_t durable = 0;      // the log below this LSN was durable for sure
  std::uint64_t num_updates = 0;  // that the database lacks
  std::uint64_t num_runs = 0;     // updates that were made together are one
  // Behind the end is a part of an update that was never durable: the process or the machine died
  // while it was written.
  bool is_torn = false;
  Status damage;  // DataLoss if updates are missing or damaged that were durable

  // Whether the database has a log.
  bool IsNamed() const { return id != log::DatabaseId{}; }
};

// The magic number of the file of a database, of any kind. One of the two superblocks may be damaged.
// InvalidArgument if it is none.
StatusOr<std::array<char, 16>> FindMagic(const PositionalParallelFile& file);

// The log that the file of a database names. One of the two superblocks may be damaged. An error as of
// SummarizeLog.
StatusOr<log::NamedLog> FindNamedLog(PositionalParallelFile& file);

// Calls visit(LSN behind the run, its updates) for each run that the database lacks, in order. An
// error is one of the database: InvalidArgument if it is none, Unavailable if a process has it open
// for writing, DataLoss if its superblocks are damaged. Damage to the log is in the summary.
using LogVisitorRef = FunctionRef<void(std::uint64_t lsn, std::span<const format::LogEntry> updates)>;
StatusOr<LogSummary> SummarizeLog(const std::string& path, LogVisitorRef visit, const FileOptions& options = {});

}  // namespace hako
