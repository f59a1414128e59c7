// The command perf sequence: its options.
#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "tool/command.h"
#include "tool/database.h"
#include "tool/perf.h"
#include "tool/perf_sequence.h"

namespace hako::tool {
namespace {

constexpr const char* kCommand = "perf sequence";

// Options of tkrzw_dbm_perf that tune what hako has not or does by itself. They are taken, so that a command line can be carried over.
constexpr const char* kFlagsWithoutMeaning[] = {"verbose",   "no_wait", "no_lock",       "direct_io",         "sync_io",        "padding",
                                                "pagecache", "append",  "cache_buckets", "page_update_write", "insert_in_order"};
constexpr const char* kOptionsWithoutMeaning[] = {
    "alloc_init",    "alloc_inc",  "block_size",    "ulog",          "record_crc",         "record_comp", "offset_width", "fbp_cap",
    "min_read_size", "cipher_key", "max_page_size", "max_branches",  "max_cached_pages",   "cap_rec_num", "cap_mem_size", "cap_memsize",
    "params",        "step_unit",  "max_level",     "sort_mem_size", "max_cached_records", "reducer"};

void Note(const std::string& what) { std::fprintf(stderr, "hako %s: %s\n", kCommand, what.c_str()); }

void AddOptionsWithoutMeaning(CLI::App* app) {
  const auto note = [](const char* name) { Note(absl::StrCat("--", name, " has no meaning here")); };
  for (const char* name : kFlagsWithoutMeaning)
    app->add_flag_callback(absl::StrCat("--", name), [note, name] { note(name); })->group("");  // "": not in the help
  for (const char* name : kOptionsWithoutMeaning) {
    const auto take = [note, name](const CLI::results_t&) {
      note(name);
      return true;
    };
    app->add_option(absl::StrCat("--", name), take)->expected(1)->group("");
  }
}

template <class FileT>
int RunHash(const PerfOptions& options) {
  return Sequence<HashTarget<FileT>>(options).Run();
}

int RunSequence(const PerfOptions& options) {
  const AnyOptions any = {.path = options.path, .kind = options.impl};
  const std::string_view kind = any.ResolvedKind();
  if (kind.empty()) return FailUsage(kCommand, "say what to measure: --dbm tiny, --dbm hash --path FILE, or --path FILE.hkh");
  if (kind != "hash" && kind != "tiny") return FailUsage(kCommand, absl::StrCat("--dbm ", options.impl, ": there are auto, hash and tiny"));
  if (kind == "hash" && options.path.empty()) return FailUsage(kCommand, "--dbm hash needs a --path");
  if (options.num_iterations > std::numeric_limits<std::int32_t>::max() / options.num_threads)
    return FailUsage(kCommand, "--iter times --threads goes up to 2147483647");
  if (kind == "tiny") return Sequence<TinyTarget>(options).Run();

  const std::string& device = options.device;
  if (device == "std" || device.ends_with("-atom"))
    Note(absl::StrCat("--file ", device, ": measured with ", device == "mmap-atom" ? "mmap" : "pos", "-para, which needs no such variant"));
  return device.starts_with("mmap") ? RunHash<MemoryMapParallelFile>(options) : RunHash<PositionalParallelFile>(options);
}

void AddSequenceOptions(CLI::App* app, PerfOptions* options) {
  constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
  app->add_option("--dbm", options->impl, "What to measure: auto (by the ending of --path), hash, tiny")->type_name("IMPL");
  AddNumber(app, "--iter", &options->num_iterations, "Iterations of each thread, 10000 unless given", 1, kInt32Max);
  AddNumber(app, "--size", &options->value_size, "Bytes of a value, 8 unless given", 1, 1 << 30);
  AddNumber(app, "--threads", &options->num_threads, "Threads, 1 unless given", 1, 10000);
  AddNumber(app, "--random_seed", &options->random_seed, "Seed of random keys and values; negative = from entropy, new in each phase",
            -kInt32Max, kInt32Max);
  app->add_option("--path", options->path, "The database file; it is emptied by the phase Setting")->type_name("FILE");
  app->add_option("--file", options->device, "How the file is accessed: mmap-para unless given")
      ->check(CLI::IsMember({"mmap", "pos", "std", "mmap-para", "mmap-atom", "pos-para", "pos-atom"}))
      ->type_name("HOW");
  app->add_flag("--sync_hard", options->sync_hard, "Synchronize with the device before each close, outside the timing");
  AddNumber(app, "--buckets", &options->num_buckets, "Records to make room for in advance", 1, std::int64_t{1} << 40);
  AddNumber(app, "--align_pow", &options->align_pow, "Records are aligned to 2^N bytes", 2, 12);
  app->add_flag("--random_key", options->random_key, "Random keys instead of ascending ones");
  app->add_flag("--random_value", options->random_value, "Values of random length, up to --size");
  app->add_flag("--set_only", options->set_only, "Only the phase Setting; these four add up");
  app->add_flag("--get_only", options->get_only, "Only the phase Getting");
  app->add_flag("--iter_only", options->iter_only, "Only the phase Iterating");
  app->add_flag("--remove_only", options->remove_only, "Only the phase Removing");
  app->add_flag("--validate", options->validate, "Verify the database after Setting and Removing, inside the timing");
  app->add_option("--copy", options->copy_path, "Copy the database to FILE after Setting")->type_name("FILE");
  app->add_flag("--get_copy", options->get_copy, "Copy the values out in Getting; without it they are only looked up");
  app->add_flag("--json", options->json, "One JSON object for each phase instead of the text");
  AddOptionsWithoutMeaning(app);
}

}  // namespace

void AddPerfCommand(Commands& commands) {
  CLI::App* perf = commands.Add("perf", "Measure the speed of a database", [] { return kExitDone; });
  perf->require_subcommand(0, 1);
  const auto options = std::make_shared<PerfOptions>();
  CLI::App* sequence = commands.Add(
      "sequence", "Set, get, iterate, remove, one after the other; options and output of tkrzw_dbm_perf",
      [options] { return RunSequence(*options); }, perf);
  AddSequenceOptions(sequence, options.get());
}

}  // namespace hako::tool
