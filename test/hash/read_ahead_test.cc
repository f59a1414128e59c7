#include "hako/hash/file/read_ahead.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/file/positional_parallel_file.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako::hash {
namespace {

class ReadAheadTest : public testing::Test {
 protected:
  void SetUp() override {
    Random random(1);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random.Next());
    ASSERT_THAT(file_.Resize(bytes_.size()), IsOk());
    ASSERT_THAT(file_.WriteAt(0, bytes_), IsOk());
  }
  void ExpectTakes(std::uint32_t handle, std::size_t offset, std::size_t size) {
    const std::span<const std::byte> taken = ReadAhead::Take(&file_, handle);
    EXPECT_TRUE(std::ranges::equal(taken, std::span(bytes_).subspan(offset, size))) << "record " << handle;
  }

  TempDir directory_;
  PositionalParallelFile file_ = PositionalParallelFile::Open(directory_.File("file")).value();
  std::vector<std::byte> bytes_ = std::vector<std::byte>(4000);
};

TEST_F(ReadAheadTest, ReturnsEachBlockOnce) {
  ReadAhead ahead;
  ahead.Want(1, 100, 50);
  ahead.Want(2, 3000, 1000);
  EXPECT_TRUE(ReadAhead::Take(&file_, 1).empty());
  ahead.Read(file_);
  ExpectTakes(2, 3000, 1000);
  ExpectTakes(1, 100, 50);
  EXPECT_TRUE(ReadAhead::Take(&file_, 1).empty());
  EXPECT_TRUE(ReadAhead::Take(&file_, 3).empty());
  EXPECT_TRUE(ReadAhead::Take(this, 2).empty());
}

TEST_F(ReadAheadTest, NestedReadAheadHasSeparateBuffers) {
  for (int round = 0; round < 2; ++round) {  // the second reuses the buffers of the first
    ReadAhead outer;
    outer.Want(1, 0, 2000);
    outer.Read(file_);
    {
      ReadAhead inner;
      inner.Want(2, 2000, 1000);
      inner.Read(file_);
      ExpectTakes(2, 2000, 1000);
      EXPECT_TRUE(ReadAhead::Take(&file_, 1).empty());
    }
    ExpectTakes(1, 0, 2000);
  }
}

}  // namespace
}  // namespace hako::hash
