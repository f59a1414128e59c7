// Import and Export as a library: every format on every kind of database, streams, progress, and
// what ends a transfer.
#include "hako/dbm/transfer.h"

#include <algorithm>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/file/memory_file.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::HasSubstr;

std::unique_ptr<TinyDBM<>> NewTiny() { return *TinyDBM<>::Open(); }

const TransferOptions kEveryFormat[] = {{.format = TextFormat::kTsv},
                                        {.format = TextFormat::kJsonLines},
                                        {.format = TextFormat::kDump},
                                        {.format = TextFormat::kDump, .dump = {.print = true}}};

Records RandomRecords(int count) {
  std::mt19937 random(42);
  Records records;
  for (int i = 0; i < count; ++i) {
    std::string key(random() % 12, '\0'), value(i % 50 == 7 ? 300'000 : random() % 60, '\0');
    for (char& c : key) c = static_cast<char>(random());
    for (char& c : value) c = static_cast<char>(random());
    records[key] = value;
  }
  return records;
}

template <class D>
void Fill(D& db, const Records& records) {
  for (const auto& [key, value] : records) ASSERT_THAT(db.Set(key, value), IsOk());
}

template <class From, class To>
void ExpectRoundTrip(From& from, To& to, const Records& records) {
  Fill(from, records);
  for (const TransferOptions& options : kEveryFormat) {
    std::stringstream text;
    const TransferResult out = Export(from, SinkOf(text), options);
    ASSERT_THAT(out.status(), IsOk());
    EXPECT_EQ(out.num_records, records.size());
    EXPECT_EQ(out.num_bytes, text.str().size());
    const TransferResult in = Import(to, SourceOf(text), options);
    ASSERT_THAT(in.status(), IsOk());
    EXPECT_EQ(in.num_records, records.size());
    EXPECT_EQ(in.num_bytes, out.num_bytes);
    EXPECT_EQ(Difference(records, ListByIterator(to).records), "none");
    ASSERT_THAT(to.Clear(), IsOk());
  }
}

TEST(Transfer, EveryFormatOnEveryKindOfDatabase) {
  const Records records = RandomRecords(400);
  ASSERT_OK_AND_ASSIGN(auto hash, HashDBM<MemoryFile>::Open(MemoryFile(std::uint64_t{1} << 30)));
  auto tiny = NewTiny();
  ExpectRoundTrip(*hash, *tiny, records);
  ASSERT_OK_AND_ASSIGN(auto any, AnyDBM::Open("?dbm=tiny"));
  ExpectRoundTrip(*any, *hash, records);
}

TEST(Transfer, RoundTripsEmptyDatabase) {
  auto db = NewTiny();
  for (const TransferOptions& options : kEveryFormat) {
    std::stringstream text;
    EXPECT_THAT(Export(*db, SinkOf(text), options).status(), IsOk());
    EXPECT_EQ(text.str().empty(), options.format != TextFormat::kDump);
    EXPECT_THAT(Import(*db, SourceOf(text), options).status(), IsOk());
  }
  EXPECT_EQ(db->Count(), 0u);
}

// A reader skips a byte order mark, so the writer escapes a key that begins with one.
TEST(Transfer, RoundTripsAKeyThatBeginsWithAByteOrderMark) {
  const std::string key = "\xef\xbb\xbfkey";
  for (const TransferOptions& options : kEveryFormat) {
    auto from = NewTiny(), to = NewTiny();
    ASSERT_THAT(from->Set(key, "value"), IsOk());
    std::stringstream text;
    EXPECT_THAT(Export(*from, SinkOf(text), options).status(), IsOk());
    EXPECT_THAT(Import(*to, SourceOf(text), options).status(), IsOk());
    EXPECT_THAT(to->Get(key), IsOkAndHolds("value"));
  }
}

// Sources and sinks may transfer as little as they like.
TEST(Transfer, AcceptsPiecesOfAnySize) {
  const Records records = RandomRecords(100);
  auto from = NewTiny(), to = NewTiny();
  Fill(*from, records);
  for (const TransferOptions& options : kEveryFormat) {
    std::stringstream text;
    ASSERT_THAT(Export(*from, SinkOf(text), options).status(), IsOk());
    const std::string whole = text.str();
    for (const std::size_t piece : {std::size_t{1}, std::size_t{4099}}) {
      std::size_t at = 0;
      const auto source = [&](std::span<char> buffer) -> StatusOr<std::size_t> {
        const std::size_t size = std::min({piece, buffer.size(), whole.size() - at});
        std::copy_n(whole.data() + at, size, buffer.data());
        at += size;
        return size;
      };
      ASSERT_THAT(Import(*to, source, options).status(), IsOk());
      EXPECT_EQ(Difference(records, ListByIterator(*to).records), "none") << piece;
      ASSERT_THAT(to->Clear(), IsOk());
    }
  }
}

TEST(Transfer, ReportsProgress) {
  auto db = NewTiny();
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += std::to_string(10000 + i) + "\tv\n";
  std::vector<std::uint64_t> records, bytes;
  const auto note = [&](const TransferProgress& now) {
    records.push_back(now.num_records);
    bytes.push_back(now.num_bytes);
    return absl::OkStatus();
  };
  std::stringstream text(lines);
  EXPECT_EQ(Import(*db, SourceOf(text), {.progress = note}).num_records, 1000u);
  EXPECT_THAT(records, testing::ElementsAre(256, 512, 768));
  EXPECT_THAT(bytes, testing::ElementsAre(256 * 8, 512 * 8, 768 * 8));
  records.clear();
  std::stringstream out;
  EXPECT_EQ(Export(*db, SinkOf(out), {.progress = note}).num_records, 1000u);
  EXPECT_THAT(records, testing::ElementsAre(256, 512, 768));
}

TEST(Transfer, CallbackEndsATransfer) {
  auto db = NewTiny();
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += std::to_string(i) + "\tv\n";
  const auto stop = [](const TransferProgress& now) { return now.num_records < 512 ? absl::OkStatus() : absl::CancelledError("enough"); };
  std::stringstream text(lines);
  const TransferResult in = Import(*db, SourceOf(text), {.progress = stop});
  EXPECT_THAT(in.status(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(in.database, IsOk());
  EXPECT_EQ(in.num_records, 512u);
  EXPECT_EQ(db->Count(), 512u);
  std::stringstream out;
  const TransferResult exported = Export(*db, SinkOf(out), {.format = TextFormat::kDump, .progress = stop});
  EXPECT_THAT(exported.text, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(out.str(), testing::Not(HasSubstr("DATA=END")));
}

TEST(Transfer, ErrorsNameTheFailedSide) {
  auto db = NewTiny();
  std::stringstream text("a\t1\nno tab\n");
  const TransferResult malformed = Import(*db, SourceOf(text));
  EXPECT_THAT(malformed.text, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 2: no tab")));
  EXPECT_THAT(malformed.database, IsOk());
  EXPECT_EQ(malformed.num_records, 1u);

  const auto failing_source = [](std::span<char>) -> StatusOr<std::size_t> { return absl::UnknownError("the tape tore"); };
  EXPECT_THAT(Import(*db, failing_source).text, StatusIs(absl::StatusCode::kUnknown, "the tape tore"));
  const auto failing_sink = [](std::string_view) { return absl::ResourceExhaustedError("full"); };
  EXPECT_THAT(Export(*db, failing_sink).text, StatusIs(absl::StatusCode::kResourceExhausted));

  ASSERT_OK_AND_ASSIGN(auto small, HashDBM<MemoryFile>::Open(MemoryFile(std::uint64_t{1} << 20)));
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += std::to_string(i) + "\t" + std::string(10'000, 'x') + "\n";
  std::stringstream too_much(lines);
  const TransferResult full = Import(*small, SourceOf(too_much));
  EXPECT_THAT(full.database, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(full.text, IsOk());
  EXPECT_EQ(full.num_records, small->Count());

  std::stringstream broken("a\t1\n");
  broken.setstate(std::ios::badbit);
  EXPECT_THAT(Import(*db, SourceOf(broken)).text, StatusIs(absl::StatusCode::kUnknown));
}

// Records are set in batches. A malformed line in a batch does not drop the records before it.
TEST(Transfer, SetsRecordsBeforeAMalformedLine) {
  for (const int count : {1, 31, 32, 33, 100, 255, 256, 300, 60'000}) {
    for (const TransferOptions& options : kEveryFormat) {
      auto from = NewTiny(), to = NewTiny();
      for (int i = 0; i < count; ++i) ASSERT_THAT(from->Set(std::to_string(i), "value"), IsOk());
      std::stringstream text;
      ASSERT_THAT(Export(*from, SinkOf(text), options).status(), IsOk());
      std::string whole = text.str();
      if (options.format == TextFormat::kDump) whole.erase(whole.size() - std::string("DATA=END\n").size());
      std::stringstream cut(whole + " rubbish\n");
      const TransferResult in = Import(*to, SourceOf(cut), options);
      EXPECT_THAT(in.text, StatusIs(absl::StatusCode::kInvalidArgument));
      EXPECT_EQ(in.num_records, static_cast<std::uint64_t>(count));
      EXPECT_EQ(to->Count(), static_cast<std::uint64_t>(count));
      EXPECT_EQ(Difference(ListByIterator(*from).records, ListByIterator(*to).records), "none");
    }
  }
}

// Records that have arrived through a pipe are set before the import waits for more.
TEST(Transfer, SetsRecordsBeforeMoreInputArrives) {
  auto db = NewTiny();
  int piece = 0;
  const auto source = [&](std::span<char> buffer) -> StatusOr<std::size_t> {
    EXPECT_EQ(db->Count(), static_cast<std::uint64_t>(3 * piece));
    if (piece == 20) return 0;
    std::string text;
    for (int i = 0; i < 3; ++i) text += std::to_string(3 * piece + i) + "\tv\n";
    ++piece;
    return text.copy(buffer.data(), buffer.size());
  };
  EXPECT_EQ(Import(*db, source).num_records, 60u);
}

TEST(Transfer, LastLineNeedsNoLineFeed) {
  for (const std::string text : {"a\t1\nb\t2", "a\t1\nb\t2\n"}) {
    auto db = NewTiny();
    std::stringstream stream(text);
    const TransferResult in = Import(*db, SourceOf(stream));
    EXPECT_THAT(in.status(), IsOk());
    EXPECT_EQ(in.num_records, 2u);
    EXPECT_EQ(in.num_bytes, text.size());
    EXPECT_THAT(db->Get("b"), IsOkAndHolds("2"));
  }
}

// Through the hint Prefetch, which AnyDBM forwards.
TEST(Transfer, AnyDbmPrefetchesBatches) {
  const KeyValue records[] = {{"a", "1"}, {"b", "2"}, {"a", "3"}};
  TempDir dir;
  for (const std::string name : {"a.hkh", "a.hks"}) {
    {
      ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(dir.File(name) + "?mode=create"));
      EXPECT_THAT(db->SetMulti(records), IsOk());
      EXPECT_THAT(db->SetMulti(records, false), StatusIs(absl::StatusCode::kAlreadyExists));
      EXPECT_THAT(db->Get("a"), IsOkAndHolds("3"));
      EXPECT_EQ(db->Count(), 2u);
      ASSERT_THAT(db->Close(), IsOk());
    }
    ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(dir.File(name) + "?mode=read"));
    EXPECT_THAT(db->SetMulti(records), StatusIs(absl::StatusCode::kFailedPrecondition));
    EXPECT_EQ(db->Count(), 2u);
  }
}

TEST(Transfer, SelectsFormatsByNameAndBySuffix) {
  EXPECT_EQ(TextFormatOfName("tsv"), TextFormat::kTsv);
  EXPECT_EQ(TextFormatOfPath("a.b/c.jsonl"), TextFormat::kJsonLines);
  EXPECT_EQ(TextFormatOfPath("x.dump"), TextFormat::kDump);
  EXPECT_EQ(TextFormatOfPath("dump"), std::nullopt);
  EXPECT_EQ(TextFormatOfPath("x.TSV"), std::nullopt);
}

}  // namespace
}  // namespace hako
