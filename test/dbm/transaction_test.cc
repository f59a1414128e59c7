// Transactions: beside a model that asks each question again at the moment of the commit, and case by case.
#include "hako/dbm/transaction.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/comparator.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/positional_tree_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/transaction_records.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/dbm/write_batch.h"
#include "support/full_size.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

struct Tiny {
  static auto Open(const std::string&) { return TinyDBM<>::Open(); }
};
struct Hash {
  static auto Open(const std::string& path) { return HashDBM<>::Open(path); }
};
struct Baby {
  static auto Open(const std::string&) { return BabyDBM<>::Open({.page_size = 512}); }
};
struct BabyOfNumbers {
  static auto Open(const std::string&) { return BabyDBM<MemoryMapParallelFile, DecimalComparator>::Open({.page_size = 512}); }
};
struct BabyWithTimes {
  static auto Open(const std::string&) { return BabyDBM<>::Open({.page_size = 512, .expiry = true}); }
};
struct Tree {
  static auto Open(const std::string& path) { return TreeDBM<>::Open(path, {.page_size = 512, .cache_bytes = 1 << 20}); }
};
struct PositionalTree {
  static auto Open(const std::string& path) {
    return TreeDBM<PositionalParallelFile>::Open(path, {.page_size = 512, .cache_bytes = 1 << 20});
  }
};
struct AnyTree {
  static auto Open(const std::string& path) { return AnyDBM::Open(path + ".hkt?page_size=512"); }
};
struct AnyTiny {
  static auto Open(const std::string&) { return AnyDBM::Open("?dbm=tiny"); }
};

template <class Kind>
class TransactionTest : public testing::Test {
 protected:
  using Database = std::remove_reference_t<decltype(**Kind::Open(""))>;
  static constexpr bool kIsOrdered = !std::is_same_v<Kind, Tiny> && !std::is_same_v<Kind, Hash> && !std::is_same_v<Kind, AnyTiny>;
  struct Less {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const {
      if constexpr (std::is_same_v<Kind, BabyOfNumbers>) return DecimalComparator::Compare(a, b) < 0;
      return a < b;
    }
  };
  using Model = std::map<std::string, std::string, Less>;
  using Writes = std::map<std::string, std::optional<std::string>, Less>;
  using Record = std::optional<std::pair<std::string, std::string>>;

  void SetUp() override { ASSERT_OK_AND_ASSIGN(db_, Kind::Open(dir_.File("db"))); }
  void TearDown() override {
    ASSERT_THAT(db_->Verify(), IsOk());
    ASSERT_THAT(db_->Close(), IsOk());
  }

  std::string RandomKey() {
    return std::to_string(static_cast<std::int64_t>(random_.Below(num_keys_)) - static_cast<std::int64_t>(num_keys_ / 2));
  }
  std::string RandomValue() {
    return std::to_string(random_.Next()) + std::string(random_.OneIn(30) ? 1'000 + random_.Below(5'000) : random_.Below(40), 'v');
  }

  // A transaction, and what the model knows about it.
  struct Running {
    explicit Running(Database& db) : transaction(db) {}
    Transaction<Database> transaction;
    Writes writes;
    // Each asks a question again that was asked before, of the records given, and returns whether the answer is the same.
    std::vector<std::function<bool(const Model&)>> answers;
    // Keys that were read, and intervals that were passed; a missing end is beyond all keys.
    std::vector<std::string> points;
    std::vector<std::pair<std::optional<std::string>, std::optional<std::string>>> intervals;
    std::vector<std::string> changed;  // keys that others have changed meanwhile
    std::vector<std::pair<Savepoint, Writes>> savepoints;
  };

  static std::optional<std::string> View(const Model& model, const Writes& writes, const std::string& key) {
    if (const auto own = writes.find(key); own != writes.end()) return own->second;
    const auto found = model.find(key);
    return found != model.end() ? std::optional(found->second) : std::nullopt;
  }
  // The next record from a key on, or from the end of all keys.
  static Record Neighbour(const Model& model, const Writes& writes, std::optional<std::string> from, bool inclusive, bool upwards) {
    Model merged = model;
    for (const auto& [key, value] : writes) {
      merged.erase(key);
      if (value) merged.emplace(key, *value);
    }
    if (upwards) {
      const auto at = !from ? merged.begin() : inclusive ? merged.lower_bound(*from) : merged.upper_bound(*from);
      return at != merged.end() ? Record(*at) : std::nullopt;
    }
    const auto end = !from ? merged.end() : inclusive ? merged.upper_bound(*from) : merged.lower_bound(*from);
    return end != merged.begin() ? Record(*std::prev(end)) : std::nullopt;
  }

  void Get(Running& run) {
    const std::string key = RandomKey();
    const StatusOr<std::string> value = run.transaction.Get(key);
    if (absl::IsAborted(value.status())) return;  // it existed, and does no longer
    ASSERT_TRUE(value.ok() || absl::IsNotFound(value.status())) << value.status();
    const std::optional<std::string> seen = value.ok() ? std::optional(*value) : std::nullopt;
    run.answers.push_back([=, writes = run.writes](const Model& model) { return View(model, writes, key) == seen; });
    run.points.push_back(key);
  }
  void Check(Running& run) {
    const std::string key = RandomKey();
    ASSERT_OK_AND_ASSIGN(const bool found, run.transaction.Contains(key));
    run.answers.push_back([=, writes = run.writes](const Model& model) { return View(model, writes, key).has_value() == found; });
    run.points.push_back(key);
  }
  void Write(Running& run) {
    const std::string key = RandomKey(), value = RandomValue();
    switch (random_.Below(4)) {
      case 0: {
        const Status removed = run.transaction.Remove(key);
        ASSERT_TRUE(removed.ok() || absl::IsNotFound(removed)) << removed;
        run.answers.push_back(
            [key, was = removed.ok(), writes = run.writes](const Model& model) { return View(model, writes, key).has_value() == was; });
        run.points.push_back(key);
        if (removed.ok()) run.writes[key] = std::nullopt;
        return;
      }
      case 1: {
        const Status appended = run.transaction.Append(key, value, ",");
        if (absl::IsAborted(appended)) return;  // it existed, and does no longer
        ASSERT_THAT(appended, IsOk());
        ASSERT_OK_AND_ASSIGN(const std::string joined, run.transaction.Get(key));
        const std::string before = joined == value ? "" : joined.substr(0, joined.size() - value.size() - 1);
        run.answers.push_back([=, writes = run.writes](const Model& model) {
          const std::optional<std::string> found = View(model, writes, key);
          return found ? joined == *found + "," + value : joined == value;
        });
        run.points.push_back(key);
        run.writes[key] = joined;
        return;
      }
      default:
        ASSERT_THAT(run.transaction.Set(key, value), IsOk());
        run.writes[key] = value;
    }
  }
  void Walk(Running& run) requires kIsOrdered {
    auto it = run.transaction.MakeIterator();
    std::optional<std::string> from;
    bool inclusive = true, upwards = random_.OneIn(2);
    if (random_.OneIn(6)) {
      upwards ? it.First() : it.Last();
    } else {
      from = RandomKey();
      inclusive = random_.OneIn(2);
      upwards ? it.JumpUpper(*from, inclusive) : it.JumpLower(*from, inclusive);
    }
    for (std::uint64_t moves = random_.Below(12);; --moves) {
      if (absl::IsAborted(it.status())) return;  // a record was read before, and has changed
      ASSERT_THAT(it.status(), IsOk());
      const Record seen = it.Valid() ? Record(std::pair(it.key(), it.value())) : std::nullopt;
      run.answers.push_back(
          [=, writes = run.writes](const Model& model) { return Neighbour(model, writes, from, inclusive, upwards) == seen; });
      const std::optional<std::string> to = seen ? std::optional(seen->first) : std::nullopt;
      upwards ? run.intervals.emplace_back(from, to) : run.intervals.emplace_back(to, from);
      if (!seen || moves == 0) return;
      if (random_.OneIn(4)) Write(run);
      if (random_.OneIn(10)) Update();
      from = seen->first;
      inclusive = false;
      if (random_.OneIn(5)) upwards = !upwards;
      upwards ? it.Next() : it.Previous();
    }
  }
  void Count(Running& run) requires kIsOrdered {
    std::string from = RandomKey(), to = RandomKey();
    if (Less()(to, from)) std::swap(from, to);
    ASSERT_OK_AND_ASSIGN(const std::uint64_t count, run.transaction.CountRange(from, to));
    run.answers.push_back([=, writes = run.writes](const Model& model) {
      std::uint64_t found = 0;
      for (Record at = Neighbour(model, writes, from, true, true); at && Less()(at->first, to);
           at = Neighbour(model, writes, at->first, false, true))
        ++found;
      return found == count;
    });
    run.intervals.emplace_back(from, to);
  }

  // An update by another user.
  void Update() {
    const std::string key = RandomKey();
    if (random_.OneIn(3)) {
      if (!db_->Remove(key).ok()) return;
      model_.erase(key);
    } else {
      const std::string value = RandomValue();
      ASSERT_THAT(db_->Set(key, value), IsOk());
      model_[key] = value;
    }
    Note(key);
  }
  void Note(const std::string& key) {
    for (auto& run : running_) {
      if (run) run->changed.push_back(key);
    }
  }
  bool MayConflict(const Running& run) const {
    return std::ranges::any_of(run.changed, [&](const std::string& key) {
      const auto has = [&](const auto& interval) {
        return !(interval.first && Less()(key, *interval.first)) && !(interval.second && Less()(*interval.second, key));
      };
      return std::ranges::count(run.points, key) != 0 || std::ranges::any_of(run.intervals, has);
    });
  }
  void Commit(std::unique_ptr<Running>& slot) {
    const std::unique_ptr<Running> run = std::move(slot);
    const Status status = run->transaction.Commit();
    if (status.ok()) {
      ++num_committed_;
      for (std::size_t i = 0; i < run->answers.size(); ++i) ASSERT_TRUE(run->answers[i](model_)) << "answer " << i;
      for (const auto& [key, value] : run->writes) {
        model_.erase(key);
        if (value) model_.emplace(key, *value);
        Note(key);
      }
    } else {
      ++num_aborted_;
      ASSERT_THAT(status, StatusIs(StatusCode::kAborted, HasSubstr("has changed")));
      ASSERT_TRUE(MayConflict(*run)) << status;
    }
  }

  TempDir dir_;
  std::uint64_t num_keys_ = 60;
  std::unique_ptr<Database> db_;
  Random random_{TestSeed()};
  Model model_;
  std::unique_ptr<Running> running_[3];
  std::uint64_t num_committed_ = 0, num_aborted_ = 0;
};

using Kinds = testing::Types<Tiny, Hash, Baby, BabyOfNumbers, BabyWithTimes, Tree, PositionalTree, AnyTree, AnyTiny>;
TYPED_TEST_SUITE(TransactionTest, Kinds);

TYPED_TEST(TransactionTest, CommittedOnesHaveReadTheStateTheyChange) {
  for (const std::uint64_t num_keys : {8, 60, 600}) {
    this->num_keys_ = num_keys;
    for (std::uint64_t i = FullSize() ? 20'000 : 2'000; i > 0 && !this->HasFatalFailure(); --i) {
      auto& slot = this->running_[this->random_.Below(3)];
      if (!slot) slot = std::make_unique<typename TestFixture::Running>(*this->db_);
      auto& savepoints = slot->savepoints;
      switch (this->random_.Below(20)) {
        case 0:
        case 1:
          this->Commit(slot);
          break;
        case 2:
          slot.reset();  // rolls back
          break;
        case 3:
        case 4:
          this->Update();
          break;
        case 5:
          savepoints.emplace_back(slot->transaction.SetSavepoint(), slot->writes);
          break;
        case 6:
          if (savepoints.empty()) break;
          savepoints.resize(this->random_.Below(savepoints.size()) + 1, savepoints.front());
          ASSERT_THAT(slot->transaction.RollbackTo(savepoints.back().first), IsOk());
          slot->writes = savepoints.back().second;
          break;
        case 7:
        case 8:
        case 9:
          this->Get(*slot);
          break;
        case 10:
          this->Check(*slot);
          break;
        case 11:
        case 12:
        case 13:
          if constexpr (TestFixture::kIsOrdered) this->Walk(*slot);
          break;
        case 14:
          if constexpr (TestFixture::kIsOrdered) this->Count(*slot);
          break;
        default:
          this->Write(*slot);
      }
    }
    for (auto& slot : this->running_) slot.reset();
    ASSERT_EQ(this->db_->Count(), this->model_.size());
    for (const auto& [key, value] : this->model_) ASSERT_THAT(this->db_->Get(key), IsOkAndHolds(value));
  }
  EXPECT_GT(this->num_committed_, 50u);
  EXPECT_GT(this->num_aborted_, 20u);
}

TYPED_TEST(TransactionTest, OthersSeeNothingBeforeTheCommit) {
  Transaction transaction(*this->db_);
  ASSERT_THAT(transaction.Set("1", "a"), IsOk());
  EXPECT_THAT(transaction.Get("1"), IsOkAndHolds("a"));
  EXPECT_THAT(this->db_->Get("1").status(), StatusIs(StatusCode::kNotFound));
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_THAT(this->db_->Get("1"), IsOkAndHolds("a"));
  ASSERT_THAT(transaction.Set("2", "b"), IsOk());
  transaction.Rollback();
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_EQ(this->db_->Count(), 1u);
}

TYPED_TEST(TransactionTest, NoUpdateIsLost) {
  ASSERT_THAT(this->db_->Set("1", "a"), IsOk());
  Transaction first(*this->db_), second(*this->db_);
  ASSERT_THAT(first.Append("1", "b"), IsOk());
  ASSERT_THAT(second.Append("1", "c"), IsOk());
  ASSERT_THAT(first.Commit(), IsOk());
  EXPECT_THAT(second.Commit(), StatusIs(StatusCode::kAborted, HasSubstr("\"1\"")));
  EXPECT_EQ(second.conflict(), "1");
  EXPECT_THAT(this->db_->Get("1"), IsOkAndHolds("ab"));
}

TYPED_TEST(TransactionTest, NoWriteSkew) {
  ASSERT_THAT(this->db_->Set("1", "on"), IsOk());
  ASSERT_THAT(this->db_->Set("2", "on"), IsOk());
  Transaction first(*this->db_), second(*this->db_);
  EXPECT_THAT(first.Get("1"), IsOkAndHolds("on"));
  EXPECT_THAT(second.Get("2"), IsOkAndHolds("on"));
  ASSERT_THAT(first.Set("2", "off"), IsOk());
  ASSERT_THAT(second.Set("1", "off"), IsOk());
  ASSERT_THAT(second.Commit(), IsOk());
  EXPECT_THAT(first.Commit(), StatusIs(StatusCode::kAborted));
  EXPECT_THAT(this->db_->Get("2"), IsOkAndHolds("on"));
}

TYPED_TEST(TransactionTest, NoWriteSkewThroughARange) {
  if constexpr (TestFixture::kIsOrdered) {
    for (const bool upwards : {true, false}) {
      Transaction first(*this->db_), second(*this->db_);
      auto a = first.MakeIterator(), b = second.MakeIterator();
      upwards ? a.First() : a.Last();
      upwards ? b.Jump("0") : b.JumpLower("9", true);
      EXPECT_FALSE(a.Valid());
      EXPECT_FALSE(b.Valid());
      ASSERT_THAT(first.Set("5", "first"), IsOk());
      ASSERT_THAT(second.Set("6", "second"), IsOk());
      ASSERT_THAT(first.Commit(), IsOk());
      EXPECT_THAT(second.Commit(), StatusIs(StatusCode::kAborted));
      EXPECT_EQ(this->db_->Count(), 1u);
      ASSERT_THAT(this->db_->Remove("5"), IsOk());
    }
  }
}

// Keys at both ends of a range are outside of what was read, or inside.
TYPED_TEST(TransactionTest, ARangeConflictsWithWhatItHasPassed) {
  if constexpr (TestFixture::kIsOrdered) {
    struct Case {
      std::function<void(TransactionCursor<typename TestFixture::Database>&)> read;
      std::vector<const char*> inside, outside;
    };
    const Case cases[] = {
        {[](auto& it) { it.Jump("20"); }, {"20"}, {"15", "25", "30"}},
        {[](auto& it) { it.Jump("15"); }, {"15", "17", "20"}, {"10", "25"}},
        {[](auto& it) { it.JumpUpper("20"); }, {"25", "30"}, {"20", "15", "35"}},
        {[](auto& it) { it.JumpLower("30"); }, {"20", "25"}, {"30", "15"}},
        {[](auto& it) { it.JumpLower("30", true); }, {"30"}, {"25", "20", "35"}},
        {[](auto& it) { it.JumpLower("25", true); }, {"25", "20"}, {"26", "15"}},
        {[](auto& it) { it.First(); }, {"05", "10"}, {"15"}},
        {[](auto& it) { it.Last(); }, {"45", "40"}, {"35"}},
        {[](auto& it) { (it.Jump("20"), it.Next()); }, {"20", "25", "30"}, {"15", "35"}},
        {[](auto& it) { (it.Jump("30"), it.Previous()); }, {"20", "25", "30"}, {"15", "35"}},
        {[](auto& it) { (it.Jump("40"), it.Next()); }, {"40", "45", "99"}, {"35"}},
        {[](auto& it) { (it.JumpLower("10", true), it.Previous()); }, {"10", "05"}, {"15"}},
    };
    for (std::size_t i = 0; i < std::size(cases); ++i) {
      for (const bool inside : {true, false}) {
        for (const char* const key : inside ? cases[i].inside : cases[i].outside) {
          SCOPED_TRACE(testing::Message() << "case " << i << ", key " << key);
          ASSERT_THAT(this->db_->Clear(), IsOk());
          for (const char* const present : {"10", "20", "30", "40"}) ASSERT_THAT(this->db_->Set(present, "old"), IsOk());
          Transaction transaction(*this->db_);
          auto it = transaction.MakeIterator();
          cases[i].read(it);
          ASSERT_THAT(it.status(), IsOk());
          ASSERT_THAT(transaction.Set("99999", "x"), IsOk());
          ASSERT_THAT(this->db_->Set(key, "new"), IsOk());
          EXPECT_EQ(transaction.Commit().code(), inside ? StatusCode::kAborted : StatusCode::kOk);
        }
      }
    }
  }
}

// Neither does it conflict with a change of the record next to it.
TYPED_TEST(TransactionTest, ARangeEndsAtItsBounds) {
  if constexpr (TestFixture::kIsOrdered) {
    for (const char* const key : {"10", "19", "20", "25", "29", "30", "40"}) {
      for (const bool upwards : {true, false}) {
        SCOPED_TRACE(key);
        ASSERT_THAT(this->db_->Clear(), IsOk());
        for (const char* const present : {"10", "20", "30", "40"}) ASSERT_THAT(this->db_->Set(present, "old"), IsOk());
        Transaction transaction(*this->db_);
        ASSERT_THAT(transaction.Set("35", "own"), IsOk());
        const auto list = [&](auto range) {
          std::string keys;
          for (auto [found, value] : range) keys += found;
          EXPECT_THAT(range.status(), IsOk());
          return keys;
        };
        EXPECT_EQ(upwards ? list(transaction.Range("20", "30")) : list(transaction.ReverseRange("20", "30")), "20");
        ASSERT_THAT(this->db_->Set(key, "new"), IsOk());
        const bool is_inside = std::string_view(key) >= "20" && std::string_view(key) < "30";
        EXPECT_EQ(transaction.Commit().code(), is_inside ? StatusCode::kAborted : StatusCode::kOk);
      }
    }
  }
}

TYPED_TEST(TransactionTest, OneThatOnlyReadsIsValidatedToo) {
  ASSERT_THAT(this->db_->Set("1", "a"), IsOk());
  Transaction transaction(*this->db_);
  EXPECT_THAT(transaction.Get("1"), IsOkAndHolds("a"));
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_THAT(transaction.Get("1"), IsOkAndHolds("a"));
  ASSERT_THAT(this->db_->Remove("1"), IsOk());
  EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kAborted));
}

TYPED_TEST(TransactionTest, ExistenceIsAllThatSomeCallsRead) {
  ASSERT_THAT(this->db_->Set("1", "a"), IsOk());
  Transaction transaction(*this->db_);
  EXPECT_THAT(transaction.Contains("1"), IsOkAndHolds(true));
  EXPECT_THAT(transaction.Set("2", "b", {.overwrite = false}), IsOk());
  ASSERT_THAT(this->db_->Set("1", "other"), IsOk());
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_THAT(transaction.Set("2", "c", {.overwrite = false}), StatusIs(StatusCode::kAlreadyExists));
  EXPECT_THAT(transaction.Remove("3"), StatusIs(StatusCode::kNotFound));
  ASSERT_THAT(this->db_->Set("3", "c"), IsOk());
  EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kAborted, HasSubstr("\"3\"")));
}

TYPED_TEST(TransactionTest, SeveralRecordsInOneCall) {
  Transaction transaction(*this->db_);
  const std::string_view keys[] = {"1", "2"};
  ASSERT_THAT(transaction.SetMulti({{KeyValue{"1", "a"}, KeyValue{"2", "b"}}}), IsOk());
  std::optional<std::string> values[2];
  ASSERT_THAT(transaction.GetMulti(keys, values), IsOk());
  EXPECT_EQ(values[1], "b");
  ASSERT_THAT(transaction.Rekey("1", "3"), IsOk());
  EXPECT_THAT(transaction.Rekey("1", "4"), StatusIs(StatusCode::kNotFound));
  const Exchange exchanges[] = {{"3", Expect::Value("a"), Action::Remove()}, {"2", Expect::Value("no"), Action::Remove()}};
  EXPECT_THAT(transaction.CompareExchangeMulti(exchanges), StatusIs(StatusCode::kAborted));
  EXPECT_THAT(transaction.Get("3"), IsOkAndHolds("a"));  // the first exchange was taken back
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_EQ(this->db_->Count(), 2u);
  EXPECT_THAT(this->db_->Get("3"), IsOkAndHolds("a"));
}

TYPED_TEST(TransactionTest, SavepointsOfThisTransactionAlone) {
  Transaction transaction(*this->db_);
  const Savepoint begin = transaction.SetSavepoint();
  ASSERT_THAT(transaction.Set("1", "a"), IsOk());
  const Savepoint first = transaction.SetSavepoint();
  ASSERT_THAT(transaction.Set("1", "b"), IsOk());
  const Savepoint second = transaction.SetSavepoint();
  ASSERT_THAT(transaction.RollbackTo(first), IsOk());
  EXPECT_THAT(transaction.Get("1"), IsOkAndHolds("a"));
  ASSERT_THAT(transaction.Set("2", "c"), IsOk());
  EXPECT_THAT(transaction.RollbackTo(second), StatusIs(StatusCode::kFailedPrecondition));
  ASSERT_THAT(transaction.RollbackTo(begin), IsOk());
  EXPECT_THAT(transaction.Get("1").status(), StatusIs(StatusCode::kNotFound));
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_THAT(transaction.RollbackTo(begin), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_EQ(this->db_->Count(), 0u);
}

TYPED_TEST(TransactionTest, ASavepointOfAnotherOneIsRefused) {
  Transaction transaction(*this->db_), other(*this->db_);
  ASSERT_THAT(other.Set("1", "other"), IsOk());
  const Savepoint savepoint = other.SetSavepoint();
  ASSERT_THAT(transaction.Set("1", "a"), IsOk());
  ASSERT_THAT(transaction.Set("1", "b"), IsOk());
  EXPECT_THAT(transaction.RollbackTo(savepoint), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(transaction.Get("1"), IsOkAndHolds("b"));
}

TYPED_TEST(TransactionTest, RetryRepeatsWhatWasAborted) {
  Transaction transaction(*this->db_);
  int tries = 0;
  EXPECT_THAT(transaction.Retry(5,
                                [&](auto& own) -> Status {
                                  HAKO_RETURN_IF_ERROR(own.Increment("1").status());
                                  return ++tries < 3 ? this->db_->Increment("1", 10).status() : absl::OkStatus();
                                }),
              IsOk());
  EXPECT_EQ(tries, 3);
  EXPECT_THAT(this->db_->Increment("1", 0), IsOkAndHolds(21));
  tries = 0;
  const auto always = [&]() -> Status {
    ++tries;
    HAKO_RETURN_IF_ERROR(transaction.Increment("1").status());
    return this->db_->Increment("1").status();
  };
  EXPECT_THAT(transaction.Retry(4, always), StatusIs(StatusCode::kAborted, HasSubstr("\"1\"")));
  EXPECT_EQ(tries, 4);
}

TYPED_TEST(TransactionTest, RetryReturnsErrorsOfAStateThatWas) {
  ASSERT_THAT(this->db_->Set("1", "a"), IsOk());
  Transaction transaction(*this->db_);
  int tries = 0;
  const auto body = [&]() -> Status {
    const std::string value = transaction.Get("1").value();
    if (++tries == 1) {
      HAKO_RETURN_IF_ERROR(this->db_->Set("1", "b"));
      return absl::InternalError("seen in a state that has gone");
    }
    HAKO_RETURN_IF_ERROR(transaction.Set("2", "x"));
    return absl::OutOfRangeError(value);
  };
  EXPECT_THAT(transaction.Retry(5, body), StatusIs(StatusCode::kOutOfRange, "b"));
  EXPECT_EQ(tries, 2);
  EXPECT_EQ(this->db_->Count(), 1u);
  EXPECT_THAT(transaction.Commit(), IsOk());  // rolled back
  EXPECT_EQ(this->db_->Count(), 1u);
}

TYPED_TEST(TransactionTest, TheBodyOfRetryDoesNotCommit) {
  Transaction transaction(*this->db_);
  const auto commits = [&]() -> Status {
    HAKO_RETURN_IF_ERROR(transaction.Set("1", "a"));
    return transaction.Commit();
  };
  EXPECT_THAT(transaction.Retry(5, commits), StatusIs(StatusCode::kFailedPrecondition));
  const auto nests = [&]() -> Status {
    HAKO_RETURN_IF_ERROR(transaction.Set("1", "a"));
    return transaction.Retry(5, [&] { return transaction.Set("2", "b"); });
  };
  EXPECT_THAT(transaction.Retry(5, nests), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_EQ(this->db_->Count(), 0u);
  ASSERT_THAT(transaction.Set("1", "a"), IsOk());
  EXPECT_THAT(transaction.Commit(), IsOk());
  EXPECT_EQ(this->db_->Count(), 1u);
}

// A conflict that a read has found stays one, even if the record comes back.
TYPED_TEST(TransactionTest, AConflictThatWasFoundIsRemembered) {
  ASSERT_THAT(this->db_->Set("1", "a"), IsOk());
  Transaction transaction(*this->db_);
  int tries = 0;
  const auto body = [&]() -> Status {
    HAKO_RETURN_IF_ERROR(transaction.Contains("1").status());
    const bool interferes = ++tries == 1;
    if (interferes) HAKO_RETURN_IF_ERROR(this->db_->Remove("1"));
    const Status read = transaction.Get("1").status();
    if (interferes) HAKO_RETURN_IF_ERROR(this->db_->Set("1", "a"));
    return read;
  };
  EXPECT_THAT(transaction.Retry(5, body), IsOk());
  EXPECT_EQ(tries, 2);
}

TYPED_TEST(TransactionTest, PopFirstEndsIfAnAbsentRecordAppears) {
  if constexpr (TestFixture::kIsOrdered) {
    Transaction transaction(*this->db_);
    EXPECT_THAT(transaction.Get("1").status(), StatusIs(StatusCode::kNotFound));
    ASSERT_THAT(this->db_->Set("1", "a"), IsOk());
    EXPECT_THAT(transaction.PopFirst(), StatusIs(StatusCode::kAborted));
    EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kAborted));
    std::string key;
    ASSERT_THAT(transaction.PopFirst(&key), IsOk());
    EXPECT_EQ(key, "1");
    ASSERT_THAT(transaction.Commit(), IsOk());
    EXPECT_EQ(this->db_->Count(), 0u);
  }
}

TYPED_TEST(TransactionTest, RemoveRangeIsOneStep) {
  if constexpr (TestFixture::kIsOrdered) {
    for (const char* const key : {"10", "20", "30"}) ASSERT_THAT(this->db_->Set(key, "old"), IsOk());
    Transaction transaction(*this->db_);
    ASSERT_THAT(transaction.Set("25", "own"), IsOk());
    EXPECT_THAT(transaction.RemoveRange("20", "30"), IsOkAndHolds(2u));
    EXPECT_THAT(transaction.CountRange("10"), IsOkAndHolds(2u));
    EXPECT_EQ(this->db_->Count(), 3u);
    ASSERT_THAT(transaction.Commit(), IsOk());
    EXPECT_EQ(this->db_->Count(), 2u);
    EXPECT_THAT(transaction.RemoveRange("10"), IsOkAndHolds(2u));
    ASSERT_THAT(this->db_->Set("15", "new"), IsOk());
    EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kAborted));
  }
}

TYPED_TEST(TransactionTest, AnExceptionRollsBack) {
  Transaction transaction(*this->db_);
  const auto body = [&]() -> Status {
    HAKO_RETURN_IF_ERROR(transaction.Set("1", "a"));
    throw 7;
  };
  EXPECT_THROW((void)transaction.Retry(5, body), int);
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_EQ(this->db_->Count(), 0u);
}

TYPED_TEST(TransactionTest, ACursorEndsWithItsTransaction) {
  if constexpr (TestFixture::kIsOrdered) {
    ASSERT_THAT(this->db_->Set("1", "a"), IsOk());
    ASSERT_THAT(this->db_->Set("2", "b"), IsOk());
    Transaction transaction(*this->db_);
    auto it = transaction.MakeIterator();
    EXPECT_THAT(it.status(), StatusIs(StatusCode::kFailedPrecondition));  // not moved yet
    it.First();
    transaction.Rollback();
    it.Next();
    EXPECT_FALSE(it.Valid());
    EXPECT_THAT(it.status(), StatusIs(StatusCode::kFailedPrecondition));
    it.First();  // in the next transaction
    EXPECT_TRUE(it.Valid());
  } else if constexpr (std::is_same_v<TypeParam, AnyTiny>) {
    Transaction transaction(*this->db_);
    auto range = transaction.Range();
    EXPECT_TRUE(range.begin() == range.end());
    EXPECT_THAT(range.status(), StatusIs(StatusCode::kUnimplemented));
  }
}

TYPED_TEST(TransactionTest, ErrorsOfTheDatabaseComeFromTheCommit) {
  Transaction transaction(*this->db_);
  if constexpr (TestFixture::kIsOrdered) {  // the keys of a hash table may have a GiB
    const std::string long_key(kTreeKeySizeMax + 1, 'k');
    ASSERT_THAT(transaction.Set("1", "a"), IsOk());
    ASSERT_THAT(transaction.Set(long_key, "b"), IsOk());
    EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kOutOfRange));
    EXPECT_EQ(this->db_->Count(), 0u);
    EXPECT_THAT(transaction.Get(long_key).status(), StatusIs(StatusCode::kOutOfRange));
  }
  if (this->db_->expiry() == nullptr) {
    EXPECT_THAT(transaction.Set("1", "a", {.ttl = std::chrono::hours(1)}), StatusIs(StatusCode::kFailedPrecondition));
    EXPECT_THAT(transaction.Process("1", Action::Set("a", 1)), StatusIs(StatusCode::kFailedPrecondition));
  }
}

TYPED_TEST(TransactionTest, TakesNoMoreThanABatch) {
  Transaction transaction(*this->db_);
  const std::string value(60 << 20, 'v');
  for (int i = 0; i < 4; ++i) ASSERT_THAT(transaction.Set("1", value), IsOk());
  EXPECT_THAT(transaction.Set("1", value), StatusIs(StatusCode::kOutOfRange));
  EXPECT_THAT(transaction.Append("1", "x"), StatusIs(StatusCode::kOutOfRange));
  transaction.Rollback();
  ASSERT_THAT(transaction.Set("1", "small"), IsOk());
  ASSERT_THAT(transaction.Commit(), IsOk());
}

// The last record that it takes can be written.
TEST(TransactionLimits, AsManyRecordsAndRangesAsABatch) {
  internal::TransactionRecords records(nullptr);
  for (std::size_t i = 1; i < WriteBatch::kSizeMax; ++i) ASSERT_TRUE(records.AddRun(true, std::nullopt, true).ok());
  ASSERT_OK_AND_ASSIGN(const std::uint32_t record, records.FindOrAdd("last"));
  EXPECT_THAT(records.FindOrAdd("other").status(), StatusIs(StatusCode::kOutOfRange));
  EXPECT_THAT(records.AddRun(true, std::nullopt, true).status(), StatusIs(StatusCode::kOutOfRange));
  EXPECT_THAT(records.FindOrAdd("last"), IsOkAndHolds(record));
  EXPECT_THAT(records.Put(record, "last", Action::Set("v")), IsOk());
  EXPECT_TRUE(records.SetLast(0, "key").ok());
}

// The keys of ranges count.
TEST(TransactionLimits, AsManyBytesAsABatch) {
  constexpr std::size_t kKeySize = WriteBatch::kBytesMax / 64;
  const std::string key(kKeySize, 'k');
  internal::TransactionRecords records(nullptr);
  const auto too_large = StatusIs(StatusCode::kOutOfRange);
  for (std::size_t i = 0; i < 20; ++i) {
    ASSERT_THAT(records.AddRun(true, key, true), IsOkAndHolds(i));
    ASSERT_THAT(records.SetLast(i, "short"), IsOk());
    ASSERT_THAT(records.SetLast(i, key), IsOk());  // in its place
    ASSERT_THAT(records.SetEnd(i, key), IsOk());
  }
  for (std::size_t i = 20; i < 24; ++i) ASSERT_THAT(records.AddRun(true, key, true), IsOkAndHolds(i));
  EXPECT_THAT(records.AddRun(true, "k", true).status(), too_large);
  EXPECT_THAT(records.FindOrAdd("k").status(), too_large);
  EXPECT_THAT(records.SetLast(23, "k"), too_large);
  EXPECT_THAT(records.SetEnd(23, "k"), too_large);
  EXPECT_FALSE(records.run(23).last || records.run(23).bound || records.run(23).has_end);
  EXPECT_THAT(records.SetEnd(23, std::nullopt), IsOk());
  records.Clear();
  EXPECT_THAT(records.AddRun(true, key, true), IsOkAndHolds(0u));
}

// So a transaction that reads too many ranges fails, and changes nothing.
TEST(TransactionLimits, ARangeThatDoesNotFitHasAnError) {
  ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open());
  Transaction transaction(*db);
  ASSERT_THAT(transaction.Set("k", std::string(WriteBatch::kBytesMax - 100, 'v')), IsOk());
  const std::string from(90, 'a'), to(90, 'b');
  EXPECT_THAT(transaction.CountRange("a", "b"), IsOkAndHolds(0u));
  EXPECT_THAT(transaction.CountRange(from, to).status(), StatusIs(StatusCode::kOutOfRange));
  EXPECT_THAT(transaction.GetSize("k"), IsOkAndHolds(WriteBatch::kBytesMax - 100));
}

TYPED_TEST(TransactionTest, AfterCloseEverythingFails) {
  Transaction transaction(*this->db_);
  ASSERT_THAT(transaction.Set("1", "a"), IsOk());
  ASSERT_THAT(this->db_->Close(), IsOk());
  EXPECT_THAT(transaction.Get("2").status(), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kFailedPrecondition));
  this->SetUp();
}

// Updates of a temporary would be lost: they do not compile. Retry commits.
template <class T>
concept IsUpdated = requires(T&& t) {
  std::forward<T>(t).Set("k", "v");
}
|| requires(T&& t) { std::forward<T>(t).Set("k", "v", SetOptions()); }
|| requires(T&& t) { std::forward<T>(t).Replace("k", "v"); }
|| requires(T&& t) { std::forward<T>(t).Remove("k"); }
|| requires(T&& t) { std::forward<T>(t).Append("k", "v"); }
|| requires(T&& t) { std::forward<T>(t).Increment("k"); }
|| requires(T&& t) { std::forward<T>(t).CompareExchange("k", Expect::Any(), Action::Remove()); }
|| requires(T&& t) { std::forward<T>(t).Process("k", Action::Remove()); }
|| requires(T&& t) { std::forward<T>(t).Rekey("k", "l"); }
|| requires(T&& t) { std::forward<T>(t).Write(WriteBatch()); }
|| requires(T&& t) { std::forward<T>(t).RemoveRange("k"); }
|| requires(T&& t) { std::forward<T>(t).SetExpiry("k", 1); }
|| requires(T&& t) { std::forward<T>(t).Persist("k"); }
|| requires(T&& t) { std::forward<T>(t).PopFirst(); }
|| requires(T&& t) { std::forward<T>(t).PushLast("v"); }
|| requires(T&& t) { std::forward<T>(t).SetMulti(std::span<const KeyValue>()); }
|| requires(T&& t) { std::forward<T>(t).RemoveMulti(std::span<const std::string_view>()); };
static_assert(IsUpdated<Transaction<BabyDBM<>>&> && !IsUpdated<Transaction<BabyDBM<>>>);
static_assert(IsUpdated<Transaction<AnyDBM>&> && !IsUpdated<Transaction<AnyDBM>>);
static_assert(!IsUpdated<Transaction<HashDBM<>>>);

// A visitor may use the transaction, if it does not end it.
TYPED_TEST(TransactionTest, AVisitorCallsTheTransaction) {
  ASSERT_THAT(this->db_->Set("1", "a"), IsOk());
  Transaction transaction(*this->db_);
  ASSERT_THAT(transaction.Process("1",
                                  [&](std::optional<std::string_view> value) {
                                    for (int i = 2; i < 50; ++i) EXPECT_THAT(transaction.Set(std::to_string(i), *value), IsOk());
                                    return Action::Set(*value);
                                  }),
              IsOk());
  EXPECT_THAT(transaction.Get("49"), IsOkAndHolds("a"));
  EXPECT_THAT(transaction.Process("1",
                                  [&](bool) {
                                    EXPECT_THAT(transaction.Commit(), IsOk());
                                    return Action::Set("b");
                                  }),
              StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(this->db_->Get("49"), IsOkAndHolds("a"));
  const std::string_view keys[] = {"1", "2"};
  const auto roll_back = [&](std::size_t, std::optional<std::string_view>) {
    transaction.Rollback();
    return Action::Remove();
  };
  EXPECT_THAT(transaction.ProcessMulti(keys, roll_back), StatusIs(StatusCode::kFailedPrecondition));
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_THAT(this->db_->Get("1"), IsOkAndHolds("a"));
}

TYPED_TEST(TransactionTest, ATemporaryRetries) {
  ASSERT_THAT(Transaction(*this->db_).Retry(3, [](auto& transaction) -> Status { return transaction.Set("1", "a"); }), IsOk());
  EXPECT_THAT(this->db_->Get("1"), IsOkAndHolds("a"));
}

// Keys that compare equal are one record, whose spelling is that of the first.
struct NoCase {
  static constexpr std::string_view kName = "no-case";
  static int Compare(std::string_view a, std::string_view b) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; };
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (lower(a[i]) != lower(b[i])) return lower(a[i]) - lower(b[i]);
    }
    return static_cast<int>(a.size()) - static_cast<int>(b.size());
  }
};

TEST(TransactionOfSpellings, EqualKeysAreOneRecord) {
  ASSERT_OK_AND_ASSIGN(auto db, (BabyDBM<MemoryMapParallelFile, NoCase>::Open()));
  ASSERT_THAT(db->Set("Key", "a"), IsOk());
  Transaction transaction(*db);
  EXPECT_THAT(transaction.Get("kEY"), IsOkAndHolds("a"));
  ASSERT_THAT(transaction.Set("KEY", "b"), IsOk());
  EXPECT_THAT(transaction.Get("key"), IsOkAndHolds("b"));
  EXPECT_THAT(transaction.CountRange("a"), IsOkAndHolds(1u));
  {
    Transaction other(*db);
    auto at = other.MakeIterator();
    at.JumpLower("KEY", true);
    EXPECT_EQ(at.key(), "Key");  // as the database has it
    ASSERT_THAT(other.Set("kEy", "c"), IsOk());
    at.JumpLower("keY", true);
    EXPECT_EQ(at.key(), "Key");
    EXPECT_EQ(at.value(), "c");
    at.First();
    EXPECT_EQ(at.key(), "Key");
  }
  for (int i = 0; i < 20; ++i) ASSERT_THAT(transaction.Set("x" + std::to_string(i), "c"), IsOk());
  EXPECT_THAT(transaction.Get("X7"), IsOkAndHolds("c"));
  ASSERT_THAT(transaction.Commit(), IsOk());
  auto it = db->MakeIterator();
  it.First();
  EXPECT_EQ(it.key(), "Key");
  EXPECT_EQ(it.value(), "b");
}

// As if the calls were made one after the other: a record has the spelling of the update that has stored it first, whatever
// was read before.
TEST(TransactionOfSpellings, ANewRecordIsSpelledAsItIsStored) {
  for (const bool has_times : {false, true}) {
    ASSERT_OK_AND_ASSIGN(auto db, (BabyDBM<MemoryMapParallelFile, NoCase>::Open({.expiry = has_times})));
    const auto listed = [](auto& of) {
      std::string keys;
      for (auto [key, value] : of.Range()) keys.append(key).append("=").append(value).append(" ");
      return keys;
    };
    ASSERT_THAT(db->Set("Old", "1"), IsOk());
    ASSERT_THAT(db->Set("Gone", "1"), IsOk());
    Transaction transaction(*db);
    EXPECT_THAT(transaction.Get("new"), StatusIs(StatusCode::kNotFound));
    ASSERT_THAT(transaction.Set("NEW", "a"), IsOk());
    ASSERT_THAT(transaction.Set("nEw", "b"), IsOk());  // keeps the spelling
    ASSERT_THAT(transaction.Set("oLD", "b"), IsOk());  // keeps that of the database
    ASSERT_THAT(transaction.Remove("gone"), IsOk());
    ASSERT_THAT(transaction.Set("GONE", "b"), IsOk());  // a new record
    WriteBatch removal;
    removal.Remove("never");
    ASSERT_THAT(transaction.Write(removal), IsOk());
    const Savepoint savepoint = transaction.SetSavepoint();
    ASSERT_THAT(transaction.Set("Never", "c"), IsOk());
    ASSERT_THAT(transaction.RollbackTo(savepoint), IsOk());
    ASSERT_THAT(transaction.Set("NEVER", "b"), IsOk());
    const std::string expected = "GONE=b NEVER=b NEW=b Old=b ";
    EXPECT_EQ(listed(transaction), expected);
    std::string downwards;
    auto it = transaction.MakeIterator();
    for (it.JumpLower("gone", true); it.Valid(); it.Previous()) downwards += it.key();
    EXPECT_EQ(downwards, "GONE");
    ASSERT_THAT(transaction.Commit(), IsOk());
    EXPECT_EQ(listed(*db), expected);
  }
}

class TransactionWithTimes : public testing::Test {
 protected:
  void SetUp() override {
    now_ = 1'700'000'000'000;
    ASSERT_OK_AND_ASSIGN(db_, BabyDBM<>::Open({.expiry = true, .clock = [] { return now_.load(); }}));
  }
  static inline std::atomic<std::uint64_t> now_;
  std::unique_ptr<BabyDBM<>> db_;
};

TEST_F(TransactionWithTimes, ARecordThatExpiresBeforeTheCommitHasChanged) {
  ASSERT_THAT(db_->Set("1", "a", {.expire_at = now_ + 1'000}), IsOk());
  Transaction point(*db_), range(*db_), absent(*db_);
  EXPECT_THAT(point.Get("1"), IsOkAndHolds("a"));
  EXPECT_THAT(range.CountRange("0"), IsOkAndHolds(1u));
  now_ += 2'000;
  EXPECT_THAT(absent.Get("1").status(), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(absent.CountRange("0"), IsOkAndHolds(0u));
  for (auto* const transaction : {&point, &range, &absent}) ASSERT_THAT(transaction->Set("2", "b"), IsOk());
  EXPECT_THAT(point.Commit(), StatusIs(StatusCode::kAborted));
  EXPECT_THAT(range.Commit(), StatusIs(StatusCode::kAborted));
  EXPECT_THAT(absent.Commit(), IsOk());
}

TEST_F(TransactionWithTimes, TimesAreKeptAndSet) {
  ASSERT_THAT(db_->Set("1", "a", {.expire_at = now_ + 1'000}), IsOk());
  Transaction transaction(*db_);
  ASSERT_THAT(transaction.Append("1", "b"), IsOk());
  EXPECT_THAT(transaction.GetExpiry("1"), IsOkAndHolds(now_ + 1'000));
  ASSERT_THAT(transaction.Rekey("1", "2"), IsOk());
  EXPECT_THAT(transaction.GetExpiry("2"), IsOkAndHolds(now_ + 1'000));
  ASSERT_THAT(transaction.Set("3", "c", {.ttl = std::chrono::seconds(5)}), IsOk());
  ASSERT_THAT(transaction.Set("4", "d", {.expire_at = 1}), IsOk());  // a time that has passed
  EXPECT_THAT(transaction.Get("4").status(), StatusIs(StatusCode::kNotFound));
  ASSERT_THAT(transaction.Set("5", "e", {.ttl = std::chrono::seconds(5)}), IsOk());
  ASSERT_THAT(transaction.Persist("5"), IsOk());
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_THAT(db_->Get("2"), IsOkAndHolds("ab"));
  EXPECT_THAT(db_->GetExpiry("2"), IsOkAndHolds(now_ + 1'000));
  EXPECT_THAT(db_->GetExpiry("3"), IsOkAndHolds(now_ + 5'000));
  EXPECT_THAT(db_->GetExpiry("5"), IsOkAndHolds(0u));
  EXPECT_THAT(db_->Get("4").status(), StatusIs(StatusCode::kNotFound));
}

TEST_F(TransactionWithTimes, ATimeIsKeptThatWasNotRead) {
  ASSERT_THAT(db_->Set("1", "a", {.expire_at = now_ + 1'000}), IsOk());
  Transaction transaction(*db_);
  ASSERT_THAT(transaction.Set("1", "b", {.keep_expiry = true}), IsOk());
  ASSERT_THAT(transaction.Set("2", "c", {.keep_expiry = true}), IsOk());
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_THAT(db_->Get("1"), IsOkAndHolds("b"));
  EXPECT_THAT(db_->GetExpiry("1"), IsOkAndHolds(now_ + 1'000));
  EXPECT_THAT(db_->GetExpiry("2"), IsOkAndHolds(0u));
}

TEST_F(TransactionWithTimes, ARecordAfterOneThatHasExpiredIsANewOne) {
  Transaction transaction(*db_);
  ASSERT_THAT(transaction.Set("1", "a", {.expire_at = 1}), IsOk());
  EXPECT_THAT(transaction.Increment("1"), IsOkAndHolds(1));
  ASSERT_THAT(transaction.Set("2", "a", {.expire_at = 1}), IsOk());
  ASSERT_THAT(transaction.Set("2", "b", {.keep_expiry = true}), IsOk());
  EXPECT_THAT(transaction.Contains("1"), IsOkAndHolds(true));
  ASSERT_THAT(transaction.Commit(), IsOk());
  EXPECT_EQ(db_->Count(), 2u);
  EXPECT_THAT(db_->GetExpiry("2"), IsOkAndHolds(0u));
}

TEST_F(TransactionWithTimes, TheAbsenceOfATimeIsValidated) {
  Transaction transaction(*db_);
  ASSERT_THAT(transaction.Set("1", "a", {.keep_expiry = true}), IsOk());
  EXPECT_THAT(transaction.GetExpiry("1"), IsOkAndHolds(0u));
  ASSERT_THAT(db_->Set("1", "b", {.expire_at = now_ + 1'000}), IsOk());
  EXPECT_THAT(transaction.GetExpiry("1"), IsOkAndHolds(0u));
  EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kAborted));
}

TEST_F(TransactionWithTimes, ATimeThatWasReadIsValidated) {
  ASSERT_THAT(db_->Set("1", "a", {.expire_at = now_ + 1'000}), IsOk());
  Transaction transaction(*db_);
  EXPECT_THAT(transaction.GetExpiry("1"), IsOkAndHolds(now_ + 1'000));
  ASSERT_THAT(db_->SetExpiry("1", now_ + 2'000), IsOk());
  EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kAborted));
  EXPECT_THAT(transaction.Get("1"), IsOkAndHolds("a"));
  ASSERT_THAT(db_->SetExpiry("1", now_ + 3'000), IsOk());
  EXPECT_THAT(transaction.Commit(), IsOk());  // the value alone was read
}

// A commit asks once what has expired: a record does not exist to one of its reads, and have expired to one of its updates.
TEST_F(TransactionWithTimes, ACommitIsAtOneMoment) {
  static std::atomic<int> questions{-1};  // until the time comes; -1: it does not
  const auto clock = [] {
    if (questions >= 0 && questions-- == 0) now_ += 2'000;
    return now_.load();
  };
  const auto check = [&](auto& db, auto&& read) {
    for (int asked = 0; asked < 8; ++asked) {
      const std::uint64_t time = now_ + 1'000;
      for (const char* const key : {"1", "2"}) ASSERT_THAT(db.Set(key, "a", {.expire_at = time}), IsOk());
      Transaction transaction(db);
      read(transaction);
      ASSERT_THAT(transaction.Set("2", "b", {.keep_expiry = true}), IsOk());
      questions = asked;
      const Status status = transaction.Commit();
      questions = -1;
      now_ = time + 1'000;
      ASSERT_TRUE(status.ok() || absl::IsAborted(status)) << status;
      // Committed before the time it had the time; at the time or later it was aborted.
      EXPECT_THAT(db.Get("2").status(), StatusIs(StatusCode::kNotFound)) << asked << ' ' << status;
    }
  };
  ASSERT_OK_AND_ASSIGN(auto baby, BabyDBM<>::Open({.expiry = true, .clock = clock}));
  check(*baby, [](auto& transaction) { ASSERT_THAT(transaction.CountRange("0", "3"), IsOkAndHolds(2u)); });
  check(*baby, [](auto& transaction) { ASSERT_THAT(transaction.Get("1"), IsOkAndHolds("a")); });
  ASSERT_OK_AND_ASSIGN(auto tiny, TinyDBM<>::Open({.expiry = true, .clock = clock}));
  check(*tiny, [](auto& transaction) { ASSERT_THAT(transaction.Get("1"), IsOkAndHolds("a")); });
  ASSERT_OK_AND_ASSIGN(auto spelled, (BabyDBM<MemoryMapParallelFile, NoCase>::Open({.expiry = true, .clock = clock})));
  check(*spelled, [](auto& transaction) { ASSERT_THAT(transaction.CountRange("0", "3"), IsOkAndHolds(2u)); });
}

TEST(TransactionOfAnyDBM, PrefixRangesNeedTheBytewiseOrder) {
  ASSERT_OK_AND_ASSIGN(auto numbers, (BabyDBM<MemoryMapParallelFile, DecimalComparator>::Open()));
  AnyDBM db(std::move(numbers));
  for (const char* const key : {"1", "2", "10", "15"}) ASSERT_THAT(db.Set(key, "v"), IsOk());
  Transaction transaction(db);
  auto range = transaction.PrefixRange("1");
  EXPECT_TRUE(range.begin() == range.end());
  EXPECT_THAT(range.status(), StatusIs(StatusCode::kUnimplemented));
  EXPECT_THAT(transaction.CountRange("1"), IsOkAndHolds(4u));
}

TEST(TransactionCursorBounds, NothingBeyondThemIsRead) {
  ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open());
  for (const char* const key : {"a", "b", "c"}) ASSERT_THAT(db->Set(key, "v"), IsOk());
  Transaction transaction(*db);
  auto it = transaction.MakeIterator();
  it.SetBounds("b", "d");
  it.JumpLower("a", true);
  EXPECT_FALSE(it.Valid());
  ASSERT_THAT(transaction.Set("x", "y"), IsOk());
  ASSERT_THAT(db->Set("a", "changed"), IsOk());
  EXPECT_THAT(transaction.Commit(), IsOk());
}

TEST(TransactionOfAnArray, IsRefused) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(dir.File("a.hka?width=8")));
  Transaction transaction(*db);
  EXPECT_THAT(transaction.Set("1", "a"), StatusIs(StatusCode::kUnimplemented));
  EXPECT_THAT(transaction.Get("1").status(), StatusIs(StatusCode::kUnimplemented));
  EXPECT_THAT(transaction.Commit(), StatusIs(StatusCode::kUnimplemented));
}

// A commit that only reads changes no leaf, so an open snapshot needs no copy of one.
TEST(TransactionReadOnly, TakesNoMemoryForASnapshot) {
  const auto check = [](auto& db) {
    for (int i = 100; i < 400; ++i) ASSERT_THAT(db.Set(std::to_string(i), std::string(i % 50 == 0 ? 3'000 : 10, 'v')), IsOk());
    ASSERT_OK_AND_ASSIGN(auto snapshot, db.Snapshot());
    const std::uint64_t before = snapshot->bytes();
    Transaction transaction(db);
    const auto commit = [&](const char* what) {
      ASSERT_THAT(transaction.Commit(), IsOk()) << what;
      EXPECT_EQ(snapshot->bytes(), before) << what;
    };
    ASSERT_THAT(transaction.Get("123").status(), IsOk());
    commit("a record");
    ASSERT_THAT(transaction.GetSize("150"), IsOkAndHolds(3'000u));
    commit("a long value");
    ASSERT_THAT(transaction.Contains("999"), IsOkAndHolds(false));
    commit("an absent record");
    ASSERT_THAT(transaction.CountRange("140", "260"), IsOkAndHolds(120u));
    commit("a range");
    for (int i = 100; i < 400; i += 7) ASSERT_THAT(transaction.Contains(std::to_string(i)), IsOkAndHolds(true));
    commit("several records");
    auto it = transaction.MakeIterator();
    it.JumpLower("333", true);
    it.Previous();
    commit("a cursor");
    ASSERT_THAT(transaction.Set("123", "w"), IsOk());
    ASSERT_THAT(transaction.Commit(), IsOk());
    EXPECT_GT(snapshot->bytes(), before);
    EXPECT_THAT(snapshot->Get("123"), IsOkAndHolds(std::string(10, 'v')));
  };
  ASSERT_OK_AND_ASSIGN(auto baby, BabyDBM<>::Open({.page_size = 512}));
  check(*baby);
  ASSERT_OK_AND_ASSIGN(auto timed, BabyDBM<>::Open({.page_size = 512, .expiry = true}));
  check(*timed);
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto tree, TreeDBM<>::Open(dir.File("db"), {.page_size = 512, .cache_bytes = 1 << 20}));
  check(*tree);
}

TEST(TransactionReadOnly, IsValidatedWhereUpdatesAreRefused) {
  const TempDir dir;
  {
    ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<>::Open(dir.File("db")));
    ASSERT_THAT(db->Set("1", "a"), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<>::Open(dir.File("db"), {}, {.mode = OpenMode::kReadOnly}));
  Transaction transaction(*db);
  EXPECT_THAT(transaction.Get("1"), IsOkAndHolds("a"));
  EXPECT_THAT(transaction.CountRange("0"), IsOkAndHolds(1u));
  EXPECT_THAT(transaction.Commit(), IsOk());
  ASSERT_THAT(transaction.Set("1", "b"), IsOk());
  EXPECT_FALSE(transaction.Commit().ok());
}

}  // namespace
}  // namespace hako
