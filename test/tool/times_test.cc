#include "tool/times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace hako::tool {
namespace {

constexpr std::uint64_t kSecond = 1'000'000;

TEST(Times, ReadsTheFormsOfATime) {
  const std::uint64_t time = 1'795'590'425 * kSecond;
  const std::pair<const char*, std::uint64_t> texts[] = {{"2026-11-25T07:07:05Z", time},
                                                         {"2026-11-25 07:07:05Z", time},
                                                         {"2026-11-25T07:07:05.25Z", time + 250'000},
                                                         {"2026-11-25T07:07:05.1234567Z", time + 123'456},
                                                         {"2026-11-25T07:07Z", time - 5 * kSecond},
                                                         {"2026-11-25T08:07:05+01:00", time},
                                                         {"2026-11-25T01:37:05-0530", time},
                                                         {"2026-11-25", time - (7 * 3600 + 7 * 60 + 5) * kSecond},
                                                         {"1970-01-01T00:00Z", 0},
                                                         {"2024-02-29T00:00Z", 1'709'164'800 * kSecond},
                                                         {"@1795590425", time},
                                                         {"@1795590425.25", time + 250'000}};
  for (const auto& [text, expected] : texts) EXPECT_EQ(ParseTime(text), expected) << text;
  EXPECT_EQ(ParseTime("1795590425250", 1000), time + 250'000) << "milliseconds";
  for (const char* text : {"",
                           "@",
                           "@x",
                           "@1.",
                           "1795590425",
                           "yesterday",
                           "2026-11-25T07:07:05",
                           "2026-11-25T07Z",
                           "2026-02-30T00:00Z",
                           "2025-02-29T00:00Z",
                           "2026-13-01",
                           "2026-00-01",
                           "2026-11-25T24:00Z",
                           "2026-11-25T07:60Z",
                           "2026-11-25T07:07:60Z",
                           "2026-11-25T07:07:05.Z",
                           "2026-11-25T07:07:05ZZ",
                           "2026-11-25T07:07:05+1",
                           "2026-11-25T07:07:05+25:00",
                           "2026-11-25T07:07:05+01:60",
                           "26-11-25",
                           "2026-1-5",
                           "1969-12-31T23:59Z",
                           "1970-01-01T00:00+01:00",
                           "@99999999999999999999",
                           " 2026-11-25",
                           "2026-11-25 "})
    EXPECT_EQ(ParseTime(text), std::nullopt) << text;
}

TEST(Times, ReadsDurations) {
  const std::pair<const char*, std::uint64_t> texts[] = {{"250ms", 250'000},
                                                         {"60s", 60 * kSecond},
                                                         {"5m", 300 * kSecond},
                                                         {"2h", 7200 * kSecond},
                                                         {"7d", 604'800 * kSecond},
                                                         {"1w", 604'800 * kSecond},
                                                         {"1.5h", 5400 * kSecond},
                                                         {".5s", kSecond / 2},
                                                         {"10us", 10},
                                                         {"0", 0},
                                                         {"1500", 1500 * 1000},
                                                         {"0.5", 500},
                                                         {"0.001ms", 1}};
  for (const auto& [text, expected] : texts) EXPECT_EQ(ParseDuration(text, 1000), expected) << text;
  EXPECT_EQ(ParseDuration("3", kSecond), 3 * kSecond);
  for (const char* text :
       {"", "s", "-1", "-1s", "1 s", "1S", "5min", "1h30m", "1.", "1.s", "5k", "1e3", "99999999999999999999s", "9999999999999999d"})
    EXPECT_EQ(ParseDuration(text, 1000), std::nullopt) << text;
}

TEST(Times, WritesThem) {
  EXPECT_EQ(FormatTime(1'795'590'425'250'000), "2026-11-25T07:07:05.250000Z");
  EXPECT_EQ(FormatMilliseconds(1'795'590'425'007), "2026-11-25T07:07:05.007Z");
  EXPECT_EQ(ParseTime(FormatMilliseconds(1'795'590'425'007)), 1'795'590'425'007'000u);
  const std::pair<std::uint64_t, const char*> sizes[] = {{0, "0 B"},
                                                         {1023, "1023 B"},
                                                         {1024, "1.0 KiB"},
                                                         {12'345, "12.1 KiB"},
                                                         {999 << 10, "999 KiB"},
                                                         {(1 << 20) - 1, "1.0 MiB"},
                                                         {UINT64_MAX, "16.0 EiB"}};
  for (const auto& [size, expected] : sizes) EXPECT_EQ(FormatBytes(size), expected);
}

}  // namespace
}  // namespace hako::tool
