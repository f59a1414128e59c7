// Kills working processes. After SIGKILL at any moment a HashDBM on a mapped file, or on another one
// with a log, has every acknowledged update. A positional file without a log, and a copy of a killed
// mapped one (which looks like the file after a power cut), has exactly the state of the last hard
// Synchronize.
//
// The operations of a writer follow from (seed, writer, number), so the child only counts them, and
// the parent repeats them in the model. Writers have separate keys and share one counter.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/surroundings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/checked_value.h"
#include "support/crash_child.h"
#include "support/crash_states.h"
#include "support/direct_file.h"
#include "support/free_space_check.h"
#include "support/model_dbm.h"
#include "support/random.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

// The lock of a killed process is released when the system has completed its transfers in flight,
// shortly after its death.
const FileOptions kPatiently = {.lock_timeout = std::chrono::seconds(10)};

enum class Kind { kUpdate, kBatch, kIncrement, kSynchronize, kClear, kRebuild };

// The frequency of each kind: one operation in n, 0 = never.
struct Mix {
  std::uint64_t batches = 5;
  std::uint64_t increments = 0;
  std::uint64_t synchronizations = 0;
  std::uint64_t clears = 0;
  std::uint64_t rebuilds = 0;
  std::uint64_t reopens = 2000;  // a single writer closes the database after an operation and opens it again
};

struct Operation {
  Operation(const Mix& mix, std::uint64_t seed, int writer, std::uint64_t number)
      : random(Random::Mix(seed) + static_cast<std::uint64_t>(writer) * 0x1000'0000'0000 + number), salt(number) {
    const auto one_in = [this](std::uint64_t n) { return n != 0 && random.OneIn(n); };
    kind = one_in(mix.increments)         ? Kind::kIncrement
           : one_in(mix.synchronizations) ? Kind::kSynchronize
           : one_in(mix.clears)           ? Kind::kClear
           : one_in(mix.rebuilds)         ? Kind::kRebuild
           : one_in(mix.batches)          ? Kind::kBatch
                                          : Kind::kUpdate;
    key = kind == Kind::kIncrement ? "counter" : std::to_string(writer) + "/" + std::to_string(random.Below(300));
  }

  template <class D>
  Status ApplyTo(D& db) const {
    switch (kind) {
      case Kind::kIncrement:
        return db.Increment(key).status();
      case Kind::kSynchronize:
        return db.Synchronize(SyncMode::kHard);
      case Kind::kClear:
        return db.Clear();
      case Kind::kRebuild:
        if constexpr (requires { db.Rebuild(); }) return db.Rebuild();
        return absl::OkStatus();
      case Kind::kBatch:
        return ApplyBatchTo(db);
      case Kind::kUpdate:
        break;
    }
    Random choice = random;
    if (choice.OneIn(4)) {
      const Status status = db.Remove(key);
      return absl::IsNotFound(status) ? absl::OkStatus() : status;
    }
    if (choice.OneIn(4)) return db.Append(key, CheckedValue(key, choice.Below(40), salt));
    const std::size_t size = choice.OneIn(100) ? choice.Below(40'000) : choice.SkewedSize(9);
    return db.Set(key, CheckedValue(key, size, salt));
  }

  // The keys of a batch: some of the writer's, or many.
  std::vector<std::string> Keys() const {
    Random choice = random;
    std::vector<std::string> keys(choice.OneIn(20) ? choice.Between(50, 150) : choice.Between(2, 6));
    for (std::string& each : keys) each = key.substr(0, key.find('/') + 1) + std::to_string(choice.Below(300));
    return keys;
  }
  template <class D>
  Status ApplyBatchTo(D& db) const {
    const std::vector<std::string> keys = Keys();
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    std::vector<std::string> values;
    Random choice = random;
    for (const std::string& each : keys) {
      values.push_back(CheckedValue(each, choice.OneIn(100) ? choice.Below(20'000) : choice.SkewedSize(9), salt));
    }
    return db.ProcessMulti(views, [&](std::size_t i, std::optional<std::string_view>) -> std::optional<Action> {
      return (salt + i) % 3 == 0 ? Action::Remove() : Action::Set(values[i]);
    });
  }

  Random random;
  std::uint64_t salt;
  Kind kind;
  std::string key;
};

bool ReopensAfter(const Mix& mix, std::uint64_t seed, std::uint64_t number) { return Random::Mix(seed + number) % mix.reopens == 0; }

// The body of a child: opens the database and works until it is killed.
template <class FileT>
void Work(const std::string& path, const HashOptions& options, const Mix& mix, std::uint64_t seed, int num_writers,
          CrashProgress& progress) {
  auto db = HashOn<FileT>::Open(path, options, kPatiently);
  if (!db.ok()) return progress.Fail(ToStd(db.status().ToString()));
  progress.ready = true;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < num_writers; ++writer) {
    threads.emplace_back([&, writer] {
      auto& mine = progress.writers[writer];
      for (std::uint64_t number = 0;; ++number) {
        const Operation operation(mix, seed, writer, number);
        mine.begun = number + 1;
        const Status status = operation.ApplyTo(**db);
        if (!status.ok()) return progress.Fail(ToStd(status.ToString()));
        mine.acknowledged = number + 1;
        if (num_writers == 1 && ReopensAfter(mix, seed, number)) {
          if (const Status closed = (*db)->Close(); !closed.ok()) return progress.Fail(ToStd(closed.ToString()));
          db = HashOn<FileT>::Open(path, options, kPatiently);
          if (!db.ok()) return progress.Fail(ToStd(db.status().ToString()));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

template <class FileT>
class Victim {
 public:
  explicit Victim(const std::string& path, const HashOptions& options = {}) : path_(path), options_(options) {}

  // Runs a child on the file and kills it.
  void RunAndKill(const Mix& mix, int num_writers, Random& random) {
    seed_ = random.Next();
    mix_ = mix;
    CrashChild child([&](CrashProgress& progress) { Work<FileT>(path_, options_, mix, seed_, num_writers, progress); });
    if (random.OneIn(5)) {
      CrashChild::Pause(random.Below(3000));  // perhaps still creating or recovering the file
    } else {
      child.AwaitReady();
      CrashChild::Pause(1000 + random.Below(random.OneIn(4) ? 39'000 : 8000));
    }
    child.Kill();
    ASSERT_STREQ(child.progress().failure, "");
    for (int writer = 0; writer < CrashProgress::kMaxWriters; ++writer) {
      begun_[static_cast<std::size_t>(writer)] = child.progress().writers[writer].begun;
      acknowledged_[static_cast<std::size_t>(writer)] = child.progress().writers[writer].acknowledged;
    }
  }

  std::uint64_t acknowledged() const { return acknowledged_[0] + acknowledged_[1] + acknowledged_[2] + acknowledged_[3]; }

  // The content that the file must have now if it had `before` when the child opened it: all
  // acknowledged operations, and all or nothing of the operation that each writer was running.
  // `found` decides which.
  Records AfterKill(const Records& before, const Records& found) const {
    ModelDBM model(std::make_shared<ModelDBM::Records>(before));
    for (std::size_t writer = 0; writer < begun_.size(); ++writer) {
      for (std::uint64_t number = 0; number < acknowledged_[writer]; ++number) (void)At(writer, number).ApplyTo(model);
    }
    for (std::size_t writer = 0; writer < begun_.size(); ++writer) {
      if (begun_[writer] == acknowledged_[writer]) continue;
      const Operation last = At(writer, acknowledged_[writer]);
      ModelDBM after(std::make_shared<ModelDBM::Records>(model.CopyRecords()));
      (void)last.ApplyTo(after);
      const bool done = last.kind == Kind::kClear       ? found.empty()
                        : last.kind == Kind::kIncrement ? ValueIn(found, last.key) > ValueIn(model.CopyRecords(), last.key)
                        : last.kind == Kind::kBatch     ? ShowsBatch(last, found, model.CopyRecords(), after.CopyRecords())
                                                        : ValueIn(found, last.key) == ValueIn(after.CopyRecords(), last.key);
      if (done) (void)last.ApplyTo(model);
    }
    return model.CopyRecords();
  }

  // The states of the last acknowledged hard Synchronize or Close, or `durable` if there was none,
  // and of the one that was running, if any.
  // REQUIRES: one writer.
  std::vector<Records> LastSynchronized(const Records& before) const { return LastSynchronized(before, {before}); }
  std::vector<Records> LastSynchronized(const Records& before, std::vector<Records> durable) const {
    ModelDBM model(std::make_shared<ModelDBM::Records>(before));
    std::vector<Records> states = std::move(durable);
    for (std::uint64_t number = 0; number < begun_[0]; ++number) {
      const Operation operation = At(0, number);
      (void)operation.ApplyTo(model);
      const bool closes = number < acknowledged_[0] && ReopensAfter(mix_, seed_, number);
      if (operation.kind != Kind::kSynchronize && !closes) continue;
      if (closes ? number + 1 < begun_[0] : number < acknowledged_[0]) states.clear();
      states.push_back(model.CopyRecords());
    }
    return states;
  }

 private:
  Operation At(std::size_t writer, std::uint64_t number) const { return Operation(mix_, seed_, static_cast<int>(writer), number); }
  // Whether a key shows that the batch was carried out; the other keys are compared with the model.
  static bool ShowsBatch(const Operation& batch, const Records& found, const Records& before, const Records& after) {
    const std::vector<std::string> keys = batch.Keys();
    return std::any_of(keys.begin(), keys.end(), [&](const std::string& key) {
      return ValueIn(found, key) == ValueIn(after, key) && ValueIn(found, key) != ValueIn(before, key);
    });
  }
  static std::optional<std::string> ValueIn(const Records& records, const std::string& key) {
    const auto it = records.find(key);
    return it == records.end() ? std::nullopt : std::optional(it->second);
  }

  const std::string path_;
  const HashOptions options_;
  Mix mix_;
  std::uint64_t seed_ = 0;
  std::array<std::uint64_t, CrashProgress::kMaxWriters> begun_{};
  std::array<std::uint64_t, CrashProgress::kMaxWriters> acknowledged_{};
};

// Opens the file of a killed process, and lists it.
template <class FileT>
void OpenAndList(const std::string& path, Records* found, const HashOptions& options = {}) {
  found->clear();
  ASSERT_OK_AND_ASSIGN(auto db, HashOn<FileT>::Open(path, options, kPatiently));
  ASSERT_THAT(db->Verify(), IsOk());
  for (auto& [key, value] : ListByIterator(*db).records) found->emplace(key, value);
  ASSERT_EQ(db->Count(), found->size());
  std::string value;
  for (const auto& [key, listed] : *found) {
    ASSERT_THAT(db->Get(key, &value), IsOk());
    ASSERT_TRUE(value == listed);
  }
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_EQ(FreeSpaceCheck::OfFile(path), "");
}

template <class FileT>
void KillWriters(int usual, const HashOptions& options) {
  const int rounds = Kills(usual);
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  TempDir directory;
  std::uint64_t acknowledged = 0;
  std::string path;
  Records records;
  int round = 0;
  for (; KillsMore(round, rounds, acknowledged <= static_cast<unsigned>(rounds)); ++round) {
    SCOPED_TRACE(round);
    if (round % 20 == 0) {  // a new file, which the child creates
      path = directory.File("db" + std::to_string(round));
      records.clear();
    }
    Victim<FileT> victim(path, options);
    const bool many = round % 2 == 1;
    const Mix mix = {.increments = 20,
                     .synchronizations = random.OneIn(2) ? 50u : 0u,
                     .clears = many ? 0u : 2000u,
                     .rebuilds = random.OneIn(2) ? 200u : 0u,
                     .reopens = random.OneIn(2) ? 20u : 1000u};
    ASSERT_NO_FATAL_FAILURE(victim.RunAndKill(mix, many ? 3 : 1, random));
    Records found;
    ASSERT_NO_FATAL_FAILURE(OpenAndList<FileT>(path, &found, options));
    records = victim.AfterKill(records, found);
    ASSERT_EQ(Difference(records, found), "none") << victim.acknowledged() << " operations were acknowledged";
    acknowledged += victim.acknowledged();
  }
  EXPECT_GT(acknowledged, static_cast<unsigned>(rounds)) << "the children hardly worked";
  ReportKills(static_cast<std::uint64_t>(round));
}
TEST(CrashTest, KilledWritersLoseNoAcknowledgedUpdate) { KillWriters<MemoryMapParallelFile>(80, {}); }
TEST(CrashTest, KilledWritersOnAPositionalFileLoseNoAcknowledgedUpdate) {
  KillWriters<PositionalParallelFile>(25, {.log_bytes = 64 << 10});
}
TEST(CrashTest, KilledWritersOnADirectFileLoseNoAcknowledgedUpdate) { KillWriters<DirectFile<512>>(25, {.log_bytes = 64 << 10}); }
TEST(CrashTest, KilledWritersOfDurableUpdatesLoseNoAcknowledgedUpdate) {
  KillWriters<MemoryMapParallelFile>(40, {.durability = Durability::kPower, .log_bytes = 64 << 10});
}
TEST(CrashTest, KilledWritersOfDurableUpdatesOnAPositionalFileLoseNoAcknowledgedUpdate) {
  KillWriters<PositionalParallelFile>(20, {.durability = Durability::kPower, .log_bytes = 64 << 10});
}
TEST(CrashTest, KilledWritersOfDurableUpdatesOnADirectFileLoseNoAcknowledgedUpdate) {
  KillWriters<DirectFile<512>>(20, {.durability = Durability::kPower, .log_bytes = 64 << 10});
}

template <class FileT>
void KillWriterOfAFileThatIsNotMapped() {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed() + 1);
  TempDir directory;
  const std::string path = directory.File("db");
  const HashOptions options = {.durability = Durability::kNone};
  Records records;
  for (int round = 0; round < Kills(25); ++round) {
    SCOPED_TRACE(round);
    Victim<FileT> victim(path, options);
    ASSERT_NO_FATAL_FAILURE(victim.RunAndKill({.increments = 20, .synchronizations = 100, .clears = 1000}, 1, random));
    Records found;
    ASSERT_NO_FATAL_FAILURE(OpenAndList<FileT>(path, &found, options));
    const auto states = victim.LastSynchronized(records);
    ASSERT_TRUE(std::count(states.begin(), states.end(), found) > 0) << Difference(states.front(), found);
    records = found;
  }
  ReportKills(static_cast<std::uint64_t>(Kills(25)));
}
TEST(CrashTest, KilledWriterOnAPositionalFileLeavesTheLastSynchronizedState) { KillWriterOfAFileThatIsNotMapped<PositionalParallelFile>(); }
TEST(CrashTest, KilledWriterOnADirectFileLeavesTheLastSynchronizedState) { KillWriterOfAFileThatIsNotMapped<DirectFile<512>>(); }

TEST(CrashTest, CopyOfAKilledMappedFileIsOpenedAsAsked) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed() + 2);
  TempDir directory;
  const std::string path = directory.File("db"), copy = directory.File("copy");
  Records records;
  for (int round = 0; round < Kills(25); ++round) {
    SCOPED_TRACE(round);
    Victim<MemoryMapParallelFile> victim(path);
    ASSERT_NO_FATAL_FAILURE(victim.RunAndKill({.increments = 20, .synchronizations = 100, .clears = 1000}, 1, random));
    if (!std::filesystem::exists(path)) continue;  // killed before it made the file
    std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing);
    Records found, accepted;
    ASSERT_NO_FATAL_FAILURE(OpenAndList<MemoryMapParallelFile>(copy, &found, {.unproven_updates = UnprovenUpdates::kDrop}));
    const auto states = victim.LastSynchronized(records);
    ASSERT_TRUE(std::count(states.begin(), states.end(), found) > 0) << Difference(states.front(), found);
    std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing);
    ASSERT_NO_FATAL_FAILURE(OpenAndList<MemoryMapParallelFile>(copy, &accepted, {.unproven_updates = UnprovenUpdates::kAccept}));
    ASSERT_NO_FATAL_FAILURE(OpenAndList<MemoryMapParallelFile>(path, &found));  // and the file itself has everything
    records = victim.AfterKill(records, found);
    ASSERT_EQ(Difference(records, found), "none");
    ASSERT_EQ(Difference(records, accepted), "none");
  }
  ReportKills(static_cast<std::uint64_t>(Kills(25)));
}

// Several processes are killed in turn, with no Close or Synchronize in between except their own.
TEST(CrashTest, CopyAfterSeveralKillsShowsTheLastSynchronizedStateIfAsked) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed() + 3);
  TempDir directory;
  const std::string path = directory.File("db"), copy = directory.File("copy");
  ASSERT_NO_FATAL_FAILURE({
    Records none;
    OpenAndList<MemoryMapParallelFile>(path, &none);
  });
  Records records;
  std::vector<Records> durable = {records};
  for (int death = 0; death < Kills(25); ++death) {
    SCOPED_TRACE(death);
    Victim<MemoryMapParallelFile> victim(path);
    const Mix mix = {.increments = 20, .synchronizations = random.OneIn(2) ? 0u : 300u, .reopens = ~std::uint64_t{0}};
    ASSERT_NO_FATAL_FAILURE(victim.RunAndKill(mix, 1, random));
    durable = victim.LastSynchronized(records, durable);
    Records found;
    {
      ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(path, {}, {.mode = OpenMode::kReadOnly, .lock_timeout = kPatiently.lock_timeout}));
      ASSERT_THAT(db->Verify(), IsOk());
      found = ListByIterator(*db).records;
    }
    records = victim.AfterKill(records, found);
    ASSERT_EQ(Difference(records, found), "none");
    if (random.OneIn(2)) continue;
    std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing);
    ASSERT_NO_FATAL_FAILURE(OpenAndList<MemoryMapParallelFile>(copy, &found, {.unproven_updates = UnprovenUpdates::kDrop}));
    ASSERT_TRUE(std::count(durable.begin(), durable.end(), found) > 0) << Difference(durable.front(), found);
  }
  ReportKills(static_cast<std::uint64_t>(Kills(25)));
}

}  // namespace
}  // namespace hako
