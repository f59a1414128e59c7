// The command log: shows the log of a database, or a log archive.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/dbm/log_summary.h"
#include "hako/log/log_archive.h"
#include "hako/text/json_record.h"
#include "hako/text/text_encoding.h"
#include "tool/command.h"
#include "tool/output.h"
#include "tool/times.h"

namespace hako::tool {
namespace {

using format::LogEntry;
using format::LogOp;

constexpr std::size_t kShownMax = 60;  // bytes that are shown of a key or a value

struct LogCommandOptions {
  std::string path;
  std::int64_t limit = 20;
  bool json = false;
  FileOptions file;
};

std::string Quoted(std::string_view bytes) {
  std::string text = "\"";
  text::AppendPrintable(bytes.substr(0, kShownMax), &text);
  text += "\"";
  if (bytes.size() > kShownMax) absl::StrAppend(&text, "... (", bytes.size(), " bytes)");
  return text;
}

std::string_view OpName(LogOp op) {
  switch (op) {
    case LogOp::kSet:
      return "set";
    case LogOp::kRemove:
      return "remove";
    case LogOp::kRemoveRange:
    case LogOp::kRemoveFrom:
      return "remove range";
    case LogOp::kClear:
      return "clear";
    case LogOp::kAppliedIndex:
      return "applied index";
    case LogOp::kTime:
      return "time";
    default:
      return "unknown";
  }
}

// Returns the number in an entry.
std::uint64_t IndexOf(const LogEntry& entry) {
  Le<std::uint64_t> index = 0;
  if (entry.value.size() == sizeof(index)) std::memcpy(static_cast<void*>(&index), entry.value.data(), sizeof(index));
  return index;
}

void AppendText(std::uint64_t lsn, const LogEntry& entry, std::string* out) {
  absl::StrAppend(out, lsn, "  ", ToAbsl(OpName(entry.op)));
  if (entry.op == LogOp::kSet) absl::StrAppend(out, " ", Quoted(entry.key), " = ", Quoted(entry.value));
  if (entry.op == LogOp::kRemove) absl::StrAppend(out, " ", Quoted(entry.key));
  if (entry.op == LogOp::kRemoveRange) absl::StrAppend(out, " from ", Quoted(entry.key), " to before ", Quoted(entry.value));
  if (entry.op == LogOp::kRemoveFrom) absl::StrAppend(out, " from ", Quoted(entry.key), " on");
  if (entry.op == LogOp::kAppliedIndex) absl::StrAppend(out, " ", IndexOf(entry));
  if (entry.op == LogOp::kTime) absl::StrAppend(out, " ", FormatMilliseconds(IndexOf(entry)));
  *out += "\n";
}

nlohmann::ordered_json JsonOf(std::string_view bytes) {
  std::string text;
  text::AppendJsonBytes(bytes, &text);
  return nlohmann::ordered_json::parse(text);
}

nlohmann::ordered_json ToJson(std::uint64_t lsn, const LogEntry& entry) {
  nlohmann::ordered_json object = {{"lsn", lsn}, {"op", std::string(OpName(entry.op))}};
  const bool is_range = entry.op == LogOp::kRemoveRange || entry.op == LogOp::kRemoveFrom;
  if (is_range) object["from"] = JsonOf(entry.key);
  if (entry.op == LogOp::kRemoveRange) object["to"] = JsonOf(entry.value);
  if (entry.op == LogOp::kSet || entry.op == LogOp::kRemove) object["key"] = JsonOf(entry.key);
  if (entry.op == LogOp::kSet) object["value"] = JsonOf(entry.value);
  if (entry.op == LogOp::kAppliedIndex) object["index"] = IndexOf(entry);
  if (entry.op == LogOp::kTime) object["time"] = IndexOf(entry);
  return object;
}

std::string HexOf(const log::DatabaseId& id) {
  std::string hex;
  text::AppendHex({reinterpret_cast<const char*>(id.data()), id.size()}, &hex);
  return hex;
}

std::string_view TailOf(const LogSummary& summary) {
  if (!summary.damage.ok()) return "damaged";
  return summary.is_torn ? "torn" : "complete";
}

std::uint64_t NumNeeded(const LogSummary& summary) {
  std::uint64_t num = 0;
  for (const LogSummary::Part& part : summary.segments) num += part.is_needed ? 1 : 0;
  return num;
}

void AppendText(const LogSummary& summary, std::string* out) {
  absl::StrAppend(out, "log: ", summary.path, ", ", summary.bytes, " bytes\nid: ", HexOf(summary.id), "\ncheckpoint: LSN ",
                  summary.checkpoint.lsn, " of segment ", summary.checkpoint.sequence, "\nsegments: ", summary.segments.size(), ", ",
                  NumNeeded(summary), " needed\n");
  for (const LogSummary::Part& part : summary.segments) {
    absl::StrAppend(out, "segment ", part.segment.sequence, ": from LSN ", part.segment.first, ", room to LSN ", part.segment.end(),
                    ", at offset ", part.segment.offset(), part.is_needed ? "\n" : ", free\n");
  }
  absl::StrAppend(out, "end: LSN ", summary.end, "\ndurable: at least to LSN ", summary.durable, "\nupdates: ", summary.num_updates, " in ",
                  summary.num_runs, " runs\ntail: ", ToAbsl(TailOf(summary)));
  if (summary.is_torn) *out += ", an update behind the end is not whole, and was never durable";
  *out += "\n";
  if (!summary.damage.ok()) absl::StrAppend(out, "damage: ", summary.damage.message(), "\n");
}

nlohmann::ordered_json ToJson(const LogSummary& summary, nlohmann::ordered_json updates) {
  nlohmann::ordered_json segments = nlohmann::ordered_json::array();
  for (const LogSummary::Part& part : summary.segments) {
    segments.push_back({{"sequence", part.segment.sequence},
                        {"first_lsn", part.segment.first},
                        {"end_lsn", part.segment.end()},
                        {"offset", part.segment.offset()},
                        {"needed", part.is_needed}});
  }
  nlohmann::ordered_json root = {{"log", summary.path},
                                 {"bytes", summary.bytes},
                                 {"id", HexOf(summary.id)},
                                 {"checkpoint", {{"lsn", summary.checkpoint.lsn}, {"sequence", summary.checkpoint.sequence}}},
                                 {"segments", std::move(segments)},
                                 {"end_lsn", summary.end},
                                 {"durable_lsn", summary.durable},
                                 {"num_updates", summary.num_updates},
                                 {"num_runs", summary.num_runs},
                                 {"tail", std::string(TailOf(summary))}};
  if (!summary.damage.ok()) root["damage"] = std::string(summary.damage.message());
  root["updates"] = std::move(updates);
  return root;
}

// Prints the segments of an archive, with the LSNs at which the records of each begin and end.
int RunArchive(const LogCommandOptions& options) {
  const StatusOr<std::vector<log::ArchivedSegment>> archived = log::ListArchive(options.path);
  if (!archived.ok()) return Fail(options.path, archived.status());
  Output output(STDOUT_FILENO);
  nlohmann::ordered_json segments = nlohmann::ordered_json::array();
  log::Link last;
  for (const log::ArchivedSegment& piece : *archived) {
    const log::Segment& segment = piece.segment;
    const bool goes_on = &piece == &archived->front() || segment.before() == last;
    last = piece.link();
    if (options.json) {
      segments.push_back({{"sequence", segment.sequence},
                          {"predecessor", segment.predecessor},
                          {"log", HexOf(piece.log)},
                          {"first_lsn", segment.first},
                          {"end_lsn", segment.limit},
                          {"time", FormatTime(segment.time)},
                          {"continues", goes_on}});
      continue;
    }
    absl::StrAppend(output.buffer(), "segment ", segment.sequence, ": from LSN ", segment.first, " to ", segment.limit, ", begun ",
                    FormatTime(segment.time), ", log ", HexOf(piece.log),
                    goes_on ? "\n" : absl::StrCat(", segment ", segment.predecessor, " before it is missing\n"));
  }
  if (options.json)
    output.buffer()->append(nlohmann::ordered_json{{"archive", options.path}, {"segments", std::move(segments)}}.dump()).append("\n");
  if (const Status written = output.Flush(); !written.ok()) return Fail("standard output", written);
  return archived->empty() ? kExitNo : kExitDone;
}

int RunLog(const LogCommandOptions& options) {
  if (std::error_code error; std::filesystem::is_directory(options.path, error)) return RunArchive(options);
  std::string shown;
  nlohmann::ordered_json updates = nlohmann::ordered_json::array();
  std::int64_t num_shown = 0;
  const auto visit = [&](std::uint64_t lsn, std::span<const LogEntry> run) {
    for (const LogEntry& entry : run) {
      if (options.limit >= 0 && num_shown >= options.limit) return;
      ++num_shown;
      if (options.json) {
        updates.push_back(ToJson(lsn, entry));
      } else {
        AppendText(lsn, entry, &shown);
      }
    }
  };
  const StatusOr<LogSummary> summary = SummarizeLog(options.path, visit, options.file);
  if (!summary.ok()) return Fail(options.path, summary.status());
  if (!summary->IsNamed()) {
    Note(absl::StrCat(options.path, ": has no log, as it was closed or keeps none"));
    return kExitNo;
  }
  Output output(STDOUT_FILENO);
  if (options.json) {
    const nlohmann::ordered_json root = ToJson(*summary, std::move(updates));
    output.buffer()->append(root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)).append("\n");
  } else {
    AppendText(*summary, output.buffer());
    output.buffer()->append(shown);
    const auto rest = static_cast<std::int64_t>(summary->num_updates) - num_shown;
    if (rest > 0 && num_shown > 0) absl::StrAppend(output.buffer(), "... ", rest, " more; --limit -1 shows all\n");
  }
  if (const Status written = output.Flush(); !written.ok()) return Fail("standard output", written);
  return summary->damage.ok() ? kExitDone : kExitNo;
}

}  // namespace

void AddLogCommand(Commands& commands) {
  const auto options = std::make_shared<LogCommandOptions>();
  CLI::App* app =
      commands.Add("log", "Print what the log of a database has that was not closed; exit code 1 if there is none, or it is damaged",
                   [options] { return RunLog(*options); });
  app->add_option("FILE", options->path,
                  "The database, which no process has open; it is only read, and so is FILE-log. Or the directory of a log_archive: its "
                  "segments are listed")
      ->required()
      ->type_name("");
  AddNumber(app, "--limit", &options->limit,
            "Show the first N updates since the checkpoint, each with the LSN behind it; -1 = all; default 20", -1, std::int64_t{1} << 50);
  app->add_flag(
      "--json", options->json,
      "One JSON object: log, bytes, id, checkpoint, segments, end_lsn, durable_lsn, num_updates, num_runs, tail, damage, updates");
  const auto take_wait = [options](double seconds) {
    options->file.lock_timeout = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  };
  AddSeconds(app, "--wait", take_wait, "How long to wait while another process has the file open; 0 = do not wait");
}

}  // namespace hako::tool
