#include "hako/file/memory_file.h"

#include "file/file_conformance.h"
#include "file/mapped_file_conformance.h"

namespace hako {
namespace {

struct Traits {
  using FileT = MemoryFile;
  FileT Create() { return MemoryFile(); }
  FileT Reopen(FileT file) {
    MemoryFile again = file.Share();
    EXPECT_THAT(file.Close(), IsOk());
    return again;
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(MemoryFile, FileConformance, Traits);
INSTANTIATE_TYPED_TEST_SUITE_P(MemoryFile, MappedFileConformance, Traits);

TEST(MemoryFile, HandlesShareOneContent) {
  MemoryFile file;
  MemoryFile other = file.Share();
  Fill(file, "content");
  EXPECT_EQ(ContentOf(other), "content");
  MemoryFile unrelated;
  EXPECT_EQ(unrelated.Size(), 0u);
}

TEST(MemoryFile, OfCopiesTheBytes) {
  std::string bytes = "content";
  const MemoryFile file = MemoryFile::Of(AsBytes(bytes));
  bytes = "changed";
  EXPECT_EQ(ContentOf(file), "content");
  EXPECT_EQ(MemoryFile::Of({}).Size(), 0u);
}

TEST(MemoryFile, GrowsToTheReservedSizeAndNoFurther) {
  MemoryFile file(100'000);
  Fill(file, "content");
  EXPECT_THAT(file.Resize(100'001), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(ContentOf(file), "content");
  EXPECT_THAT(file.Resize(100'000), IsOk());
}

}  // namespace
}  // namespace hako
