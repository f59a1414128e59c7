// ReplaceFile: the old file or the new one, with the old one's permissions, and no other file in
// the directory.
#include "hako/file/replace_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "file/path_file_conformance.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"

namespace hako {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

unsigned ModeOf(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

class ReplaceTest : public testing::Test {
 protected:
  std::vector<std::string> Names() const { return NamesIn(dir_.File("")); }

  TempDir dir_;
  const std::string path_ = dir_.File("file");
};

template <class F>
class ReplaceFileTest : public ReplaceTest {};
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
    EXPECT_THAT(this->Names(), testing::ElementsAre("file"));
    WriteWhole(this->path_, "longer than the new one");
  }
}

TYPED_TEST(ReplaceFileTest, KeepsTheOldFileIfWritingFails) {
  WriteWhole(this->path_, "old");
  const auto fail = [](TypeParam& file) {
    HAKO_RETURN_IF_ERROR(WriteNew(file));
    return absl::CancelledError("no");
  };
  EXPECT_THAT(ReplaceFile<TypeParam>(this->path_, fail), StatusIs(absl::StatusCode::kCancelled, "no"));
  EXPECT_EQ(ReadWhole(this->path_), "old");
  EXPECT_THAT(this->Names(), testing::ElementsAre("file"));
}

TYPED_TEST(ReplaceFileTest, KeepsTheOldFileIfSyncingFails) {
  WriteWhole(this->path_, "old");
  bool is_possible = true;
  std::thread([&] {
    is_possible = FailSystemCallsOfThisThread({SYS_fsync, SYS_fdatasync}, EIO);
    if (!is_possible) return;
    EXPECT_FALSE(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>).ok());
    EXPECT_EQ(ReadWhole(this->path_), "old");
    EXPECT_THAT(this->Names(), testing::ElementsAre("file"));
  }).join();
  if (!is_possible) GTEST_SKIP() << "cannot make system calls fail";
}

TYPED_TEST(ReplaceFileTest, KeepsTheOldFileIfRenamingFails) {
  std::filesystem::create_directory(this->path_);
  WriteWhole(this->path_ + "/inside", "old");
  EXPECT_FALSE(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>).ok());
  EXPECT_EQ(ReadWhole(this->path_ + "/inside"), "old");
  EXPECT_THAT(this->Names(), testing::ElementsAre("file"));
}

TYPED_TEST(ReplaceFileTest, IsUnavailableWhileAnotherReplacesTheSameFile) {
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
  EXPECT_THAT(this->Names(), testing::ElementsAre("file"));
}

TYPED_TEST(ReplaceFileTest, FullDiskKeepsTheOldFile) {
  SmallDisk disk(1 << 20);
  if (!disk.is_mounted()) GTEST_SKIP() << "cannot mount a small file system";
  WriteWhole(disk.File("file"), "old");
  const auto write_much = [](TypeParam& file) { return file.Resize(2 << 20); };
  EXPECT_THAT(ReplaceFile<TypeParam>(disk.File("file"), write_much), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(ReadWhole(disk.File("file")), "old");
  EXPECT_THAT(NamesIn(disk.File("")), testing::Not(testing::Contains(testing::HasSubstr("hako-new"))));
}

// A PathFile that records the state of the file system at each call.
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

TEST_F(ReplaceTest, ReplacingSyncsTheExactSizeAndRenamesUnderTheLock) {
  LoggingFile::log.clear();
  EXPECT_THAT(ReplaceFile<LoggingFile>(path_, WriteNew<LoggingFile>), IsOk());
  EXPECT_THAT(LoggingFile::log, testing::ElementsAre("sync 3", "close, renamed"));
}

TYPED_TEST(ReplaceFileTest, ResolvesTheDirectoryOnce) {
  fs::create_directory(this->dir_.File("other"));
  const fs::path before = fs::current_path();
  fs::current_path(this->dir_.File(""));
  const auto change_folder = [&](TypeParam& file) {
    fs::current_path("other");
    return WriteNew(file);
  };
  EXPECT_THAT(ReplaceFile<TypeParam>("file", change_folder), IsOk());
  fs::current_path(before);
  EXPECT_EQ(ReadWhole(this->path_), "new");
  EXPECT_THAT(NamesIn(this->dir_.File("other")), testing::IsEmpty());
}

TYPED_TEST(ReplaceFileTest, KeepsPermissionsOfTheOldFile) {
  for (const unsigned mode : {0600u, 0640u, 0666u, 0604u}) {
    WriteWhole(this->path_, "old");
    ASSERT_EQ(chmod(this->path_.c_str(), mode), 0);
    EXPECT_THAT(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>), IsOk());
    EXPECT_EQ(ReadWhole(this->path_), "new");
    EXPECT_EQ(ModeOf(this->path_), mode);
  }
}

TYPED_TEST(ReplaceFileTest, KeepsOwnerAndGroupOfTheOldFile) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  WriteWhole(this->path_, "old");
  ASSERT_EQ(chown(this->path_.c_str(), 12, 34), 0);
  EXPECT_THAT(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>), IsOk());
  struct stat info = {};
  ASSERT_EQ(stat(this->path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 12u);
  EXPECT_EQ(info.st_gid, 34u);
}

TYPED_TEST(ReplaceFileTest, NewFileFollowsTheUmask) {
  const mode_t before = umask(077);
  EXPECT_THAT(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>), IsOk());
  umask(022);
  EXPECT_THAT(ReplaceFile<TypeParam>(this->dir_.File("other"), WriteNew<TypeParam>), IsOk());
  umask(before);
  EXPECT_EQ(ModeOf(this->path_), 0600u);
  EXPECT_EQ(ModeOf(this->dir_.File("other")), 0644u);
}

TYPED_TEST(ReplaceFileTest, KeepsSymbolicLinkAndReplacesItsTarget) {
  fs::create_directory(this->dir_.File("real"));
  WriteWhole(this->dir_.File("real/target"), "old");
  fs::create_symlink("real/target", this->dir_.File("first"));
  fs::create_symlink(this->dir_.File("first"), this->path_);
  EXPECT_THAT(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>), IsOk());
  EXPECT_TRUE(fs::is_symlink(this->path_));
  EXPECT_TRUE(fs::is_symlink(this->dir_.File("first")));
  EXPECT_EQ(ReadWhole(this->dir_.File("real/target")), "new");
  EXPECT_THAT(NamesIn(this->dir_.File("real")), testing::ElementsAre("target"));
}

TYPED_TEST(ReplaceFileTest, CreatesTheFileThatASymbolicLinkLeadsTo) {
  fs::create_directory(this->dir_.File("real"));
  fs::create_symlink("real/target", this->path_);
  EXPECT_THAT(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>), IsOk());
  EXPECT_TRUE(fs::is_symlink(this->path_));
  EXPECT_EQ(ReadWhole(this->dir_.File("real/target")), "new");
  fs::create_symlink("loop", this->dir_.File("loop"));
  EXPECT_FALSE(ReplaceFile<TypeParam>(this->dir_.File("loop"), WriteNew<TypeParam>).ok());
}

TYPED_TEST(ReplaceFileTest, LeavesUnrelatedFilesAlone) {
  WriteWhole(this->path_ + ".tmp", "precious");
  ASSERT_THAT(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>), IsOk());
  EXPECT_EQ(ReadWhole(this->path_ + ".tmp"), "precious");
  EXPECT_THAT(this->Names(), testing::ElementsAre("file", "file.tmp"));
}

TYPED_TEST(ReplaceFileTest, IsUnavailableWhileTheOldFileIsOpen) {
  WriteWhole(this->path_, "old");
  FileOptions read_only;
  read_only.mode = OpenMode::kReadOnly;
  for (const FileOptions& options : {FileOptions{}, read_only}) {
    ASSERT_OK_AND_ASSIGN(TypeParam holder, TypeParam::Open(this->path_, options));
    EXPECT_THAT(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>), StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(this->Names(), testing::ElementsAre("file"));
    EXPECT_THAT(holder.Close(), IsOk());
  }
  EXPECT_EQ(ReadWhole(this->path_), "old");
}

TYPED_TEST(ReplaceFileTest, RefusesIrregularFiles) {
  ASSERT_EQ(mkfifo(this->path_.c_str(), 0600), 0);
  EXPECT_THAT(ReplaceFile<TypeParam>(this->path_, WriteNew<TypeParam>), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(fs::is_fifo(this->path_));
}

TYPED_TEST(ReplaceFileTest, MissingDirectoryIsNotNotFound) {
  EXPECT_THAT(ReplaceFile<TypeParam>(this->dir_.File("no/such/file"), WriteNew<TypeParam>),
              StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("there is no directory")));
}

TYPED_TEST(ReplaceFileTest, AcceptsTheLongestName) {
  const std::string path = this->dir_.File(std::string(255, 'n'));
  EXPECT_THAT(ReplaceFile<TypeParam>(path, WriteNew<TypeParam>), IsOk());
  EXPECT_EQ(ReadWhole(path), "new");
}

// The writer of a FileReplacement does not sync it. A rename before the sync would show in the name,
// as only the sync of the directory fails then.
TEST_F(ReplaceTest, CommitSyncsTheNewFileBeforeItsRename) {
  WriteWhole(path_, "old");
  bool is_possible = true;
  std::thread([&] {
    ASSERT_OK_AND_ASSIGN(FileReplacement replacement, FileReplacement::Begin(path_));
    ASSERT_EQ(write(replacement.fd(), "new", 3), 3);
    is_possible = FailSystemCallsOfThisThread({SYS_fsync, SYS_fdatasync}, EIO);
    if (!is_possible) return;
    EXPECT_FALSE(replacement.Commit().ok());
    EXPECT_FALSE(replacement.is_in_place());
    EXPECT_EQ(ReadWhole(path_), "old");
  }).join();
  if (!is_possible) GTEST_SKIP() << "cannot make system calls fail";
  EXPECT_THAT(Names(), testing::ElementsAre("file"));
}

TEST_F(ReplaceTest, HolderOfTheOldFileHoldsTheNewOne) {
  ASSERT_OK_AND_ASSIGN(auto held, PositionalParallelFile::Open(path_));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(ReplaceFile<PositionalParallelFile>(path_, WriteNew<PositionalParallelFile>, {}, &held), IsOk());
    EXPECT_EQ(ContentOf(held), "new");
    EXPECT_EQ(ReadWhole(path_), "new");
    EXPECT_THAT(PositionalParallelFile::Open(path_), StatusIs(absl::StatusCode::kUnavailable));
  }
  EXPECT_THAT(held.Close(), IsOk());
}

TEST_F(ReplaceTest, AcceptsAFileClosedByItsWriter) {
  WriteWhole(path_, "old");
  const auto write = [](PositionalParallelFile file) {
    HAKO_RETURN_IF_ERROR(WriteNew(file));
    return file.Close();
  };
  EXPECT_THAT(ReplaceFile<PositionalParallelFile>(path_, write), IsOk());
  EXPECT_EQ(ReadWhole(path_), "new");
  EXPECT_THAT(Names(), testing::ElementsAre("file"));
}

}  // namespace
}  // namespace hako
