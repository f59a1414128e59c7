// The requirements of every PathFile: opening, locking, allocating, closing, on a real file system.
// The fixture type is the file type itself.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "file/file_conformance.h"
#include "hako/file/path.h"
#include "support/child_process.h"
#include "support/file_system.h"
#include "support/small_disk.h"
#include "support/system_call_fault.h"
#include "support/temp_dir.h"

namespace hako {

// The fixture type of FileConformance and MappedFileConformance for a file that is opened by path;
// AnyFile takes a kind too.
template <PathFile F, const std::string_view&... kKind>
struct PathFileTraits {
  using FileT = F;
  FileT Create() { return FileT::Open(path, {}, kKind...).value(); }
  FileT Reopen(FileT file) {
    EXPECT_THAT(file.Close(), IsOk());
    return Create();
  }
  TempDir dir;
  std::string path = dir.File("file");
};

template <class FileT>
class PathFileConformance : public testing::Test {
 protected:
  static constexpr std::chrono::milliseconds kLong = std::chrono::minutes(5);  // longer than any test runs

  static StatusOr<FileT> Open(const std::string& path, OpenMode mode, std::chrono::milliseconds lock_timeout = {}) {
    return FileT::Open(path, {.mode = mode, .lock_timeout = lock_timeout, .grow_min = 1 << 16});
  }
  StatusOr<FileT> Open(OpenMode mode, std::chrono::milliseconds lock_timeout = {}) const { return Open(path_, mode, lock_timeout); }

  // Whether opening succeeds: 0 or the status code; for child processes.
  static int OpenCode(const std::string& path, OpenMode mode, std::chrono::milliseconds lock_timeout = {}) {
    return static_cast<int>(Open(path, mode, lock_timeout).status().code());
  }

  static void WaitUntilOpenTwice(const std::string& path) {
    while (CountDescriptors(path) < 2) std::this_thread::yield();
  }

  TempDir dir_;
  const std::string path_ = dir_.File("file");
};

TYPED_TEST_SUITE_P(PathFileConformance);

TYPED_TEST_P(PathFileConformance, OnlyCreatingModesCreate) {
  EXPECT_THAT(this->Open(OpenMode::kReadOnly), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(this->Open(OpenMode::kReadWrite), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(std::filesystem::exists(this->path_));
  EXPECT_THAT(this->Open(OpenMode::kCreate), IsOk());
  EXPECT_TRUE(std::filesystem::exists(this->path_));
  EXPECT_THAT(this->Open(this->dir_.File("other"), OpenMode::kTruncate), IsOk());
  EXPECT_TRUE(std::filesystem::exists(this->dir_.File("other")));
}

TYPED_TEST_P(PathFileConformance, TruncateDropsTheContentAndOtherModesKeepIt) {
  WriteWhole(this->path_, "content");
  for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite, OpenMode::kCreate}) {
    ASSERT_OK_AND_ASSIGN(auto file, this->Open(mode));
    EXPECT_EQ(ContentOf(file), "content");
  }
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kTruncate));
  EXPECT_EQ(file.Size(), 0u);
  ASSERT_THAT(file.Resize(7), IsOk());
  EXPECT_EQ(ContentOf(file), std::string(7, '\0'));
}

TYPED_TEST_P(PathFileConformance, RefusesOtherKindsOfFiles) {
  EXPECT_THAT(this->Open(this->dir_.path(), OpenMode::kReadOnly), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(this->Open(this->dir_.path(), OpenMode::kReadWrite).ok());
  EXPECT_FALSE(this->Open("", OpenMode::kCreate).ok());
  EXPECT_FALSE(this->Open(this->dir_.File("no/such/directory"), OpenMode::kCreate).ok());
}

TYPED_TEST_P(PathFileConformance, ReadOnlyRefusesEveryChange) {
  WriteWhole(this->path_, "content");
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kReadOnly));
  EXPECT_FALSE(file.IsWritable());
  EXPECT_THAT(file.WriteAt(0, AsBytes("x")), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(file.Resize(3), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(file.Resize(30), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(file.Sync(), IsOk());  // nothing to sync
  EXPECT_EQ(ContentOf(file), "content");
  EXPECT_THAT(file.Close(), IsOk());
  EXPECT_EQ(ReadWhole(this->path_), "content");
}

TYPED_TEST_P(PathFileConformance, OpensAnEmptyFileReadOnly) {
  WriteWhole(this->path_, "");
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kReadOnly));
  EXPECT_EQ(file.Size(), 0u);
}

TYPED_TEST_P(PathFileConformance, SpaceIsAllocatedAheadAndGivenBackByClose) {
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kCreate));
  ASSERT_THAT(file.Resize(10), IsOk());
  EXPECT_EQ(StatOf(this->path_).st_size, 1 << 16);
  EXPECT_GE(StatOf(this->path_).st_blocks * 512, 1 << 16);
  ASSERT_THAT(file.Resize(1 << 16), IsOk());
  EXPECT_EQ(StatOf(this->path_).st_size, 1 << 16);
  ASSERT_THAT(file.Resize((1 << 16) + 1), IsOk());
  EXPECT_EQ(StatOf(this->path_).st_size, 1 << 17);
  ASSERT_THAT(file.Resize(1'000'000), IsOk());  // more than a step: no more than is asked for
  EXPECT_EQ(StatOf(this->path_).st_size, 1'000'000);
  ASSERT_THAT(file.Resize(1'000'001), IsOk());  // an eighth
  EXPECT_EQ(StatOf(this->path_).st_size, 1'125'000);
  ASSERT_THAT(file.Resize(file.Size()), IsOk());
  EXPECT_EQ(StatOf(this->path_).st_size, 1'000'001);
  ASSERT_THAT(file.Resize(1'000'002), IsOk());
  ASSERT_THAT(file.Close(), IsOk());
  EXPECT_EQ(StatOf(this->path_).st_size, 1'000'002);
}

TYPED_TEST_P(PathFileConformance, DestructionClosesAndUnlocks) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kCreate));
    Fill(file, "content");
  }
  EXPECT_EQ(ReadWhole(this->path_), "content");
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kCreate));
  ASSERT_OK_AND_ASSIGN(auto other, this->Open(this->dir_.File("other"), OpenMode::kCreate));
  other = std::move(file);  // closes the old file
  EXPECT_THAT(this->Open(this->dir_.File("other"), OpenMode::kReadWrite), IsOk());
  EXPECT_THAT(this->Open(OpenMode::kReadWrite), StatusIs(absl::StatusCode::kUnavailable));
}

TYPED_TEST_P(PathFileConformance, WritersExcludeEveryoneAndReadersShare) {
  WriteWhole(this->path_, "content");
  {
    ASSERT_OK_AND_ASSIGN(auto writer, this->Open(OpenMode::kReadWrite));
    EXPECT_THAT(this->Open(OpenMode::kReadWrite), StatusIs(absl::StatusCode::kUnavailable, testing::HasSubstr("in this process")));
    EXPECT_THAT(this->Open(OpenMode::kReadOnly), StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(this->Open(OpenMode::kTruncate), StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_EQ(ContentOf(writer), "content");
    std::filesystem::create_hard_link(this->path_, this->dir_.File("link"));  // another name is not another file
    EXPECT_THAT(this->Open(this->dir_.File("link"), OpenMode::kReadOnly), StatusIs(absl::StatusCode::kUnavailable));
  }
  ASSERT_OK_AND_ASSIGN(auto reader, this->Open(OpenMode::kReadOnly));
  ASSERT_OK_AND_ASSIGN(auto reader2, this->Open(OpenMode::kReadOnly));
  EXPECT_THAT(this->Open(OpenMode::kReadWrite), StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_THAT(reader.Close(), IsOk());
  EXPECT_THAT(this->Open(OpenMode::kReadWrite), StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_THAT(reader2.Close(), IsOk());
  EXPECT_THAT(this->Open(OpenMode::kReadWrite), IsOk());
}

TYPED_TEST_P(PathFileConformance, ClosingAnotherDescriptorKeepsTheLock) {
  ChildProcess child([&](ChildProcess& parent) {
    parent.Wait();
    return this->OpenCode(this->path_, OpenMode::kReadWrite);
  });
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kCreate));
  ReadWhole(this->path_);  // would drop a classic POSIX lock
  child.Tell();
  EXPECT_EQ(child.Result(), static_cast<int>(absl::StatusCode::kUnavailable));
}

TYPED_TEST_P(PathFileConformance, AnotherProcessHoldsTheFile) {
  ChildProcess child([&](ChildProcess& parent) {
    auto file = this->Open(OpenMode::kCreate);
    parent.Tell();
    parent.Wait();
    return file.ok() && file->Resize(5).ok() && file->WriteAt(0, AsBytes("child")).ok() ? 0 : 1;
  });
  child.Wait();
  EXPECT_THAT(this->Open(OpenMode::kReadOnly), StatusIs(absl::StatusCode::kUnavailable, testing::HasSubstr("in another process")));
  EXPECT_THAT(this->Open(OpenMode::kTruncate, std::chrono::milliseconds(30)), StatusIs(absl::StatusCode::kUnavailable));
  child.Tell();
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kReadWrite, this->kLong));  // polls until the child is done
  EXPECT_EQ(ContentOf(file), "child");
  EXPECT_EQ(child.Result(), 0);
}

TYPED_TEST_P(PathFileConformance, ForkedChildDoesNotKeepTheLock) {
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kCreate));
  ChildProcess child([](ChildProcess& parent) {  // has copies of the parent's descriptors
    parent.Wait();
    return 0;
  });
  ASSERT_THAT(file.Close(), IsOk());
  EXPECT_THAT(this->Open(OpenMode::kReadWrite), IsOk());
  child.Tell();
  EXPECT_EQ(child.Result(), 0);
}

TYPED_TEST_P(PathFileConformance, WaitsForAHolderInThisProcess) {
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kCreate));
  std::string seen;
  std::thread waiter([&] {
    ASSERT_OK_AND_ASSIGN(auto next, this->Open(OpenMode::kReadWrite, this->kLong));
    seen = ContentOf(next);
  });
  this->WaitUntilOpenTwice(this->path_);
  Fill(file, "before the end");
  EXPECT_THAT(file.Close(), IsOk());
  waiter.join();
  EXPECT_EQ(seen, "before the end");
}

TYPED_TEST_P(PathFileConformance, ReplacedWhileWaitingOpensTheNewFile) {
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kCreate));
  Fill(file, "old");
  std::string seen;
  std::thread waiter([&] {
    ASSERT_OK_AND_ASSIGN(auto next, this->Open(OpenMode::kReadWrite, this->kLong));
    seen = ContentOf(next);
  });
  this->WaitUntilOpenTwice(this->path_);
  WriteWhole(this->dir_.File("new"), "new");
  EXPECT_THAT(RenameDurably(this->dir_.File("new"), this->path_), IsOk());
  EXPECT_THAT(file.Close(), IsOk());
  waiter.join();
  EXPECT_EQ(seen, "new");
}

TYPED_TEST_P(PathFileConformance, KeepsWritesOfAKilledProcess) {
  ChildProcess child([&](ChildProcess& parent) {
    auto file = this->Open(OpenMode::kCreate);
    const bool ok = file.ok() && file->Resize(1000).ok() && file->WriteAt(0, AsBytes("written before the kill")).ok();
    parent.Tell();
    parent.Wait();
    return ok ? 0 : 1;
  });
  child.Wait();
  child.Kill();
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kReadWrite));
  EXPECT_EQ(file.Size(), std::uint64_t{1} << 16);  // space allocated ahead was not released
  std::string expected = "written before the kill";
  expected.resize(1 << 16);
  EXPECT_EQ(ContentOf(file), expected);
}

TYPED_TEST_P(PathFileConformance, FullDiskReturnsAnErrorAndChangesNothing) {
  constexpr std::uint64_t kDiskSize = std::uint64_t{1} << 20;
  SmallDisk disk(kDiskSize);
  if (!disk.is_mounted()) GTEST_SKIP() << "cannot mount a small file system";
  const std::string path = disk.File("file");
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(path, OpenMode::kCreate));
  Fill(file, std::string(300'000, 'x'));
  EXPECT_THAT(file.Resize(kDiskSize * 2), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(ContentOf(file), std::string(300'000, 'x'));
  EXPECT_LT(StatOf(path).st_blocks * 512, 400'000);
  // Grows to the last byte of the disk, where a whole step no longer fits, and writes every byte.
  std::uint64_t size = 300'000;
  while (file.Resize(size + 5000).ok()) size += 5000;
  EXPECT_GT(size, kDiskSize - 5000 - 4096);
  EXPECT_EQ(file.Size(), size);
  EXPECT_THAT(file.WriteAt(0, AsBytes(std::string(size, 'y'))), IsOk());
  EXPECT_THAT(file.Sync(), IsOk());
  ASSERT_THAT(file.Resize(1000), IsOk());  // truncation needs no space
  EXPECT_THAT(file.Close(), IsOk());
  EXPECT_EQ(ReadWhole(path), std::string(1000, 'y'));
}

TYPED_TEST_P(PathFileConformance, FileSizeLimitOfTheProcessReturnsAnError) {
  ChildProcess child([&](ChildProcess&) {
    const rlimit limit = {.rlim_cur = 100'000, .rlim_max = 100'000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    auto file = this->Open(OpenMode::kCreate);
    if (!file.ok() || !file->Resize(90'000).ok()) return 2;
    if (!absl::IsResourceExhausted(file->Resize(100'001))) return 3;  // SIGXFSZ would end us here
    if (file->Size() != 90'000 || !file->WriteAt(89'999, AsBytes("x")).ok()) return 4;
    return file->Resize(100'000).ok() && file->Close().ok() ? 0 : 5;
  });
  EXPECT_EQ(child.Result(), 0);
  EXPECT_EQ(StatOf(this->path_).st_size, 100'000);
}

TYPED_TEST_P(PathFileConformance, FillsTheHolesOfASparseFile) {
  WriteWhole(this->path_, "data");
  std::filesystem::resize_file(this->path_, 1'000'000);
  ASSERT_LT(StatOf(this->path_).st_blocks * 512, 1'000'000);
  { ASSERT_THAT(this->Open(OpenMode::kReadOnly), IsOk()); }
  EXPECT_LT(StatOf(this->path_).st_blocks * 512, 1'000'000);  // a reader changes nothing
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kReadWrite));
  EXPECT_LT(StatOf(this->path_).st_blocks * 512, 1'000'000);  // nor does an open that may find another kind of file
  ASSERT_THAT(file.Sync(), IsOk());
  EXPECT_GE(StatOf(this->path_).st_blocks * 512, 1'000'000);
  std::string expected = "data";
  expected.resize(1'000'000);
  EXPECT_EQ(ContentOf(file), expected);
}

TYPED_TEST_P(PathFileConformance, WorksWithoutFallocate) {
  bool is_possible = true;
  std::thread([&] {
    WriteWhole(this->path_, std::string(5000, 'd'));
    std::filesystem::resize_file(this->path_, 2'000'000);
    is_possible = FailSystemCallsOfThisThread({SYS_fallocate}, EOPNOTSUPP);
    if (!is_possible) return;
    ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kReadWrite));
    ASSERT_THAT(file.Resize(2'000'000), IsOk());
    EXPECT_GE(StatOf(this->path_).st_blocks * 512, 2'000'000);
    ASSERT_THAT(file.Resize(3'000'000), IsOk());
    EXPECT_GE(StatOf(this->path_).st_blocks * 512, 3'000'000);
    EXPECT_EQ(ContentOf(file), std::string(5000, 'd') + std::string(2'995'000, '\0'));
  }).join();
  if (!is_possible) GTEST_SKIP() << "cannot make system calls fail";
}

TYPED_TEST_P(PathFileConformance, FullDiskReturnsAnErrorWithoutFallocate) {
  SmallDisk disk(1 << 20);
  if (!disk.is_mounted()) GTEST_SKIP() << "cannot mount a small file system";
  bool is_possible = true;
  std::thread([&] {
    is_possible = FailSystemCallsOfThisThread({SYS_fallocate}, EOPNOTSUPP);
    if (!is_possible) return;
    const std::string path = disk.File("file");
    ASSERT_OK_AND_ASSIGN(auto file, this->Open(path, OpenMode::kCreate));
    Fill(file, std::string(300'000, 'x'));
    EXPECT_THAT(file.Resize(2 << 20), StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_EQ(ContentOf(file), std::string(300'000, 'x'));
    EXPECT_LT(StatOf(path).st_blocks * 512, 400'000);
    EXPECT_THAT(file.Resize(600'000), IsOk());
  }).join();
  if (!is_possible) GTEST_SKIP() << "cannot make system calls fail";
}

TYPED_TEST_P(PathFileConformance, FailedSyncIsSticky) {
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kCreate));
  Fill(file, "content");
  ASSERT_THAT(file.Sync(), IsOk());
  bool is_possible = true;
  std::thread([&] {
    is_possible = FailSystemCallsOfThisThread({SYS_fsync, SYS_fdatasync, SYS_msync}, EIO);
    if (!is_possible) return;
    EXPECT_FALSE(file.Sync().ok());
  }).join();
  if (!is_possible) GTEST_SKIP() << "cannot make system calls fail";
  EXPECT_THAT(file.Sync(), StatusIs(absl::StatusCode::kFailedPrecondition));  // this thread's call would have succeeded
  EXPECT_EQ(ContentOf(file), "content");
}

TYPED_TEST_P(PathFileConformance, FirstSyncMakesTheNameDurable) {
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kCreate));
  Fill(file, "content");
  // If neither the directory can be opened nor the file system synced, the first sync must fail,
  // because it needs one of them.
  const auto sync = [](TypeParam& synced) {
    std::optional<bool> is_ok;
    std::thread([&] {
      if (FailSystemCallsOfThisThread({SYS_open, SYS_openat, SYS_syncfs}, EIO)) is_ok = synced.Sync().ok();
    }).join();
    return is_ok;
  };
  const std::optional<bool> first = sync(file);
  if (!first) GTEST_SKIP() << "cannot make system calls fail";
  EXPECT_FALSE(*first);
  ASSERT_THAT(file.Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(auto again, this->Open(OpenMode::kReadWrite));
  ASSERT_THAT(again.Sync(), IsOk());
  EXPECT_EQ(sync(again), true);  // later ones do not
}

TYPED_TEST_P(PathFileConformance, SyncsInADirectoryThatCannotBeOpened) {
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kCreate));
  Fill(file, "content");
  for (const int error : {EACCES, EMFILE}) {
    bool is_possible = true;
    std::thread([&] {
      is_possible = FailSystemCallsOfThisThread({SYS_open, SYS_openat}, error);
      if (is_possible) {
        EXPECT_THAT(file.Sync(), IsOk());
      }
    }).join();
    if (!is_possible) GTEST_SKIP() << "cannot make system calls fail";
  }
}

TYPED_TEST_P(PathFileConformance, ForkedChildDoesNotTouchTheFile) {
  ASSERT_OK_AND_ASSIGN(auto file, this->Open(OpenMode::kCreate));
  Fill(file, "content");
  ChildProcess child([&](ChildProcess&) { return file.Close().ok() ? 0 : 1; });
  EXPECT_EQ(child.Result(), 0);
  EXPECT_GT(StatOf(this->path_).st_size, 7);  // space allocated ahead still exists
  ChildProcess other([&](ChildProcess&) { return PathFileConformance<TypeParam>::OpenCode(this->path_, OpenMode::kReadWrite); });
  EXPECT_EQ(other.Result(), static_cast<int>(absl::StatusCode::kUnavailable));
}

TYPED_TEST_P(PathFileConformance, DoesNotUseTheStandardStreams) {
  ChildProcess child([&](ChildProcess&) {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(fd);
    auto file = this->Open(OpenMode::kCreate);
    if (!file.ok()) return 1;
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      if (fcntl(fd, F_GETFD) != -1) return 2;
    }
    return file->Resize(10).ok() && file->Sync().ok() ? 0 : 3;
  });
  EXPECT_EQ(child.Result(), 0);
}

TYPED_TEST_P(PathFileConformance, RelativePathSurvivesAChangeOfDirectory) {
  ChildProcess child([&](ChildProcess&) {
    if (chdir(this->dir_.path().c_str()) != 0) return 1;
    auto file = this->Open("relative", OpenMode::kCreate);
    if (!file.ok() || chdir("/proc") != 0) return 2;
    return file->Resize(10).ok() && file->Sync().ok() && file->Close().ok() ? 0 : 3;
  });
  EXPECT_EQ(child.Result(), 0);
  EXPECT_EQ(StatOf(this->dir_.File("relative")).st_size, 10);
}

REGISTER_TYPED_TEST_SUITE_P(PathFileConformance, OnlyCreatingModesCreate, TruncateDropsTheContentAndOtherModesKeepIt,
                            RefusesOtherKindsOfFiles, ReadOnlyRefusesEveryChange, OpensAnEmptyFileReadOnly,
                            SpaceIsAllocatedAheadAndGivenBackByClose, DestructionClosesAndUnlocks, WritersExcludeEveryoneAndReadersShare,
                            ClosingAnotherDescriptorKeepsTheLock, AnotherProcessHoldsTheFile, ForkedChildDoesNotKeepTheLock,
                            WaitsForAHolderInThisProcess, ReplacedWhileWaitingOpensTheNewFile, KeepsWritesOfAKilledProcess,
                            FullDiskReturnsAnErrorAndChangesNothing, FileSizeLimitOfTheProcessReturnsAnError, FillsTheHolesOfASparseFile,
                            WorksWithoutFallocate, FullDiskReturnsAnErrorWithoutFallocate, FailedSyncIsSticky, FirstSyncMakesTheNameDurable,
                            SyncsInADirectoryThatCannotBeOpened, ForkedChildDoesNotTouchTheFile, DoesNotUseTheStandardStreams,
                            RelativePathSurvivesAChangeOfDirectory);

}  // namespace hako
