// Reads the log of a database, for people, while no process has the database open for writing. It
// writes nothing and makes no update.
//
//   HAKO_ASSIGN_OR_RETURN(const auto summary, SummarizeLog("casket.hkt", visitor));
//
// It reads the database itself for the name of the log and the secret of its checks: the superblock
// or, for a database in memory, the whole snapshot.
#pragma once

#include <array>
#include <cstdint>
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
    bool is_needed = false;  // whether it may have updates since the last checkpoint; else it is free
  };
  std::string path;               // of the log
  std::uint64_t bytes = 0;        // size of its file
  log::DatabaseId id{};           // of the log; zeros = the database has none
  log::Position checkpoint;       // from which on the database lacks the updates
  std::vector<Part> segments;     // in the order of their sequences
  std::uint64_t end = 0;          // the LSN after the last whole update
  std::uint64_t durable = 0;      // everything below this LSN was certainly durable
  std::uint64_t num_updates = 0;  // number of updates after the checkpoint
  std::uint64_t num_runs = 0;     // number of runs: updates that were made together
  // Whether a part of an update follows the end. It was never durable: the process or the machine
  // died while it was written.
  bool is_torn = false;
  Status damage;  // DataLoss if durable updates are missing or damaged

  // Whether the database has a log.
  bool IsNamed() const { return id != log::DatabaseId{}; }
};

// Returns the magic number of the file of a database of any kind. One of the two superblocks may be
// damaged. Returns InvalidArgument if the file is not a database.
StatusOr<std::array<char, 16>> FindMagic(const PositionalParallelFile& file);

// Returns the log that the file of a database names. One of the two superblocks may be damaged.
// Errors: see SummarizeLog.
StatusOr<log::NamedLog> FindNamedLog(PositionalParallelFile& file);

// Calls visit(LSN after the run, its updates) for each run that the database lacks, in order.
// Returns InvalidArgument if the file is not a database, Unavailable if a process has it open for
// writing, DataLoss if its superblocks are damaged. The summary reports damage to the log.
using LogVisitorRef = FunctionRef<void(std::uint64_t lsn, std::span<const format::LogEntry> updates)>;
StatusOr<LogSummary> SummarizeLog(const std::string& path, LogVisitorRef visit, const FileOptions& options = {});

}  // namespace hako
