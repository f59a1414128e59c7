// ArrayDBM and MemoryArrayDBM: their operations by number beside a model, on each file, and their limits.
#include "hako/dbm/array_dbm.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/array_places.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/write_batch.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

using testing::HasSubstr;

template <class Place>
class ArrayDBMTest : public testing::Test {
 protected:
  Place place_;
};
using Places =
    testing::Types<InFile<MemoryMapParallelFile>, InFile<PositionalParallelFile>, InFile<PositionalParallelFile, true>, InMemory>;
TYPED_TEST_SUITE(ArrayDBMTest, Places);

using Model = std::map<std::uint64_t, std::string>;

// Compares all records with the model, by iteration both ways and by look-ups.
template <class D>
void ExpectEqual(D& db, const Model& model) {
  ASSERT_EQ(db.Count(), model.size());
  auto it = db.MakeIterator();
  it.First();
  for (const auto& [id, value] : model) {
    ASSERT_TRUE(it.Valid()) << it.status();
    ASSERT_EQ(it.id(), id);
    ASSERT_EQ(it.key(), std::to_string(id));
    ASSERT_EQ(it.value(), value);
    ASSERT_THAT(db.Get(id), IsOkAndHolds(value));
    it.Next();
  }
  ASSERT_FALSE(it.Valid());
  ASSERT_THAT(it.status(), IsOk());
  it.Last();
  for (auto at = model.rbegin(); at != model.rend(); ++at, it.Previous()) {
    ASSERT_TRUE(it.Valid()) << it.status();
    ASSERT_EQ(it.id(), at->first);
  }
  ASSERT_FALSE(it.Valid());
  if (model.empty()) {
    EXPECT_THAT(db.FirstId(), StatusIs(absl::StatusCode::kNotFound));
    EXPECT_THAT(db.LastId(), StatusIs(absl::StatusCode::kNotFound));
  } else {
    EXPECT_THAT(db.FirstId(), IsOkAndHolds(model.begin()->first));
    EXPECT_THAT(db.LastId(), IsOkAndHolds(model.rbegin()->first));
  }
}

// Mostly near others, sometimes far away.
std::uint64_t RandomId(Random& random, std::uint64_t near) {
  if (random.OneIn(20)) return kRecordIdMax - random.Below(100);
  if (random.OneIn(20)) return random.Below(kRecordIdMax + 1);
  return random.Below(near);
}

TYPED_TEST(ArrayDBMTest, AgreesWithAModelAtEachWidth) {
  for (const unsigned width : {1u, 7u, 8u, 100u, 4095u, 4096u}) {
    SCOPED_TRACE(testing::Message() << "width " << width);
    TypeParam place;
    Random random(TestSeed() + width);
    ASSERT_OK_AND_ASSIGN(auto db, place.Open(width));
    Model model;
    const std::uint64_t near = width > 1000 ? 100 : 3000;
    for (int i = 0; i < (kSlowdown == 1 ? 3000 : 1000); ++i) {
      const std::uint64_t id = RandomId(random, near);
      const auto found = model.find(id);
      switch (random.Below(10)) {
        case 0:
        case 1:
        case 2: {
          std::string value = random.Bytes(random.OneIn(4) ? random.Below(width + 1) : width);
          ASSERT_THAT(db->Set(id, value), IsOk());
          value.resize(width);
          model[id] = value;
          break;
        }
        case 3: {
          const std::string value = random.Bytes(width);
          ASSERT_THAT(db->Set(id, value, {.overwrite = false}),
                      StatusIs(found == model.end() ? absl::StatusCode::kOk : absl::StatusCode::kAlreadyExists));
          model.try_emplace(id, value);
          break;
        }
        case 4: {
          ASSERT_THAT(db->Remove(id), StatusIs(found == model.end() ? absl::StatusCode::kNotFound : absl::StatusCode::kOk));
          model.erase(id);
          break;
        }
        case 5: {
          std::string value;
          const Status got = db->Get(id, &value);
          ASSERT_EQ(got.ok(), found != model.end()) << got;
          if (got.ok()) {
            ASSERT_EQ(value, found->second);
          }
          ASSERT_THAT(db->Contains(id), IsOkAndHolds(found != model.end()));
          break;
        }
        case 6: {
          const bool has_room = model.empty() || model.rbegin()->first < kRecordIdMax;
          const std::string value = random.Bytes(width);
          const StatusOr<std::uint64_t> appended = db->Append(value);
          ASSERT_EQ(appended.ok(), has_room) << appended.status();
          if (!has_room) {
            ASSERT_THAT(appended, StatusIs(absl::StatusCode::kOutOfRange));
            ASSERT_THAT(db->Remove(kRecordIdMax), IsOk());
            model.erase(kRecordIdMax);
            break;
          }
          ASSERT_EQ(*appended, model.empty() ? 0 : model.rbegin()->first + 1);
          model[*appended] = value;
          break;
        }
        case 7: {
          auto it = db->MakeIterator();
          it.JumpUpper(id, true);
          const auto upper = model.lower_bound(id);
          ASSERT_EQ(it.Valid(), upper != model.end()) << it.status();
          if (it.Valid()) {
            ASSERT_EQ(it.id(), upper->first);
          }
          it.JumpLower(id);
          ASSERT_EQ(it.Valid(), upper != model.begin()) << it.status();
          if (it.Valid()) {
            ASSERT_EQ(it.id(), std::prev(upper)->first);
          }
          break;
        }
        case 8: {
          const std::uint64_t to = id + random.Below(random.OneIn(10) ? kRecordIdMax : 100);
          const auto from = model.lower_bound(id), end = model.lower_bound(to);
          ASSERT_THAT(db->CountRange(id, to), IsOkAndHolds(static_cast<std::uint64_t>(std::distance(from, end))));
          break;
        }
        default: {
          if (!random.OneIn(20)) break;
          const std::uint64_t to = id + random.Below(50);
          const auto from = model.lower_bound(id), end = model.lower_bound(to);
          ASSERT_THAT(db->RemoveRange(id, to), IsOkAndHolds(static_cast<std::uint64_t>(std::distance(from, end))));
          model.erase(from, end);
        }
      }
      if (i % 1000 == 999) {
        ASSERT_NO_FATAL_FAILURE(ExpectEqual(*db, model));
        ASSERT_THAT(db->Verify(), IsOk());
        ASSERT_OK_AND_ASSIGN(db, place.Reopen(std::move(db)));
        ASSERT_NO_FATAL_FAILURE(ExpectEqual(*db, model));
      }
    }
    ASSERT_THAT(db->Clear(), IsOk());
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(*db, {}));
    ASSERT_THAT(db->Append("x"), IsOkAndHolds(0u));
    ASSERT_OK_AND_ASSIGN(db, place.Reopen(std::move(db)));
    std::string x = "x";
    x.resize(width);
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(*db, {{0, x}}));
    ASSERT_THAT(db->Verify(), IsOk());
  }
}

TYPED_TEST(ArrayDBMTest, RefusesWhatDoesNotFit) {
  EXPECT_THAT(this->place_.Open(4097), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("width")));
  EXPECT_THAT(this->place_.Open(0), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("width")));
  ASSERT_OK_AND_ASSIGN(auto db, this->place_.Open(8));
  EXPECT_THAT(db->Set(kRecordIdMax + 1, "x"), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("1099511627775")));
  EXPECT_THAT(db->Get(~std::uint64_t{0}), StatusIs(absl::StatusCode::kOutOfRange));
  for (int i = 0; i < 2; ++i) {  // where the page does not exist, and where it does
    EXPECT_THAT(db->Set(5, "123456789"), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("limit of 8 bytes")));
    EXPECT_THAT(db->Append("123456789"), StatusIs(absl::StatusCode::kOutOfRange));
    EXPECT_THAT(db->Set("five", "x"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'five' is not the number of a record")));
    EXPECT_THAT(db->Get("05"), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(db->Remove(7), StatusIs(absl::StatusCode::kNotFound));
    ASSERT_THAT(db->Set(6, "x"), IsOk());
  }
  EXPECT_THAT(db->Increment("7"), IsOkAndHolds(1));
  EXPECT_THAT(db->Increment("7"), IsOkAndHolds(2));
  ASSERT_THAT(db->Remove(7), IsOk());
  EXPECT_EQ(db->Count(), 1u);
  EXPECT_THAT(db->Get("6"), IsOkAndHolds(std::string("x\0\0\0\0\0\0\0", 8)));
  EXPECT_THAT(db->Verify(), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  EXPECT_THAT(db->Get(6), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(db->Set(6, "x"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(db->Append("x"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(db->MakeIterator().Valid());
  TypeParam other;
  ASSERT_OK_AND_ASSIGN(db, other.Open(9));
  EXPECT_THAT(db->Increment("7"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("records of 8 bytes")));
  EXPECT_EQ(db->Count(), 0u);
}

TYPED_TEST(ArrayDBMTest, BatchesAreMadeAsAWholeOrNotAtAll) {
  ASSERT_OK_AND_ASSIGN(auto db, this->place_.Open(16));
  Random random(TestSeed());
  Model model;
  for (std::uint64_t round = 1; round <= 200; ++round) {
    Model after = model;
    WriteBatch batch;
    bool holds = true;
    for (std::uint64_t n = random.Below(round % 50 == 0 ? 3000 : 12); n > 0; --n) {
      const std::uint64_t id = RandomId(random, 2000);
      const std::string key = std::to_string(id);
      if (random.OneIn(20)) {
        const bool expects = random.OneIn(8);
        batch.Expect(key, model.count(id) != 0 ? Expect::Any() : Expect::Absent());
        if (expects) batch.Expect(key, model.count(id) != 0 ? Expect::Absent() : Expect::Any());
        holds = holds && !expects;
      } else if (random.OneIn(12)) {
        const std::uint64_t to = id + random.Below(random.OneIn(20) ? kRecordIdMax : 300);
        batch.RemoveRange(key, to > kRecordIdMax ? std::nullopt : std::optional(std::to_string(to)));
        after.erase(after.lower_bound(id), after.lower_bound(to));
      } else if (random.OneIn(3)) {
        batch.Remove(key);
        after.erase(id);
      } else {
        batch.Set(key, after[id] = random.Bytes(16));
      }
    }
    batch.SetAppliedIndex(round);
    ASSERT_THAT(db->Write(batch), StatusIs(holds ? absl::StatusCode::kOk : absl::StatusCode::kAborted));
    if (holds) model = after;
  }
  WriteBatch too_long;
  too_long.Set("1", "x");
  too_long.Set("2", std::string(17, 'x'));
  EXPECT_THAT(db->Write(too_long), StatusIs(absl::StatusCode::kOutOfRange));
  WriteBatch no_number;
  no_number.Set("1", "x");
  no_number.RemoveRange("1", "two");
  EXPECT_THAT(db->Write(no_number), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'two'")));
  ASSERT_OK_AND_ASSIGN(db, this->place_.Reopen(std::move(db)));
  EXPECT_GE(db->AppliedIndex(), 190u);
  ASSERT_NO_FATAL_FAILURE(ExpectEqual(*db, model));
  EXPECT_THAT(db->Verify(), IsOk());
  WriteBatch all;
  all.Set("7", "removed, too");
  all.RemoveRange("");
  all.Set("5", "five");
  ASSERT_THAT(db->Write(all), IsOk());
  ASSERT_OK_AND_ASSIGN(db, this->place_.Reopen(std::move(db)));
  ASSERT_NO_FATAL_FAILURE(ExpectEqual(*db, {{5, std::string("five\0\0\0\0\0\0\0\0\0\0\0\0", 16)}}));
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());  // until then a file still has the ids of removed pages
  EXPECT_LE(db->GetStats().num_buckets, 6u);              // with directory pages
  EXPECT_THAT(db->Append("x"), IsOkAndHolds(6u));
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST(ArrayBatchTest, RemovesRangesOfALimitedNumberOfPages) {
  ASSERT_OK_AND_ASSIGN(auto db, MemoryArrayDBM<>::Open({.width = 1}));
  const std::uint64_t step = format::ArrayShape::For(1).per_leaf, most = array::kRangeLeavesMax;
  for (std::uint64_t i = 0; i <= most; ++i) ASSERT_THAT(db->Set(i * step, "x"), IsOk());
  WriteBatch batch;
  batch.Set(std::to_string(step + 1), "y");
  batch.RemoveRange("0");
  EXPECT_THAT(db->Write(batch), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("16384 pages")));
  EXPECT_EQ(db->Count(), most + 1);
  batch.Clear();
  batch.Set(std::to_string(step + 1), "y");  // the range removes it
  batch.RemoveRange(std::to_string(step));
  ASSERT_THAT(db->Write(batch), IsOk());
  EXPECT_EQ(db->Count(), 1u);
  EXPECT_THAT(db->Get(0), IsOkAndHolds("x"));
  EXPECT_THAT(db->Verify(), IsOk());
}

// Pages without records are given back.
TYPED_TEST(ArrayDBMTest, RemovedPagesTakeNoSpace) {
  ASSERT_OK_AND_ASSIGN(auto db, this->place_.Open(100));
  for (std::uint64_t i = 0; i < 20'000; ++i) {  // a queue: records are removed in front
    ASSERT_THAT(db->Append(std::to_string(i)), IsOkAndHolds(i));
    if (i >= 100) {
      ASSERT_THAT(db->Remove(i - 100), IsOk());
    }
  }
  EXPECT_EQ(db->Count(), 100u);
  EXPECT_LE(db->GetStats().num_buckets, 10u);
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_THAT(db->Set(i * 10'000'000'000, "far"), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_THAT(db->RemoveRange(0, kRecordIdMax + 1), IsOkAndHolds(200u));
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());  // until then a file still has their ids
  EXPECT_LE(db->GetStats().num_buckets, 5u);
  EXPECT_THAT(db->Append("x"), IsOkAndHolds(0u));
  EXPECT_THAT(db->Verify(), IsOk());
}

// Threads set, remove and append records of the same few pages. A record has one byte throughout, and the
// pages come and go.
TYPED_TEST(ArrayDBMTest, ConcurrentThreadsShareAPage) {
  constexpr unsigned kWidth = 40;
  constexpr int kOperations = 20'000;
  ASSERT_OK_AND_ASSIGN(auto db, this->place_.Open(kWidth));
  // The last record that is ever removed comes before it: the id of a removed last record may be given again.
  ASSERT_THAT(db->Set(30'005, std::string(kWidth, 'e')), IsOk());
  std::vector<std::vector<std::uint64_t>> appended(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < appended.size(); ++t) {
    threads.emplace_back([&, t] {
      Random random(TestSeed() + t);
      std::string value;
      for (int i = 0; i < kOperations; ++i) {
        const std::uint64_t id = random.Below(4) * 10'000 + random.Below(3);
        const std::string mine(kWidth, static_cast<char>('a' + t));
        switch (random.Below(8)) {
          case 0:
          case 1:
            ASSERT_THAT(db->Set(id, mine), IsOk());
            break;
          case 2:
          case 3: {
            const Status removed = db->Remove(id);
            ASSERT_TRUE(removed.ok() || absl::IsNotFound(removed)) << removed;
            break;
          }
          case 4: {
            const StatusOr<std::uint64_t> at = db->Append(mine);
            ASSERT_THAT(at, IsOk());
            appended[t].push_back(*at);
            break;
          }
          case 5: {
            WriteBatch batch;
            if (random.OneIn(4)) batch.RemoveRange("0", random.OneIn(2) ? "30004" : "10001");
            for (std::uint64_t page = 0; page < 4; ++page) batch.Set(std::to_string(page * 10'000 + 5), mine);
            ASSERT_THAT(db->Write(batch), IsOk());
            break;
          }
          case 6: {
            auto it = db->MakeIterator();
            std::optional<std::uint64_t> before;
            for (it.Jump(id); it.Valid() && it.id() < id + 20; it.Next()) {
              ASSERT_TRUE(!before || *before < it.id());
              ASSERT_EQ(it.value(), std::string(kWidth, it.value()[0]));
              before = it.id();
            }
            ASSERT_THAT(it.status(), IsOk());
            break;
          }
          default: {
            const Status got = db->Get(id, &value);
            ASSERT_TRUE(got.ok() || absl::IsNotFound(got)) << got;
            if (got.ok()) {
              ASSERT_EQ(value, std::string(kWidth, value[0]));
            }
            if (random.OneIn(500)) {
              ASSERT_THAT(db->Synchronize(SyncMode::kSoft), IsOk());
            }
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::uint64_t> all;
  for (const auto& some : appended) all.insert(all.end(), some.begin(), some.end());
  std::ranges::sort(all);
  const auto twice = std::ranges::adjacent_find(all);
  EXPECT_EQ(twice, all.end()) << "two threads got the id " << *twice;
  EXPECT_THAT(db->Verify(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, this->place_.Reopen(std::move(db)));
  EXPECT_THAT(db->Verify(), IsOk());
}

// Readers find the pages of an opened array while these are removed, and then made again.
TYPED_TEST(ArrayDBMTest, ConcurrentReadersBesideClear) {
  ASSERT_OK_AND_ASSIGN(auto db, this->place_.Open(100));
  for (int round = 0; round < 8; ++round) {
    for (std::uint64_t id = 0; id < 5000; ++id) ASSERT_THAT(db->Set(id, std::to_string(id)), IsOk());
    ASSERT_OK_AND_ASSIGN(db, this->place_.Reopen(std::move(db)));
    std::vector<std::thread> readers;
    for (int t = 0; t < 2; ++t) {
      readers.emplace_back([&, t] {
        Random random(TestSeed() + static_cast<std::uint64_t>(t));
        std::string value;
        for (int i = 0; i < 3000; ++i) {
          const std::uint64_t id = random.Below(5000);
          const Status got = db->Get(id, &value);
          ASSERT_TRUE(got.ok() || absl::IsNotFound(got)) << got;
          if (got.ok()) {
            ASSERT_EQ(value.c_str(), std::to_string(id));
          }
        }
      });
    }
    ASSERT_THAT(db->Clear(), IsOk());
    Model model;
    for (std::uint64_t id = 0; id < 5000; id += 40) {
      ASSERT_THAT(db->Set(id, std::to_string(id)), IsOk());
      (model[id] = std::to_string(id)).resize(100);
    }
    for (std::thread& reader : readers) reader.join();
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(*db, model));
  }
  EXPECT_THAT(db->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
