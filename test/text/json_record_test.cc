#include "hako/text/json_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <utility>

namespace hako::text {
namespace {

using Record = std::pair<std::string, std::string>;

std::optional<Record> Parse(std::string line) {
  KeyValue record;
  if (!JsonRecordParser(line).Parse(&record)) return std::nullopt;
  if (record.expire_at != 0) return Record(record.key, std::string(record.value) + '@' + std::to_string(record.expire_at));
  return Record(record.key, record.value);
}

std::string Line(std::string_view key, std::string_view value) {
  std::string line;
  AppendJsonRecord(key, value, &line);
  return line;
}

TEST(JsonRecord, WritesTheDocumentedFormat) {
  EXPECT_EQ(Line("k", "v"), "{\"key\":\"k\",\"value\":\"v\"}\n");
  EXPECT_EQ(Line("", "\"\\/\b\f\n\r\t\x01\x1f\x7f"), "{\"key\":\"\",\"value\":\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\"}\n");
  EXPECT_EQ(Line("\xff", "\xc3\xa4"), "{\"key\":{\"b64\":\"/w==\"},\"value\":\"\xc3\xa4\"}\n");
}

TEST(JsonRecord, RoundTripsEveryRecord) {
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    Record record;
    for (std::string* bytes : {&record.first, &record.second}) {
      bytes->resize(random() % 20);
      for (char& c : *bytes) c = static_cast<char>(random() % (i % 2 == 0 ? 128 : 256));
    }
    EXPECT_EQ(Parse(Line(record.first, record.second)), record) << Line(record.first, record.second);
  }
}

TEST(JsonRecord, ParsesAnyLayoutOrderAndEscape) {
  EXPECT_EQ(Parse(" { \"value\" : { \"b64\" : \"/w==\" } ,\t\"key\" : \"a\" } \r"), Record("a", "\xff"));
  EXPECT_EQ(Parse("{\"k\\u0065y\":\"\\u00e4\\/\",\"value\":\"\\u20aC\\ud83d\\uDE00\"}"),
            Record("\xc3\xa4/", "\xe2\x82\xac\xf0\x9f\x98\x80"));
  EXPECT_EQ(Parse("{\"key\":\"\\u0000\",\"value\":\"\"}"), Record(std::string(1, '\0'), ""));
}

TEST(JsonRecord, HasTheTimeAtWhichARecordExpires) {
  std::string line;
  AppendJsonRecord("k", "v", &line, 1'700'000'000'000);
  EXPECT_EQ(line, "{\"key\":\"k\",\"value\":\"v\",\"expire_at\":1700000000000}\n");
  EXPECT_EQ(Parse(line), Record("k", "v@1700000000000"));
  EXPECT_EQ(Parse("{\"expire_at\" : 7 , \"value\":\"v\",\"key\":\"k\"}"), Record("k", "v@7"));
  EXPECT_EQ(Parse("{\"expire_at\":0,\"value\":\"v\",\"key\":\"k\"}"), Record("k", "v"));
  for (const char* const wrong : {"", "-1", "1.5", "01", "1e3", "\"7\"", "18446744073709551616", "null", "7,\"expire_at\":7"})
    EXPECT_FALSE(Parse(std::string("{\"key\":\"k\",\"value\":\"v\",\"expire_at\":") + wrong + "}")) << wrong;
}

TEST(JsonRecord, RefusesOtherObjects) {
  const std::string good = "{\"key\":\"k\\u00e4\",\"value\":{\"b64\":\"AA==\"}}";
  ASSERT_TRUE(Parse(good));
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(Parse(good.substr(0, size))) << size;
  for (const std::string wrong : {"",
                                  "[]",
                                  "null",
                                  "{}",
                                  "{\"key\":\"k\"}",
                                  "{\"key\":\"k\",\"value\":1}",
                                  "{\"key\":\"k\",\"value\":null}",
                                  "{\"key\":\"k\",\"key\":\"l\"}",
                                  "{\"key\":\"k\",\"value\":\"v\",}",
                                  "{\"key\":\"k\",\"value\":\"v\",\"ttl\":\"1\"}",
                                  "{\"key\":\"k\",\"value\":\"v\"} x",
                                  "{\"key\":\"k\" \"value\":\"v\"}",
                                  "{'key':'k','value':'v'}",
                                  "{\"key\":\"k\n\",\"value\":\"v\"}",
                                  "{\"key\":\"\xff\",\"value\":\"v\"}",
                                  "{\"key\":\"\\x41\",\"value\":\"v\"}",
                                  "{\"key\":\"\\u12\",\"value\":\"v\"}",
                                  "{\"key\":\"\\ud83d\",\"value\":\"v\"}",
                                  "{\"key\":\"\\ude00\",\"value\":\"v\"}",
                                  "{\"key\":\"\\ud83d\\u0041\",\"value\":\"v\"}",
                                  "{\"key\":{\"b64\":\"A\"},\"value\":\"v\"}",
                                  "{\"key\":{\"hex\":\"00\"},\"value\":\"v\"}",
                                  "{\"key\":{\"b64\":\"\",\"b64\":\"\"},\"value\":\"v\"}"})
    EXPECT_FALSE(Parse(wrong)) << wrong;
  EXPECT_FALSE(Parse(std::string(1'000'000, '{'))) << "and does not overflow the stack";
}

}  // namespace
}  // namespace hako::text
