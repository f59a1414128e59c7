// Options in file names: orders, codecs, direct I/O, huge pages. Such files open later without
// them.
#include "tool/tool_test.h"

namespace hako {
namespace {

class FileOptionsTest : public ToolTest {
 protected:
  FileOptionsTest() : ToolTest("a.hkt") {}
  std::string Attribute(const std::string& name) { return RunTool({"inspect", path_, name}).out; }
};

#if HAKO_TOOL_OTHER_TREES  // which the tool may be built without
TEST_F(FileOptionsTest, OpensTreesOfOtherOrdersWithoutOptions) {
  ASSERT_EQ(RunTool({"create", path_ + "?order=decimal"}).exit_code, 0);
  ASSERT_EQ(RunTool({"import", path_}, "10\tten\n9\tnine\n-1\tminus\n100\thundred\n").exit_code, 0);
  EXPECT_EQ(RunTool({"list", path_, "--keys"}).out, "-1\n9\n10\n100\n");
  EXPECT_EQ(RunTool({"list", path_, "--keys", "--reverse"}).out, "100\n10\n9\n-1\n");
  EXPECT_EQ(RunTool({"list", path_, "--keys", "--prefix", "10"}).out, "10\n100\n");
  EXPECT_EQ(RunTool({"list", path_, "--from", "9"}).exit_code, 2);
  EXPECT_EQ(Attribute("comparator"), "decimal\n");
  EXPECT_EQ(RunTool({"verify", path_}).exit_code, 0);
  const ToolResult other = RunTool({"list", path_ + "?order=bytewise"});
  EXPECT_EQ(other.exit_code, 3);
  EXPECT_THAT(other.err, HasSubstr("in the order \"decimal\""));
  for (const std::string order : {"hexadecimal", "real", "signed-big-endian", "float-big-endian", "case-insensitive"})
    EXPECT_EQ(RunTool({"create", dir_.File(order + ".hkt?order=" + order)}).exit_code, 0) << order;
  const ToolResult unknown = RunTool({"create", dir_.File("b.hkt?order=alphabetical")});
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("alphabetical"), HasSubstr("decimal with none")));
  EXPECT_EQ(RunTool({"create", dir_.File("b.hkh?order=decimal")}).exit_code, 3);
}

TEST_F(FileOptionsTest, OpensCompressedTreesWithoutOptions) {
  for (const std::string codec : {"lz4", "zstd"}) {
    std::remove(path_.c_str());
    ASSERT_EQ(RunTool({"create", path_ + "?codec=" + codec}).exit_code, 0) << codec;
    ASSERT_EQ(RunTool({"import", path_}, NumberedLines(0, 1000)).exit_code, 0);
    EXPECT_EQ(Attribute("codec"), codec + "\n");
    EXPECT_EQ(RunTool({"get", path_, "7"}).out, "value of 7\n");
    EXPECT_EQ(RunTool({"verify", path_}).exit_code, 0);
  }
}
#endif

TEST_F(FileOptionsTest, OptionsInNamesSelectTheAccess) {
  for (const std::string name : {"d.hkh", "d.hkt"}) {
    const std::string file = dir_.File(name);
    ASSERT_EQ(RunTool({"create", file + "?huge_pages=false"}).exit_code, 0);
    EXPECT_EQ(RunTool({"set", file + "?direct,block_cache_bytes=1Mi", "k", "v"}).exit_code, 0);
    EXPECT_EQ(RunTool({"get", file + "?direct=true,huge_pages=false", "k"}).out, "v\n");
    EXPECT_EQ(RunTool({"verify", file + "?direct"}).exit_code, 0);
    EXPECT_EQ(RunTool({"get", file + "?direct=perhaps", "k"}).exit_code, 2);
  }
  ASSERT_EQ(RunTool({"create", path_}).exit_code, 0);
}

}  // namespace
}  // namespace hako
