// Errors of the system, for each call that a file makes: transfers that a ring does not complete are made by
// plain calls, and an error of a plain call is returned with its meaning.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/bytes.h"
#include "hako/file/file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "support/failing_calls.h"
#include "support/failing_calls_definitions.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/system_call_fault.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using Code = absl::StatusCode;

constexpr std::size_t kPiece = 8192, kPieces = 96;

std::string RandomText(std::size_t size, std::uint64_t seed) {
  Random random(seed);
  std::string text(size, '\0');
  for (char& byte : text) byte = static_cast<char>(random.Next());
  return text;
}

class RingTest : public testing::Test {
 protected:
  static FailingCalls& calls() { return FailingCalls::Instance(); }
  void TearDown() override {
    calls().Disarm();
    calls().RefuseSubmissions(0, 0);
  }
  // nullopt, and the test is skipped, where there is no direct I/O.
  std::optional<PositionalParallelFile> Open(bool direct, std::uint64_t cache_bytes) {
    auto file = PositionalParallelFile::Open(
        path_, {.mode = OpenMode::kTruncate, .direct = direct, .block_size = direct ? 4096u : 0u, .cache_bytes = cache_bytes});
    if (direct && absl::IsInvalidArgument(file.status())) return std::nullopt;
    EXPECT_THAT(file, IsOk());
    return *std::move(file);
  }

  // Batches of writes and reads, single ones, a sync and a change of size, in a thread, which has a ring of
  // its own: nothing fails, and all bytes are right.
  void ExpectNothingNoticed(bool direct, std::uint64_t cache_bytes) {
    std::optional<PositionalParallelFile> file = Open(direct, cache_bytes);
    if (!file) GTEST_SKIP() << "no direct I/O";
    std::thread([&] {
      const std::string content = RandomText(kPiece * kPieces, 7);
      ASSERT_THAT(file->Resize(content.size()), IsOk());
      std::vector<WriteRequest> writes;
      for (std::size_t i = 0; i < kPieces; ++i) writes.push_back({i * kPiece, AsBytes(content).subspan(i * kPiece, kPiece)});
      ASSERT_THAT(file->WriteMulti(writes), IsOk());
      ASSERT_THAT(file->Sync(), IsOk());
      for (std::size_t i = 0; i < kPieces; i += 3) ASSERT_THAT(file->WriteAt(writes[i].offset, writes[i].in), IsOk());
      ASSERT_THAT(file->Sync(), IsOk());
      std::string out(content.size(), '\0');
      std::vector<ReadRequest> reads;
      for (std::size_t i = 0; i < kPieces; ++i) reads.push_back({i * kPiece, AsMutableBytes(out).subspan(i * kPiece, kPiece)});
      ASSERT_THAT(file->ReadMulti(reads), IsOk());
      ASSERT_EQ(out, content);
      ASSERT_THAT(file->Resize(content.size() / 2), IsOk());
      ASSERT_THAT(file->Resize(content.size()), IsOk());
      out.assign(out.size(), 'x');
      ASSERT_THAT(file->ReadAt(0, AsMutableBytes(out)), IsOk());
      ASSERT_EQ(out, content.substr(0, content.size() / 2) + std::string(content.size() / 2, '\0'));
    }).join();
    EXPECT_THAT(file->Close(), IsOk());
  }
  template <class F>
  void ForEachWay(F&& run) {
    struct Way {
      const char* name;
      bool direct;
      std::uint64_t cache_bytes;
    };
    for (const Way& way : {Way{"buffered", false, 0}, Way{"direct", true, 0}, Way{"cached", true, 1 << 20}}) {
      SCOPED_TRACE(way.name);
      run();
      ExpectNothingNoticed(way.direct, way.cache_bytes);
      if (HasFailure()) return;
    }
  }

  TempDir dir_;
  const std::string path_ = dir_.File("file");
};

// ECANCELED: the kernel can start no thread for the transfer, as no more tasks are allowed or signals keep
// coming. The others: it lacks memory, does not know the operation, or a sandbox forbids it.
constexpr int kRingErrors[] = {EINTR,  EAGAIN, ECANCELED, ENOMEM, EBUSY,  EOPNOTSUPP, EINVAL,
                               ENOSYS, EACCES, EPERM,     EBADF,  EFAULT, ENOBUFS,    EIO};

TEST_F(RingTest, ATransferThatARingDoesNotCompleteIsMadeByAPlainCall) {
  for (const int error : kRingErrors) {
    for (const CallFault& fault :
         {CallFault{.error = error, .call = 3, .plain = false}, CallFault{.error = error, .every_other = true, .plain = false},
          CallFault{.error = error, .forever = true, .plain = false}}) {
      SCOPED_TRACE(std::strerror(error));
      std::uint64_t fired = 0;
      ForEachWay([&] {
        fired += calls().fired();
        calls().Arm(fault);
      });
      EXPECT_GE(fired + calls().fired(), 2u);
      if (HasFailure()) return;
    }
  }
}

TEST_F(RingTest, AShortTransferIsCompleted) {
  ForEachWay([&] { calls().Arm({.how = CallFault::How::kPartial, .every_other = true}); });
}

TEST_F(RingTest, WithoutSubmissionsPlainCallsAreMade) {
  for (const int error : {EINTR, EAGAIN, EBUSY, ENOMEM, EPERM, ENOSYS, EOPNOTSUPP, EINVAL, EBADF, ENXIO}) {
    SCOPED_TRACE(std::strerror(error));
    ForEachWay([&] { calls().RefuseSubmissions(error, 2); });
    if (error != EINTR) ForEachWay([&] { calls().RefuseSubmissions(error, std::numeric_limits<int>::max()); });
    if (HasFailure()) return;
  }
}

// What an operation returns when a call of the system always fails.
template <class F>
class SystemErrorsTest : public testing::Test {
 protected:
  // Runs the operation in a thread where the calls fail. nullopt if the system does not allow that.
  static std::optional<Status> With(const std::vector<long>& calls, int error, std::optional<std::uint32_t> second,
                                    const std::function<Status()>& operation) {
    std::optional<Status> result;
    std::thread([&] {
      if (FailSystemCallsOfThisThread(calls, error, second)) result = operation();
    }).join();
    return result;
  }
  StatusOr<F> Open(FileOptions options = {.mode = OpenMode::kReadWrite}) {
    options.grow_min = 4096;
    return F::Open(path_, options);
  }

  TempDir dir_;
  const std::string path_ = dir_.File("file");
};
using FileTypes = testing::Types<MemoryMapParallelFile, PositionalParallelFile>;
TYPED_TEST_SUITE(SystemErrorsTest, FileTypes);

// EINTR is left out: calls are repeated until they are not interrupted.
constexpr int kErrors[] = {EPERM,     ENOENT,     EIO,     ENXIO,     EBADF,   EAGAIN, ENOMEM,     EACCES, EBUSY,   EEXIST,
                           ENODEV,    EINVAL,     ENFILE,  EMFILE,    EFBIG,   ENOSPC, ESPIPE,     EROFS,  EDEADLK, ENOLCK,
                           ENOSYS,    ENODATA,    ETIME,   EREMOTEIO, ENOLINK, EILSEQ, EBADE,      EDQUOT, ESTALE,  ETIMEDOUT,
                           EOVERFLOW, EOPNOTSUPP, ENOBUFS, ECANCELED, ETXTBSY, EXDEV,  ENETUNREACH};

template <class FileT>
struct OperationWithCalls {
  const char* name;
  std::vector<long> calls;
  std::function<Status(FileT&)> operation;
  std::vector<int> passes;  // errors that the operation works without the call at
};

TYPED_TEST(SystemErrorsTest, KeepTheirMeaning) {
  using Case = OperationWithCalls<TypeParam>;
  std::string out(100'000, '\0');
  std::vector<ReadRequest> reads;
  std::vector<WriteRequest> writes;
  for (std::size_t i = 0; i < 4; ++i) {
    reads.push_back({i * 1000, AsMutableBytes(out).subspan(i * 1000, 500)});
    writes.push_back({i * 1000, AsBytes(out).subspan(i * 1000, 500)});
  }
  std::vector<Case> cases = {
      {"grow", {SYS_fallocate}, [](TypeParam& file) { return file.Resize(200'000); }, {EOPNOTSUPP, ENOSYS}},
      {"cut", {SYS_ftruncate}, [](TypeParam& file) { return file.Resize(50'000); }, {}},
      {"sync", {SYS_fsync, SYS_fdatasync}, [](TypeParam& file) { return file.Sync(); }, {}},
      {"long write", {SYS_pwrite64, SYS_pwritev}, [&](TypeParam& file) { return file.WriteAt(0, AsBytes(out)); }, {}},
  };
  if constexpr (BatchFile<TypeParam>) {
    cases.push_back({"read", {SYS_preadv}, [&](TypeParam& file) { return file.ReadAt(0, AsMutableBytes(out)); }, {}});
    cases.push_back({"write", {SYS_pwritev}, [&](TypeParam& file) { return file.WriteAt(0, AsBytes(out).first(10)); }, {}});
    cases.push_back({"reads", {SYS_preadv, SYS_io_uring_enter}, [&](TypeParam& file) { return file.ReadMulti(reads); }, {}});
    cases.push_back({"writes", {SYS_pwritev, SYS_io_uring_enter}, [&](TypeParam& file) { return file.WriteMulti(writes); }, {}});
  }
  for (const Case& tested : cases) {
    for (const int error : kErrors) {
      SCOPED_TRACE(testing::Message() << tested.name << ": " << std::strerror(error));
      ASSERT_OK_AND_ASSIGN(auto file, this->Open({.mode = OpenMode::kTruncate}));
      ASSERT_THAT(file.Resize(100'000), IsOk());
      const auto status = this->With(tested.calls, error, {}, [&] { return tested.operation(file); });
      if (!status) GTEST_SKIP() << "cannot make system calls fail";
      bool passes = false;
      for (const int one : tested.passes) passes = passes || one == error;
      if (passes) {
        EXPECT_THAT(*status, IsOk());
        continue;
      }
      EXPECT_EQ(status->code(), CodeOfSystemError(error)) << *status;
      EXPECT_THAT(std::string(status->message()),
                  testing::AllOf(testing::HasSubstr(this->path_), testing::HasSubstr(std::strerror(error))));
      EXPECT_THAT(std::string(status->message()), testing::StartsWith("cannot "));
    }
  }
}

TYPED_TEST(SystemErrorsTest, OfOpenKeepTheirMeaning) {
  struct Case {
    const char* name;
    std::vector<long> calls;
    std::optional<std::uint32_t> second = {};
  };
  std::vector<Case> cases = {{"open", {SYS_open, SYS_openat}}, {"lock", {SYS_fcntl}, F_OFD_SETLK}, {"flags", {SYS_fcntl}, F_GETFL}};
  if (MappedFile<TypeParam>) cases.push_back({"map", {SYS_mmap}});
  { ASSERT_THAT(this->Open({.mode = OpenMode::kCreate}), IsOk()); }
  for (const Case& tested : cases) {
    for (const int error : kErrors) {
      SCOPED_TRACE(testing::Message() << tested.name << ": " << std::strerror(error));
      const auto status = this->With(tested.calls, error, tested.second, [&] { return this->Open().status(); });
      if (!status) GTEST_SKIP() << "cannot make system calls fail";
      Code code = CodeOfSystemError(error);
      const std::string_view name = tested.name;
      if (name == "open" && error == ENOENT) code = Code::kNotFound;
      if (name == "map" && (error == EAGAIN || error == EINVAL)) code = Code::kResourceExhausted;
      if (name == "lock" && error == EINVAL) code = Code::kUnknown;
      if (name == "lock" && (error == EAGAIN || error == EACCES)) code = Code::kUnavailable;  // the only errors that say so
      EXPECT_EQ(status->code(), code) << *status;
      EXPECT_THAT(std::string(status->message()), testing::HasSubstr(this->path_));
      if (name == "lock" && (error == ENOLCK || error == EOPNOTSUPP)) {
        EXPECT_THAT(std::string(status->message()),
                    testing::AllOf(testing::HasSubstr(std::strerror(error)), testing::HasSubstr("may keep no locks")));
      }
    }
  }
  EXPECT_THAT(this->Open(), IsOk());
}

// Some file systems sync no directories, which says nothing of the file.
TYPED_TEST(SystemErrorsTest, SyncsWhereDirectoriesCannotBeSynced) {
  for (const int error : {EINVAL, EOPNOTSUPP, EIO}) {
    ASSERT_OK_AND_ASSIGN(auto file, this->Open({.mode = OpenMode::kTruncate}));
    ASSERT_THAT(file.Resize(10), IsOk());
    static int directory_error, num_directories;
    directory_error = error;
    num_directories = 0;
    FailingCalls::Instance().on_fsync_result = [](int fd) {
      struct stat info;
      if (fstat(fd, &info) != 0 || !S_ISDIR(info.st_mode)) return 0;
      ++num_directories;
      return directory_error;
    };
    const Status status = file.Sync();
    FailingCalls::Instance().on_fsync_result = nullptr;
    EXPECT_EQ(num_directories, 1);
    EXPECT_EQ(status.ok(), error != EIO) << status;
  }
}

}  // namespace
}  // namespace hako
