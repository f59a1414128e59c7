// The requirements of every File, as test suites to be instantiated with a fixture type. The
// refinements have separate suites: MappedFile in mapped_file_conformance.h, PathFile in
// path_file_conformance.h.
//
// A fixture type Traits has
//   using FileT = ...;
//   FileT Create();                // a new empty file
//   FileT Reopen(FileT file);      // the same file after Close, which Reopen calls
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/bytes.h"
#include "hako/file/file.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/threads.h"

namespace hako {

// The content of `file` as text.
template <File F>
std::string ContentOf(const F& file) {
  std::string content(file.Size(), '?');
  EXPECT_THAT(file.ReadAt(0, AsMutableBytes(content)), IsOk());
  return content;
}

// Writes `content` to `file`.
template <File F>
void Fill(F& file, std::string_view content) {
  ASSERT_THAT(file.Resize(content.size()), IsOk());
  ASSERT_THAT(file.WriteAt(0, AsBytes(content)), IsOk());
}

template <class Traits>
class FileConformance : public testing::Test {
 protected:
  using FileT = typename Traits::FileT;
  Traits traits_;
};

TYPED_TEST_SUITE_P(FileConformance);

TYPED_TEST_P(FileConformance, StartsEmptyAndWritable) {
  auto file = this->traits_.Create();
  EXPECT_EQ(file.Size(), 0u);
  EXPECT_TRUE(file.IsWritable());
  EXPECT_THAT(file.ReadAt(0, {}), IsOk());
  EXPECT_THAT(file.WriteAt(0, {}), IsOk());
  EXPECT_THAT(file.Sync(), IsOk());
  EXPECT_THAT(file.Close(), IsOk());
}

TYPED_TEST_P(FileConformance, GrowsWithZeros) {
  auto file = this->traits_.Create();
  for (const std::size_t size : {1, 4095, 4096, 4097, 100'000, 3'000'000}) {
    ASSERT_THAT(file.Resize(size), IsOk());
    EXPECT_EQ(file.Size(), size);
    EXPECT_EQ(ContentOf(file), std::string(size, '\0'));
  }
}

TYPED_TEST_P(FileConformance, TruncatedBytesAreZeroAfterGrowth) {
  auto file = this->traits_.Create();
  for (const std::size_t cut : {0, 1, 4096, 10'000, 19'999}) {
    Fill(file, std::string(20'000, 'x'));
    ASSERT_THAT(file.Resize(cut), IsOk());
    EXPECT_EQ(ContentOf(file), std::string(cut, 'x'));
    ASSERT_THAT(file.Resize(30'000), IsOk());
    EXPECT_EQ(ContentOf(file), std::string(cut, 'x') + std::string(30'000 - cut, '\0'));
  }
}

TYPED_TEST_P(FileConformance, ResizeToTheSameSizeKeepsTheContent) {
  auto file = this->traits_.Create();
  Fill(file, "content");
  ASSERT_THAT(file.Resize(7), IsOk());
  EXPECT_EQ(ContentOf(file), "content");
  ASSERT_THAT(file.Resize(9), IsOk());
  EXPECT_EQ(ContentOf(file), std::string("content\0\0", 9));
}

TYPED_TEST_P(FileConformance, AgreesWithAModel) {
  Random random(TestSeed());
  auto file = this->traits_.Create();
  std::string model;
  for (int i = 0; i < 2000 / kSlowdown; ++i) {
    if (random.OneIn(20)) {
      model.resize(random.SkewedSize(17));
      ASSERT_THAT(file.Resize(model.size()), IsOk());
    }
    const std::size_t offset = random.Below(model.size() + 1);
    const std::size_t size = std::min(random.SkewedSize(14), model.size() - offset);
    if (random.OneIn(2)) {
      const std::string bytes = random.Bytes(size);
      ASSERT_THAT(file.WriteAt(offset, AsBytes(bytes)), IsOk());
      model.replace(offset, size, bytes);
    } else {
      std::string bytes(size, '?');
      ASSERT_THAT(file.ReadAt(offset, AsMutableBytes(bytes)), IsOk());
      ASSERT_EQ(bytes, model.substr(offset, size));
    }
    if (random.OneIn(200)) {
      ASSERT_THAT(file.Sync(), IsOk());
    }
  }
  EXPECT_EQ(file.Size(), model.size());
  EXPECT_EQ(ContentOf(file), model);
}

TYPED_TEST_P(FileConformance, RefusesAccessOutsideTheSize) {
  auto file = this->traits_.Create();
  Fill(file, "0123456789");
  constexpr std::uint64_t kLast = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t offset : {std::uint64_t{6}, std::uint64_t{10}, std::uint64_t{11}, std::uint64_t{1} << 40, kLast - 4, kLast}) {
    std::string bytes(5, '?');
    EXPECT_THAT(file.ReadAt(offset, AsMutableBytes(bytes)), StatusIs(absl::StatusCode::kOutOfRange)) << offset;
    EXPECT_EQ(bytes, "?????");
    EXPECT_THAT(file.WriteAt(offset, AsBytes("abcde")), StatusIs(absl::StatusCode::kOutOfRange)) << offset;
  }
  EXPECT_THAT(file.ReadAt(10, {}), IsOk());
  EXPECT_THAT(file.ReadAt(11, {}), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_EQ(ContentOf(file), "0123456789");
}

TYPED_TEST_P(FileConformance, KeepsContentAndSizeAfterClose) {
  auto file = this->traits_.Create();
  Fill(file, "to be seen again");
  auto again = this->traits_.Reopen(std::move(file));
  EXPECT_EQ(again.Size(), 16u);
  EXPECT_EQ(ContentOf(again), "to be seen again");
  ASSERT_THAT(again.Resize(20), IsOk());
  EXPECT_EQ(ContentOf(again), std::string("to be seen again\0\0\0\0", 20));
}

TYPED_TEST_P(FileConformance, MovesLikeAValue) {
  auto file = this->traits_.Create();
  Fill(file, "moved");
  auto other = std::move(file);
  EXPECT_EQ(ContentOf(other), "moved");
  file = std::move(other);
  EXPECT_EQ(ContentOf(file), "moved");
  EXPECT_THAT(file.Close(), IsOk());
}

TYPED_TEST_P(FileConformance, ThreadsWriteAndReadDisjointRangesWhileItGrows) {
  auto file = this->traits_.Create();
  constexpr int kThreads = 4;
  constexpr std::size_t kPart = 10'000;
  const int round_count = 200 / kSlowdown;
  ASSERT_THAT(file.Resize((kThreads - 1) * kPart), IsOk());
  std::atomic<bool> failed = false;
  RunThreads(kThreads, [&](int index) {
    if (index == kThreads - 1) {  // grows while the others work below the old size
      for (int round = 1; round <= round_count && !failed; ++round) {
        const std::uint64_t size = (kThreads - 1) * kPart + static_cast<std::uint64_t>(round) * 20'000;
        if (!file.Resize(size).ok() || file.Size() != size) failed = true;
      }
      return;
    }
    const std::uint64_t begin = static_cast<std::uint64_t>(index) * kPart;
    for (int round = 0; round < round_count && !failed; ++round) {
      const std::string written(kPart, static_cast<char>('a' + (index + round) % 26));
      std::string read(kPart, '?');
      if (!file.WriteAt(begin, AsBytes(written)).ok() || !file.ReadAt(begin, AsMutableBytes(read)).ok() || read != written) failed = true;
    }
  });
  EXPECT_FALSE(failed);
}

// Optimistic readers detect and drop bytes that changed while they read; the file must allow such
// reads.
TYPED_TEST_P(FileConformance, ThreadsReadBytesThatAreBeingWritten) {
  auto file = this->traits_.Create();
  constexpr std::size_t kSize = 1000;
  const int round_count = 2000 / kSlowdown;
  ASSERT_THAT(file.Resize(kSize), IsOk());
  ASSERT_THAT(file.WriteAt(0, AsBytes(std::string(kSize, 'a'))), IsOk());
  std::atomic<bool> failed = false;
  RunThreads(3, [&](int index) {
    for (int round = 0; round < round_count && !failed; ++round) {
      if (index == 0) {
        if (!file.WriteAt(0, AsBytes(std::string(kSize, round % 2 == 0 ? 'b' : 'a'))).ok()) failed = true;
      } else {
        std::string read(kSize, '?');
        if (!file.ReadAt(0, AsMutableBytes(read)).ok() || read.find_first_not_of("ab") != std::string::npos) failed = true;
      }
    }
  });
  EXPECT_FALSE(failed);
}

REGISTER_TYPED_TEST_SUITE_P(FileConformance, StartsEmptyAndWritable, GrowsWithZeros, TruncatedBytesAreZeroAfterGrowth,
                            ResizeToTheSameSizeKeepsTheContent, AgreesWithAModel, RefusesAccessOutsideTheSize,
                            KeepsContentAndSizeAfterClose, MovesLikeAValue, ThreadsWriteAndReadDisjointRangesWhileItGrows,
                            ThreadsReadBytesThatAreBeingWritten);

}  // namespace hako
