// Help, version and usage errors of `hako`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "support/temp_dir.h"
#include "tool/tool_runner.h"

namespace hako {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

const std::vector<std::string> kCommands = {"create",  "inspect", "stat",   "get",    "set",  "remove",     "rekey",   "expire", "count",
                                            "list",    "search",  "import", "export", "copy", "merge",      "rebuild", "verify", "scrub",
                                            "salvage", "restore", "log",    "shell",  "perf", "completion", "man"};

TEST(CommandLine, HelpGoesToStdoutAndListsEveryCommand) {
  const ToolResult bare = RunTool({});
  EXPECT_EQ(bare.exit_code, 0);
  EXPECT_EQ(bare.err, "");
  for (const std::string& command : kCommands) EXPECT_THAT(bare.out, HasSubstr("\n  " + command));
  EXPECT_THAT(bare.out, AllOf(HasSubstr("Exit codes: 0 done; 1 no"), HasSubstr("130")));
  for (const char* spelling : {"help", "--help", "-h"}) EXPECT_EQ(RunTool({spelling}).out, bare.out) << spelling;
}

TEST(CommandLine, EveryCommandExplainsItself) {
  for (const std::string& command : kCommands) {
    const ToolResult help = RunTool({"help", command});
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_EQ(help.err, "") << command;
    EXPECT_THAT(help.out, HasSubstr("Usage: hako " + command));
    EXPECT_EQ(RunTool({command, "--help"}).out, help.out);
    EXPECT_EQ(RunTool({command, "-h"}).out, help.out);
  }
  EXPECT_THAT(RunTool({"help", "get"}).out, HasSubstr("Usage: hako get [OPTIONS] FILE KEY...\n"));
  EXPECT_THAT(RunTool({"help", "perf", "sequence"}).out, HasSubstr("Usage: hako perf sequence"));
  EXPECT_EQ(RunTool({"perf"}).out, RunTool({"help", "perf"}).out);
}

TEST(CommandLine, VersionNamesLibraryAndFileFormat) {
  const ToolResult version = RunTool({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(SplitLines(version.out), testing::ElementsAre(testing::MatchesRegex("hako [0-9]+\\.[0-9]+\\.[0-9]+"),
                                                            testing::MatchesRegex("file format: .*\\.hkh.* [0-9]+.*\\.hkt.* [0-9]+.*")));
}

struct Mistake {
  std::vector<std::string> args;
  std::string first_line;
  std::string help;  // the command that the second line points to
};

const Mistake kMistakes[] = {
    {{"lst"}, "hako: unknown command 'lst'; did you mean 'list'?", ""},
    {{"frobnicate"}, "hako: unknown command 'frobnicate'", ""},
    {{"delete", "a.hkh", "k"}, "hako: unknown command 'delete'; did you mean 'remove'?", ""},
    {{"ls", "a.hkh"}, "hako: unknown command 'ls'; did you mean 'list'?", ""},
    {{"put", "a.hkh", "k", "v"}, "hako: unknown command 'put'; did you mean 'set'?", ""},
    {{"scan", "a.hkh"}, "hako: unknown command 'scan'; did you mean 'list'?", ""},
    {{"info", "a.hkh"}, "hako: unknown command 'info'; did you mean 'inspect'?", ""},
    {{"set", "a.hkh", "k", "v", "--value_file", "f"}, "hako set: --value_file excludes VALUE", " set"},
    {{"help", "improt"}, "hako: unknown command 'improt'; did you mean 'import'?", ""},
    {{"--verison"}, "hako: unknown option '--verison'; did you mean '--version'?", ""},
    {{"perf", "sequense"}, "hako perf: unknown command 'sequense'; did you mean 'sequence'?", " perf"},
    {{"list", "a.hkh", "--itmes", "5"}, "hako list: unknown option '--itmes'; did you mean '--items'?", " list"},
    {{"list", "a.hkh", "--jsno=1"}, "hako list: unknown option '--jsno'; did you mean '--json'?", " list"},
    {{"list"}, "hako list: FILE is required", " list"},
    {{"get", "a.hkh"}, "hako get: KEY is required", " get"},
    {{"get", "a.hkh", "k", "l"}, "hako get: several keys require --multi", " get"},
    {{"verify", "a.hkh", "k"}, "hako verify: unexpected argument 'k'", " verify"},
    {{"set", "a.hkh", "k"}, "hako set: VALUE is required", " set"},
    {{"set", "a.hkh", "k", "v", "--incr", "1"}, "hako set: --incr excludes VALUE", " set"},
    {{"set", "a.hkh", "k", "v", "--append", ",", "--no_overwrite"}, "hako set: --no_overwrite excludes --append", " set"},
    {{"set", "a.hkh", "k", "--incr", "1x"}, "hako set: --incr: '1x' is not a number such as 8, 10k or 64Mi", " set"},
    {{"list", "a.hkh", "--items", "9999999t"}, "hako list: --items: '9999999t' is not a number such as 8, 10k or 64Mi", " list"},
    {{"create", "a.hkh", "--align_pow", "13"}, "hako create: --align_pow: 13 is out of range, 2 to 6", " create"},
    {{"list", "a.hkh", "--items"}, "hako list: --items needs a value", " list"},
    {{"list", "--prefix"}, "hako list: --prefix needs a value", " list"},
    {{"list", "a.hkh", "--reverse"},
     "hako list: a.hkh: --reverse requires an ordered database, and kind hash is not ordered; sort the output instead",
     " list"},
    {{"list", "a.hks", "--reverse", "--prefix", "x"},
     "hako list: a.hks: --reverse requires an ordered database, and kind tiny is not ordered; sort the output instead",
     " list"},
    {{"get", "a.hkh", "k", "--wait", "x"},
     "hako get: --wait: 'x' is not a number of seconds, 0 to 1000000, or a duration such as 250ms, 60s, 5m, 2h or 7d",
     " get"},
    {{"get", "a.hkh", "k", "--wait", "-1"},
     "hako get: --wait: '-1' is not a number of seconds, 0 to 1000000, or a duration such as 250ms, 60s, 5m, 2h or 7d",
     " get"},
    {{"get", "a.hkh", "k", "--wait", "nan"},
     "hako get: --wait: 'nan' is not a number of seconds, 0 to 1000000, or a duration such as 250ms, 60s, 5m, 2h or 7d",
     " get"},
    {{"perf", "parallel", "--sleep", "1 s"},
     "hako perf parallel: --sleep: '1 s' is not a number of seconds, 0 to 1000000, or a duration such as 250ms, 60s, 5m, 2h or 7d",
     " perf parallel"},
    {{"get", "a.hkh", "\\q", "--unescape"}, "hako get: --unescape: invalid escape, none of \\\\ \\t \\n \\r \\0 \\xHH", " get"},
    {{"--items", "5", "list", "a.hkh"}, "hako list: unexpected '--items'; options go after the command", " list"},
    {{"set", "a.hkh", "k", "v", "--durability", "disk"}, "hako set: --durability: disk not in {none,process,power}", " set"},
    {{"get", "a.hkh", "k", "--durability", "power"}, "hako get: unknown option '--durability'", " get"},
    {{"create", "a.hkh", "--num_records", "1t"}, "hako create: --num_records: 1t is out of range, 0 to 4294967296", " create"},
    {{"list", "a.hkh", "--json", "--tsv"},
     "hako list: Requires at most 1 options be given from [--json,--tsv,--hex,--escape,--raw,-0]",
     " list"},
    {{"get", "a.foo", "k"}, "hako: a.foo: unknown suffix; use .hkh, .hkt, .hka or .hks, or set --dbm hash, tree, array, tiny or baby", ""},
    {{"export", "a.hkh", "--format", "xml"}, "hako export: --format: xml not in {tsv,jsonl,dump,csv}", " export"},
    {{"export", "a.hkh", "--mapsize", "1m"}, "hako export: --mapsize requires --format dump", " export"},
    {{"list", "a.hkh", "--jump_key", "k"}, "hako list: --move jump... and --jump_key require each other", " list"},
    {{"list", "a.hkh", "--move", "jumplower", "--jump_key", "k"},
     "hako list: a.hkh: --move jumplower requires an ordered database, and kind hash is not ordered; sort the output instead",
     " list"},
    {{"list", "a.hks", "--dbm", "baby", "--move", "jumplower"}, "hako list: --move jump... and --jump_key require each other", " list"},
    {{"list", "a.hks", "--from", "k"},
     "hako list: a.hks: --from requires an ordered database, and kind tiny is not ordered; sort the output instead",
     " list"},
    {{"list", "a.hkh", "--to", "k"},
     "hako list: a.hkh: --to requires an ordered database, and kind hash is not ordered; sort the output instead",
     " list"},
    {{"list", "a.hkh", "--move", "back"},
     "hako list: --move: back not in {first,jump,jumplower,jumplowerinc,jumpupper,jumpupperinc}",
     " list"},
    {{"search", "a.hkh", "(", "--mode", "regex"}, "hako search: '(' is not a regular expression: missing ): (", " search"},
    {{"get", "a.hkh?num_recrods=5", "k"},
     "hako get: FILE: 'a.hkh?num_recrods=5': unknown option 'num_recrods'; the options are dbm, file, mode, wait, num_records, align_pow, "
     "seed, page_size, max_bytes, width, cache_bytes, checkpoint_bytes, reader_bytes, reader_age, log_bytes, snapshot_bytes, log_archive, "
     "expiry, "
     "capacity_bytes, capacity_records, "
     "durability, sync_interval, "
     "reclaim_bytes, unproven, "
     "order, "
     "codec, raw, direct, huge_pages, block_cache_bytes, reserve_bytes, grow_min and grow_max",
     " get"},
    {{"get", "?dbm=tiny", "k"}, "hako get: FILE: '?dbm=tiny' names no file", " get"},
    {{"get", "a.hkh?mode=create", "k"}, "hako get: FILE: option mode is set by the command", " get"},
    {{"copy", "a.hkh"}, "hako copy: DESTINATION is required", " copy"},
    {{"merge", "a.hkh", "b.hkh?x=y"},
     "hako merge: 'b.hkh?x=y': unknown option 'x'; the options are dbm, file, mode, wait, num_records, "
     "align_pow, seed, page_size, max_bytes, width, cache_bytes, checkpoint_bytes, reader_bytes, reader_age, log_bytes, snapshot_bytes, "
     "log_archive, "
     "expiry, capacity_bytes, "
     "capacity_records, durability, "
     "sync_interval, "
     "reclaim_bytes, unproven, order, "
     "codec, raw, direct, huge_pages, block_cache_bytes, reserve_bytes, grow_min and grow_max",
     " merge"},
    {{"completion", "tcsh"}, "hako completion: unknown command 'tcsh'; did you mean 'bash'?", " completion"},
    {{"export", "a.hkh", "--print"}, "hako export: --print requires --format dump", " export"},
    {{"create", "a.hkt", "--max_page_size", "64"}, "hako create: --max_page_size: 64 is out of range, 128 to 8192", " create"},
    {{"perf", "wicked", "--dbm", "tree", "--cache_bytes", "64ki"},
     "hako perf wicked: --cache_bytes: 64ki is out of range, 1048576 to 1125899906842624",
     " perf wicked"},
    {{"copy", "a.hkt", "b.hkh"}, "hako copy: b.hkh is of another kind; to convert the database, run 'hako merge b.hkh a.hkt'", " copy"},
    {{"copy", "a.hkh", "b.hks"}, "hako copy: b.hks is of another kind; to convert the database, run 'hako merge b.hks a.hkh'", " copy"},
    {{"perf", "sequence"},
     "hako perf sequence: nothing to measure: set --dbm tiny or baby, --dbm hash or tree and --path FILE, or --path FILE.hkh or FILE.hkt",
     " perf sequence"},
    {{"perf", "sequence", "--dbm", "tree"}, "hako perf sequence: --dbm tree requires --path", " perf sequence"},
    {{"perf", "sequence", "--dbm", "skip"},
     "hako perf sequence: --dbm skip: the kinds are auto, hash, tree, tiny and baby",
     " perf sequence"},
    {{"perf", "sequence", "--dbm", "hash"}, "hako perf sequence: --dbm hash requires --path", " perf sequence"},
    {{"perf", "sequence", "--dbm", "tiny", "--iter", "0"},
     "hako perf sequence: --iter: 0 is out of range, 1 to 2147483647",
     " perf sequence"}};

TEST(CommandLine, ReportsMistakesInTwoLinesOnStderr) {
  for (const Mistake& mistake : kMistakes) {
    SCOPED_TRACE(mistake.first_line);
    const ToolResult result = RunTool(mistake.args);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    const std::vector<std::string> lines = SplitLines(result.err);
    ASSERT_THAT(lines, SizeIs(2)) << result.err;
    EXPECT_EQ(lines[0], mistake.first_line);
    EXPECT_THAT(lines[1], StartsWith("Try 'hako help" + mistake.help + "'"));
  }
}

}  // namespace
}  // namespace hako
