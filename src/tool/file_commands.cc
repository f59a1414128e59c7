// Commands on a database as a whole: create, inspect, verify.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hako/base/hash.h"
#include "hako/format/bucket_format.h"
#include "hako/hash/table_shape.h"
#include "tool/command.h"
#include "tool/database.h"
#include "tool/file_map.h"
#include "tool/interrupt.h"
#include "tool/numbers.h"
#include "tool/output.h"
#include "tool/plot.h"
#include "tool/progress.h"
#include "tool/text_file.h"
#include "tool/times.h"

namespace hako::tool {
namespace {

std::int64_t FileSize(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? info.st_size : -1;
}

struct CreateOptions {
  DatabaseOptions database;
  bool truncate = false;
  std::int64_t num_records = -1;
  std::int64_t align_pow = -1;
  std::int64_t max_page_size = -1;
};

int RunCreate(CreateOptions options) {
  AnyOptions& any = options.database.any;
  const bool is_there = FileSize(any.path) >= 0;
  if (!options.truncate && FileSize(any.path) > 0) return Fail(any.path, absl::AlreadyExistsError(""));
  any.file.mode = options.truncate ? OpenMode::kTruncate : OpenMode::kCreate;
  if (options.num_records >= 0) any.num_records = static_cast<std::uint64_t>(options.num_records);
  if (options.align_pow >= 0) any.align_pow = static_cast<int>(options.align_pow);
  if (options.max_page_size >= 0) any.page_size = static_cast<unsigned>(options.max_page_size);
  const int code = WithFile(options.database, [](auto&) { return kExitDone; });
  if (!is_there && code == kExitFile) unlink(any.path.c_str());  // a partial file is not a database, and may be large
  return code;
}

struct InspectOptions {
  DatabaseOptions database;
  std::string attribute;
  bool json = false;
  bool validate = false;
  bool plot = false;
  std::string svg;  // the file for the picture
};

// The results of `inspect`, for both forms of its output.
struct Findings {
  std::int64_t file_size = 0;
  Inspection attributes;
  Stats stats;
  bool is_healthy = true;  // as far as it was checked: Open checks the superblock, --validate everything
  bool should_be_rebuilt = false;
  Status validated;
  double validation_seconds = 0;
};

void AppendJson(const InspectOptions& options, const Findings& findings, std::string* out) {
  const Stats& stats = findings.stats;
  nlohmann::ordered_json root = {
      {"file", options.database.path()},
      {"file_size", findings.file_size},
      {"num_records", stats.num_records},
      {"healthy", findings.is_healthy},
      {"should_be_rebuilt", findings.should_be_rebuilt},
      {"stats",
       {{"total_bytes", stats.total_bytes},
        {"record_bytes", stats.record_bytes},
        {"free_bytes", stats.free_bytes},
        {"index_bytes", stats.index_bytes},
        {"num_buckets", stats.num_buckets},
        {"num_overflow", stats.num_overflow},
        {"epoch", stats.epoch}}},
  };
  nlohmann::ordered_json attributes = nlohmann::ordered_json::object();
  for (const auto& [name, value] : findings.attributes) {
    if (!root["stats"].contains(name) && !root.contains(name)) attributes[name] = value;
  }
  root["attributes"] = std::move(attributes);
  if (options.validate) root["validated"] = findings.validated.ok();
  out->append(root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)).append("\n");
}

// Returns a text such as " (12.1 KiB)" on a terminal, else an empty one.
std::string Units(std::uint64_t bytes) {
  return isatty(STDOUT_FILENO) == 1 && bytes >= 1024 ? absl::StrCat(" (", FormatBytes(bytes), ")") : "";
}

// Explains a value to people: shows seconds since 1970 as UTC, and bytes with a unit.
std::string Meaning(const std::string& name, const std::string& value) {
  std::uint64_t bytes = 0;
  if (name.ends_with("_bytes") && absl::SimpleAtoi(value, &bytes)) return Units(bytes);
  const auto time = name.ends_with("_at") ? ParseTime("@" + value) : std::nullopt;
  return time ? absl::StrCat(" (", FormatTime(*time), ")") : "";
}

void AppendText(const InspectOptions& options, const Findings& findings, std::string* out) {
  out->append("Inspection:\n");
  for (const auto& [name, value] : findings.attributes) absl::StrAppend(out, "  ", name, "=", Displayed(value), Meaning(name, value), "\n");
  absl::StrAppend(out, "Actual File Size: ", findings.file_size,
                  Units(static_cast<std::uint64_t>(std::max<std::int64_t>(findings.file_size, 0))),
                  "\nNumber of Records: ", findings.stats.num_records);
  absl::StrAppend(out, "\nHealthy: ", findings.is_healthy ? "true" : "false");
  absl::StrAppend(out, "\nShould be Rebuilt: ", findings.should_be_rebuilt ? "true" : "false", "\n");
  if (options.validate)
    absl::StrAppendFormat(out, "Validating records: ... %s (elapsed=%.6f)\n", findings.validated.ok() ? "ok" : "failed",
                          findings.validation_seconds);
}

template <class Db>
Status VerifyShowingTime(Db& db) {
  const Ticker ticker(absl::StrCat("verifying ", CountOf(db)));
  return db.Verify();
}

void AddTable(AnyDBM&, Findings*) {}
// Adds the findings on a table. Its records, for users, are the rows; the tree also has the entries
// of indices and the catalogue.
void AddTable(TableDBM& table, Findings* findings) {
  const std::uint64_t num_rows = NumRecords(table);
  findings->stats.num_records = num_rows;
  for (auto& [name, value] : findings->attributes) {
    if (name == "class") value = "TableDBM";
    if (name == "num_records") value = absl::StrCat(num_rows);
  }
  findings->attributes.emplace_back("num_columns", absl::StrCat(table.Columns().size()));
  findings->attributes.emplace_back("num_indices", absl::StrCat(table.Indices().size()));
}

template <class Db>
Findings Examine(const InspectOptions& options, Db& db) {
  Findings findings;
  findings.file_size = FileSize(options.database.path());
  findings.attributes = db.Inspect();
  findings.stats = db.GetStats();
  AddTable(db, &findings);
  findings.should_be_rebuilt = db.ShouldBeRebuilt();
  if (options.validate) {
    const auto start = std::chrono::steady_clock::now();
    findings.validated = VerifyShowingTime(db);
    findings.validation_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    findings.is_healthy = findings.validated.ok();
  }
  return findings;
}

// What a plot shows about the records.
struct Shapes {
  Sizes keys, values;
  std::vector<std::uint32_t> bucket_counts;        // of a hash table: number of records in each bucket
  std::map<std::uint64_t, std::uint64_t> of_leaf;  // of an array: number of records in each page
  std::uint64_t per_leaf = 0;
};

Status Scan(AnyDBM& db, const InspectOptions& options, const Findings& findings, Shapes* shapes) {
  const auto attribute = [&](std::string_view wanted) -> std::string {
    for (const auto& [name, value] : findings.attributes) {
      if (name == wanted) return value;
    }
    return "";
  };
  std::optional<std::uint64_t> seed;
  if (attribute("class") == "HashDBM") seed = ReadHashSeed(options.database.path());
  const auto shape = hash::TableShape::Of(seed ? findings.stats.num_buckets : 0);
  if (seed) shapes->bucket_counts.resize(findings.stats.num_buckets);
  (void)absl::SimpleAtoi(attribute("records_per_page"), &shapes->per_leaf);
  auto it = db.MakeIterator();
  for (it.First(); it.Valid(); it.Next()) {
    shapes->keys.Add(it.key().size());
    shapes->values.Add(it.value().size());
    if (seed) ++shapes->bucket_counts[shape.IndexOf(Hash64(it.key(), *seed))];
    std::uint64_t id = 0;
    if (shapes->per_leaf != 0 && absl::SimpleAtoi(ToAbsl(it.key()), &id)) ++shapes->of_leaf[id / shapes->per_leaf];
  }
  return it.status();
}

Status Scan(TableDBM& table, const InspectOptions&, const Findings&, Shapes* shapes) {
  return table.Select().Each([&](std::string_view key, const RowView& row) {
    shapes->keys.Add(key.size());
    shapes->values.Add(row.bytes().size());
    return true;
  });
}

std::vector<Chart> ChartsOf(const InspectOptions& options, const Findings& findings, const Shapes& shapes) {
  const bool is_table = options.database.IsTable();
  std::vector<Chart> charts = {shapes.keys.ByPowers("Sizes of keys", "keys"),
                               shapes.values.ByPowers(is_table ? "Sizes of rows" : "Sizes of values", is_table ? "rows" : "values")};
  if (!shapes.bucket_counts.empty()) {
    Sizes counts;
    for (const std::uint32_t count : shapes.bucket_counts) counts.Add(count);
    charts.push_back(counts.BySize("Records in a bucket",
                                   absl::StrCat(GroupDigits(shapes.bucket_counts.size()), " buckets with room for ", format::kLineEntries,
                                                " records each; ", GroupDigits(findings.stats.num_overflow), " overflow buckets"),
                                   3 * format::kLineEntries));
  }
  const std::optional<FileMap> map = ReadFileMap(options.database.path());
  if (shapes.per_leaf != 0) {
    std::vector<double> percents;
    for (const auto& [leaf, count] : shapes.of_leaf)
      percents.push_back(100.0 * static_cast<double>(count) / static_cast<double>(shapes.per_leaf));
    charts.push_back(ByTenths(
        "Fill of pages", absl::StrCat(GroupDigits(percents.size()), " pages with room for ", GroupDigits(shapes.per_leaf), " records each"),
        percents));
  } else if (map) {
    std::vector<double> percents;
    for (const std::uint32_t size : map->leaf_sizes)
      percents.push_back(100.0 * static_cast<double>(size) / static_cast<double>(map->page_size));
    charts.push_back(ByTenths("Fill of pages",
                              absl::StrCat(GroupDigits(percents.size()), " leaf pages of ", FormatBytes(map->page_size), " at most, ",
                                           GroupDigits(map->num_inner), " pages above; ", GroupDigits(map->num_long), " long values"),
                              percents));
  }
  if (map) {
    Sizes runs;
    for (const std::uint64_t run : map->free_runs) runs.Add(run);
    charts.push_back(runs.ByPowers("Runs of free space", "runs"));
  }
  const Stats& stats = findings.stats;
  const std::uint64_t known = stats.record_bytes + stats.index_bytes + stats.free_bytes;
  charts.push_back({.title = "Space",
                    .note = absl::StrCat(FormatBytes(stats.total_bytes), " in all"),
                    .bars = {{"records", stats.record_bytes},
                             {"index", stats.index_bytes},
                             {"free", stats.free_bytes},
                             {"other", stats.total_bytes - std::min(known, stats.total_bytes)}},
                    .is_bytes = true});
  return charts;
}

// Draws the charts. Returns the exit code.
int Plot(const InspectOptions& options, const Findings& findings, const Shapes& shapes) {
  const std::vector<Chart> charts = ChartsOf(options, findings, shapes);
  const std::string& path = options.database.path();
  const std::string what =
      absl::StrCat(options.database.IsTable() ? CountOfRows(findings.stats.num_records) : CountOfRecords(findings.stats.num_records), ", ",
                   FormatBytes(static_cast<std::uint64_t>(std::max<std::int64_t>(findings.file_size, 0))));
  if (!options.svg.empty()) {
    TextOutput picture;
    const Interrupt interrupt;
    Status status = picture.Open(options.svg);
    if (status.ok()) status = picture.Write(interrupt, Svg(path, what, charts));
    if (status.ok()) status = picture.Commit();
    return status.ok() ? kExitDone : FailText(picture.name(), status);
  }
  Output output(STDOUT_FILENO);
  absl::StrAppend(output.buffer(), isatty(STDOUT_FILENO) == 1 ? Displayed(path) : path, ": ", what, "\n");
  for (const Chart& chart : charts) {
    output.buffer()->push_back('\n');
    AppendText(chart, output.buffer());
  }
  const Status written = output.Flush();
  return written.ok() ? kExitDone : Fail("standard output", written);
}

int RunInspect(InspectOptions options) {
  options.plot = options.plot || !options.svg.empty();
  if (options.plot && (options.json || !options.attribute.empty()))
    return FailUsage("inspect", "--plot draws, and excludes --json and ATTRIBUTE");
  if (IsNamedAsDatabase(options.svg) || HoldsDatabase(options.svg))
    return FailUsage("inspect", absl::StrCat(options.svg, " is a database; give --svg the name of a picture, such as plot.svg"));
  if (options.validate) options.database.on_damage = kExitNo;
  return WithFile(options.database, [&options](auto& db) -> int {
    const Findings findings = Examine(options, db);
    if (options.plot) {
      Shapes shapes;
      const Status scanned = [&] {
        const Ticker ticker(absl::StrCat("reading ", CountOf(db)));
        return Scan(db, options, findings, &shapes);
      }();
      if (!scanned.ok()) return FailDatabase(options.database, scanned);
      const int code = Plot(options, findings, shapes);
      return findings.validated.ok() ? code : FailDatabase(options.database, findings.validated);
    }
    Output output(STDOUT_FILENO);
    if (!options.attribute.empty()) {
      const auto it = std::find_if(findings.attributes.begin(), findings.attributes.end(),
                                   [&options](const auto& attribute) { return attribute.first == options.attribute; });
      if (it == findings.attributes.end()) {
        Note(absl::StrCat(options.database.path(), ": no attribute '", options.attribute, "'; 'hako inspect' lists them"));
        return kExitNo;
      }
      absl::StrAppend(output.buffer(), it->second, "\n");
    } else if (options.json) {
      AppendJson(options, findings, output.buffer());
    } else {
      AppendText(options, findings, output.buffer());
    }
    if (const Status written = output.Flush(); !written.ok()) return Fail("standard output", written);
    return findings.validated.ok() ? kExitDone : FailDatabase(options.database, findings.validated);
  });
}

struct VerifyOptions {
  DatabaseOptions database;
  bool json = false;
};

int RunVerify(const VerifyOptions& options) {
  Output output(STDOUT_FILENO);
  const int code = WithFile(options.database, [&](auto& db) -> int {
    if (const Status status = VerifyShowingTime(db); !status.ok()) return FailDatabase(options.database, status);
    if (options.json) {
      const nlohmann::ordered_json root = {{"file", options.database.path()}, {"ok", true}, {"num_records", NumRecords(db)}};
      output.buffer()->append(root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)).append("\n");
    } else {
      absl::StrAppend(output.buffer(), isatty(STDOUT_FILENO) == 1 ? Displayed(options.database.path()) : options.database.path(), ": ok, ",
                      NumRecords(db), options.database.IsTable() ? " row" : " record", NumRecords(db) == 1 ? "\n" : "s\n");
    }
    return kExitDone;
  });
  if (const Status written = output.Flush(); !written.ok()) return Fail("standard output", written);
  return code;
}

struct CountOptions {
  DatabaseOptions database;
};

int RunCount(const CountOptions& options) {
  return WithFile(options.database, [&options](auto& db) -> int {
    const StatusOr<std::uint64_t> count = db.Count();
    if (!count.ok()) return FailDatabase(options.database, count.status());
    Output output(STDOUT_FILENO);
    absl::StrAppend(output.buffer(), *count, "\n");
    const Status written = output.Flush();
    return written.ok() ? kExitDone : Fail("standard output", written);
  });
}

}  // namespace

void AddCreateCommand(Commands& commands) {
  const auto options = std::make_shared<CreateOptions>();
  CLI::App* app = commands.Add("create", "Create an empty database", [options] { return RunCreate(*options); });
  AddDatabaseOptions(app, &options->database, Access::kWrite);
  app->add_flag("--truncate", options->truncate, "Empty an existing file, even if it is no database");
  AddNumber(app, "--num_records", &options->num_records, "Expected number of records; a hint, as the table grows by itself; for hash", 0,
            std::int64_t{1} << 32);
  AddNumber(app, "--align_pow", &options->align_pow, "Align records to 2^N bytes: 3 allows files of 32 GiB, 6 of 256 GiB; for hash", 2, 6);
  AddNumber(app, "--max_page_size", &options->max_page_size, "Maximum size of a page in bytes, default 8192; for tree", 128, 8192);
}

void AddInspectCommand(Commands& commands) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* app = commands.Add("inspect", "Print the properties and the figures of a database", [options] { return RunInspect(*options); });
  AddDatabaseOptions(app, &options->database, Access::kRead);
  app->add_option("ATTRIBUTE", options->attribute, "Print the value of this attribute only; exit code 1 if there is none")->type_name("");
  app->add_flag("--json", options->json, "One JSON object: file, file_size, num_records, healthy, should_be_rebuilt, stats, attributes");
  app->add_flag("--validate", options->validate, "Check the whole structure too, as 'verify' does");
  app->add_flag("--plot", options->plot,
                "Draw the sizes of keys and values, the fill of pages or buckets, and the space of the file; reads all records");
  app->add_option("--svg", options->svg, "The same as a picture in this file")->option_text("FILE");
}

void AddVerifyCommand(Commands& commands) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App* app =
      commands.Add("verify", "Check every byte of a database; exit code 1 if it is damaged", [options] { return RunVerify(*options); });
  options->database.on_damage = kExitNo;
  AddDatabaseOptions(app, &options->database, Access::kRead);
  app->add_flag("--json", options->json, "One JSON object: file, ok, num_records; nothing if the database is damaged");
}

void AddCountCommand(Commands& commands) {
  const auto options = std::make_shared<CountOptions>();
  CLI::App* app = commands.Add("count", "Print the number of records", [options] { return RunCount(*options); });
  AddDatabaseOptions(app, &options->database, Access::kRead);
}

}  // namespace hako::tool
