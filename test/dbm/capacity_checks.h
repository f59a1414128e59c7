// Checks of a database in memory with a limit, of either engine.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/write_batch.h"
#include "support/checked_value.h"
#include "support/child_process.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "support/threads.h"

namespace hako {

// Bytes of anonymous memory of this process. (RssAnon in /proc/self/status is approximate: each
// processor has pages that it has not added yet.)
inline std::uint64_t AnonymousMemory() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::uint64_t kilobytes = 0;
  for (std::string word; file >> word;) {
    if (word == "Anonymous:") file >> kilobytes;
  }
  return kilobytes << 10;
}

// Sizes of values, from `least` to `most` bytes, with as many of each magnitude.
struct Sizes {
  std::size_t least, most;
  std::size_t Draw(Random& random) const {
    std::uint64_t top = least;
    while (top < most && !random.OneIn(4)) top *= 2;
    return random.Between(least, std::min<std::uint64_t>(top, most));
  }
};
inline constexpr Sizes kAllSizes[] = {{8, 8}, {100, 100}, {8, 4096}, {8, 64 << 10}, {20'000, 20'000}};
inline constexpr std::uint64_t kMiB = 1 << 20;

// Fills databases with three times their limit. `ascends`: with keys in order.
template <class D, class Options>
void CheckMemory(std::initializer_list<std::uint64_t> capacities, bool ascends) {
  {
    // What a first database takes once for the process.
    ASSERT_OK_AND_ASSIGN(auto first, D::Open(Options{.capacity_bytes = kMiB}));
    for (std::uint64_t i = 0; i < 3000; ++i) ASSERT_THAT(first->Set(NumberedKey(i), std::string(i, 'x')), IsOk());
  }
  const std::string bytes(64 << 10, 'v');
  for (const std::uint64_t capacity : capacities) {
    for (const Sizes sizes : kAllSizes) {
      SCOPED_TRACE(testing::Message() << capacity << " bytes, values of " << sizes.least << " to " << sizes.most);
      Random random(TestSeed());
      [[maybe_unused]] const std::uint64_t before = AnonymousMemory();
      ASSERT_OK_AND_ASSIGN(auto db, D::Open(Options{.capacity_bytes = capacity}));
      std::uint64_t set = 0;
      for (std::uint64_t i = 0; set < 3 * capacity / (kSanitized ? kSlowdown : 1); ++i) {
        const std::string key = NumberedKey(ascends ? i : MixBits(i));
        const std::size_t size = sizes.Draw(random);
        ASSERT_THAT(db->Set(key, std::string_view(bytes).substr(0, size)), IsOk()) << key;
        set += size + 30;
        if (i % 1024 == 0) {
          ASSERT_LE(db->GetStats().total_bytes, capacity);
        }
      }
      const Stats stats = db->GetStats();
      EXPECT_EQ(stats.capacity_bytes, capacity);
      EXPECT_LE(stats.total_bytes, capacity);
#if !defined(HAKO_ASAN) && !defined(HAKO_TSAN)
      EXPECT_GT(stats.evictions, 0u);
      EXPECT_GE(stats.total_bytes, capacity - capacity / 50 - 160 * 1024);
      EXPECT_LE(AnonymousMemory() - before, capacity + capacity / 100);
      EXPECT_GE(AnonymousMemory() - before, stats.total_bytes - capacity / 40 - 96 * 1024);
#endif
      ASSERT_THAT(db->Verify(), IsOk());
    }
  }
}

// At least this part of the memory has records.
template <class D, class Options>
void CheckReuse(std::uint64_t capacity, double least) {
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(Options{.capacity_bytes = capacity}));
  const std::string bytes(64 << 10, 'v');
  std::uint64_t i = 0;
  for (const std::size_t size : {3000u, 10u, 50'000u, 24u, 900u, 100u}) {
    if (kSlowdown > 1 && size == 24) break;
    const std::uint64_t end = i + 3 * capacity / (size + 20);
    for (; i < end; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string_view(bytes).substr(0, size)), IsOk());
    const Stats stats = db->GetStats();
    EXPECT_LE(stats.total_bytes, capacity) << size;
    EXPECT_GE(static_cast<double>(stats.record_bytes + stats.index_bytes), least * static_cast<double>(capacity)) << size;
    ASSERT_THAT(db->Verify(), IsOk());
  }
}

// Compares the database with a model of its records, from which on_eviction removes what it is shown.
template <class D, class Options>
void CheckEvictedRecords(Options options, std::uint64_t num_keys) {
  Random random(TestSeed());
  Records model;
  std::uint64_t shown = 0;
  const auto evicted = [&](std::string_view key, std::string_view value) {
    const auto found = model.find(key);
    ASSERT_TRUE(found != model.end()) << key;
    EXPECT_TRUE(found->second == value) << key;
    model.erase(found);
    ++shown;
  };
  options.on_eviction = EachRef(evicted);
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(options));
  for (int i = 0; i < 60'000 / kSlowdown; ++i) {
    const std::string key = NumberedKey(random.Below(num_keys));
    const std::string value = CheckedValue(key, random.SkewedSize(random.OneIn(kSlowdown > 1 ? 2 : 20) ? 14 : 10), 1);
    switch (random.Below(9)) {
      case 0:
        EXPECT_EQ(db->Remove(key).ok(), model.erase(key) == 1);
        break;
      case 1:
        ASSERT_THAT(db->Append(key, "and more"), IsOk());
        model[key] += "and more";
        break;
      case 2: {
        WriteBatch batch;
        for (const std::string& each : {key, key + "a", key + "b"}) batch.Set(each, value);
        ASSERT_THAT(db->Write(batch), IsOk());
        for (const std::string& each : {key, key + "a", key + "b"}) model[each] = value;
        break;
      }
      case 3: {
        std::string found;
        EXPECT_EQ(db->Get(key, &found).ok(), model.contains(key));
        if (model.contains(key)) {
          EXPECT_TRUE(found == model[key]);
        }
        break;
      }
      case 4:
        if constexpr (requires { db->RemoveRange(key, key); }) {
          if (i % 64 != 0) break;
          const std::string end = NumberedKey(std::stoull(key) + random.Below(num_keys / 8));
          ASSERT_THAT(db->RemoveRange(key, end).status(), IsOk());
          model.erase(model.lower_bound(key), model.lower_bound(end));
        }
        break;
      default:
        ASSERT_THAT(db->Set(key, value), IsOk());
        model[key] = value;
    }
  }
  EXPECT_GT(shown, 0u);
  EXPECT_EQ(db->GetStats().evictions, shown);
  EXPECT_TRUE(ListByIterator(*db).records == model);
  EXPECT_THAT(db->Verify(), IsOk());
}

template <class D, class Options>
void CheckLargeRecords() {
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(Options{.capacity_bytes = kMiB}));
  for (std::uint64_t i = 0; i < 30'000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "some value"), IsOk());
  const Stats before = db->GetStats();
  const auto is_too_large = StatusIs(absl::StatusCode::kOutOfRange, testing::HasSubstr("exceeds the limit of 262144 bytes"));
  for (const std::size_t size : {262'200u, 2'000'000u}) {
    const std::string value(size, 'v');
    EXPECT_THAT(db->Set("large", value), is_too_large);
    EXPECT_THAT(db->Process("large", [&](std::optional<std::string_view>) { return Action::Set(value); }), is_too_large);
    WriteBatch batch;
    batch.Set("small", "value");
    batch.Set("large", value);
    EXPECT_THAT(db->Write(batch), is_too_large);
  }
  EXPECT_THAT(db->GetSize("small").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(db->Count(), before.num_records);
  EXPECT_EQ(db->GetStats().evictions, before.evictions);
  for (int i = 0; i < 8; ++i) {
    EXPECT_THAT(db->Set("large" + std::to_string(i), std::string(240'000, 'v')), IsOk());
    EXPECT_THAT(db->GetSize("large" + std::to_string(i)).status(), IsOk());
    EXPECT_LE(db->GetStats().total_bytes, kMiB + kMiB / 100);
  }
  EXPECT_THAT(db->Verify(), IsOk());
}

// Of the 2,000 records of a batch that is not refused, at least so many are left. `may_refuse`: a batch that
// leaves too little to be evicted may be refused.
template <class D, class Options>
void CheckLargeBatches(std::uint64_t least, bool may_refuse) {
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(Options{.capacity_bytes = kMiB, .capacity_records = 4000}));
  for (std::uint64_t i = 0; i < 3000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "some value"), IsOk());
  WriteBatch large, many, good, values;
  for (int i = 0; i < 6; ++i) large.Set("large" + std::to_string(i), std::string(100'000, 'v'));
  for (std::uint64_t i = 0; i < 2001; ++i) many.Set("many" + std::to_string(i), "");
  for (std::uint64_t i = 0; i < 2000; ++i) good.Set("good" + std::to_string(i), std::string(200, 'v'));
  for (int i = 0; i < 4; ++i) values.Set("value" + std::to_string(i), std::string(100'000, 'v'));
  EXPECT_THAT(db->Write(large), StatusIs(absl::StatusCode::kOutOfRange, testing::HasSubstr("a batch")));
  EXPECT_THAT(db->Write(many), StatusIs(absl::StatusCode::kOutOfRange, testing::HasSubstr("a batch of 2001 records")));
  EXPECT_EQ(db->Count(), 3000u);
  EXPECT_EQ(db->GetStats().evictions, 0u);
  ASSERT_THAT(db->Write(good), IsOk());
  EXPECT_LE(db->Count(), 4000u);
  std::uint64_t left = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) left += db->GetSize("good" + std::to_string(i)).ok() ? 1u : 0u;
  EXPECT_GE(left, least);
  for (int i = 0; i < 3; ++i) {
    for (const WriteBatch* batch : {&values, &good}) {
      const Status written = db->Write(*batch);
      EXPECT_TRUE(written.ok() || (may_refuse && absl::IsResourceExhausted(written))) << written;
      if (!may_refuse) {
        EXPECT_LE(db->GetStats().total_bytes, kMiB);
      }
    }
  }
  EXPECT_THAT(db->Verify(), IsOk());
}

// Sets records until they have this many bytes; returns how many.
template <class D>
std::uint64_t Fill(D& db, Sizes sizes, std::uint64_t bytes) {
  Random random(TestSeed());
  const std::string value(sizes.most, 'v');
  std::uint64_t i = 0;
  for (std::uint64_t set = 0; set < bytes; ++i) {
    const std::size_t size = sizes.Draw(random);
    EXPECT_THAT(db.Set(NumberedKey(MixBits(i)), std::string_view(value).substr(0, size)), IsOk());
    set += size;
  }
  return i;
}
template <class D>
std::uint64_t CountOf(D& db, std::string_view prefix, std::uint64_t end) {
  std::uint64_t count = 0;
  for (std::uint64_t i = 0; i < end; ++i) count += db.GetSize(std::string(prefix) + std::to_string(i)).ok() ? 1u : 0u;
  return count;
}

// Batches of large values, two fifths of the limit each, in a database that is full of small records.
template <class D, class Options>
void CheckBatchesAmongSmallRecords(std::uint64_t num_values) {
  constexpr std::uint64_t kCapacity = 16 * kMiB, kSize = 2000;
  SCOPED_TRACE(num_values);
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(Options{.capacity_bytes = kCapacity}));
  Fill(*db, {kSize, kSize}, kCapacity * 3 / 2);
  const std::string value(kCapacity * 2 / 5 / num_values, 'v');
  for (int round = 0; round < 4; ++round) {
    SCOPED_TRACE(round);
    const std::uint64_t before = db->Count();
    WriteBatch batch;
    const std::string prefix = "batch" + std::to_string(round) + "-";
    for (std::uint64_t i = 0; i < num_values; ++i) batch.Set(prefix + std::to_string(i), value);
    ASSERT_THAT(db->Write(batch), IsOk());
    EXPECT_EQ(CountOf(*db, prefix, num_values), num_values);
    const Stats stats = db->GetStats();
    if (round == 0) {
      EXPECT_GE((db->Count() - num_values) * kSize, kCapacity * 3 / 10) << "of " << before;
    }
    EXPECT_GE(stats.record_bytes, kCapacity * 6 / 10);
    EXPECT_LE(stats.total_bytes, kCapacity);
    ASSERT_THAT(db->Verify(), IsOk());
  }
}

// Sets records of many sizes until they have this many bytes.
template <class D>
void FillWithManySizes(D& db, std::uint64_t seed, std::uint64_t bytes) {
  Random random(seed);
  const std::string value(10'000, 'v');
  for (std::uint64_t set = 0; set < bytes;) {
    const std::size_t size = std::array{1u, 10u, 100u, 1000u, 1000u, 10'000u}[random.Below(6)];
    ASSERT_THAT(db.Set(NumberedKey(random.Below(10'000'000)), std::string_view(value).substr(0, size)), IsOk());
    set += size;
  }
}

// A value of almost a quarter of the limit, in a database that this many threads have filled.
template <class D, class Options>
void CheckLargestValue(std::uint64_t seed, int num_threads) {
  constexpr std::uint64_t kCapacity = 16 * kMiB;
  SCOPED_TRACE(testing::Message() << seed << ", " << num_threads);
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(Options{.capacity_bytes = kCapacity}));
  RunThreads(num_threads, [&](int thread) {
    FillWithManySizes(*db, 100 * seed + static_cast<std::uint64_t>(thread), 3 * kCapacity / static_cast<std::uint64_t>(num_threads));
  });
  for (const std::uint64_t part : {15u, 10u, 15u, 8u}) {  // of 64
    SCOPED_TRACE(part);
    const std::uint64_t before = db->Count();
    const std::string value(kCapacity * part / 64, 'l');
    ASSERT_THAT(db->Set("large", value), IsOk());
    EXPECT_THAT(db->GetSize("large"), IsOkAndHolds(value.size()));
    EXPECT_GE(db->Count(), before * 6 / 10);
    EXPECT_LE(db->GetStats().total_bytes, kCapacity);
    ASSERT_THAT(db->Verify(), IsOk());
  }
}

// Large values, one of them at a time, while other threads set small ones.
template <class D, class Options>
void CheckLargeValuesBesideBusyThreads() {
  constexpr std::uint64_t kCapacity = 16 * kMiB;
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(Options{.capacity_bytes = kCapacity}));
  FillWithManySizes(*db, TestSeed(), kCapacity);
  std::atomic<bool> ends{false};
  std::atomic<std::uint64_t> wrong{0};
  RunThreads(4, [&](int thread) {
    if (thread != 0) {
      for (std::uint64_t seed = static_cast<std::uint64_t>(thread); !ends.load(); seed += 4) FillWithManySizes(*db, seed, 100'000);
      return;
    }
    for (std::uint64_t i = 0; i < 50 / kSlowdown; ++i) {
      const std::string key = "large" + std::to_string(i), value(kCapacity / 8 + i, 'v');
      if (!db->Set(key, value).ok()) wrong.fetch_add(1);
    }
    ends.store(true);
  });
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GE(db->GetStats().record_bytes, kCapacity / 2);
  EXPECT_THAT(db->Verify(), IsOk());
}

// Large values, and small records that were used, still exist after a large Set beside them.
template <class D, class Options>
void CheckUsedRecordsBesideALargeSet() {
  constexpr std::uint64_t kCapacity = 16 * kMiB;
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(Options{.capacity_bytes = kCapacity}));
  const std::uint64_t num_small = Fill(*db, {1000, 1000}, kCapacity * 3 / 2);
  std::vector<std::string> used;
  for (std::uint64_t i = num_small; i-- > 0 && used.size() < 1000;) {
    if (const std::string key = NumberedKey(MixBits(i)); db->GetSize(key).ok()) used.push_back(key);
  }
  const std::string value(kCapacity / 8, 'v');
  for (std::uint64_t i = 0; i < 12; ++i) {
    ASSERT_THAT(db->Set("large" + std::to_string(i), value), IsOk());
    if (i != 0) {
      EXPECT_THAT(db->GetSize("large" + std::to_string(i - 1)).status(), IsOk()) << i;
    }
    std::uint64_t left = 0;
    for (const std::string& key : used) left += db->GetSize(key).ok() ? 1u : 0u;
    if (i < 4) {  // later the large values, which were used too, and these do not fit together
      EXPECT_GE(left, used.size() * 97 / 100) << i;
    }
  }
  EXPECT_LE(db->GetStats().total_bytes, kCapacity);
  EXPECT_THAT(db->Verify(), IsOk());
}

// Half of the records are used now and then; a scan of ten times as many new ones goes by, in order or not.
// bool use(db, key) uses a record, and returns whether it exists.
template <class D, class Options, class F>
void CheckPopularRecords(bool ascends, const F& use) {
  constexpr std::uint64_t kRecords = 8000, kPopular = 4000;
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(Options{.capacity_records = kRecords}));
  const auto use_popular = [&] {
    std::uint64_t found = 0;
    for (std::uint64_t i = 0; i < kPopular; ++i) found += use(*db, NumberedKey(MixBits(i))) ? 1u : 0u;
    return found;
  };
  for (std::uint64_t i = 0; i < kPopular; ++i) ASSERT_THAT(db->Set(NumberedKey(MixBits(i)), "popular"), IsOk());
  ASSERT_EQ(use_popular(), kPopular);
  for (std::uint64_t i = 0; i < 10 * kRecords; ++i) {
    const std::uint64_t number = (std::uint64_t{1} << 40) + i;
    ASSERT_THAT(db->Set("scan" + NumberedKey(ascends ? number : MixBits(number)), "once"), IsOk());
  }
  EXPECT_GE(use_popular(), kPopular * 97 / 100) << ascends;
  EXPECT_THAT(db->Verify(), IsOk());
}

// Records are used by Get, or, where the scan is in order, by a batch that sets them.
template <class D, class Options>
void CheckUses(bool ascends) {
  std::uint64_t gets = 0;
  CheckPopularRecords<D, Options>(ascends, [&](D& db, const std::string& key) {
    const bool found = db.GetSize(key).ok();
    const Stats stats = ++gets % 1000 == 0 ? db.GetStats() : Stats{.hits = gets};
    EXPECT_EQ(stats.hits + stats.misses, gets);
    return found;
  });
  if (!ascends) return;
  CheckPopularRecords<D, Options>(ascends, [](D& db, const std::string& key) {
    bool found = false;
    const std::string_view keys[] = {key, "beside"};
    EXPECT_THAT(db.ProcessMulti(keys,
                                [&](std::size_t i, std::optional<std::string_view> value) -> std::optional<Action> {
                                  if (i == 0) found = value.has_value();
                                  return i == 0 && !found ? Action::Keep() : Action::Set("popular");
                                }),
                IsOk());
    return found;
  });
}

// Values of 64 MiB in a database that has room for four of them.
template <class D, class Options>
void CheckHugeValues() {
  constexpr std::uint64_t kCapacity = 320 * kMiB;
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(Options{.capacity_bytes = kCapacity}));
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "small"), IsOk());
  std::string value(64 * kMiB, 'v');
  for (int i = 0; i < 6; ++i) {
    value[0] = static_cast<char>(i);
    ASSERT_THAT(db->Set("huge" + std::to_string(i), value), IsOk());
    EXPECT_LE(db->GetStats().total_bytes, kCapacity);
  }
  EXPECT_GE(db->GetStats().record_bytes, 3 * value.size());
  std::string found;
  ASSERT_THAT(db->Get("huge5", &found), IsOk());
  EXPECT_TRUE(found == value);
  EXPECT_THAT(db->Verify(), IsOk());
}

// More threads than the limit has room for, some of which end while others begin.
template <class D, class Options>
void CheckManyThreads() {
  constexpr std::uint64_t kCapacity = 2 * kMiB;
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(Options{.capacity_bytes = kCapacity}));
  std::atomic<std::uint64_t> failed{0};
  RunThreads(300, [&](int thread) {
    for (std::uint64_t i = 0; i < 50; ++i) {
      const std::string key = NumberedKey(static_cast<std::uint64_t>(thread) * 1000 + i);
      if (!db->Set(key, CheckedValue(key, i * i, 1)).ok()) failed.fetch_add(1);
    }
  });
  EXPECT_EQ(failed.load(), 0u);
  EXPECT_LE(db->GetStats().total_bytes, kCapacity);
  EXPECT_THAT(db->Verify(), IsOk());
}

// Threads change, read and list records. `options` has a limit of 5,000 records; bool is_within(db) tells
// whether the database keeps its other limits.
template <class D, class Options, class F>
void CheckConcurrentThreads(Options options, const F& is_within) {
  constexpr int kThreads = 6;
  std::atomic<std::uint64_t> shown{0}, wrong{0};
  const auto evicted = [&](std::string_view key, std::string_view value) {
    shown.fetch_add(1);
    if (!SaltOf(key, value)) wrong.fetch_add(1);
  };
  options.on_eviction = EachRef(evicted);
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(options));
  RunThreads(kThreads, [&](int thread) {
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    for (int i = 0; i < 20'000 / kSlowdown; ++i) {
      const std::string key = NumberedKey(random.Below(9000));
      const std::string value = CheckedValue(key, random.SkewedSize(random.OneIn(50) ? 14 : 9), static_cast<std::uint64_t>(i));
      switch (random.Below(thread == 0 ? 6 : 5)) {
        case 0: {
          std::string found;
          if (db->Get(key, &found).ok() && !SaltOf(key, found)) wrong.fetch_add(1);
          break;
        }
        case 1:
          (void)db->Remove(key);
          break;
        case 2: {
          const std::string other = NumberedKey(random.Below(9000));
          WriteBatch batch;
          batch.Set(key, value);
          batch.Set(other, CheckedValue(other, 10, 1));
          if (!db->Write(batch).ok()) wrong.fetch_add(1);
          break;
        }
        case 5:
          if (i % 64 != 0) break;
          if (!db->ProcessEach([&](std::string_view each, std::string_view found) {
                   if (!SaltOf(each, found)) wrong.fetch_add(1);
                 }).ok())
            wrong.fetch_add(1);
          break;
        default:
          if (!db->Set(key, value).ok()) wrong.fetch_add(1);
      }
      if (i % 256 == 0 && (db->Count() > 5000 + kThreads || !is_within(*db))) wrong.fetch_add(1);
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(db->GetStats().evictions, shown.load());
  EXPECT_GT(shown.load(), 0u);
  EXPECT_LE(db->Count(), 5000u);
  EXPECT_THAT(db->Verify(), IsOk());
}

// Calls Status set(db, i) that many times in a process that ends without Close, so that all that is left
// is the log.
template <class D, class Options, class F>
void CheckDeathOfTheProcess(const Options& options, std::uint64_t count, const F& set) {
  TempDir directory(TempDir::MemoryParent());
  const std::string path = directory.File("capped.hks"), copy = directory.File("copy.hks");
  ChildProcess child([&](ChildProcess&) -> int {
    auto db = D::Open(path, options);
    if (!db.ok()) return 1;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!set(**db, i).ok()) return 2;
    }
    std::_Exit((*db)->Save(copy).ok() && (*db)->GetStats().evictions > 1000 ? 0 : 3);
  });
  ASSERT_EQ(child.Result(), 0);
  ASSERT_OK_AND_ASSIGN(auto saved, D::Open());
  ASSERT_THAT(saved->Load(copy), IsOk());
  // Without a limit, as the updates of the log may evict other records than the first time.
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(path));
  EXPECT_TRUE(ListByIterator(*db).records == ListByIterator(*saved).records);
  EXPECT_THAT(db->Verify(), IsOk());
}

// A file of 5,000 records is opened with a limit that is smaller. At least `least` of them are left.
template <class D, class Options>
void CheckSmallerLimit(const Options& options, std::size_t value_size, std::uint64_t least, std::uint64_t most) {
  TempDir directory(TempDir::MemoryParent());
  const std::string path = directory.File("capped.hks");
  {
    ASSERT_OK_AND_ASSIGN(auto db, D::Open(path));
    for (std::uint64_t i = 0; i < 5000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(value_size, 'v')), IsOk());
  }
  Records left;
  {
    ASSERT_OK_AND_ASSIGN(auto db, D::Open(path, options));
    left = ListByIterator(*db).records;
    EXPECT_LE(left.size(), most);
    EXPECT_GE(left.size(), least);
    EXPECT_THAT(db->Verify(), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(path));
  EXPECT_TRUE(ListByIterator(*db).records == left);
  EXPECT_THAT(db->Verify(), IsOk());
}

}  // namespace hako
