// Helpers of the program's tests, beside tool_runner.h: a database in a temporary directory, texts
// to import, matchers.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/temp_dir.h"
#include "tool/tool_runner.h"

namespace hako {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;
using testing::UnorderedElementsAre;

// A database that is verified at the end of every test.
class ToolTest : public testing::Test {
 protected:
  explicit ToolTest(const std::string& name = "a.hkh") : path_(dir_.File(name)) {}
  void TearDown() override { EXPECT_EQ(RunTool({"verify", path_}).exit_code, 0); }

  TempDir dir_;
  const std::string path_;
};

// Lines to import, whose keys count up, so that what was imported shows whether it is a prefix.
inline std::string NumberedLines(int begin, int end) {
  std::string text;
  for (int i = begin; i < end; ++i) text += std::to_string(i) + "\tvalue of " + std::to_string(i) + "\n";
  return text;
}

}  // namespace hako
