// Databases with a log archive whose processes update them, copy them, close them or die, for the
// tests of Restore: each process records its updates, so the state after each of them is known.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/salvage_files.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/positional_hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/dbm/write_batch.h"
#include "support/child_process.h"
#include "support/random.h"
#include "support/temp_dir.h"

namespace hako {

// The options of a database with an archive, which takes many checkpoints.
template <class D>
auto ArchivingOptions(const std::string& archive) {
  if constexpr (requires(TreeOptions options, std::string path) { D::Open(path, options); }) {
    return TreeOptions{.page_size = 512, .log_bytes = 64 << 10, .log_archive = archive};
  } else if constexpr (requires(HashOptions options, std::string path) { D::Open(path, options); }) {
    return HashOptions{.log_bytes = 64 << 10, .log_archive = archive};
  } else if constexpr (requires(TinyOptions options, std::string path) { D::Open(path, options); }) {
    return TinyOptions{.log_bytes = 64 << 10, .log_archive = archive};
  } else {
    return BabyOptions{.page_size = 512, .log_bytes = 64 << 10, .log_archive = archive};
  }
}

template <class D>
Status CopyDatabase(D& db, const std::string& path) {
  if constexpr (requires { db.CopyTo(path); }) {
    return db.CopyTo(path);
  } else {
    return db.Save(path);
  }
}

// What one update did. A range goes from `key` to before `value`.
struct Change {
  enum Kind : char { kSet = 's', kRemove = 'r', kRange = 'g', kClear = 'c' };
  Kind kind;
  std::string key, value;
};
// Changes that were made together, and LastLsn after them.
struct Step {
  std::uint64_t lsn = 0;
  std::vector<Change> changes;
};

inline void Apply(const Step& step, Records* records) {
  for (const Change& change : step.changes) {
    if (change.kind == Change::kClear) records->clear();
    if (change.kind == Change::kSet) (*records)[change.key] = change.value;
    if (change.kind == Change::kRemove) records->erase(change.key);
    if (change.kind == Change::kRange) records->erase(records->lower_bound(change.key), records->lower_bound(change.value));
  }
}

// A file of steps, to which a process appends each with one write. A step that a kill has cut short
// is not read, as if the kill had come before it.
class StepFile {
 public:
  explicit StepFile(const std::string& path) : fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}
  StepFile(const StepFile&) = delete;
  ~StepFile() { close(fd_); }

  void Add(const Step& step) {
    std::string bytes(sizeof(std::uint64_t), '\0');
    const auto add = [&bytes](std::uint64_t number) { bytes.append(reinterpret_cast<const char*>(&number), sizeof(number)); };
    add(step.lsn), add(step.changes.size());
    for (const Change& change : step.changes) {
      bytes += change.kind;
      add(change.key.size()), add(change.value.size());
      bytes.append(change.key).append(change.value);
    }
    const std::uint64_t size = bytes.size();
    std::memcpy(bytes.data(), &size, sizeof(size));
    HAKO_ASSERT(write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  static std::vector<Step> Read(const std::string& path) {
    const std::string bytes = ReadWhole(path);
    std::vector<Step> steps;
    std::size_t at = 0;
    const auto take = [&] {
      std::uint64_t number = 0;
      std::memcpy(&number, bytes.data() + at, sizeof(number));
      at += sizeof(number);
      return number;
    };
    while (bytes.size() - at >= sizeof(std::uint64_t)) {
      if (const std::size_t left = bytes.size() - at; take() > left) break;
      Step& step = steps.emplace_back();
      step.lsn = take();
      step.changes.resize(take());
      for (Change& change : step.changes) {
        change.kind = Change::Kind{bytes[at++]};
        const std::uint64_t key = take(), value = take();
        change.key = bytes.substr(at, key), change.value = bytes.substr(at + key, value);
        at += key + value;
      }
    }
    return steps;
  }

 private:
  const int fd_;
};

// The lives of one database.
template <class D>
class Lives {
 public:
  enum class End { kClose, kDie, kKilledAnywhere };

  const std::string& path() const { return path_; }
  const std::string& archive() const { return archive_; }
  std::string File(std::string_view name) const { return dir_.File(name); }

  // Opens the database in a process, updates it from some threads, and ends as given. With a
  // `copy` makes one beside the updates.
  void Live(Random& random, End end, int num_writers, int num_updates, const std::string& copy = "") {
    const std::uint64_t seed = random.Next();
    const std::string name = File("life" + std::to_string(lives_.size()));
    ChildProcess child([&](ChildProcess& parent) {
      Random child_random(seed);
      return Run(child_random, parent, end, num_writers, num_updates, name, copy);
    });
    if (end == End::kKilledAnywhere) {
      child.Wait();  // it is open
      usleep(static_cast<useconds_t>(random.Below(60'000)));
      child.Kill();
    } else {
      ASSERT_EQ(child.Result(), end == End::kClose ? 0 : -1 - SIGKILL) << ReadWhole(name + ".error");
    }
    Life& life = lives_.emplace_back();
    const std::vector<Step> begin = StepFile::Read(name + ".begin");
    ASSERT_EQ(begin.size(), 1u) << ReadWhole(name + ".error");
    Apply(begin[0], &life.begin);
    for (int i = 0; i < num_writers; ++i) std::ranges::copy(StepFile::Read(name + "." + std::to_string(i)), std::back_inserter(life.steps));
    std::ranges::sort(life.steps, {}, &Step::lsn);
  }
  // Opens and closes it without an update.
  void OpenOnly() {
    const auto options = ArchivingOptions<D>(archive_);
    ASSERT_OK_AND_ASSIGN(auto db, D::Open(path_, options));
    ASSERT_THAT(db->Close(), IsOk());
  }

  // The LSNs at which the state is known, and before which it is, too.
  std::vector<std::uint64_t> Lsns() const {
    std::vector<std::uint64_t> lsns;
    for (const Life& life : lives_)
      for (const Step& step : life.steps) lsns.push_back(step.lsn);
    return lsns;
  }
  // The state at one of these, or at one less.
  Records StateAt(std::uint64_t lsn) const {
    const auto has = [lsn](const Life& life) { return !life.steps.empty() && life.steps.front().lsn - 1 <= lsn; };
    const auto life = std::find_if(lives_.rbegin(), lives_.rend(), has);
    if (life == lives_.rend()) return {};
    Records records = life->begin;
    for (const Step& step : life->steps) {
      if (step.lsn <= lsn) Apply(step, &records);
    }
    return records;
  }

 private:
  struct Life {
    Records begin;
    std::vector<Step> steps;
  };

  int Run(Random& random, ChildProcess& parent, End end, int num_writers, int num_updates, const std::string& name,
          const std::string& copy) {
    const auto options = ArchivingOptions<D>(archive_);
    auto opened = D::Open(path_, options);
    const auto fail = [&name](const Status& status) {
      std::ofstream(name + ".error") << status;
      return 1;
    };
    if (!opened.ok()) return fail(opened.status());
    D& db = **opened;
    Step begin;
    auto it = db.MakeIterator();
    for (it.First(); it.Valid(); it.Next()) begin.changes.push_back({Change::kSet, std::string(it.key()), std::string(it.value())});
    StepFile(name + ".begin").Add(begin);
    parent.Tell();
    std::vector<std::thread> threads;
    std::atomic<int> num_done{0};
    std::vector<Status> failures(static_cast<std::size_t>(num_writers) + 1);
    for (int i = 0; i < num_writers; ++i) {
      threads.emplace_back([&, i, seed = random.Next()] {
        Random mine(seed);
        StepFile file(name + "." + std::to_string(i));
        for (int n = 0; n < num_updates && failures[static_cast<std::size_t>(i)].ok(); ++n) {
          failures[static_cast<std::size_t>(i)] = Update(db, mine, file);
          ++num_done;
        }
      });
    }
    if (!copy.empty()) {
      const int wanted = static_cast<int>(random.Below(static_cast<std::uint64_t>(num_writers * num_updates)));
      while (num_done < wanted) std::this_thread::yield();
      failures.back() = CopyDatabase(db, copy);
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : failures) {
      if (!status.ok()) return fail(status);
    }
    if (const Status health = db.GetHealth(); !health.ok()) return fail(health);
    if (end != End::kClose) raise(SIGKILL);
    const Status closed = db.Close();
    return closed.ok() ? 0 : fail(closed);
  }

  static std::string RandomKey(Random& random) { return NumberedKey(random.Below(40)); }
  static std::string RandomValue(Random& random) { return random.Bytes(random.OneIn(100) ? 300 << 10 : random.SkewedSize(11)); }

  static Status Update(D& db, Random& random, StepFile& file) {
    const std::uint64_t before = db.LastLsn();
    Step step;
    Status status;
    if (random.OneIn(6)) {
      WriteBatch batch;
      for (std::uint64_t i = random.Between(2, 6); i > 0; --i) {
        if (random.OneIn(3)) {
          step.changes.push_back({Change::kRemove, RandomKey(random), ""});
          batch.Remove(step.changes.back().key);
        } else {
          step.changes.push_back({Change::kSet, RandomKey(random), RandomValue(random)});
          batch.Set(step.changes.back().key, step.changes.back().value);
        }
      }
      status = db.Write(batch);
    } else if (random.OneIn(150)) {
      step.changes.push_back({Change::kClear, "", ""});
      status = db.Clear();
    } else if (kIsTree<D> && random.OneIn(20)) {
      step.changes.push_back({Change::kRange, NumberedKey(random.Below(40)), NumberedKey(random.Below(40))});
      if (step.changes[0].key > step.changes[0].value) std::swap(step.changes[0].key, step.changes[0].value);
      WriteBatch batch;
      batch.RemoveRange(step.changes[0].key, step.changes[0].value);
      status = db.Write(batch);
    } else if (random.OneIn(4)) {
      step.changes.push_back({Change::kRemove, RandomKey(random), ""});
      status = db.Remove(step.changes[0].key);
      if (absl::IsNotFound(status)) return absl::OkStatus();
    } else {
      step.changes.push_back({Change::kSet, RandomKey(random), RandomValue(random)});
      status = db.Set(step.changes[0].key, step.changes[0].value);
    }
    if (status.ok() && random.OneIn(40)) status = db.Synchronize(SyncMode::kHard);
    step.lsn = db.LastLsn();
    if (status.ok() && step.lsn != before) file.Add(step);
    return status;
  }

  TempDir dir_;
  const std::string path_ = dir_.File("casket");
  const std::string archive_ = [this] {
    std::filesystem::create_directory(dir_.File("archive"));
    return dir_.File("archive");
  }();
  std::vector<Life> lives_;
};

}  // namespace hako
