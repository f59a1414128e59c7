// How an engine logs its updates: one at a time, ahead, and as the run of a batch.
#include "hako/update/logging.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace hako::update {
namespace {

using format::LogEntry;
using format::LogOp;
using testing::ElementsAre;
using testing::IsEmpty;

// A run that was appended ahead.
struct Ahead {
  std::string entry;
  bool is_open() const { return !entry.empty(); }
};

std::string TextOf(const LogEntry& entry) {
  static constexpr std::string_view kNames[] = {"part", "mark", "set", "remove", "range", "from", "clear", "index"};
  if (entry.op != LogOp::kAppliedIndex)
    return std::string(kNames[static_cast<int>(entry.op)]) + " " + std::string(entry.key) + "," + std::string(entry.value);
  Le<std::uint64_t> index = 0;
  EXPECT_EQ(entry.value.size(), sizeof(index));
  entry.value.copy(reinterpret_cast<char*>(&index), sizeof(index));
  return "index " + std::to_string(index);
}

// Keeps what is appended as text, one string for each run.
class TextLog {
 public:
  static constexpr std::size_t kLong = 8;

  bool is_on() const { return on; }
  Status Append(std::span<const LogEntry> run, std::uint64_t* lsn) {
    if (!error.ok()) return error;
    std::string text;
    for (const LogEntry& entry : run) text += (text.empty() ? "" : "; ") + TextOf(entry);
    runs.push_back(text);
    *lsn = runs.size();
    return absl::OkStatus();
  }
  Status Append(const LogEntry& entry, std::uint64_t* lsn) { return Append(std::span(&entry, 1), lsn); }
  bool TryAppend(const LogEntry& entry, std::uint64_t* lsn) { return !is_slow && Append(entry, lsn).ok(); }
  void AppendAhead(const LogEntry& entry, Ahead* run) {
    if (entry.value.size() > kLong) run->entry = TextOf(entry);
  }
  Status Append(Ahead* run, std::uint64_t* lsn) {
    const std::string text = "ahead: " + std::exchange(run->entry, "");
    if (!error.ok()) return error;
    runs.push_back(text);
    *lsn = runs.size();
    return absl::OkStatus();
  }
  void Abandon(Ahead* run) {
    run->entry.clear();
    ++num_abandoned;
  }

  bool on = true, is_slow = false;
  Status error;
  std::vector<std::string> runs;
  int num_abandoned = 0;
};

struct TextSpace {
  struct WriterState {
    std::uint64_t lsn = 0;
    Ahead logged_ahead;
    Status error;
  };
  TextLog& log() { return text; }
  void Poison(const Status& why) { poison = why; }

  TextLog text;
  Status poison;
};
static_assert(LoggingSpace<TextSpace>);
struct PlainSpace {
  struct WriterState {};
};

class UpdateLoggingTest : public testing::Test {
 protected:
  const std::vector<std::string>& runs() const { return space.text.runs; }

  TextSpace space;
  TextSpace::WriterState writer;
  PlainSpace plain;
  PlainSpace::WriterState plain_writer;
};

TEST_F(UpdateLoggingTest, UpdatesAreAppendedOneByOne) {
  for (const bool is_slow : {false, true}) {
    space.text.is_slow = is_slow;
    EXPECT_TRUE(LogUpdate(space, writer, LogOp::kSet, "a", "1"));
    EXPECT_TRUE(LogUpdate(space, writer, LogOp::kRemove, "b"));
  }
  EXPECT_THAT(runs(), ElementsAre("set a,1", "remove b,", "set a,1", "remove b,"));
  EXPECT_EQ(writer.lsn, 4u);
}

TEST_F(UpdateLoggingTest, AnErrorIsThatOfTheWriter) {
  space.text.error = absl::ResourceExhaustedError("full");
  EXPECT_FALSE(LogUpdate(space, writer, LogOp::kRemove, "b"));
  EXPECT_THAT(ErrorOf(writer), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(ErrorOf(plain_writer), IsOk());
}

TEST_F(UpdateLoggingTest, NothingIsAppendedWhereTheLogIsOffOrThereIsNone) {
  space.text.on = false;
  const auto must_not_fill = [](LogRun&) { ADD_FAILURE(); };
  EXPECT_FALSE(IsLogged(space));
  EXPECT_TRUE(LogUpdate(space, writer, LogOp::kRemove, "b"));
  EXPECT_TRUE(LogEviction(space, writer, "b"));
  EXPECT_THAT(LogBatch(space, writer, 1, 7, must_not_fill), IsOk());
  { const LoggedAhead<TextSpace> ahead(space, writer, "key", "a long value"); }
  EXPECT_THAT(runs(), IsEmpty());
  EXPECT_EQ(space.text.num_abandoned, 0);
  EXPECT_FALSE(IsLogged(plain));
  EXPECT_TRUE(LogUpdate(plain, plain_writer, LogOp::kRemove, "b"));
  EXPECT_TRUE(LogEviction(plain, plain_writer, "b"));
  EXPECT_THAT(LogBatch(plain, plain_writer, 1, 7, must_not_fill), IsOk());
  const LoggedAhead<PlainSpace> ahead(plain, plain_writer, "key", "a long value");
}

TEST_F(UpdateLoggingTest, ALongValueIsAppendedAheadAndItsUpdateAddsTheRest) {
  {
    const LoggedAhead<TextSpace> ahead(space, writer, "key", "a long value");
    EXPECT_THAT(runs(), IsEmpty());
    EXPECT_TRUE(LogUpdate(space, writer, LogOp::kSet, "key", "a long value"));
    EXPECT_THAT(runs(), ElementsAre("ahead: set key,a long value"));
  }
  EXPECT_EQ(space.text.num_abandoned, 0);
  {
    const LoggedAhead<TextSpace> ahead(space, writer, "key", "short");
    EXPECT_TRUE(LogUpdate(space, writer, LogOp::kSet, "key", "short"));
    EXPECT_EQ(runs().back(), "set key,short");
  }
}

TEST_F(UpdateLoggingTest, ALongValueWithoutAnUpdateIsAbandoned) {
  { const LoggedAhead<TextSpace> ahead(space, writer, "key", "a long value"); }
  EXPECT_EQ(space.text.num_abandoned, 1);
  EXPECT_FALSE(writer.logged_ahead.is_open());
  EXPECT_THAT(runs(), IsEmpty());
}

TEST_F(UpdateLoggingTest, AnEvictionLeavesTheRunAndTheErrorOfTheUpdateAlone) {
  const LoggedAhead<TextSpace> ahead(space, writer, "key", "a long value");
  EXPECT_TRUE(LogEviction(space, writer, "other"));
  EXPECT_THAT(runs(), ElementsAre("remove other,"));
  space.text.error = absl::ResourceExhaustedError("full");
  EXPECT_FALSE(LogEviction(space, writer, "another"));
  EXPECT_TRUE(writer.logged_ahead.is_open());
  EXPECT_THAT(writer.error, IsOk());
}

TEST_F(UpdateLoggingTest, ABatchIsOneRunWithTheRangesFirstAndTheIndexLast) {
  const auto fill = [](LogRun& run) {
    run.RemoveRange("c", "d");
    run.RemoveRange("e", std::nullopt);
    run.Set("a", "1");
    run.Remove("b");
  };
  EXPECT_THAT(LogBatch(space, writer, 4, 4711, fill), IsOk());
  EXPECT_THAT(runs(), ElementsAre("range c,d; from e,; set a,1; remove b,; index 4711"));
  EXPECT_EQ(writer.lsn, 1u);
}

TEST_F(UpdateLoggingTest, ABatchOfManyUpdatesIsOneRun) {
  std::vector<std::string> keys;
  for (int i = 0; i < 100; ++i) keys.push_back(std::to_string(i));
  std::string expected;
  for (const std::string& key : keys) expected += "remove " + key + ",; ";
  // The estimate of their number may be too low.
  const auto fill = [&](LogRun& run) {
    for (const std::string& key : keys) run.Remove(key);
  };
  EXPECT_THAT(LogBatch(space, writer, 50, 5, fill), IsOk());
  EXPECT_THAT(runs(), ElementsAre(expected + "index 5"));
}

TEST_F(UpdateLoggingTest, ABatchThatChangesNothingIsNotAppended) {
  const auto fill_nothing = [](const LogRun&) {};
  EXPECT_THAT(LogBatch(space, writer, 3, std::nullopt, fill_nothing), IsOk());
  EXPECT_THAT(runs(), IsEmpty());
  EXPECT_THAT(LogBatch(space, writer, 3, 9, fill_nothing), IsOk());
  EXPECT_THAT(runs(), ElementsAre("index 9"));
}

TEST_F(UpdateLoggingTest, AnErrorOfABatchIsReturned) {
  space.text.error = absl::ResourceExhaustedError("full");
  EXPECT_THAT(LogBatch(space, writer, 1, 9, [](const LogRun&) {}), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(UpdateLoggingTest, UpdatesAreRefusedAfterAnUpdateInPart) {
  RefuseUpdates(space, absl::InternalError("half"));
  EXPECT_THAT(space.poison, StatusIs(absl::StatusCode::kInternal));
  RefuseUpdates(plain, absl::InternalError("half"));
}

}  // namespace
}  // namespace hako::update
