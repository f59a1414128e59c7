// The commands perf sequence, perf parallel, perf wicked and perf --stalls: their options.
#include <algorithm>
#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hako/dbm/any_options.h"
#include "tool/command.h"
#include "tool/perf.h"
#include "tool/stall_operations.h"

namespace hako::tool {
namespace {

int RunOn(PerfRunKind run, PerfOptions& options) {
  const char* command = options.command.c_str();
  const std::string kind(AnyOptions{.path = options.path, .kind = options.impl}.ResolvedKind());
  if (kind.empty())
    return FailUsage(command,
                     "nothing to measure: set --dbm tiny or baby, --dbm hash or tree and --path FILE, or --path FILE.hkh or FILE.hkt");
  if (kind == AnyOptions::kArray || std::find(AnyOptions::kKinds.begin(), AnyOptions::kKinds.end(), kind) == AnyOptions::kKinds.end())
    return FailUsage(command, absl::StrCat("--dbm ", options.impl, ": the kinds are auto, hash, tree, tiny and baby"));
  const bool is_in_file = kind == "hash" || kind == "tree";
  if (is_in_file && options.path.empty()) return FailUsage(command, absl::StrCat("--dbm ", kind, " requires --path"));
  if (options.num_iterations > std::numeric_limits<std::int32_t>::max() / options.num_threads)
    return FailUsage(command, "--iter times --threads exceeds the limit of 2147483647");
  if (const std::string mistake = MistakeIn(options.access); is_in_file && !mistake.empty()) return FailUsage(command, mistake);
  NoteUnused(options.access, kind, options.command);
  if (kind == "tiny") return RunPerfOnTiny(run, options);
  if (kind == "baby") return RunPerfOnBaby(run, options);
  return kind == "tree" ? RunPerfOnTree(run, options) : RunPerfOnHash(run, options);
}

// Options of the measured database and the access to its file.
void AddTargetOptions(CLI::App* app, PerfOptions* options) {
  app->add_option("--dbm", options->impl, "The kind of database; auto is by the suffix of --path")->option_text("auto|hash|tree|tiny|baby");
  app->add_option("--path", options->path, "The database file; it is emptied first")->option_text("FILE");
  AddAccessOptions(app, &options->access);
  AddNumber(app, "--buckets", &options->num_buckets, "Expected number of records; for hash and tiny", 1, std::int64_t{1} << 40);
  AddNumber(app, "--align_pow", &options->align_pow, "Align records to 2^N bytes; for hash and tiny", 2, 6);
  AddNumber(app, "--max_page_size", &options->max_page_size, "Maximum size of a page in bytes, default 8192; for tree and baby", 128, 8192);
  AddNumber(app, "--cache_bytes", &options->cache_bytes, "Memory for pages in bytes, default 256Mi; for tree", 1 << 20,
            std::int64_t{1} << 50);
  AddNumber(app, "--checkpoint_bytes", &options->checkpoint_bytes,
            "Start a checkpoint once this many bytes are dirty, default 64Mi; for tree", 1, std::int64_t{1} << 50);
}

void AddCommonOptions(CLI::App* app, PerfOptions* options) {
  constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
  AddTargetOptions(app, options);
  AddNumber(app, "--iter", &options->num_iterations, "Iterations of each thread, default 10000", 1, kInt32Max);
  AddNumber(app, "--size", &options->value_size, "Size of a value in bytes, default 8", 1, 1 << 30);
  AddNumber(app, "--threads", &options->num_threads, "Number of threads, default 1", 1, 2000);
  AddNumber(app, "--random_seed", &options->random_seed, "Seed of random keys and values; negative = from entropy, new in each phase",
            -kInt32Max, kInt32Max);
  app->add_flag("--sync_hard", options->sync_hard, "Synchronize with the device before each close, outside the timing");
  app->add_flag("--validate", options->validate, "Verify the database after updates, inside the timing");
  app->add_flag("--latency", options->latency, "Time each operation, and print p50, p99, p99.9 and the longest; slows operations a little");
  app->add_flag("--json", options->json, "One JSON object for each phase instead of the text");
}

void AddSequenceOptions(CLI::App* app, PerfOptions* options) {
  app->add_flag("--random_key", options->random_key, "Random keys instead of ascending ones");
  app->add_flag("--random_value", options->random_value, "Values of random length, up to --size");
  app->add_flag("--set_only", options->set_only, "Only the phase Setting; the four flags can be combined");
  app->add_flag("--get_only", options->get_only, "Only the phase Getting");
  app->add_flag("--iter_only", options->iter_only, "Only the phase Iterating");
  app->add_flag("--remove_only", options->remove_only, "Only the phase Removing");
  app->add_option("--copy", options->copy_path, "Copy the database to FILE after Setting")->option_text("FILE");
  app->add_flag("--get_copy", options->get_copy, "Getting copies the values; without it, it only looks them up");
  AddChoice(app, "--get_order", &options->get_order, {"same", "shuffle", "uniform", "zipf"},
            "The order of keys in Getting: as in Setting, shuffled, drawn uniformly, or drawn by a Zipf "
            "distribution (0.99)");
  AddNumber(app, "--miss", &options->miss_percent, "Percentage of the keys of Getting that are absent", 0, 100);
  app->add_flag("--honest", options->honest,
                "--get_copy --get_order shuffle, keys made before the timing starts, open and close timed separately");
}

void AddParallelOptions(CLI::App* app, PerfOptions* options) {
  app->add_flag("--random_key", options->random_key, "Random keys instead of ascending ones");
  app->add_flag("--random_value", options->random_value, "Values of random length, up to --size");
  AddNumber(app, "--keys", &options->num_keys, "Number of different keys, default the number of iterations", 1,
            std::numeric_limits<std::int32_t>::max());
  app->add_flag("--rebuild", options->rebuild, "Rebuild the database now and then, if needed");
  AddSeconds(
      app, "--sleep", [options](double seconds) { options->sleep_seconds = seconds; }, "Sleep after each iteration");
}

void AddWickedOptions(CLI::App* app, PerfOptions* options) {
  app->add_flag("--iterator", options->iterator, "Use iterators now and then");
  app->add_flag("--clear", options->clear, "Clear the database now and then");
  app->add_flag("--sync", options->sync, "Synchronize the database now and then");
  app->add_flag("--rebuild", options->rebuild, "Rebuild the database now and then");
}

void AddStallOptions(CLI::App* app, PerfOptions* options) {
  app->add_flag("--stalls", options->stalls,
                "Measure how long single Gets and Sets take beside each maintenance operation: p50, p99.9 and the longest");
  AddTargetOptions(app, options);
  AddNumber(app, "--records", &options->num_records, "Number of records, default 1000000", 1, 1 << 30);
  AddNumber(app, "--size", &options->value_size, "Size of a value in bytes, default 100", 1, 1 << 30);
  AddNumber(app, "--huge", &options->huge_size, "Size of the huge value in bytes, default 128Mi", 1, 2'147'483'647);
  AddNumber(app, "--batch", &options->batch_size, "Keys of the large batch, default a sixteenth of all, which changes every page of a tree",
            1, 1 << 30);
  std::vector<std::string> names = {std::string(kHarvest)};
  for (const std::string_view name : kStallOperations) names.emplace_back(name);
  app->add_option("--operations", options->operations, "The operations to measure, separated by commas, default all")
      ->delimiter(',')
      ->option_text(absl::StrJoin(names, "|"))
      ->check([names](const std::string& name) {
        return std::find(names.begin(), names.end(), name) != names.end()
                   ? ""
                   : absl::StrCat(name, ": the operations are ", absl::StrJoin(names, ", "));
      });
  AddSeconds(
      app, "--seconds", [options](double seconds) { options->seconds = seconds; },
      "How long \"idle\" lasts, the measurement beside no operation; default 1");
  app->add_option("--copy", options->copy_path, "FILE of the copy, default that of --path with .stalls")->option_text("FILE");
  app->add_flag("--durable", options->durable, "Each Set survives a power cut when it returns");
  app->add_flag("--json", options->json, "One JSON object for each operation, in nanoseconds");
}

int RunStalls(PerfOptions& options) {
  if (!options.stalls) return FailUsage("perf", "nothing to measure: give sequence, parallel, wicked or --stalls");
  // If the whole tree fitted into memory, a large batch would show no stalls.
  if (options.cache_bytes < 0) options.cache_bytes = std::max<std::int64_t>(1 << 20, options.num_records * (options.value_size + 16) / 10);
  return RunOn(PerfRunKind::kStalls, options);
}

}  // namespace

void AddPerfCommand(Commands& commands) {
  const auto stalls = std::make_shared<PerfOptions>();
  stalls->command = "perf";
  stalls->value_size = 100;
  CLI::App* perf = commands.Add("perf", "Measure the speed of a database", [stalls] { return RunStalls(*stalls); });
  AddStallOptions(perf, stalls.get());
  perf->require_subcommand(0, 1);
  const auto add = [&](const std::string& name, const std::string& summary, int (*run)(PerfOptions&),
                       void (*add_options)(CLI::App*, PerfOptions*)) {
    const auto options = std::make_shared<PerfOptions>();
    options->command = absl::StrCat("perf ", name);
    CLI::App* app = commands.Add(
        name, summary, [options, run] { return run(*options); }, perf);
    AddCommonOptions(app, options.get());
    add_options(app, options.get());
  };
  const auto run_sequence = [](PerfOptions& options) {
    if (options.honest) options.get_copy = true;
    if (options.honest && options.get_order == "same") options.get_order = "shuffle";
    return RunOn(PerfRunKind::kSequence, options);
  };
  const auto run_parallel = [](PerfOptions& options) { return RunOn(PerfRunKind::kParallel, options); };
  const auto run_wicked = [](PerfOptions& options) {
    options.random_key = true;
    return RunOn(PerfRunKind::kWicked, options);
  };
  add("sequence", "Set, get, iterate, remove, one after the other; the output is that of tkrzw_dbm_perf", run_sequence, AddSequenceOptions);
  add("parallel", "Set, get, remove and compare-exchange, mixed; the output is that of tkrzw_dbm_perf", run_parallel, AddParallelOptions);
  add("wicked", "Everything at once, and every value checked; the output is that of tkrzw_dbm_perf", run_wicked, AddWickedOptions);
}

}  // namespace hako::tool
