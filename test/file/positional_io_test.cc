#include "hako/file/positional_io.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

class PositionalIoTest : public testing::Test {
 protected:
  ~PositionalIoTest() override { close(fd_); }

  TempDir directory_;
  const int fd_ = open(directory_.File("file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
};

// The system writes as much as the limit admits, and fails from there on.
TEST_F(PositionalIoTest, ReportsAWriteThatIsCutShort) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit limited = {.rlim_cur = 6000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limited), 0);
  const int error = WriteFully(fd_, 0, std::vector<std::byte>(10'000, std::byte{1}));
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(error, EFBIG);
  EXPECT_EQ(lseek(fd_, 0, SEEK_END), 6000);
}

TEST_F(PositionalIoTest, ReportsAReadBeyondTheEnd) {
  ASSERT_EQ(WriteFully(fd_, 0, std::vector<std::byte>(100, std::byte{1})), 0);
  std::vector<std::byte> out(200);
  EXPECT_EQ(ReadFully(fd_, 0, out), EIO);
  EXPECT_EQ(ReadFully(fd_, 50, std::span(out).first(50)), 0);
  EXPECT_EQ(out[49], std::byte{1});
}

}  // namespace
}  // namespace hako
