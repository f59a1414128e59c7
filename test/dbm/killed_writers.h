// Kills processes that work on a database of pages while checkpoints run constantly. The database has the
// state of one moment of the killed process: each writer's operations up to one of them, and all writers at
// the same moment. With a log that is not before the last operation that has returned, without one not
// before the last completed Synchronize.
//
// The operations of a writer follow from (seed, writer, number), so the child only counts them, and the
// parent repeats them in a map. Writers have separate keys. Now and then one sets its clock and increments
// a shared counter in one step, so the counter is always the number of such steps. Writer 0 also writes
// batches with an applied index, which is that of its last batch that survived.
//
// A Subject says which database it is and how its keys and values look:
//   Database, Options
//   Prefix(writer), Key(prefix, i), Clock(writer), kCounter   keys, in the order of strings
//   RangeEnd(key)                                             the end of a range that begins there
//   Value(key, size, salt)                                    a value as the database returns it
//   kAppends                                                  whether values may grow
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/hash.h"
#include "hako/dbm/options.h"
#include "hako/dbm/write_batch.h"
#include "hako/file/file.h"
#include "support/crash_child.h"
#include "support/crash_states.h"
#include "support/full_size.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {

// The lock of a killed process is released when the system has completed its transfers in flight,
// shortly after its death.
inline const FileOptions kPatiently = {.lock_timeout = std::chrono::seconds(10)};

template <class Subject>
struct Operation {
  enum class Kind { kSet, kAppend, kRemove, kTick, kBatch, kSynchronize };

  Operation(std::uint64_t seed, int writer, std::uint64_t number)
      : random(Random::Mix(seed) + static_cast<std::uint64_t>(writer) * 0x1000'0000'0000 + number), prefix(Subject::Prefix(writer)) {
    kind = random.OneIn(150)  ? Kind::kSynchronize
           : random.OneIn(10) ? Kind::kTick
           : random.OneIn(25) ? Kind::kBatch
           : random.OneIn(4)  ? Kind::kRemove
           : random.OneIn(6)  ? Subject::kAppends ? Kind::kAppend : Kind::kSet
                              : Kind::kSet;
    key = kind == Kind::kTick ? Subject::Clock(writer) : Subject::Key(prefix, random.Below(2000));
    const std::size_t size = random.OneIn(100) ? random.Below(20'000) : random.SkewedSize(9);
    value = kind == Kind::kTick ? Subject::Value(key, 16, seed + number)
                                : Subject::Value(key, kind == Kind::kAppend ? size % 50 : size, number);
    index = Random::Mix(seed + number) | 1;
    sets_index = writer == 0;
  }

  // Calls set(key, value), remove(key) and remove_range(from, to) for the operations of a batch.
  template <class Set, class Remove, class RemoveRange>
  void ForEachInBatch(Set set, Remove remove, RemoveRange remove_range) const {
    Random choices(index);
    for (std::uint64_t n = choices.Between(1, choices.OneIn(20) ? 1000 : 60); n > 0; --n) {
      const std::string one = Subject::Key(prefix, choices.Below(2000));
      if (choices.OneIn(40))
        remove_range(one, Subject::RangeEnd(one));
      else if (choices.OneIn(3))
        remove(one);
      else
        set(one, Subject::Value(one, choices.SkewedSize(8), index));
    }
  }

  template <class D>
  Status ApplyTo(D& db) const {
    switch (kind) {
      case Kind::kSynchronize:
        return db.Synchronize(SyncMode::kHard);
      case Kind::kTick: {
        const std::string_view keys[] = {Subject::kCounter, key};
        std::string counter;
        return db.ProcessMulti(keys, [&](std::size_t i, std::optional<std::string_view> found) {
          if (i == 1) return Action::Set(value);
          counter = std::to_string((found ? std::stoull(std::string(*found)) : 0) + 1);
          return Action::Set(counter);
        });
      }
      case Kind::kBatch: {
        WriteBatch batch;
        ForEachInBatch([&](const auto& one, const auto& to) { batch.Set(one, to); }, [&](const auto& one) { batch.Remove(one); },
                       [&](const auto& from, const auto& to) { batch.RemoveRange(from, to); });
        if (sets_index) batch.SetAppliedIndex(index);
        return db.Write(batch);
      }
      case Kind::kRemove: {
        const Status status = db.Remove(key);
        return absl::IsNotFound(status) ? absl::OkStatus() : status;
      }
      case Kind::kAppend:
        return db.Append(key, value);
      default:
        return db.Set(key, value);
    }
  }
  // The same in the writer's own records.
  void ApplyTo(Records& records) const {
    if (kind == Kind::kSynchronize) return;
    if (kind == Kind::kBatch) {
      return ForEachInBatch([&](const auto& one, const auto& to) { records[one] = to; }, [&](const auto& one) { records.erase(one); },
                            [&](const auto& from, const auto& to) { records.erase(records.lower_bound(from), records.lower_bound(to)); });
    }
    if (kind == Kind::kRemove)
      records.erase(key);
    else if (kind == Kind::kAppend)
      records[key] += value;
    else
      records[key] = value;
  }

  Random random;
  std::string prefix, key, value;
  std::uint64_t index;  // of a batch
  bool sets_index;
  Kind kind;
};

// A sum over records, in any order.
inline std::uint64_t HashOf(const Records& records, const std::string& key) {
  const auto it = records.find(key);
  return it == records.end() ? 0 : Hash64(it->second.data(), it->second.size(), Hash64(key.data(), key.size(), 1));
}
inline std::uint64_t HashOf(const Records& records) {
  std::uint64_t sum = 0;
  for (const auto& [key, value] : records) sum += HashOf(records, key);
  return sum;
}
template <class Subject>
Records OwnRecords(const Records& all, int writer) {
  const std::string prefix = Subject::Prefix(writer);
  Records own;
  for (auto it = all.lower_bound(prefix); it != all.end() && it->first.starts_with(prefix); ++it) own.insert(*it);
  return own;
}
template <class Subject>
std::uint64_t CounterIn(const Records& all) {
  const auto it = all.find(Subject::kCounter);
  return it == all.end() ? 0 : std::stoull(it->second);
}

// The body of a child: opens the database and works until it is killed.
template <class Subject>
void Work(const std::string& path, const typename Subject::Options& options, std::uint64_t seed, int num_writers, CrashProgress& progress) {
  auto db = Subject::Database::Open(path, options, kPatiently);
  if (!db.ok()) return progress.Fail(ToStd(db.status().ToString()));
  progress.ready = true;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < num_writers; ++writer) {
    threads.emplace_back([&, writer] {
      auto& mine = progress.writers[writer];
      for (std::uint64_t number = 0;; ++number) {
        const Operation<Subject> operation(seed, writer, number);
        mine.begun = number + 1;
        const Status status = operation.ApplyTo(**db);
        if (!status.ok()) return progress.Fail(ToStd(status.ToString()));
        mine.acknowledged = number + 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Returns the number n for which `found` and, for writer 0, `found_index` have exactly the first n
// operations of a writer, if there is one. `index` is the applied index before them. Ticks among them
// are added to *ticks.
template <class Subject>
std::optional<std::uint64_t> OperationsIn(const Records& found, std::uint64_t found_index, Records own, std::uint64_t index,
                                          std::uint64_t seed, int writer, const CrashProgress::Writer& progress, bool is_logged,
                                          std::uint64_t* ticks) {
  const Records wanted = OwnRecords<Subject>(found, writer);
  const std::uint64_t wanted_hash = HashOf(wanted);
  std::uint64_t hash = HashOf(own), least = 0, so_many_ticks = 0;
  for (std::uint64_t number = 0; number < progress.acknowledged; ++number) {
    if (is_logged || Operation<Subject>(seed, writer, number).kind == Operation<Subject>::Kind::kSynchronize) least = number + 1;
  }
  for (std::uint64_t number = 0;; ++number) {
    const bool has_index = writer != 0 || index == found_index;
    if (number >= least && has_index && hash == wanted_hash && own == wanted) {
      *ticks += so_many_ticks;
      return number;
    }
    if (number == progress.begun) return std::nullopt;
    const Operation<Subject> operation(seed, writer, number);
    const bool is_batch = operation.kind == Operation<Subject>::Kind::kBatch;
    hash -= HashOf(own, operation.key);
    operation.ApplyTo(own);
    hash = is_batch ? HashOf(own) : hash + HashOf(own, operation.key);
    if (is_batch) index = operation.index;
    if (operation.kind == Operation<Subject>::Kind::kTick) ++so_many_ticks;
  }
}

// Kills a process in each round. In a run of full size, or with HAKO_KILLS, there are more rounds than usual.
template <class Subject>
void KillWorkers(int num_writers, const typename Subject::Options& options, int usual_rounds) {
  const bool is_logged = options.durability != Durability::kNone;
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed() + static_cast<std::uint64_t>(num_writers));
  TempDir directory;
  std::string path;
  Records records;
  std::uint64_t acknowledged = 0, survived = 0, index = 0;
  const int rounds = Kills(FullSize() ? 5000 * kSlowdown : usual_rounds);
  const bool is_short = options.durability == Durability::kPower || usual_rounds < 40;
  const std::uint64_t least = is_short ? 20u : 2000u / kSlowdown;
  // Fewer rounds may all be short.
  const auto is_lacking = [&] { return rounds >= 15 && (acknowledged <= least || survived <= acknowledged / 10); };
  int round = 0;
  for (; KillsMore(round, rounds, is_lacking()); ++round) {
    SCOPED_TRACE(round);
    if (round % 15 == 0) {
      path = directory.File("db" + std::to_string(round));
      records.clear();
      index = 0;
    }
    const std::uint64_t seed = random.Next();
    CrashChild child([&](CrashProgress& progress) { Work<Subject>(path, options, seed, num_writers, progress); });
    if (random.OneIn(5)) {
      CrashChild::Pause(random.Below(3000));  // perhaps still creating the file
    } else {
      child.AwaitReady();
      const std::uint64_t slowness = round < rounds ? kSlowdown : 10 * kSlowdown;
      CrashChild::Pause(slowness * (1000 + random.Below(random.OneIn(4) ? 40'000 : 10'000)));
    }
    child.Kill();
    ASSERT_STREQ(child.progress().failure, "");

    ASSERT_OK_AND_ASSIGN(auto db, Subject::Database::Open(path, options, kPatiently));
    const Records found = ListByIterator(*db).records;
    ASSERT_EQ(db->Count(), found.size());
    const std::uint64_t found_index = db->AppliedIndex();
    if (random.OneIn(2)) {  // it makes a checkpoint, without which the next process finds what this one left
      ASSERT_THAT(db->Verify(), IsOk());
    }
    ASSERT_THAT(db->Close(), IsOk());
    std::uint64_t ticks = CounterIn<Subject>(records);
    for (int writer = 0; writer < num_writers; ++writer) {
      const auto& progress = child.progress().writers[writer];
      const auto included =
          OperationsIn<Subject>(found, found_index, OwnRecords<Subject>(records, writer), index, seed, writer, progress, is_logged, &ticks);
      ASSERT_TRUE(included.has_value()) << "of the " << progress.begun << " operations of writer " << writer << " no first ones are found";
      acknowledged += progress.acknowledged;
      survived += *included;
    }
    ASSERT_EQ(CounterIn<Subject>(found), ticks) << "writers are found at different moments";
    records = found;
    index = found_index;
  }
  EXPECT_FALSE(is_lacking()) << "the children hardly worked, or there were hardly any checkpoints: of " << acknowledged << " updates "
                             << survived << " survived";
  ReportKills(static_cast<std::uint64_t>(round));
}

}  // namespace hako
