#include "hako/file/memory_map_parallel_file.h"

#include <sys/mman.h>

#include <thread>
#include <vector>

#include "file/file_conformance.h"
#include "file/mapped_file_conformance.h"
#include "file/path_file_conformance.h"

namespace hako {
namespace {

INSTANTIATE_TYPED_TEST_SUITE_P(MemoryMapParallelFile, FileConformance, PathFileTraits<MemoryMapParallelFile>);
INSTANTIATE_TYPED_TEST_SUITE_P(MemoryMapParallelFile, MappedFileConformance, PathFileTraits<MemoryMapParallelFile>);
INSTANTIATE_TYPED_TEST_SUITE_P(MemoryMapParallelFile, PathFileConformance, MemoryMapParallelFile);

class MemoryMapParallelFileTest : public testing::Test {
 protected:
  TempDir dir_;
  const std::string path_ = dir_.File("file");
};

TEST_F(MemoryMapParallelFileTest, StoresIntoAReadOnlyFileArePrivate) {
  WriteWhole(path_, "content");
  ASSERT_OK_AND_ASSIGN(auto file, MemoryMapParallelFile::Open(path_, {.mode = OpenMode::kReadOnly}));
  ASSERT_OK_AND_ASSIGN(auto other, MemoryMapParallelFile::Open(path_, {.mode = OpenMode::kReadOnly}));
  std::memcpy(file.MutableView(0, 3).data(), "CON", 3);
  EXPECT_EQ(ContentOf(file), "CONtent");
  EXPECT_THAT(file.SyncRange(0, 7), IsOk());
  EXPECT_EQ(ContentOf(other), "content");
  EXPECT_THAT(file.Close(), IsOk());
  EXPECT_EQ(ReadWhole(path_), "content");
}

TEST_F(MemoryMapParallelFileTest, OpensUnwritableFilesReadOnly) {
  WriteWhole(path_, "content");
  std::filesystem::permissions(path_, std::filesystem::perms::owner_read);
  ASSERT_OK_AND_ASSIGN(auto file, MemoryMapParallelFile::Open(path_, {.mode = OpenMode::kReadOnly}));
  file.MutableView(0, 1)[0] = std::byte{'C'};
  EXPECT_EQ(ContentOf(file), "Content");
}

TEST_F(MemoryMapParallelFileTest, GrowsToTheReservedSizeAndNoFurther) {
  ASSERT_OK_AND_ASSIGN(auto file, MemoryMapParallelFile::Open(path_, {.reserve_bytes = 1 << 20, .grow_min = 1 << 16}));
  Fill(file, "content");
  EXPECT_THAT(file.Resize((1 << 20) + 1), StatusIs(absl::StatusCode::kResourceExhausted, testing::HasSubstr("reserve_bytes")));
  EXPECT_EQ(ContentOf(file), "content");
  ASSERT_THAT(file.Resize((1 << 20) - 1), IsOk());
  ASSERT_THAT(file.Resize(1 << 20), IsOk());
  file.MutableView((1 << 20) - 1, 1)[0] = std::byte{1};
  EXPECT_THAT(file.Close(), IsOk());
  EXPECT_THAT(MemoryMapParallelFile::Open(path_, {.reserve_bytes = 1 << 19}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("reserve_bytes")));
  EXPECT_THAT(MemoryMapParallelFile::Open(path_, {.mode = OpenMode::kReadOnly, .reserve_bytes = 1 << 19}), IsOk());
}

// Runs `body` where the process may have `bytes` more of address space.
int WithAddressSpace(std::uint64_t bytes, int (*body)(const std::string& path), const std::string& path) {
  ChildProcess child([&](ChildProcess&) {
    const std::uint64_t used = std::stoull(ReadWhole("/proc/self/statm")) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const rlimit limit = {.rlim_cur = used + bytes, .rlim_max = RLIM_INFINITY};
    return setrlimit(RLIMIT_AS, &limit) == 0 ? body(path) : 1;
  });
  return child.Result();
}

TEST_F(MemoryMapParallelFileTest, UnavailableAddressSpaceReturnsResourceExhausted) {
  const auto body = [](const std::string& path) {
    const Status status = MemoryMapParallelFile::Open(path, {.reserve_bytes = std::uint64_t{1} << 40}).status();
    if (!absl::IsResourceExhausted(status) || ToStd(status.message()).find("address space") == std::string_view::npos) return 2;
    return MemoryMapParallelFile::Open(path, {.reserve_bytes = 1 << 30}).ok() ? 0 : 3;  // and the failed one let go of the lock
  };
  EXPECT_EQ(WithAddressSpace(std::uint64_t{4} << 30, body, path_), 0);
}

TEST_F(MemoryMapParallelFileTest, OpensSeveralFilesInLittleAddressSpace) {
  const auto body = [](const std::string& path) {
    std::vector<MemoryMapParallelFile> files;
    for (int i = 0; i < 4; ++i) {
      auto file = MemoryMapParallelFile::Open(path + std::to_string(i));
      if (!file.ok() || !file->Resize(1 << 20).ok()) return 2;
      files.push_back(*std::move(file));
    }
    if (!absl::IsResourceExhausted(files[0].Resize(std::uint64_t{4} << 30))) return 3;
    return files[0].Resize(std::uint64_t{64} << 20).ok() ? 0 : 4;
  };
  EXPECT_EQ(WithAddressSpace(std::uint64_t{1} << 30, body, path_), 0);
}

TEST_F(MemoryMapParallelFileTest, OpensHundredsOfFiles) {
  std::vector<MemoryMapParallelFile> files;
  for (int i = 0; i < 300; ++i) {
    ASSERT_OK_AND_ASSIGN(auto file, MemoryMapParallelFile::Open(path_ + std::to_string(i)));
    ASSERT_THAT(file.Resize(7), IsOk());
    files.push_back(std::move(file));
  }
}

TEST_F(MemoryMapParallelFileTest, IdentityFollowsTheFileAndNotItsNameOrContent) {
  ASSERT_OK_AND_ASSIGN(auto file, MemoryMapParallelFile::Open(path_));
  Fill(file, "content");
  const FileIdentity identity = file.Identity();
  EXPECT_NE(identity.boot_id, (std::array<std::byte, 16>{}));
  ASSERT_THAT(file.Close(), IsOk());
  std::filesystem::rename(path_, dir_.File("renamed"));
  ASSERT_OK_AND_ASSIGN(auto renamed, MemoryMapParallelFile::Open(dir_.File("renamed")));
  EXPECT_EQ(renamed.Identity(), identity);
  std::filesystem::copy_file(dir_.File("renamed"), path_);
  ASSERT_OK_AND_ASSIGN(auto copy, MemoryMapParallelFile::Open(path_));
  EXPECT_NE(copy.Identity(), identity);
}

TEST_F(MemoryMapParallelFileTest, PrefaultMapsPagesAndChangesNoBytes) {
  constexpr std::size_t kSize = 1 << 20;
  ASSERT_OK_AND_ASSIGN(auto file, MemoryMapParallelFile::Open(path_, {.grow_min = 0}));
  ASSERT_THAT(file.Resize(kSize), IsOk());
  file.Prefault(0, kSize);  // before any access, which would read ahead
  std::vector<unsigned char> is_present(kSize / 4096);
  ASSERT_EQ(mincore(file.MutableView(0, kSize).data(), kSize, is_present.data()), 0);
  EXPECT_EQ(std::count(is_present.begin(), is_present.end(), 1), std::ssize(is_present));
  ASSERT_THAT(file.WriteAt(kSize / 2, AsBytes("content")), IsOk());
  // It is a hint: a range that reaches beyond the file, or lies there, is harmless.
  file.Prefault(kSize - 1, kSize);
  file.Prefault(kSize, 1);
  file.Prefault(~std::uint64_t{0}, ~std::size_t{0});
  std::string expected(kSize, '\0');
  expected.replace(kSize / 2, 7, "content");
  EXPECT_EQ(ContentOf(file), expected);
  ASSERT_THAT(file.Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(auto reader, MemoryMapParallelFile::Open(path_, {.mode = OpenMode::kReadOnly}));
  reader.Prefault(0, kSize);
  EXPECT_EQ(ContentOf(reader), expected);
}

TEST_F(MemoryMapParallelFileTest, SyncRangeMakesTheNameDurableAndKeepsFailing) {
  ASSERT_OK_AND_ASSIGN(auto file, MemoryMapParallelFile::Open(path_));
  Fill(file, "content");
  bool is_possible = true;
  std::thread([&] {
    is_possible = FailSystemCallsOfThisThread({SYS_open, SYS_openat, SYS_syncfs}, EIO);
    if (is_possible) {
      EXPECT_FALSE(file.SyncRange(0, 7).ok());
    }
  }).join();
  if (!is_possible) GTEST_SKIP() << "cannot make system calls fail";
  EXPECT_THAT(file.SyncRange(0, 7), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(file.Sync(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace hako
