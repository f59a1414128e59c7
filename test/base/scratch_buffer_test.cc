#include "hako/base/scratch_buffer.h"

#include <cstring>
#include <limits>
#include <thread>

#include "gtest/gtest.h"
#include "support/sanitizers.h"

namespace hako {
namespace {

TEST(ScratchBuffer, KeepsSmallMemoryForTheNextUse) {
  OwnedScratch buffer;
  char* const bytes = buffer.Take(100);
  ASSERT_NE(bytes, nullptr);
  buffer.Trim();
  EXPECT_EQ(buffer.Take(4000), bytes);
}

TEST(ScratchBuffer, FreesLargeMemoryAtTheEndOfAUse) {
  OwnedScratch buffer;
  {
    const ScratchUse use(buffer);
    char* const bytes = buffer.Take(8 << 20);
    ASSERT_NE(bytes, nullptr);
    std::memset(bytes, 1, 8 << 20);
  }
  EXPECT_LE(buffer.capacity(), ScratchBuffer::kKeptMax);
}

TEST(ScratchBuffer, KeepsItsContentWhenItGrows) {
  OwnedScratch buffer;
  std::memcpy(buffer.Take(6), "begin", 6);
  EXPECT_STREQ(buffer.Take(3 << 20, 6), "begin");
}

#if !defined(HAKO_ASAN) && !defined(HAKO_TSAN)  // sanitizers end the process at such a size
TEST(ScratchBuffer, ReturnsNullAndStaysUnchangedWhenOutOfMemory) {
  OwnedScratch buffer;
  std::memcpy(buffer.Take(6), "begin", 6);
  EXPECT_EQ(buffer.Take(std::numeric_limits<std::size_t>::max() / 4), nullptr);
  EXPECT_STREQ(buffer.Take(6), "begin");
}
#endif

struct TestPurpose;
struct UsesAtTheEnd {
  bool armed = false;
  ~UsesAtTheEnd() {
    if (armed) std::memset(ThreadScratch<TestPurpose>::Get().Take(5000), 2, 5000);
  }
};
thread_local UsesAtTheEnd uses_at_the_end;

// AddressSanitizer reports a failure as a use after free or a leak.
TEST(ThreadScratch, CanBeUsedByThreadLocalDestructors) {
  std::thread([] {
    uses_at_the_end.armed = true;  // constructed first
    std::memset(ThreadScratch<TestPurpose>::Get().Take(5000), 1, 5000);
  }).join();
}

}  // namespace
}  // namespace hako
