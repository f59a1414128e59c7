// The parts of the program that are functions: numbers, escapes, encodings, the progress line.
#include "tool/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "tool/numbers.h"
#include "tool/progress.h"

namespace hako::tool {
namespace {

TEST(Numbers, HaveSuffixes) {
  EXPECT_EQ(ParseNumber("0"), 0);
  EXPECT_EQ(ParseNumber("-12"), -12);
  EXPECT_EQ(ParseNumber("8k"), 8000);
  EXPECT_EQ(ParseNumber("8Ki"), 8192);
  EXPECT_EQ(ParseNumber("3m"), 3000000);
  EXPECT_EQ(ParseNumber("3mi"), 3 << 20);
  EXPECT_EQ(ParseNumber("2G"), 2000000000);
  EXPECT_EQ(ParseNumber("2gi"), std::int64_t{2} << 30);
  EXPECT_EQ(ParseNumber("1t"), 1000000000000);
  EXPECT_EQ(ParseNumber("-1ti"), -(std::int64_t{1} << 40));
  EXPECT_EQ(ParseNumber("9223372036854775807"), INT64_MAX);
  for (const char* wrong :
       {"", "k", "1x", "1kb", "1kib", "1 k", " 1", "1.5k", "0x10", "+1", "9223372036854775808", "9223372036854776k", "8388608ti"})
    EXPECT_EQ(ParseNumber(wrong), std::nullopt) << wrong;
}

TEST(Numbers, AreGroupedForReaders) {
  EXPECT_EQ(GroupDigits(0), "0");
  EXPECT_EQ(GroupDigits(999), "999");
  EXPECT_EQ(GroupDigits(1000), "1,000");
  EXPECT_EQ(GroupDigits(1234567), "1,234,567");
}

TEST(Text, Utf8IsStrict) {
  for (const char* good :
       {"", "abc", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(IsUtf8(good)) << good;
  for (const char* bad : {"\x80", "\xc2", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                          "\xf8\x88\x80\x80\x80", "\xe2\x82", "\xe2\x82g", "\xff", "a\xc3"})
    EXPECT_FALSE(IsUtf8(bad)) << bad;
}

std::string Printable(std::string_view bytes) {
  std::string out;
  AppendPrintable(bytes, &out);
  return out;
}

TEST(Text, PrintableHidesControlCharacters) {
  EXPECT_EQ(Printable("plain ~ \xc3\xa4\xe2\x82\xac"), "plain ~ \xc3\xa4\xe2\x82\xac");
  EXPECT_EQ(Printable(std::string_view("\0\t\n\r\x1b\x7f\\", 7)), "\\x00\\t\\n\\r\\x1b\\x7f\\\\");
  EXPECT_EQ(Printable("\xc2\x9b\xc2\xa0"), "\\xc2\\x9b\xc2\xa0");
  EXPECT_EQ(Printable("\xe2\x82"), "\\xe2\\x82");
}

TEST(Text, EverythingDecodesBack) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % (i % 2 == 0 ? 256 : 16));
    std::string printable, tsv, hex, base64;
    AppendPrintable(bytes, &printable), AppendTsvField(bytes, &tsv), AppendHex(bytes, &hex), AppendBase64(bytes, &base64);
    EXPECT_EQ(tsv.find_first_of("\t\n\r"), tsv.npos);
    EXPECT_TRUE(IsUtf8(printable));
    std::string back;
    EXPECT_TRUE(DecodeEscapes(printable, &back)) << printable;
    EXPECT_TRUE(DecodeEscapes(tsv, &back));
    EXPECT_TRUE(DecodeHex(hex, &back));
    EXPECT_TRUE(DecodeBase64(base64, &back)) << base64;
    EXPECT_EQ(back, bytes + bytes + bytes + bytes);
  }
}

TEST(Text, Base64OfTheRfc) {
  const std::pair<const char*, const char*> pairs[] = {
      {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, coded] : pairs) {
    std::string out;
    AppendBase64(plain, &out);
    EXPECT_EQ(out, coded);
  }
  for (const char* wrong : {"Z", "Zg=", "Zg", "=g==", "Z===", "Zg==Zg==", "Zm9v\n", "Zh==", "Zm9=", "Z=g=", "Zm_v"}) {
    std::string out;
    EXPECT_FALSE(DecodeBase64(wrong, &out)) << wrong;
  }
}

TEST(Text, MalformedEscapesAreRefused) {
  for (const char* wrong : {"\\", "\\q", "\\x", "\\x4", "\\x4g", "a\\"}) {
    std::string out;
    EXPECT_FALSE(DecodeEscapes(wrong, &out)) << wrong;
  }
  std::string out;
  EXPECT_TRUE(DecodeEscapes("\\0\\x41", &out));
  EXPECT_EQ(out, std::string("\0A", 2));
}

// What a Progress wrote while a clock of ours ran.
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

void Advance(Progress& progress, std::uint64_t done, std::uint64_t records) {
  for (int i = 0; i < 256; ++i) progress.Update(done, records);  // the clock is looked at once in so many
}

TEST(ProgressLine, AppearsAfterASecondWithRateAndEta) {
  double now = 100;
  Screen screen;
  {
    Progress progress(screen.file(), 1000, [&now] { return now; });
    now = 100.9;
    Advance(progress, 100, 10000);
    EXPECT_EQ(screen.Take(), "") << "nothing in the first second";
    now = 102;
    Advance(progress, 250, 25000);
    EXPECT_EQ(screen.Take(), "\r 25%, 25,000 records, 12,500/s, ETA 0:06");
    now = 102.1;
    Advance(progress, 300, 30000);
    EXPECT_EQ(screen.Take(), "") << "five times a second at most";
    now = 108;
    Advance(progress, 1000, 100);
    EXPECT_EQ(screen.Take(), "\r100%, 100 records, 12/s, ETA 0:00       ") << "covers the longer line";
  }
  EXPECT_EQ(screen.Take(), "\r" + std::string(33, ' ') + "\r") << "wiped out at the end";
}

TEST(ProgressLine, WithoutATotalThereIsNoEta) {
  double now = 0;
  Screen screen;
  Progress progress(screen.file(), 0, [&now] { return now; });
  now = 2;
  Advance(progress, 12345, 10);
  EXPECT_EQ(screen.Take(), "\r10 records, 5/s");
}

TEST(ProgressLine, LongTimesHaveHours) {
  double now = 0;
  Screen screen;
  Progress progress(screen.file(), 10000, [&now] { return now; });
  now = 2;
  Advance(progress, 2, 2);
  EXPECT_EQ(screen.Take(), "\r  0%, 2 records, 1/s, ETA 2:46:38");
}

}  // namespace
}  // namespace hako::tool
