#include "hako/format/text_encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>

namespace hako::format {
namespace {

TEST(TextEncoding, Utf8IsStrict) {
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

TEST(TextEncoding, PrintableHidesControlCharacters) {
  EXPECT_EQ(Printable("plain ~ \xc3\xa4\xe2\x82\xac"), "plain ~ \xc3\xa4\xe2\x82\xac");
  EXPECT_EQ(Printable(std::string_view("\0\t\n\r\x1b\x7f\\", 7)), "\\x00\\t\\n\\r\\x1b\\x7f\\\\");
  EXPECT_EQ(Printable("\xc2\x9b\xc2\xa0"), "\\xc2\\x9b\xc2\xa0");
  EXPECT_EQ(Printable("\xe2\x82"), "\\xe2\\x82");
}

TEST(TextEncoding, EverythingDecodesBack) {
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

TEST(TextEncoding, Base64OfTheRfc) {
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

TEST(TextEncoding, MalformedEscapesAreRefused) {
  for (const char* wrong : {"\\", "\\q", "\\x", "\\x4", "\\x4g", "a\\"}) {
    std::string out;
    EXPECT_FALSE(DecodeEscapes(wrong, &out)) << wrong;
  }
  std::string out;
  EXPECT_TRUE(DecodeEscapes("\\0\\x41", &out));
  EXPECT_EQ(out, std::string("\0A", 2));
}

}  // namespace
}  // namespace hako::format
