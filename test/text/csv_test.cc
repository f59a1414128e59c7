#include "hako/text/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "support/status_matchers.h"

namespace hako {
namespace {

using testing::HasSubstr;

using Record = std::vector<std::string>;  // fields, those with quotes in [ ]

// All records of a text, which is fed in pieces of this size.
Status Read(std::string_view text, std::size_t piece, std::vector<Record>* records, std::vector<std::uint64_t>* lines = nullptr) {
  CsvReader reader([&](std::span<const CsvField> fields, std::uint64_t line) {
    Record record;
    for (const CsvField& field : fields) record.push_back(field.is_quoted ? "[" + std::string(field.text) + "]" : std::string(field.text));
    records->push_back(record);
    if (lines != nullptr) lines->push_back(line);
    return absl::OkStatus();
  });
  for (std::size_t i = 0; i < text.size(); i += piece) HAKO_RETURN_IF_ERROR(reader.Feed(text.substr(i, piece)));
  return reader.End();
}

TEST(Csv, ReadsWhatRfc4180Describes) {
  const std::pair<std::string, std::vector<Record>> texts[] = {
      {"", {}},
      {"\n\r\n\n", {}},
      {"a", {{"a"}}},
      {"a,b\r\nc,d\r\n", {{"a", "b"}, {"c", "d"}}},
      {"a,b\nc,d", {{"a", "b"}, {"c", "d"}}},
      {"a,b\nc,d\r\n", {{"a", "b"}, {"c", "d"}}},
      {",\n", {{"", ""}}},
      {"\"\"\n", {{"[]"}}},
      {"\"\",", {{"[]", ""}}},
      {" a , b \n", {{" a ", " b "}}},
      {"\"a\"\"b\",\"c,d\",\"e\r\nf\rg\n\"\r\n", {{"[a\"b]", "[c,d]", "[e\r\nf\rg\n]"}}},
      {"\xef\xbb\xbf\"name\",id\n", {{"[name]", "id"}}},
      {"\xef\xbb\xbfname\n\xef\xbb\xbfx\n", {{"name"}, {"\xef\xbb\xbfx"}}},
      {"\xef\xbb\n", {{"\xef\xbb"}}},
      {"\xef\xbb", {{"\xef\xbb"}}},
      {"\xef,\xff\n", {{"\xef", "\xff"}}},
      {std::string("a\0b,\x01\n", 6), {{std::string("a\0b", 3), "\x01"}}},
  };
  for (const auto& [text, expected] : texts) {
    for (const std::size_t piece : {1, 2, 3, 100}) {
      std::vector<Record> records;
      EXPECT_THAT(Read(text, piece, &records), IsOk()) << text;
      EXPECT_EQ(records, expected) << text;
    }
  }
}

TEST(Csv, RefusesEverythingElseAndNamesTheLine) {
  struct Refused {
    std::string text, error;
    std::size_t num_records;
  };
  const Refused texts[] = {{"id,name\n1,a\rb\n", "line 2: a carriage return without a line feed outside of quotes", 1},
                           {"id,name\n1,\"a\"\r\"b\"\n", "line 2: a carriage return without a line feed outside of quotes", 1},
                           {"id,name\r1,Ada\r", "line 1: a carriage return without a line feed outside of quotes", 0},
                           {"id,name\r", "line 1: a carriage return without a line feed outside of quotes", 0},
                           {"a\r\r\n", "line 1: a carriage return without a line feed outside of quotes", 0},
                           {"a\n\"b\nc\"d\n", "line 3: text behind the closing quote", 1},
                           {"a\n\"b\" \n", "line 2: text behind the closing quote", 1},
                           {"a\nb\"c\n", "line 2: a quote in a field that does not begin with one", 1},
                           {"a\n \"b\"\n", "line 2: a quote in a field that does not begin with one", 1},
                           {"a\n\"b\n\n", "line 2: the quote of a field is not closed", 1},
                           {"a\n\"b\"\"\n\n", "line 2: the quote of a field is not closed", 1}};
  for (const auto& [text, error, num_records] : texts) {
    for (const std::size_t piece : {std::size_t{1}, std::size_t{2}, text.size()}) {
      std::vector<Record> records;
      const Status status = Read(text, piece, &records);
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << text.substr(0, 100);
      EXPECT_THAT(std::string(status.message()), HasSubstr(error));
      EXPECT_EQ(records.size(), num_records) << text.substr(0, 100);
    }
  }
}

TEST(Csv, NumbersRecordsByTheirFirstLine) {
  std::vector<Record> records;
  std::vector<std::uint64_t> lines;
  ASSERT_THAT(Read("a\n\n\"b\nb\r\n\"\r\nc\n\n\nd", 3, &records, &lines), IsOk());
  EXPECT_EQ(lines, (std::vector<std::uint64_t>{1, 3, 6, 9}));
}

TEST(Csv, RefusesATooLongField) {
  const auto ignore = [](std::span<const CsvField>, std::uint64_t) { return absl::OkStatus(); };
  CsvReader enough(ignore, 3), plain(ignore, 3), quoted(ignore, 3);
  EXPECT_THAT(enough.Feed("abc,abc\nabc,\"a\"\"c\"\n"), IsOk());
  EXPECT_EQ(plain.Feed("abc\nabcd\n").message(), "line 2: a field is longer than 3 bytes");
  EXPECT_EQ(quoted.Feed("a,\"\n\n\n\n\"\n").message(), "line 1: a field is longer than 3 bytes");
}

TEST(Csv, EndsAtAnErrorOfTheVisitor) {
  int num_taken = 0;
  CsvReader reader([&](std::span<const CsvField>, std::uint64_t) { return ++num_taken == 2 ? absl::CancelledError() : absl::OkStatus(); });
  EXPECT_TRUE(absl::IsCancelled(reader.Feed("a\nb\nc\n")));
  EXPECT_EQ(num_taken, 2);
}

// Random fields of the bytes that matter, written and read again.
TEST(Csv, WhatIsWrittenIsRead) {
  std::mt19937 random(1);
  const std::string_view kBytes = "a,\"\r\n \xef\xbb\xbf";
  for (int round = 0; round < 2000; ++round) {
    std::vector<Record> written;
    std::string text;
    for (int i = 0, num = static_cast<int>(random() % 4); i < num; ++i) {
      Record record;
      for (int j = 0, fields = 2 + static_cast<int>(random() % 3); j < fields; ++j) {
        std::optional<std::string> field;
        if (random() % 5 != 0) {
          field = "";
          for (int k = static_cast<int>(random() % 5); k > 0; --k) field->push_back(kBytes[random() % kBytes.size()]);
        }
        if (j > 0) text += ',';
        AppendCsvField(field ? std::optional<std::string_view>(*field) : std::nullopt, &text);
        record.push_back(field.value_or("missing"));
      }
      text += random() % 2 == 0 ? "\n" : "\r\n";
      written.push_back(record);
    }
    std::vector<Record> read;
    ASSERT_THAT(Read(text, 1 + random() % 5, &read), IsOk()) << text;
    for (Record& record : read) {
      for (std::string& field : record) {
        if (field.empty())
          field = "missing";
        else if (field.front() == '[' && field.back() == ']')
          field = field.substr(1, field.size() - 2);
      }
    }
    ASSERT_EQ(read, written) << text;
  }
}

}  // namespace
}  // namespace hako
