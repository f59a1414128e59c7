// hako perf with direct I/O: its flags, the device accesses that it reports, and the mistakes that it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hako/file/positional_parallel_file.h"
#include "support/temp_dir.h"
#include "tool/perf_output.h"
#include "tool/tool_runner.h"

namespace hako {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

std::vector<std::string> Join(std::vector<std::string> args, const std::vector<std::string>& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// Whether the file system of `dir` accepts direct I/O in blocks of 512 bytes: an older system, or a
// device with larger sectors, refuses it.
Status DirectIoIn(const std::string& dir) {
  const std::string path = dir + "/probe";
  const Status status = PositionalParallelFile::Open(path, {.direct = true, .block_size = 512}).status();
  std::filesystem::remove(path);
  return status;
}

class PerfDirect : public testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = DirectIoIn(dir_.path()); !status.ok()) GTEST_SKIP() << status;
  }
  std::vector<std::string> Hash(const std::string& iterations) const {
    return {
        "perf",     "sequence", "--path", dir_.File("casket.hkh"), "--file", "pos",         "--random_key", "--random_seed", "-1", "--iter",
        iterations, "--size",   "4000",   "--block_size",          "512",    "--direct_io", "--padding"};
  }
  std::vector<std::string> Tree(const std::string& iterations) const {
    return {"perf",         "sequence",
            "--path",       dir_.File("casket.hkt"),
            "--file",       "pos",
            "--random_key", "--random_seed",
            "-1",           "--iter",
            iterations,     "--size",
            "100",          "--max_page_size",
            "4060",         "--cache_bytes",
            "4Mi",          "--block_size",
            "1024",         "--direct_io",
            "--padding"};
  }
  // The figures of the device in each phase.
  static std::vector<nlohmann::json> Devices(const std::vector<std::string>& command) {
    const ToolResult result = RunTool(Join(command, {"--json"}));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<nlohmann::json> devices;
    for (const std::string& line : SplitLines(result.out)) devices.push_back(nlohmann::json::parse(line).at("dev"));
    return devices;
  }

  TempDir dir_;
};

TEST_F(PerfDirect, ReportsTheDeviceInEachPhase) {
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{{}, {"--pagecache"}, {"--threads", "2"}}) {
    const bool two = !more.empty() && more[0] == "--threads";
    for (const bool is_hash : {true, false}) {
      const std::vector<std::string> command = Join(is_hash ? Hash("1000") : Tree("1000"), more);
      const ToolResult result = RunTool(command);
      EXPECT_EQ(result.exit_code, 0) << result.err;
      EXPECT_EQ(result.err, "");
      PerfOutput output(result.out);
      const PerfPhase want = {.impl = "auto",
                              .size = is_hash ? "4000" : "100",
                              .threads = two ? "2" : "1",
                              .is_in_file = true,
                              .is_direct = true,
                              .dots = DotLines(50, 50),
                              .num_iterations = "1000"};
      for (const char* phase : {"Setting", "Getting", "Iterating", "Removing"}) ExpectPhase(output, want, phase, "[0-9]+");
      output.ExpectEnd();
      EXPECT_EQ(RunTool({"verify", command[3]}).exit_code, 0);
    }
  }
}

TEST_F(PerfDirect, OtherCommandsAcceptTheFlags) {
  for (const std::string command : {"parallel", "wicked"}) {
    for (const std::string ending : {".hkh", ".hkt"}) {
      const ToolResult result = RunTool({"perf", command, "--path", dir_.File("p" + ending), "--file", "pos", "--direct_io", "--block_size",
                                         "512", "--sync_io", "--pagecache", "--iter", "500", "--threads", "2", "--rebuild", "--validate"});
      EXPECT_EQ(result.exit_code, 0) << result.err;
      PerfOutput output(result.out);
      const PerfPhase want = {.impl = "auto",
                              .threads = "2",
                              .is_in_file = true,
                              .validates = true,
                              .is_direct = true,
                              .dots = DotLines(25, 25),
                              .num_iterations = "500"};
      ExpectPhase(output, want, "Doing", "[0-9]+");
    }
  }
}

TEST_F(PerfDirect, JsonReportsDeviceTraffic) {
  const std::vector<nlohmann::json> devices = Devices(Join(Hash("2000"), {"--get_copy"}));
  ASSERT_THAT(devices, SizeIs(4));
  const nlohmann::json &setting = devices[0], &getting = devices[1];
  // About 1 - 1/e of the keys are different, and Getting misses as many; 8 MB exceed the buffers.
  EXPECT_GT(setting.at("written_bytes"), 4'000'000);
  EXPECT_GT(getting.at("read_bytes"), 2'000'000);
  EXPECT_EQ(getting.at("writes"), 0);
  EXPECT_EQ(getting.at("writes_per_op"), 0);
  EXPECT_DOUBLE_EQ(getting.at("reads_per_op").get<double>(), getting.at("reads").get<double>() / 2000);
  EXPECT_LE(getting.at("second_reads"), getting.at("reads"));
}

TEST_F(PerfDirect, PagecacheEnablesTheCache) {
  const auto read_bytes = [&](const std::vector<std::string>& more) {
    const std::vector<std::string> command = {"perf",        "parallel",     "--path", dir_.File("p.hkh"), "--file", "pos",
                                              "--direct_io", "--size",       "16000",  "--keys",           "500",    "--iter",
                                              "3k",          "--block_size", "512"};
    return Devices(Join(command, more)).at(0).at("read_bytes").get<int>();
  };
  const int without = read_bytes({});
  EXPECT_GT(without, 8'000'000) << "half of the operations need a record, and few are in the buffers";
  EXPECT_LT(read_bytes({"--pagecache"}), without / 4);
  EXPECT_LT(read_bytes({"--file_cache", "48Mi"}), without / 4);
  EXPECT_GT(read_bytes({"--pagecache", "--file_cache", "0"}), without / 2) << "the size given wins";
}

TEST_F(PerfDirect, ShortFirstReadsTakeSecondReads) {
  const auto second_reads = [&](const std::vector<std::string>& more) {
    return Devices(Join(Join(Hash("1000"), {"--set_only", "--get_only"}), more))[1].at("second_reads").get<int>();
  };
  const int without = second_reads({"--min_read_size", "16"});
  EXPECT_GT(without, 500);
  EXPECT_LT(second_reads({"--min_read_size", "8192"}), without / 10);
  EXPECT_LT(second_reads({}), without / 10);
}

TEST_F(PerfDirect, PaddedFilesAreWholeBlocks) {
  for (std::vector<std::string> command : {Hash("100"), Tree("100")}) {
    *(std::find(command.begin(), command.end(), "--block_size") + 1) = "8192";
    ASSERT_EQ(RunTool(Join(command, {"--set_only"})).exit_code, 0);
    EXPECT_EQ(std::filesystem::file_size(command[3]) % 8192, 0u);
    EXPECT_EQ(RunTool({"verify", command[3]}).exit_code, 0);
  }
}

// The tool runs with direct I/O, or reports that there is none.
TEST(Perf, ReportsAFileSystemWithoutDirectIo) {
  for (const std::string& parent : {TempDir::DefaultParent(), std::string("/dev/shm")}) {
    if (!std::filesystem::is_directory(parent)) continue;
    const TempDir dir(parent);
    const Status expected = DirectIoIn(dir.path());
    const ToolResult result = RunTool({"perf", "sequence", "--path", dir.File("p.hkh"), "--file", "pos", "--direct_io", "--block_size",
                                       "512", "--iter", "10", "--set_only"});
    EXPECT_EQ(result.exit_code, expected.ok() ? 0 : 3) << result.err;
    if (!expected.ok()) {
      EXPECT_THAT(result.err, HasSubstr("direct I/O"));
      EXPECT_EQ(result.out, "");
    }
  }
}

TEST(Perf, DirectIoRequiresAPositionalFile) {
  const TempDir dir;
  for (const std::vector<std::string>& file : std::vector<std::vector<std::string>>{{}, {"--file", "mmap"}}) {
    const ToolResult result = RunTool(Join({"perf", "sequence", "--path", dir.File("p.hkh"), "--direct_io"}, file));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("--direct_io requires --file pos"));
    EXPECT_FALSE(std::filesystem::exists(dir.File("p.hkh")));
  }
}

TEST(Perf, RefusesMistakesOfDirectIo) {
  const TempDir dir;
  const std::vector<std::string> command = {"perf", "sequence", "--path", dir.File("p.hkh"), "--file", "pos", "--direct_io"};
  for (const std::string size : {"513", "6000"}) {
    const ToolResult result = RunTool(Join(command, {"--block_size", size}));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("--block_size " + size + ": direct I/O requires a power of two from 512 to 65536"));
  }
  for (const std::string size : {"0", "256", "128Ki"})
    EXPECT_THAT(RunTool(Join(command, {"--block_size", size})).err, HasSubstr("out of range, 512 to 65536"));
  EXPECT_EQ(RunTool(Join(command, {"--align_pow", "7"})).exit_code, 2);
}

TEST(Perf, ReportsFileFlagsWithoutEffect) {
  const TempDir dir;
  const std::vector<std::string> flags = {"--sync_io",   "--min_read_size", "64",  "--block_size", "512", "--padding",
                                          "--pagecache", "--file_cache",    "1Mi", "--iter",       "1",   "--set_only"};
  const auto notes = [&](const std::vector<std::string>& where) {
    const ToolResult result = RunTool(Join(Join({"perf", "sequence"}, where), flags));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, Not(HasSubstr("dev:")));
    return result.err;
  };
  const auto expect_all = [](const std::string& err, const std::vector<const char*>& names, const std::string& why) {
    for (const char* name : names) EXPECT_THAT(err, HasSubstr("hako perf sequence: " + std::string(name) + " has no effect" + why + "\n"));
  };
  const std::vector<const char*> of_files = {"--sync_io", "--min_read_size"};
  const std::vector<const char*> of_direct_io = {"--block_size", "--padding", "--pagecache", "--file_cache"};
  const std::string mapped = notes({"--path", dir.File("p.hkh")});
  expect_all(mapped, of_files, " without --file pos");
  expect_all(mapped, of_direct_io, " without --direct_io");
  const std::string tree = notes({"--path", dir.File("p.hkt")});
  expect_all(tree, {"--sync_io"}, " without --file pos");
  expect_all(tree, {"--min_read_size"}, ": a tree stores the size of each page");
  const std::string positional = notes({"--path", dir.File("p.hkh"), "--file", "pos"});
  EXPECT_THAT(SplitLines(positional), SizeIs(of_direct_io.size()));
  expect_all(positional, of_direct_io, " without --direct_io");
  const std::string memory = notes({"--dbm", "tiny", "--direct_io"});
  expect_all(memory, of_files, ": the database is in memory");
  expect_all(memory, of_direct_io, ": the database is in memory");
  expect_all(memory, {"--direct_io"}, ": the database is in memory");
}

}  // namespace
}  // namespace hako
