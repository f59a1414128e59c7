// The requirements of every MappedFile beyond those of File. The fixture type is that of
// file_conformance.h.
#pragma once

#include <cstring>
#include <string>
#include <thread>

#include "file/file_conformance.h"
#include "support/sanitizers.h"

namespace hako {

template <class Traits>
class MappedFileConformance : public testing::Test {
 protected:
  Traits traits_;
};

TYPED_TEST_SUITE_P(MappedFileConformance);

TYPED_TEST_P(MappedFileConformance, ViewsAndCallsSeeTheSameBytes) {
  auto file = this->traits_.Create();
  Fill(file, "0123456789");
  EXPECT_EQ(AsChars(file.View(3, 4)), "3456");
  std::memcpy(file.MutableView(4, 2).data(), "xy", 2);
  EXPECT_EQ(ContentOf(file), "0123xy6789");
  EXPECT_EQ(AsChars(file.View(0, 10)), "0123xy6789");
  EXPECT_TRUE(file.View(10, 0).empty());
  auto again = this->traits_.Reopen(std::move(file));
  EXPECT_EQ(AsChars(again.View(0, 10)), "0123xy6789");
}

TYPED_TEST_P(MappedFileConformance, GrowthAndMoveKeepTheBase) {
  auto file = this->traits_.Create();
  Fill(file, "stays");
  const std::byte* base = file.View(0, 1).data();
  for (std::uint64_t size = 10; size < 50'000'000; size *= 3) {
    ASSERT_THAT(file.Resize(size), IsOk());
    file.MutableView(size - 1, 1)[0] = std::byte{7};
    ASSERT_EQ(file.View(0, 1).data(), base);
  }
  auto moved = std::move(file);
  EXPECT_EQ(moved.View(0, 1).data(), base);
  EXPECT_EQ(AsChars(moved.View(0, 5)), "stays");
}

TYPED_TEST_P(MappedFileConformance, StoresToAViewContinueWhileTheFileGrows) {
  auto file = this->traits_.Create();
  constexpr std::size_t kSize = 100'000;
  ASSERT_THAT(file.Resize(kSize), IsOk());
  std::thread writer([view = file.MutableView(0, kSize)] {
    for (int round = 1; round <= 50 / kSlowdown; ++round) std::memset(view.data(), round, view.size());
  });
  for (std::uint64_t size = kSize; size < 5'000'000; size += 50'000) ASSERT_THAT(file.Resize(size), IsOk());
  writer.join();
  EXPECT_EQ(AsChars(file.View(0, kSize)), std::string(kSize, static_cast<char>(50 / kSlowdown)));
}

TYPED_TEST_P(MappedFileConformance, SyncsARange) {
  auto file = this->traits_.Create();
  Fill(file, std::string(20'000, 'x'));
  EXPECT_THAT(file.SyncRange(5000, 5000), IsOk());
  EXPECT_THAT(file.SyncRange(0, 20'000), IsOk());
  EXPECT_THAT(file.SyncRange(20'000, 0), IsOk());
  EXPECT_THAT(file.SyncRange(19'999, 2), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(file.SyncRange(~std::uint64_t{0}, 2), StatusIs(absl::StatusCode::kOutOfRange));
}

REGISTER_TYPED_TEST_SUITE_P(MappedFileConformance, ViewsAndCallsSeeTheSameBytes, GrowthAndMoveKeepTheBase,
                            StoresToAViewContinueWhileTheFileGrows, SyncsARange);

}  // namespace hako
