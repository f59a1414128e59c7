// What an iterator shows of the changes that its own thread makes: every call that changes records, in both
// directions, where leaves are clean or dirty, and are split, merged, freed or evicted by it.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/write_batch.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using Records = std::map<std::string, std::string>;

// Keys of one length, so that those of an array, which are numbers, are in the same order.
std::string Key(int i) { return std::to_string(100'000 + i); }

struct Kind {
  const char* name;
  int records;
  std::size_t value_size;  // at least 8
};

// Changes records of the database and of its model.
struct Change {
  const char* name;
  std::function<void(AnyDBM&, Records&, const Kind&)> run;
};

void Set(AnyDBM& db, Records& records, const std::string& key, std::string value) {
  value.resize(8, '.');  // as an array would
  EXPECT_THAT(db.Set(key, value), IsOk());
  records[key] = value;
}
void EraseFrom(Records& records, const std::string& from, const std::string& to) {
  records.erase(records.lower_bound(from), records.lower_bound(to));
}

std::vector<Change> Changes() {
  std::vector<Change> changes = {
      {"nothing", [](AnyDBM&, Records&, const Kind&) {}},
      {"Clear",
       [](AnyDBM& db, Records& records, const Kind&) {
         EXPECT_THAT(db.Clear(), IsOk());
         records.clear();
       }},
      {"Clear and some new records",
       [](AnyDBM& db, Records& records, const Kind& kind) {
         EXPECT_THAT(db.Clear(), IsOk());
         records.clear();
         for (int i = 0; i < kind.records; i += 100) Set(db, records, Key(i), "new");
       }},
      {"Remove of each in the middle",
       [](AnyDBM& db, Records& records, const Kind& kind) {
         for (int i = kind.records / 4; i < kind.records * 3 / 4; ++i) {
           if (records.erase(Key(i)) != 0) EXPECT_THAT(db.Remove(Key(i)), IsOk());
         }
       }},
      {"Remove of all but a few",
       [](AnyDBM& db, Records& records, const Kind& kind) {
         for (int i = 0; i < kind.records; ++i) {
           if (i % 50 != 7 && records.erase(Key(i)) != 0) EXPECT_THAT(db.Remove(Key(i)), IsOk());
         }
       }},
      {"a batch of removals and new records",
       [](AnyDBM& db, Records& records, const Kind& kind) {
         WriteBatch batch;
         for (int i = kind.records / 3; i < kind.records * 2 / 3; ++i) batch.Remove(Key(i));
         EraseFrom(records, Key(kind.records / 3), Key(kind.records * 2 / 3));
         for (int i = 1; i < 40; ++i) {
           const std::string key = Key(kind.records / 2 + i * 3);
           batch.Set(key, "in batch");
           records[key] = "in batch";
         }
         EXPECT_THAT(db.Write(batch), IsOk());
       }},
      {"Set of new values",
       [](AnyDBM& db, Records& records, const Kind& kind) {
         for (int i = 0; i < kind.records; i += 3) Set(db, records, Key(i), "new");
       }},
      {"Set between the records, which splits leaves",
       [](AnyDBM& db, Records& records, const Kind& kind) {
         for (int i = 1; i < kind.records; i += 2) Set(db, records, Key(i), "between");
       }},
      {"Rekey",
       [](AnyDBM& db, Records& records, const Kind& kind) {
         for (int i = kind.records / 2 - 40; i < kind.records / 2 + 40; i += 2) {
           EXPECT_THAT(db.Rekey(Key(i), Key(i + 1)), IsOk());
           records[Key(i + 1)] = records[Key(i)];
           records.erase(Key(i));
         }
       }},
  };
  return changes;
}
// Of ordered databases.
std::vector<Change> RangeChanges() {
  return {
      {"RemoveRange of all",
       [](AnyDBM& db, Records& records, const Kind&) {
         EXPECT_THAT(db.RemoveRange("").status(), IsOk());
         records.clear();
       }},
      {"RemoveRange of the middle, then a record in it",
       [](AnyDBM& db, Records& records, const Kind& kind) {
         const std::string from = Key(kind.records / 4), to = Key(kind.records * 3 / 4);
         EXPECT_THAT(db.RemoveRange(from, to).status(), IsOk());
         EraseFrom(records, from, to);
         Set(db, records, Key(kind.records / 2 - 5), "before");
         Set(db, records, Key(kind.records / 2 + 5), "behind");
       }},
      {"a batch with a range",
       [](AnyDBM& db, Records& records, const Kind& kind) {
         const std::string from = Key(kind.records / 4), to = Key(kind.records * 3 / 4);
         WriteBatch batch;
         batch.RemoveRange(from, to);
         EXPECT_THAT(db.Write(batch), IsOk());
         EraseFrom(records, from, to);
       }},
  };
}

class OwnChanges : public testing::TestWithParam<Kind> {
 protected:
  std::string Name() const {
    const std::string name = GetParam().name;
    return name[0] == '?' ? name : directory_.File(name);
  }
  // Every second key.
  void Fill() {
    ASSERT_OK_AND_ASSIGN(db_, AnyDBM::Open(Name()));
    records_.clear();
    ASSERT_THAT(db_->Clear(), IsOk());
    for (int i = 0; i < GetParam().records; i += 2) {
      const std::string value = Key(i) + std::string(GetParam().value_size - 6, 'v');
      ASSERT_THAT(db_->Set(Key(i), value), IsOk());
      records_[Key(i)] = value;
    }
  }
  // Loads all other leaves, so that those that were changed last are evicted if there is a small cache.
  void ReadAll() {
    for (const auto& [key, value] : records_) ASSERT_THAT(db_->Get(key), IsOkAndHolds(value));
  }

  TempDir directory_;
  std::unique_ptr<AnyDBM> db_;
  Records records_;
};

class OrderedOwnChanges : public OwnChanges {};

TEST_P(OrderedOwnChanges, AreShownFromTheNextMoveOn) {
  std::vector<Change> changes = Changes(), of_ranges = RangeChanges();
  changes.insert(changes.end(), of_ranges.begin(), of_ranges.end());
  for (const Change& change : changes) {
    for (int round = 0; round<8; round += kSlowdown> 1 ? 3 : 1) {  // each way at least once
      const bool backwards = (round & 1) != 0, synchronizes = (round & 2) != 0, reads = (round & 4) != 0;
      SCOPED_TRACE(std::string(change.name) + (backwards ? " backwards" : "") + (synchronizes ? " after Synchronize" : "") +
                   (reads ? ", then all are read" : ""));
      Fill();
      if (synchronizes) ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
      auto it = db_->MakeIterator();
      const std::string at = Key(GetParam().records / 2 / 2 * 2);
      it.Jump(at);
      ASSERT_TRUE(it.Valid());
      ASSERT_EQ(it.key(), at);
      change.run(*db_, records_, GetParam());
      if (reads) ReadAll();
      EXPECT_EQ(it.key(), at) << "stays until the next move";
      std::vector<std::pair<std::string, std::string>> shown, expected;
      for (backwards ? it.Previous() : it.Next(); it.Valid(); backwards ? it.Previous() : it.Next())
        shown.emplace_back(it.key(), it.value());
      EXPECT_THAT(it.status(), IsOk());
      if (backwards) {
        for (auto record = std::make_reverse_iterator(records_.lower_bound(at)); record != records_.rend(); ++record)
          expected.emplace_back(*record);
      } else {
        expected.assign(records_.upper_bound(at), records_.end());
      }
      EXPECT_EQ(shown, expected) << shown.size() << " shown of " << expected.size();
      EXPECT_THAT(db_->Verify(), IsOk());
      ASSERT_THAT(db_->Close(), IsOk());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, OrderedOwnChanges,
                         testing::Values(Kind{"tree.hkt?page_size=256", 1000, 20},
                                         Kind{"small.hkt?page_size=1024,cache_bytes=1048576,file=pos", 3000, 400},
                                         Kind{"long.hkt?page_size=128", 300, 100}, Kind{"times.hkt?page_size=256,expiry=true", 600, 20},
                                         Kind{"?dbm=baby,page_size=256", 1000, 20},
                                         Kind{"?dbm=baby,page_size=256,capacity_bytes=8m", 600, 20}, Kind{"array.hka?width=8", 1500, 8}),
                         [](const auto& info) { return "Kind" + std::to_string(info.index); });

class UnorderedOwnChanges : public OwnChanges {};

// A hash table promises no more than for the changes of other threads.
TEST_P(UnorderedOwnChanges, LeaveEachOtherRecordShownOnce) {
  for (const Change& change : Changes()) {
    SCOPED_TRACE(change.name);
    Fill();
    const Records before = records_;
    auto it = db_->MakeIterator();
    it.First();
    std::map<std::string, int> shown;
    for (int i = 0; i < 100 && it.Valid(); ++i, it.Next()) ++shown[std::string(it.key())];
    change.run(*db_, records_, GetParam());
    for (; it.Valid(); it.Next()) ++shown[std::string(it.key())];
    EXPECT_THAT(it.status(), IsOk());
    for (const auto& [key, count] : shown) EXPECT_EQ(count, 1) << key;
    for (const auto& [key, value] : before) {
      if (records_.contains(key)) EXPECT_TRUE(shown.contains(key)) << key;
    }
    EXPECT_THAT(db_->Verify(), IsOk());
    ASSERT_THAT(db_->Close(), IsOk());
  }
}

INSTANTIATE_TEST_SUITE_P(Each, UnorderedOwnChanges,
                         testing::Values(Kind{"table.hkh", 1000, 20}, Kind{"table.hkh?file=pos", 1000, 20}, Kind{"?dbm=tiny", 1000, 20}),
                         [](const auto& info) { return "Kind" + std::to_string(info.index); });

}  // namespace
}  // namespace hako
