#include "hako/file/any_file.h"

#include "file/file_conformance.h"
#include "file/path_file_conformance.h"
#include "support/archetypes.h"

namespace hako {
namespace {

using MappedTraits = PathFileTraits<AnyFile, AnyFile::kMemoryMap>;
using PositionalTraits = PathFileTraits<AnyFile, AnyFile::kPositional>;
INSTANTIATE_TYPED_TEST_SUITE_P(AnyMappedFile, FileConformance, MappedTraits);
INSTANTIATE_TYPED_TEST_SUITE_P(AnyPositionalFile, FileConformance, PositionalTraits);
INSTANTIATE_TYPED_TEST_SUITE_P(AnyFile, PathFileConformance, AnyFile);

bool IsMapped(const std::string& path) { return ReadWhole("/proc/self/maps").find(path) != std::string::npos; }

TEST(AnyFile, KindSelectsTheFileType) {
  TempDir dir;
  const std::string path = dir.File("file");
  ASSERT_OK_AND_ASSIGN(auto positional, AnyFile::Open(path, {}, "pos"));
  EXPECT_FALSE(IsMapped(path));
  ASSERT_THAT(positional.Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(auto mapped, AnyFile::Open(path, {}, "mmap"));
  EXPECT_TRUE(IsMapped(path));
  ASSERT_THAT(mapped.Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(auto by_default, AnyFile::Open(path));
  EXPECT_TRUE(IsMapped(path));
  EXPECT_THAT(AnyFile::Open(path, {}, "tape"), StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("tape")));
}

TEST(AnyFile, WrapsAnyFile) {
  AnyFile file(ArchetypeFile::Make());
  Fill(file, "content");
  EXPECT_EQ(ContentOf(file), "content");
  EXPECT_EQ(file.Size(), 7u);
  EXPECT_TRUE(file.IsWritable());
  EXPECT_THAT(file.Close(), IsOk());
}

}  // namespace
}  // namespace hako
