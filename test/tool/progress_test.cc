// The progress line, and numbers as messages show them.
#include "tool/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "tool/numbers.h"

namespace hako::tool {
namespace {

TEST(Numbers, GroupsDigits) {
  EXPECT_EQ(GroupDigits(0), "0");
  EXPECT_EQ(GroupDigits(999), "999");
  EXPECT_EQ(GroupDigits(1000), "1,000");
  EXPECT_EQ(GroupDigits(1234567), "1,234,567");
}

// The output of a Progress with the test's clock.
class Screen {
 public:
  std::FILE* file() { return file_; }
  std::string Take() {
    std::fflush(file_);
    std::string text(static_cast<std::size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file_), text.size());
    std::rewind(file_);
    return text;
  }

 private:
  std::FILE* file_ = std::tmpfile();
};

TEST(ProgressLine, AppearsAfterASecondWithRateAndEta) {
  double now = 100;
  Screen screen;
  {
    Progress progress(screen.file(), 1000, [&now] { return now; });
    now = 100.9;
    progress.Update(100, 10000);
    EXPECT_EQ(screen.Take(), "") << "nothing in the first second";
    now = 102;
    progress.Update(250, 25000);
    EXPECT_EQ(screen.Take(), "\r 25%, 25,000 records, 12,500/s, ETA 0:06");
    now = 102.1;
    progress.Update(300, 30000);
    EXPECT_EQ(screen.Take(), "") << "five times a second at most";
    now = 108;
    progress.Update(1000, 100);
    EXPECT_EQ(screen.Take(), "\r100%, 100 records, 12/s, ETA 0:00       ") << "covers the longer line";
  }
  EXPECT_EQ(screen.Take(), "\r" + std::string(33, ' ') + "\r") << "wiped out at the end";
}

TEST(ProgressLine, WithoutATotalThereIsNoEta) {
  double now = 0;
  Screen screen;
  Progress progress(screen.file(), 0, [&now] { return now; });
  now = 2;
  progress.Update(12345, 10);
  EXPECT_EQ(screen.Take(), "\r10 records, 5/s");
}

TEST(ProgressLine, LongTimesHaveHours) {
  double now = 0;
  Screen screen;
  Progress progress(screen.file(), 10000, [&now] { return now; });
  now = 2;
  progress.Update(2, 2);
  EXPECT_EQ(screen.Take(), "\r  0%, 2 records, 1/s, ETA 2:46:38");
}

TEST(Ticker, ShowsTheTimeOfALongCallAndErasesIt) {
  Screen screen;
  {
    const Ticker ticker("verifying 5 records", screen.file());
    for (int i = 0; i < 6000 && std::ftell(screen.file()) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_THAT(screen.Take(), testing::MatchesRegex("(\rverifying 5 records, 0:(0[1-9]|[1-5][0-9]))+\r *\r"));
  { const Ticker quick("verifying", screen.file()); }
  EXPECT_EQ(screen.Take(), "") << "nothing is shown in the first second";
  { const Ticker silent("verifying", nullptr); }
}

}  // namespace
}  // namespace hako::tool
