// inspect --plot and --svg, and the figures of inspect.
#include "tool/plot.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tool/tool_test.h"

namespace hako {
namespace {

// The sum of the numbers of all bars of a chart, in the text of a plot.
std::uint64_t Sum(const std::string& plot, const std::string& title) {
  const auto lines = SplitLines(plot);
  std::uint64_t sum = 0;
  auto it = std::find(lines.begin(), lines.end(), title);
  EXPECT_NE(it, lines.end()) << title;
  for (it += it == lines.end() ? 0 : 2; it != lines.end() && !it->empty(); ++it) {
    const std::size_t bar = it->find_first_of("\xe2", it->find_first_of("0123456789") + 8), end = it->find_last_of("0123456789", bar);
    std::string digits = it->substr(it->find_last_of(' ', end) + 1, end - it->find_last_of(' ', end));
    std::erase(digits, ',');
    sum += std::stoull(digits);
  }
  return sum;
}

TEST(Plot, DrawsSizesByPowersOfTwo) {
  tool::Sizes sizes;
  for (const std::uint64_t size : {1, 2, 3, 3, 100}) sizes.Add(size);
  const tool::Chart chart = sizes.ByPowers("Sizes", "keys");
  EXPECT_EQ(chart.note, "5 keys: least 1, median 3, mean 21.8, greatest 100 bytes");
  ASSERT_EQ(chart.bars.size(), 7u);
  EXPECT_EQ(chart.bars[0].label, "1");
  EXPECT_EQ(chart.bars[1].label, "2–3");
  EXPECT_EQ(chart.bars[1].value, 3u);
  EXPECT_EQ(chart.bars[6].label, "64–127");
  EXPECT_EQ(chart.bars[6].value, 1u);
  std::string text;
  tool::AppendText(chart, &text);
  EXPECT_THAT(text, AllOf(StartsWith("Sizes\n  5 keys"), HasSubstr("\n     2–3 3 ███")));
  EXPECT_EQ(tool::Sizes().ByPowers("Sizes", "keys").note, "no keys");
  const tool::Chart tenths = tool::ByTenths("Fill", "", {0, 10, 10.1, 99, 100});
  EXPECT_EQ(tenths.bars[0].value, 2u);
  EXPECT_EQ(tenths.bars[1].value, 1u);
  EXPECT_EQ(tenths.bars[9].value, 2u);
}

TEST(Plot, EveryKindIsDrawn) {
  TempDir dir;
  for (const char* const name : {"a.hkh", "a.hkt", "a.hks", "a.hka?width=20", "a.hktb"}) {
    const std::string path = dir.File(std::string(name).substr(0, std::string(name).find('?')));
    ASSERT_EQ(RunTool({"create", dir.File(name)}).exit_code, 0) << name;
    std::string text;
    for (int i = 0; i < 3000; ++i)
      text += path.ends_with("hktb") ? "{\"key\":\"" + std::to_string(i) + "\",\"n\":1}\n"
                                     : std::to_string(i) + "\tvalue of " + std::to_string(i) + "\n";
    ASSERT_EQ(RunTool({"import", path}, text).exit_code, 0);
    const ToolResult plot = RunTool({"inspect", path, "--plot"});
    EXPECT_EQ(plot.exit_code, 0) << plot.err;
    EXPECT_EQ(Sum(plot.out, "Sizes of keys"), 3000u) << name;
    EXPECT_EQ(Sum(plot.out, path.ends_with("hktb") ? "Sizes of rows" : "Sizes of values"), 3000u) << name;
    if (path.ends_with("hkh")) EXPECT_EQ(Sum(plot.out, "Records in a bucket"), std::stoull(RunTool({"inspect", path, "num_buckets"}).out));
    if (path.ends_with("hkt") || path.ends_with("hktb"))
      EXPECT_EQ(Sum(plot.out, "Fill of pages") + 1, std::stoull(RunTool({"inspect", path, "num_buckets"}).out))
          << name << ", with the root";
    if (path.ends_with("hka")) EXPECT_THAT(plot.out, HasSubstr("Fill of pages\n"));
    EXPECT_THAT(plot.out, HasSubstr("Space\n"));
    const std::string svg = dir.File("plot.svg");
    ASSERT_EQ(RunTool({"inspect", path, "--svg", svg}).exit_code, 0);
    EXPECT_THAT(ReadWhole(svg), AllOf(StartsWith("<svg xmlns="), HasSubstr(">Sizes of keys<"), EndsWith("</svg>\n")));
    EXPECT_EQ(RunTool({"inspect", path, "--svg", dir.File("x.hkh")}).exit_code, 2) << "the name of a database";
    EXPECT_EQ(RunTool({"inspect", path, "--plot", "--json"}).exit_code, 2);
    EXPECT_EQ(RunTool({"verify", path}).exit_code, 0);
  }
}

TEST(Plot, EmptyDatabaseIsDrawn) {
  TempDir dir;
  ASSERT_EQ(RunTool({"create", dir.File("a.hkt")}).exit_code, 0);
  EXPECT_THAT(RunTool({"inspect", dir.File("a.hkt"), "--plot"}).out, HasSubstr("Sizes of keys\n  no keys\n"));
}

TEST(Inspect, FiguresStandOnceInJson) {
  TempDir dir;
  ASSERT_EQ(RunTool({"import", dir.File("a.hkt")}, NumberedLines(0, 100)).exit_code, 0);
  const auto root = nlohmann::json::parse(RunTool({"inspect", dir.File("a.hkt"), "--json"}).out);
  for (const auto& [name, value] : root["stats"].items()) EXPECT_FALSE(root["attributes"].contains(name)) << name;
  EXPECT_FALSE(root["attributes"].contains("num_records"));
  EXPECT_EQ(root["num_records"], 100);
  EXPECT_TRUE(root["attributes"].contains("synced_at"));
  EXPECT_TRUE(root["stats"]["total_bytes"].is_number());
}

TEST(Inspect, TimesAndBytesAreReadable) {
  TempDir dir;
  const std::string path = dir.File("a.hkt");
  ASSERT_EQ(RunTool({"import", path}, NumberedLines(0, 1000)).exit_code, 0);
  const std::string piped = RunTool({"inspect", path}).out;
  EXPECT_THAT(piped, AllOf(testing::ContainsRegex("synced_at=[0-9.]+ .20[0-9-]+T[0-9:.]+Z.\n"), Not(HasSubstr("KiB"))));
  EXPECT_THAT(RunOnTerminal({"inspect", path}).out, testing::ContainsRegex("total_bytes=[0-9]+ .[0-9.]+ KiB."));
}

}  // namespace
}  // namespace hako
