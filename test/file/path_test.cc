#include "hako/file/path.h"

#include <string>
#include <vector>

#include "file/path_file_conformance.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"

namespace hako {
namespace {

class PathTest : public testing::Test {
 protected:
  TempDir dir_;
  const std::string path_ = dir_.File("file");
  const std::string beside_ = path_ + ".tmp";
};

template <class F>
class ReplaceFileTest : public PathTest {};
using FileTypes = testing::Types<MemoryMapParallelFile, PositionalParallelFile>;
TYPED_TEST_SUITE(ReplaceFileTest, FileTypes);

template <class F>
Status WriteNew(F& file) {
  HAKO_RETURN_IF_ERROR(file.Resize(3));
  return file.WriteAt(0, AsBytes("new"));
}

TYPED_TEST(ReplaceFileTest, PutsTheWholeNewFileInPlace) {
  for (int i = 0; i < 2; ++i) {  // where there is none, and where there is one
    ASSERT_THAT(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>), IsOk());
    EXPECT_EQ(ReadWhole(this->path_), "new");
    EXPECT_FALSE(std::filesystem::exists(this->beside_));
    WriteWhole(this->path_, "longer than the new one");
  }
}

TYPED_TEST(ReplaceFileTest, KeepsTheOldFileWhereWritingFails) {
  WriteWhole(this->path_, "old");
  const auto fail = [](TypeParam& file) {
    HAKO_RETURN_IF_ERROR(WriteNew(file));
    return absl::CancelledError("no");
  };
  EXPECT_THAT(ReplaceFile<TypeParam>(this->path_, fail), StatusIs(absl::StatusCode::kCancelled, "no"));
  EXPECT_EQ(ReadWhole(this->path_), "old");
  EXPECT_FALSE(std::filesystem::exists(this->beside_));
}

TYPED_TEST(ReplaceFileTest, KeepsTheOldFileWhereSyncingFails) {
  WriteWhole(this->path_, "old");
  bool is_possible = true;
  std::thread([&] {
    is_possible = FailSystemCallsOfThisThread({SYS_fsync, SYS_fdatasync}, EIO);
    if (!is_possible) return;
    EXPECT_FALSE(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>).ok());
    EXPECT_EQ(ReadWhole(this->path_), "old");
    EXPECT_FALSE(std::filesystem::exists(this->beside_));
  }).join();
  if (!is_possible) GTEST_SKIP() << "cannot make system calls fail";
}

TYPED_TEST(ReplaceFileTest, KeepsTheOldFileWhereRenamingFails) {
  std::filesystem::create_directory(this->path_);
  WriteWhole(this->path_ + "/inside", "old");
  EXPECT_FALSE(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>).ok());
  EXPECT_EQ(ReadWhole(this->path_ + "/inside"), "old");
  EXPECT_FALSE(std::filesystem::exists(this->beside_));
}

TYPED_TEST(ReplaceFileTest, DropsWhatAKilledProcessLeftBeside) {
  WriteWhole(this->beside_, "half of a file that was never finished");
  ASSERT_THAT(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>), IsOk());
  EXPECT_EQ(ReadWhole(this->path_), "new");
}

TYPED_TEST(ReplaceFileTest, LeavesAloneWhatAnotherIsWriting) {
  WriteWhole(this->path_, "old");
  const auto replace_meanwhile = [&](TypeParam& file) {
    HAKO_RETURN_IF_ERROR(WriteNew(file));
    EXPECT_THAT(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>), StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_EQ(ContentOf(file), "new");
    EXPECT_EQ(ReadWhole(this->path_), "old");
    return absl::OkStatus();
  };
  EXPECT_THAT(ReplaceFile<TypeParam>(this->path_, replace_meanwhile), IsOk());
  EXPECT_EQ(ReadWhole(this->path_), "new");
}

TYPED_TEST(ReplaceFileTest, WritersThatWaitForEachOtherAllSucceed) {
  constexpr int kThreads = 4;
  RunThreads(kThreads, [&](int index) {
    const std::string content(5000, static_cast<char>('a' + index));
    const auto write = [&](TypeParam& file) {
      HAKO_RETURN_IF_ERROR(file.Resize(content.size()));
      return file.WriteAt(0, AsBytes(content));
    };
    for (int i = 0; i < 10; ++i) {
      EXPECT_THAT(ReplaceFile<TypeParam>(this->path_, write, {.lock_timeout = std::chrono::minutes(5)}), IsOk());
      const std::string seen = ReadWhole(this->path_);
      EXPECT_EQ(seen, std::string(5000, seen.empty() ? '?' : seen[0]));
    }
  });
  EXPECT_FALSE(std::filesystem::exists(this->beside_));
}

TYPED_TEST(ReplaceFileTest, FullDiskKeepsTheOldFile) {
  SmallDisk disk(1 << 20);
  if (!disk.is_mounted()) GTEST_SKIP() << "cannot mount a small file system";
  WriteWhole(disk.File("file"), "old");
  const auto write_much = [](TypeParam& file) { return file.Resize(2 << 20); };
  EXPECT_THAT(ReplaceFile<TypeParam>(disk.File("file"), write_much), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(ReadWhole(disk.File("file")), "old");
  EXPECT_FALSE(std::filesystem::exists(disk.File("file.tmp")));
}

// A PathFile that writes down what the file system looks like when it is called.
class LoggingFile : public PositionalParallelFile {
 public:
  static StatusOr<LoggingFile> Open(const std::string& path, const FileOptions& options) {
    HAKO_ASSIGN_OR_RETURN(auto file, PositionalParallelFile::Open(path, options));
    return LoggingFile(std::move(file));
  }
  Status Sync() {
    log.push_back("sync " + std::to_string(std::filesystem::file_size(path())));
    return PositionalParallelFile::Sync();
  }
  Status Close() {
    log.push_back(std::filesystem::exists(path()) ? "close, not renamed" : "close, renamed");
    return PositionalParallelFile::Close();
  }
  static inline std::vector<std::string> log;

 private:
  explicit LoggingFile(PositionalParallelFile file) : PositionalParallelFile(std::move(file)) {}
};

TEST_F(PathTest, ReplacingSyncsTheExactSizeAndRenamesUnderTheLock) {
  LoggingFile::log.clear();
  EXPECT_THAT(ReplaceFile<LoggingFile>(path_, WriteNew<LoggingFile>), IsOk());
  EXPECT_THAT(LoggingFile::log, testing::ElementsAre("sync 3", "close, renamed"));
}

TEST_F(PathTest, RenamesOverWhatIsThere) {
  WriteWhole(path_, "old");
  WriteWhole(beside_, "new");
  EXPECT_THAT(RenameDurably(beside_, path_), IsOk());
  EXPECT_EQ(ReadWhole(path_), "new");
  EXPECT_THAT(RenameDurably(beside_, path_), StatusIs(absl::StatusCode::kNotFound, testing::HasSubstr(beside_)));
  EXPECT_EQ(ReadWhole(path_), "new");
}

TEST_F(PathTest, RemovesOnce) {
  WriteWhole(path_, "old");
  EXPECT_THAT(RemoveFile(path_), IsOk());
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_THAT(RemoveFile(path_), StatusIs(absl::StatusCode::kNotFound, testing::HasSubstr(path_)));
}

TEST_F(PathTest, SyncsTheDirectoryOfABareNameToo) {
  EXPECT_THAT(SyncDirectoryOf(path_), IsOk());
  EXPECT_THAT(SyncDirectoryOf("name"), IsOk());
  EXPECT_THAT(SyncDirectoryOf("/name"), IsOk());
  EXPECT_THAT(SyncDirectoryOf(path_ + "/no/such"), testing::Not(StatusIs(absl::StatusCode::kNotFound)));
  EXPECT_FALSE(SyncDirectoryOf(path_ + "/no/such").ok());
}

}  // namespace
}  // namespace hako
