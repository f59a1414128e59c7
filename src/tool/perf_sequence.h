// The phases of "perf sequence": Setting, Getting, Iterating, Removing, each by all threads at once.
//
// A target is the kind of database under test: SetUp opens it for a phase, db() is it, TearDown closes it, outside the timing. Everything
// is a template over it, so that what is measured is the library and no virtual call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/options.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/file/file.h"
#include "tool/command.h"
#include "tool/perf.h"

namespace hako::tool {

// A HashDBM, opened anew for each phase.
template <class FileT>
class HashTarget {
 public:
  static constexpr bool kIsInFile = true;
  explicit HashTarget(const PerfOptions& options) : options_(options) {}

  Status SetUp(bool writable, bool truncate) {
    HashOptions hash;
    if (options_.num_buckets > 0) hash.num_records = static_cast<std::uint64_t>(options_.num_buckets);
    if (options_.align_pow >= 0) hash.align_pow = static_cast<int>(options_.align_pow);
    FileOptions file;
    file.mode = !writable ? OpenMode::kReadOnly : truncate ? OpenMode::kTruncate : OpenMode::kCreate;
    HAKO_ASSIGN_OR_RETURN(db_, HashDBM<FileT>::Open(options_.path, hash, file));
    is_writable_ = writable;
    return absl::OkStatus();
  }
  HashDBM<FileT>& db() { return *db_; }
  Status Copy(const std::string& path) { return db_->CopyTo(path); }
  Status TearDown() {
    const Status synced = is_writable_ && options_.sync_hard ? db_->Synchronize(SyncMode::kHard) : absl::OkStatus();
    const Status closed = db_->Close();
    db_.reset();
    return synced.ok() ? closed : synced;
  }

 private:
  const PerfOptions& options_;
  std::unique_ptr<HashDBM<FileT>> db_;
  bool is_writable_ = false;
};

// A TinyDBM, which lives through all phases, or, with --path, is loaded from there before each and saved after those that write.
class TinyTarget {
 public:
  static constexpr bool kIsInFile = false;
  explicit TinyTarget(const PerfOptions& options) : options_(options) {}

  Status SetUp(bool writable, bool truncate) {
    is_writable_ = writable;
    if (db_ != nullptr) return truncate ? db_->Clear() : absl::OkStatus();
    TinyOptions tiny;
    if (options_.num_buckets > 0) tiny.num_records = static_cast<std::uint64_t>(options_.num_buckets);
    if (options_.align_pow >= 0) tiny.align_pow = static_cast<int>(options_.align_pow);
    HAKO_ASSIGN_OR_RETURN(db_, TinyDBM<>::Open(tiny));
    return options_.path.empty() || truncate ? absl::OkStatus() : db_->Load(options_.path);
  }
  TinyDBM<>& db() { return *db_; }
  Status Copy(const std::string& path) { return db_->Save(path); }
  Status TearDown() {
    if (options_.path.empty()) return absl::OkStatus();
    const Status saved = is_writable_ ? db_->Save(options_.path) : absl::OkStatus();
    db_.reset();
    return saved;
  }

 private:
  const PerfOptions& options_;
  std::unique_ptr<TinyDBM<>> db_;
  bool is_writable_ = false;
};

template <class Target>
class Sequence {
 public:
  explicit Sequence(const PerfOptions& options) : options_(options), start_mem_(ResidentBytes()), target_(options) {}

  // The exit code.
  int Run() {
    const bool all = options_.IsAll();
    if (all || options_.set_only) RunPhase("Setting", true, true, [this](int thread) { SetRecords(thread); });
    if (all || options_.get_only) RunPhase("Getting", false, false, [this](int thread) { GetRecords(thread); });
    if (all || options_.iter_only) RunPhase("Iterating", false, false, [this](int thread) { Iterate(thread); });
    if (all || options_.remove_only) RunPhase("Removing", true, false, [this](int thread) { RemoveRecords(thread); });
    if (open_failure_ != kExitDone) return open_failure_;
    return has_error_ ? kExitNo : kExitDone;
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Db = std::remove_reference_t<decltype(std::declval<Target&>().db())>;
  static double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

  // Nothing of a phase after the first is run where the database could not be opened.
  template <class Task>
  void RunPhase(std::string_view name, bool is_update, bool truncate, Task task) {
    if (open_failure_ != kExitDone) return;
    if (const Status opened = target_.SetUp(is_update, truncate); !opened.ok()) {
      open_failure_ = Fail(options_.path, opened);
      return;
    }
    PhaseReport report;
    report.name = name;
    PrintHead(options_, name);
    const auto start = Clock::now();
    std::vector<std::thread> threads;
    for (int i = 0; i < options_.num_threads; ++i) threads.emplace_back(task, i);
    for (std::thread& thread : threads) thread.join();
    if (is_update) report.sync_elapsed = Measure("Synchronizing", [this] { Check("Synchronize", db().Synchronize(SyncMode::kSoft)); });
    if (is_update && options_.validate)
      report.validation_elapsed = Measure("Validating records", [this] { Check("Validate", db().Verify()); });
    report.elapsed = SecondsSince(start);
    report.mem = ResidentBytes() - start_mem_;
    Describe(&report);
    PrintReport(options_, report);
    if (truncate && !options_.copy_path.empty()) Check("Copy", target_.Copy(options_.copy_path));
    Check("Close", target_.TearDown());
  }

  template <class Step>
  double Measure(const char* name, Step step) {
    if (!options_.json) std::printf("%s: ... ", name);
    const auto start = Clock::now();
    step();
    const double elapsed = SecondsSince(start);
    if (!options_.json) std::printf("done (elapsed=%.6f)\n", elapsed);
    return elapsed;
  }

  void Describe(PhaseReport* report) {
    const Stats stats = db().GetStats();
    report->num_records = db().Count();
    report->num_buckets = stats.num_buckets;
    report->has_error = has_error_;
    if constexpr (Target::kIsInFile) {
      report->file_size = stats.total_bytes;
      std::uint64_t data_size = 0;
      Check("ProcessEach",
            db().ProcessEach([&data_size](std::string_view key, std::string_view value) { data_size += key.size() + value.size(); }));
      report->data_size = data_size;
    }
  }

  void SetRecords(int thread) {
    KeyStream keys(options_, thread);
    ValueStream values(options_, thread);
    Loop(thread, [&](std::int64_t i) { return Check("Set", db().Set(keys.Next(i), values.Next(i))); });
  }

  // As in the tool that is reproduced, the value is looked up but not copied, unless --get_copy asks for it.
  void GetRecords(int thread) {
    KeyStream keys(options_, thread);
    std::string value;
    Loop(thread, [&](std::int64_t i) {
      const std::string_view key = keys.Next(i);
      const Status status = options_.get_copy ? db().Get(key, &value) : db().Fetch(key, [](std::size_t) -> char* { return nullptr; });
      return Check("Get", IgnoreAbsent(status));
    });
  }

  void Iterate(int thread) {
    KeyStream keys(options_, thread);
    std::optional<decltype(std::declval<Db&>().MakeIterator())> it;
    std::string key;
    std::string value;
    Loop(thread, [&](std::int64_t i) {
      if (i % 100 == 0) it.emplace(db().MakeIterator());
      it->Jump(keys.Next(i));
      if (!it->Valid()) return Check("Jump", it->status().ok() ? IgnoreAbsent(AbsentError()) : it->status());
      key.assign(it->key());
      value.assign(it->value());
      return true;
    });
  }

  void RemoveRecords(int thread) {
    KeyStream keys(options_, thread);
    Loop(thread, [&](std::int64_t i) {
      const Status status = db().Remove(keys.Next(i));
      return Check("Remove", absl::IsNotFound(status) ? absl::OkStatus() : status);
    });
  }

  template <class Step>
  void Loop(int thread, Step step) {
    Dots dots(options_);
    for (std::int64_t i = 0; i < options_.num_iterations && !has_error_.load(std::memory_order_relaxed); ++i) {
      if (!step(i)) break;
      if (thread == 0) dots.Step(i);
    }
    if (thread == 0) dots.Finish();
  }

  // With random keys that differ from phase to phase, an absent one is no error.
  Status IgnoreAbsent(Status status) const {
    return absl::IsNotFound(status) && options_.random_key && options_.random_seed < 0 ? absl::OkStatus() : status;
  }

  bool Check(const char* operation, const Status& status) {
    if (status.ok()) return true;
    std::fprintf(stderr, "%s failed: %s\n", operation, TkrzwName(status).c_str());
    has_error_ = true;
    return false;
  }

  Db& db() { return target_.db(); }

  const PerfOptions& options_;
  const std::int64_t start_mem_;
  Target target_;
  std::atomic<bool> has_error_{false};
  int open_failure_ = kExitDone;
};

}  // namespace hako::tool
