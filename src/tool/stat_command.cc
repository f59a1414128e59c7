// The command stat: the figures of a tree or an array beside its writer, once or at intervals.
//
// They are those of the checkpoints in the file, and of the file of the readers (hako/file/readers_file.h). What only the
// process of the writer knows, such as its cache and the updates since its last checkpoint, is not shown.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hako/base/wall_clock.h"
#include "hako/file/path.h"
#include "hako/file/readers_file.h"
#include "tool/command.h"
#include "tool/database.h"
#include "tool/interrupt.h"
#include "tool/output.h"
#include "tool/times.h"

namespace hako::tool {
namespace {

using Clock = std::chrono::steady_clock;

struct StatOptions {
  DatabaseOptions database;
  bool watch = false;
  std::int64_t count = 0;  // lines; 0 = no limit
  double interval = 1;     // seconds
};

constexpr char kUnknown[] = "-";

// What one line shows.
struct Sample {
  Clock::time_point at;
  Stats stats;                            // of the checkpoint
  ReadersFile::Figures told = {};         // by the writer, with its last checkpoint beside readers
  std::uint64_t num_readers = 0;          // without this one
  std::optional<std::uint64_t> age = {};  // of the oldest reader of an older checkpoint, in milliseconds
};

Sample TakeSample(AnyDBM& db, ReadersFile& readers) {
  Sample sample{.at = Clock::now(), .stats = db.GetStats()};
  const ReadersFile::Pins pins = readers.Look(sample.stats.epoch);
  sample.num_readers = pins.num_readers - std::min<std::uint64_t>(pins.num_readers, 1);
  if (pins.since != ReadersFile::kNone) {
    const std::uint64_t now = SteadyMilliseconds();
    sample.age = now - std::min(now, pins.since);
  }
  sample.told = readers.GetFigures();
  return sample;
}

std::string Size(std::uint64_t bytes) { return isatty(STDOUT_FILENO) == 1 ? FormatBytes(bytes) : absl::StrCat(bytes); }

// The change from `before` to `now`, a second.
std::string Rate(const Sample& before, const Sample& now, std::uint64_t from, std::uint64_t to) {
  const double seconds = std::chrono::duration<double>(now.at - before.at).count();
  if (!(seconds > 0)) return kUnknown;
  return absl::StrFormat("%.1f", (static_cast<double>(to) - static_cast<double>(from)) / seconds);
}

void AppendLine(const std::array<std::string, 11>& cells, std::string* out) {
  std::string line = absl::StrFormat("%-20s", cells[0]);
  for (std::size_t i = 1; i < cells.size(); ++i) absl::StrAppendFormat(&line, " %12s", cells[i]);
  absl::StrAppend(out, line, "\n");
}

void AppendHead(std::string* out) {
  AppendLine({"checkpoint_at", "checkpoints", "per_s", "records", "per_s", "logged/s", "file", "free", "kept", "readers", "oldest_s"}, out);
}

void AppendSample(const Sample* before, const Sample& now, std::string* out) {
  const bool is_told = now.told.epoch != 0;
  const bool has_log = is_told && before != nullptr && now.told.lsn != 0 && before->told.lsn != 0 && now.told.lsn >= before->told.lsn;
  const std::string time = now.stats.synced_at != 0 ? FormatTime(now.stats.synced_at) : kUnknown;
  AppendLine({time.substr(0, 19), absl::StrCat(now.stats.epoch),
              before != nullptr ? Rate(*before, now, before->stats.epoch, now.stats.epoch) : kUnknown, absl::StrCat(now.stats.num_records),
              before != nullptr ? Rate(*before, now, before->stats.num_records, now.stats.num_records) : kUnknown,
              has_log ? Rate(*before, now, before->told.lsn, now.told.lsn) : kUnknown, Size(now.stats.total_bytes),
              is_told ? Size(now.told.free_bytes) : kUnknown, is_told ? Size(now.told.reader_bytes) : kUnknown,
              absl::StrCat(now.num_readers), now.age ? absl::StrFormat("%.1f", static_cast<double>(*now.age) / 1000) : kUnknown},
             out);
}

// Returns early after a signal.
void SleepUntil(Clock::time_point end, const Interrupt& interrupt) {
  static constexpr Clock::duration kStep = std::chrono::milliseconds(50);
  for (Clock::time_point now = Clock::now(); now < end && interrupt.signal() == 0; now = Clock::now())
    std::this_thread::sleep_for(std::min(kStep, end - now));
}

int Watch(const StatOptions& options, AnyDBM& first) {
  static constexpr std::int64_t kLinesOfHead = 20;  // on a terminal
  const Interrupt interrupt;
  Output output(STDOUT_FILENO);
  ReadersFile readers(CanonicalOf(options.database.path()));
  std::unique_ptr<AnyDBM> newer;
  std::optional<Sample> before;
  Clock::time_point next = Clock::now();
  const auto interval = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.interval));
  for (std::int64_t line = 0; options.count == 0 || line < options.count; ++line) {
    if (line != 0) {
      next += interval;
      SleepUntil(next, interrupt);
      if (interrupt.signal() != 0) return kExitSignal + interrupt.signal();
      auto refreshed = (newer != nullptr ? *newer : first).Refresh();
      if (!refreshed.ok()) return FailDatabase(options.database, refreshed.status());
      if (*refreshed != nullptr) newer = *std::move(refreshed);
    }
    const Sample now = TakeSample(newer != nullptr ? *newer : first, readers);
    if (line == 0 || (line % kLinesOfHead == 0 && isatty(STDOUT_FILENO) == 1)) AppendHead(output.buffer());
    AppendSample(before ? &*before : nullptr, now, output.buffer());
    if (const Status written = output.Flush(); !written.ok()) return Fail("standard output", written);
    before = now;
  }
  return kExitDone;
}

int RunStat(StatOptions options) {
  options.database.any.raw = true;  // the file of a table is a tree
  const std::string_view kind = options.database.any.ResolvedKind();
  if (!kind.empty() && kind != AnyOptions::kTree && kind != AnyOptions::kArray)
    return FailUsage("stat",
                     absl::StrCat(options.database.path(), ": only trees and arrays are read beside their writer; see 'hako inspect'"));
  if (!options.watch) options.count = 1;
  return WithDatabase(options.database, [&](AnyDBM& db) { return Watch(options, db); });
}

}  // namespace

void AddStatCommand(Commands& commands) {
  const auto options = std::make_shared<StatOptions>();
  CLI::App* app = commands.Add("stat", "Show the figures of a tree or an array beside its writer, a line a moment",
                               [options] { return RunStat(*options); });
  AddDatabaseOptions(app, &options->database, Access::kRead);
  app->add_flag("--watch", options->watch, "A line an interval, until a signal");
  AddNumber(app, "--count", &options->count, "With --watch: end after this many lines; 0 = do not end", 0, std::int64_t{1} << 40);
  AddSeconds(
      app, "--interval", [options](double seconds) { options->interval = seconds; },
      "With --watch: the time between two lines, default 1s");
}

}  // namespace hako::tool
