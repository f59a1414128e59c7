#include "hako/text/text_encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <utility>

namespace hako::text {
namespace {

// Decoding elsewhere and in place are the same.
std::optional<std::string> Decode(std::optional<std::size_t> (*decode)(std::string_view, char*), std::string text) {
  std::string out(text.size(), '?');
  const std::optional<std::size_t> size = decode(text, out.data());
  EXPECT_EQ(decode(text, text.data()), size);
  if (!size) return std::nullopt;
  EXPECT_EQ(text.substr(0, *size), out.substr(0, *size));
  return out.substr(0, *size);
}

TEST(TextEncoding, Utf8IsStrict) {
  for (const char* good :
       {"", "abc", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(IsUtf8(good)) << good;
  for (const char* bad : {"\x80", "\xc2", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                          "\xf8\x88\x80\x80\x80", "\xe2\x82", "\xe2\x82g", "\xff", "a\xc3"})
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  // At every position in a longer text.
  for (std::size_t at = 0; at < 20; ++at) {
    std::string text(20, 'a');
    EXPECT_TRUE(IsUtf8(text));
    text[at] = '\xa4';
    EXPECT_FALSE(IsUtf8(text)) << at;
    EXPECT_TRUE(IsUtf8(text.insert(at, "\xc3"))) << at;
  }
}

std::string Printable(std::string_view bytes) {
  std::string out;
  AppendPrintable(bytes, &out);
  return out;
}

TEST(TextEncoding, PrintableEscapesControlCharacters) {
  EXPECT_EQ(Printable("plain ~ \xc3\xa4\xe2\x82\xac"), "plain ~ \xc3\xa4\xe2\x82\xac");
  EXPECT_EQ(Printable(std::string_view("\0\t\n\r\x1b\x7f\\", 7)), "\\x00\\t\\n\\r\\x1b\\x7f\\\\");
  EXPECT_EQ(Printable("\xc2\x9b\xc2\xa0"), "\\xc2\\x9b\xc2\xa0");
  EXPECT_EQ(Printable("\xe2\x82"), "\\xe2\\x82");
}

TEST(TextEncoding, PrintableEscapesCharactersThatSteerText) {
  for (const char* text : {"\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x80\x8b", "\xe2\x80\xa8", "\xef\xbb\xbf", "\xd8\x9c", "\xf3\xa0\x81\x81"})
    EXPECT_EQ(Printable(text).find_first_not_of("\\x0123456789abcdef"), std::string::npos) << Printable(text);
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b"),
            "a\\xe2\\x80\\xae"
            "b");
  const std::string joined = "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80";
  EXPECT_EQ(Printable(joined), joined) << "joiners are a part of what is written";
}

TEST(TextEncoding, RoundTripsEverything) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % (i % 2 == 0 ? 256 : 16));
    std::string printable, tsv, hex, base64;
    AppendPrintable(bytes, &printable), AppendTsvField(bytes, &tsv), AppendHex(bytes, &hex), AppendBase64(bytes, &base64);
    EXPECT_EQ(tsv.find_first_of("\t\n\r"), tsv.npos);
    EXPECT_TRUE(IsUtf8(printable));
    EXPECT_EQ(Decode(DecodeEscapes, printable), bytes) << printable;
    EXPECT_EQ(Decode(DecodeEscapes, tsv), bytes) << tsv;
    EXPECT_EQ(Decode(DecodeHex, hex), bytes);
    EXPECT_EQ(Decode(DecodeBase64, base64), bytes) << base64;
  }
}

TEST(TextEncoding, EncodesBase64AsInTheRfc) {
  const std::pair<const char*, const char*> pairs[] = {
      {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, coded] : pairs) {
    std::string out;
    AppendBase64(plain, &out);
    EXPECT_EQ(out, coded);
  }
  for (const char* wrong : {"Z", "Zg=", "Zg", "=g==", "Z===", "Zg==Zg==", "Zm9v\n", "Zh==", "Zm9=", "Z=g=", "Zm_v"}) {
    EXPECT_EQ(Decode(DecodeBase64, wrong), std::nullopt) << wrong;
  }
}

TEST(TextEncoding, RefusesMalformedEscapes) {
  for (const char* wrong : {"\\", "\\q", "\\x", "\\x4", "\\x4g", "a\\"}) {
    EXPECT_EQ(Decode(DecodeEscapes, wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(Decode(DecodeEscapes, "\\0\\x41"), std::string("\0A", 2));
  for (const char* wrong : {"0", "0g", "g0", " 00", "000"}) EXPECT_EQ(Decode(DecodeHex, wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace hako::text
