// Every DBM under many threads: operations on one key are atomic, values are never torn, no
// acknowledged update is lost while the table grows, and an iteration shows records that are
// present throughout exactly once.
//
// The Surroundings are those of dbm_conformance.h. Test names contain "Concurrent", by which the
// build under ThreadSanitizer finds them.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dbm/dbm_conformance.h"
#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/checked_value.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/threads.h"

namespace hako {

inline constexpr int kWriters = 4;

// Counts failures in threads and keeps the first message, instead of printing each.
class Mishaps {
 public:
  void Note(const std::string& message) {
    std::lock_guard lock(mutex_);
    if (count_++ == 0) first_ = message;
  }
  void Check(bool fine, std::string_view message) {
    if (!fine) Note(std::string(message));
  }
  void Check(const Status& status) {
    if (!status.ok()) Note(status.ToString());
  }
  void ExpectNone() {
    std::lock_guard lock(mutex_);
    EXPECT_EQ(count_, 0) << "the first of them: " << first_;
  }

 private:
  std::mutex mutex_;
  int count_ = 0;
  std::string first_;
};

template <class Surroundings>
class ConcurrentDBMConformance : public DBMConformance<Surroundings> {
 protected:
  void TearDown() override {
    mishaps_.ExpectNone();
    DBMConformance<Surroundings>::TearDown();
  }

  // Checks that the value of the key is whole or absent, and returns its salt.
  std::optional<std::uint64_t> GetWhole(std::string_view key, std::string* value) {
    const Status status = this->db_->Get(key, value);
    if (status.code() == absl::StatusCode::kNotFound) return std::nullopt;
    mishaps_.Check(status);
    const auto salt = SaltOf(key, *value);
    mishaps_.Check(salt.has_value(), "a torn value of " + std::to_string(value->size()) + " bytes");
    return salt;
  }

  Mishaps mishaps_;
};

TYPED_TEST_SUITE_P(ConcurrentDBMConformance);

TYPED_TEST_P(ConcurrentDBMConformance, ConcurrentSetsOfDisjointKeysAllArrive) {
  auto& db = *this->db_;
  constexpr int kEach = 25'000 / kSlowdown;
  RunThreads(kWriters, [&](int thread) {
    for (int i = 0; i < kEach; ++i) {
      const std::string key = NumberedKey(static_cast<std::uint64_t>(thread + i * kWriters));
      this->mishaps_.Check(db.Set(key, CheckedValue(key, 8 + static_cast<std::size_t>(i % 40), 1)));
      if (i % 8 == 3) this->mishaps_.Check(db.Remove(key));
    }
  });
  std::string value;
  for (int i = 0; i < kEach; ++i) {
    for (int thread = 0; thread < kWriters; ++thread) {
      const std::string key = NumberedKey(static_cast<std::uint64_t>(thread + i * kWriters));
      ASSERT_EQ(this->GetWhole(key, &value).has_value(), i % 8 != 3) << key;
    }
  }
  EXPECT_EQ(db.Count(), static_cast<std::uint64_t>(kWriters * (kEach - (kEach + 4) / 8)));
}

TYPED_TEST_P(ConcurrentDBMConformance, ConcurrentOperationsOnSharedKeysNeverTearAValue) {
  auto& db = *this->db_;
  RunThreads(kWriters, [&](int thread) {
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    std::string value;
    for (int i = 0; i < 40'000 / kSlowdown; ++i) {
      const std::string key = NumberedKey(random.Below(50));
      switch (random.Below(8)) {
        case 0: {
          const Status status = db.Remove(key);
          if (status.code() != absl::StatusCode::kNotFound) this->mishaps_.Check(status);
          break;
        }
        case 1:
        case 2:
        case 3:
          this->mishaps_.Check(db.Set(key, CheckedValue(key, random.SkewedSize(11), random.Next())));
          break;
        case 4:
          this->mishaps_.Check(db.Process(key, [&](std::optional<std::string_view> shown) -> void {
            if (shown && !SaltOf(key, *shown)) this->mishaps_.Note("a visitor saw a torn value");
          }));
          break;
        default:
          this->GetWhole(key, &value);
      }
    }
  });
}

TYPED_TEST_P(ConcurrentDBMConformance, ConcurrentReadersOfOneKeySeeItsVersionsInOrder) {
  auto& db = *this->db_;
  ASSERT_THAT(db.Set("key", CheckedValue("key", 8, 0)), IsOk());
  std::atomic<bool> done = false;
  RunThreads(3, [&](int thread) {
    std::string value;
    if (thread == 0) {
      for (std::uint64_t version = 1; version <= 60'000 / kSlowdown; ++version) {
        value.resize(8 + version % 200);
        FillCheckedValue("key", version, &value);
        this->mishaps_.Check(db.Set("key", value));
      }
      done = true;
      return;
    }
    std::uint64_t newest = 0;
    while (!done) {
      const auto version = this->GetWhole("key", &value);
      this->mishaps_.Check(version.has_value(), "missed a key that is always there");
      this->mishaps_.Check(version.value_or(newest) >= newest, "a version came back");
      newest = version.value_or(newest);
    }
  });
}

TYPED_TEST_P(ConcurrentDBMConformance, ConcurrentIncrementsSum) {
  auto& db = *this->db_;
  constexpr int kEach = 20'000 / kSlowdown;
  RunThreads(kWriters, [&](int thread) {
    for (int i = 0; i < kEach; ++i) {
      this->mishaps_.Check(db.Increment(NumberedKey(static_cast<std::uint64_t>(i % 16))).status());
      if (i % 2 == 0) this->mishaps_.Check(db.Set("grow" + std::to_string(thread * kEach + i), "value"));
    }
  });
  std::int64_t sum = 0;
  for (std::uint64_t key = 0; key < 16; ++key) sum += db.Increment(NumberedKey(key), 0).value();
  EXPECT_EQ(sum, kWriters * kEach);
}

TYPED_TEST_P(ConcurrentDBMConformance, ConcurrentAppendsAllArriveInOrder) {
  auto& db = *this->db_;
  constexpr std::uint32_t kEach = 2000 / kSlowdown;
  RunThreads(kWriters, [&](int thread) {
    for (std::uint32_t i = 0; i < kEach; ++i) {
      const std::uint32_t token[2] = {static_cast<std::uint32_t>(thread), i};
      this->mishaps_.Check(db.Append(NumberedKey(i % 4), {reinterpret_cast<const char*>(token), sizeof(token)}));
    }
  });
  std::map<std::uint32_t, std::map<std::uint32_t, int>> seen;  // by thread
  for (std::uint64_t key = 0; key < 4; ++key) {
    const std::string value = db.Get(NumberedKey(key)).value();
    std::map<std::uint32_t, std::uint32_t> last;
    for (std::size_t at = 0; at + 8 <= value.size(); at += 8) {
      std::uint32_t token[2];
      std::memcpy(token, value.data() + at, sizeof(token));
      const auto before = last.find(token[0]);
      ASSERT_TRUE(before == last.end() || before->second < token[1]) << "out of order";
      last[token[0]] = token[1];
      ++seen[token[0]][token[1]];
    }
  }
  ASSERT_EQ(seen.size(), static_cast<std::size_t>(kWriters));
  for (const auto& [thread, tokens] : seen) {
    EXPECT_EQ(tokens.size(), kEach) << thread;
    for (const auto& [token, times] : tokens) ASSERT_EQ(times, 1) << thread << ' ' << token;
  }
}

TYPED_TEST_P(ConcurrentDBMConformance, ConcurrentCompareExchangesLoseNoUpdate) {
  auto& db = *this->db_;
  constexpr int kEach = 3000 / kSlowdown;
  ASSERT_THAT(db.Set("counter", "0"), IsOk());
  RunThreads(kWriters, [&](int) {
    std::string current = "0";
    for (int i = 0; i < kEach; ++i) {
      for (;;) {
        const std::string next = std::to_string(std::stoi(current) + 1);
        std::string actual;
        const Status status = db.CompareExchange("counter", Expect::Value(current), Action::Set(next), &actual);
        current = status.ok() ? next : actual;
        if (status.ok()) break;
        if (status.code() != absl::StatusCode::kAborted) return this->mishaps_.Check(status);
      }
    }
  });
  EXPECT_THAT(db.Get("counter"), IsOkAndHolds(std::to_string(kWriters * kEach)));
}

TYPED_TEST_P(ConcurrentDBMConformance, ConcurrentInsertsAndRemovesOfOneKeyAlternate) {
  auto& db = *this->db_;
  constexpr int kKeys = 20;
  std::atomic<int> balance[kKeys] = {};
  RunThreads(kWriters, [&](int thread) {
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    for (int i = 0; i < 30'000 / kSlowdown; ++i) {
      const std::uint64_t number = random.Below(kKeys);
      const bool insert = random.OneIn(2);
      const Status status = insert ? db.Set(NumberedKey(number), CheckedValue(NumberedKey(number), random.Below(100)), {.overwrite = false})
                                   : db.Remove(NumberedKey(number));
      if (status.ok()) {
        balance[number] += insert ? 1 : -1;
      } else if (status.code() != (insert ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kNotFound)) {
        this->mishaps_.Check(status);
      }
    }
  });
  std::uint64_t present = 0;
  for (std::uint64_t number = 0; number < kKeys; ++number) {
    EXPECT_THAT(db.Contains(NumberedKey(number)), IsOkAndHolds(balance[number] == 1)) << balance[number];
    present += static_cast<std::uint64_t>(balance[number]);
  }
  EXPECT_EQ(db.Count(), present);
}

TYPED_TEST_P(ConcurrentDBMConformance, ConcurrentReadersMissNoPresentKeyWhileTheTableGrows) {
  auto& db = *this->db_;
  constexpr std::uint64_t kPresent = 2000;
  for (std::uint64_t i = 0; i < kPresent; ++i) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), 16, 1)), IsOk());
  std::atomic<int> writing = 2;
  RunThreads(4, [&](int thread) {
    std::string value;
    if (thread < 2) {
      for (int i = 0; i < 60'000 / kSlowdown; ++i) {
        const std::string key = "new" + std::to_string(thread * 1'000'000 + i);
        this->mishaps_.Check(db.Set(key, "value"));
      }
      --writing;
      return;
    }
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    while (writing > 0) {
      this->mishaps_.Check(this->GetWhole(NumberedKey(random.Below(kPresent)), &value).has_value(), "missed a present key");
      this->mishaps_.Check(!this->GetWhole(NumberedKey(kPresent + random.Below(kPresent)), &value), "found an absent key");
    }
  });
}

TYPED_TEST_P(ConcurrentDBMConformance, ConcurrentIterationShowsPresentRecordsOnce) {
  auto& db = *this->db_;
  constexpr std::uint64_t kPresent = 5000 / kSlowdown;
  for (std::uint64_t i = 0; i < kPresent; ++i) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), 16, 1)), IsOk());
  std::atomic<int> iterating = 2;
  RunThreads(4, [&](int thread) {
    if (thread >= 2) {  // the table grows, records come and go, and present ones are overwritten in another size
      Random random(TestSeed() + static_cast<std::uint64_t>(thread));
      for (int i = 0; iterating > 0; ++i) {
        const std::string key = "new" + std::to_string(thread) + NumberedKey(static_cast<std::uint64_t>(i % (30'000 / kSlowdown)));
        this->mishaps_.Check(db.Set(key, CheckedValue(key, 16, 2)));
        if (i % 3 == 0) this->mishaps_.Check(db.Remove(key));
        const std::string present = NumberedKey(random.Below(kPresent));
        this->mishaps_.Check(db.Set(present, CheckedValue(present, random.Below(100), 3)));
      }
      return;
    }
    for (int round = 0; round < 8; ++round) {
      std::map<std::string, int, std::less<>> shown;
      const auto add = [&](std::string_view key, std::string_view value) {
        this->mishaps_.Check(SaltOf(key, value).has_value(), "an iteration shows a torn value");
        ++shown.emplace(key, 0).first->second;
      };
      if (thread == 0) {
        auto it = db.MakeIterator();
        for (it.First(); it.Valid(); it.Next()) add(it.key(), it.value());
        this->mishaps_.Check(it.status());
      } else {
        this->mishaps_.Check(db.ProcessEach(add));
      }
      for (const auto& [key, times] : shown) this->mishaps_.Check(times == 1, "a record is shown twice: " + key);
      for (std::uint64_t i = 0; i < kPresent; ++i)
        this->mishaps_.Check(shown.count(NumberedKey(i)) == 1, "an iteration misses " + NumberedKey(i));
    }
    --iterating;
  });
}

// An iteration and two writers in step: while the iterator visits the records, a hundred times as
// many are inserted.
template <class D>
void IterateWhileGrowingAHundredfold(D& db, std::uint64_t present, Mishaps& mishaps) {
  for (std::uint64_t i = 0; i < present; ++i) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), 16, 1)), IsOk());
  std::atomic<std::uint64_t> added = 0;
  std::vector<int> shown(present);
  RunThreads(3, [&](int thread) {
    if (thread != 0) {
      for (std::uint64_t i = 0; i < 50 * present; ++i, ++added)
        mishaps.Check(db.Set("new" + NumberedKey(static_cast<std::uint64_t>(thread) + 2 * i), "value"));
      return;
    }
    std::uint64_t passed = 0;
    auto it = db.MakeIterator();
    for (it.First(); it.Valid(); it.Next()) {
      if (it.key().starts_with("new")) continue;
      ++shown[std::stoull(std::string(it.key()))];
      for (++passed; added < 99 * passed;) std::this_thread::yield();
    }
    mishaps.Check(it.status());
  });
  for (std::uint64_t i = 0; i < present; ++i) EXPECT_EQ(shown[i], 1) << i;
  EXPECT_EQ(db.Count(), 101 * present);
}
TYPED_TEST_P(ConcurrentDBMConformance, ConcurrentIterationShowsPresentRecordsOnceBesideHundredfoldGrowth) {
  IterateWhileGrowingAHundredfold(*this->db_, 800 / kSlowdown, this->mishaps_);
}

TYPED_TEST_P(ConcurrentDBMConformance, ConcurrentClearIsAtomicToOtherOperations) {
  auto& db = *this->db_;
  std::atomic<int> writing = 3;
  RunThreads(4, [&](int thread) {
    if (thread == 3) {
      while (writing > 0) {
        this->mishaps_.Check(db.Clear());
        std::this_thread::yield();
      }
      return;
    }
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    std::string value;
    for (int i = 0; i < 10'000 / kSlowdown; ++i) {
      const std::string key = NumberedKey(random.Below(500));
      this->mishaps_.Check(db.Set(key, CheckedValue(key, random.Below(200), 1)));
      this->GetWhole(key, &value);
    }
    --writing;
  });
  ASSERT_THAT(db.Clear(), IsOk());
  this->ExpectHolds({});
  ASSERT_THAT(db.Set("key", "value"), IsOk());
  this->ExpectHolds({{"key", "value"}});
}

TYPED_TEST_P(ConcurrentDBMConformance, ConcurrentSynchronizeDoesNotStopOthers) {
  auto& db = *this->db_;
  std::atomic<int> writing = 3;
  constexpr int kEach = 8000 / kSlowdown;
  RunThreads(4, [&](int thread) {
    if (thread == 3) {
      while (writing > 0) this->mishaps_.Check(db.Synchronize(SyncMode::kHard));
      return;
    }
    for (int i = 0; i < kEach; ++i) {
      const std::string key = NumberedKey(static_cast<std::uint64_t>(thread + 3 * (i % (kEach / 2))));
      this->mishaps_.Check(db.Set(key, CheckedValue(key, static_cast<std::size_t>(i % 100), 1)));
      if (i % 5 == 0) this->mishaps_.Check(db.Remove(key));
    }
    --writing;
  });
  std::string value;
  for (int i = kEach / 2; i < kEach; ++i)
    for (int thread = 0; thread < 3; ++thread)
      EXPECT_EQ(this->GetWhole(NumberedKey(static_cast<std::uint64_t>(thread + 3 * (i - kEach / 2))), &value).has_value(), i % 5 != 0);
}

REGISTER_TYPED_TEST_SUITE_P(ConcurrentDBMConformance, ConcurrentSetsOfDisjointKeysAllArrive,
                            ConcurrentOperationsOnSharedKeysNeverTearAValue, ConcurrentReadersOfOneKeySeeItsVersionsInOrder,
                            ConcurrentIncrementsSum, ConcurrentAppendsAllArriveInOrder, ConcurrentCompareExchangesLoseNoUpdate,
                            ConcurrentInsertsAndRemovesOfOneKeyAlternate, ConcurrentReadersMissNoPresentKeyWhileTheTableGrows,
                            ConcurrentIterationShowsPresentRecordsOnce, ConcurrentIterationShowsPresentRecordsOnceBesideHundredfoldGrowth,
                            ConcurrentClearIsAtomicToOtherOperations, ConcurrentSynchronizeDoesNotStopOthers);

}  // namespace hako
