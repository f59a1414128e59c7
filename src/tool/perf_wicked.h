// "perf wicked": every thread runs all operations on shared keys, and checks that no value is torn.
// Each thread writes only its own digit, and Append inserts commas, so every value consists of
// digits and commas. --validate checks the whole structure at the end.
#pragma once

#include <string>

#include "hako/dbm/ordered_operations.h"
#include "tool/perf_keys.h"
#include "tool/perf_run.h"

namespace hako::tool {

template <class Target>
class Wicked : PerfRun<Target> {
  using Base = PerfRun<Target>;
  using Base::Check;
  using Base::db;
  using Base::Loop;
  using Base::options_;

 public:
  explicit Wicked(const PerfOptions& options) : Base(options) {}  // REQUIRES: options.random_key

  int Run() {
    Base::RunPhase({.name = "Doing", .is_update = true, .truncate = true}, [this](int thread) { Work(thread); });
    return Base::ExitCodeOfRun();
  }

 private:
  void Work(int thread) {
    NumberStream numbers(options_, thread);
    NumberKey key;
    std::mt19937 random(SeedOf(options_, options_.random_seed * 2 + thread + 1));
    const std::string full(static_cast<std::size_t>(options_.value_size), static_cast<char>('0' + thread % 10));
    Loop(thread, [&](std::int64_t i) {
      key.Set(numbers.Next(i));
      if (thread == 0 && i == options_.num_iterations / 2 && !Check("Synchronize", db().Synchronize(SyncMode::kSoft))) return false;
      return Operate(random, key.view(), std::string_view(full).substr(0, random() % (full.size() + 1)));
    });
  }

  bool Operate(std::mt19937& random, std::string_view key, std::string_view value) {
    const auto seldom = [&] { return random() % (static_cast<std::uint64_t>(options_.num_iterations) / 2 + 1) == 0; };
    if (options_.rebuild && seldom()) return Check("Rebuild", Base::target().Rebuild());
    if (options_.clear && seldom()) return Check("Clear", db().Clear());
    if (options_.sync && seldom()) return Check("Synchronize", db().Synchronize(SyncMode::kSoft));
    if (options_.iterator && random() % 100 == 0) return Scan(random, key);
    if (random() % 8 == 0) return Check("Append", db().Append(key, value, ","));
    if (random() % 5 == 0) return Check("Remove", Tolerate(db().Remove(key)));
    std::string found;
    if (random() % 3 == 0) {
      const Status status = db().Set(key, value, {.overwrite = random() % 3 != 0, .old_value = &found});
      return Check("Set", absl::IsAlreadyExists(status) ? absl::OkStatus() : status) && CheckValue("Set", found);
    }
    const Status status = db().Get(key, &found);  // `found` is unspecified after NotFound: an attempt that was repeated may have changed it
    return Check("Get", Tolerate(status)) && (!status.ok() || CheckValue("Get", found));
  }

  // Moves from the key, or from the first or last record, over a few records, and removes one in
  // ten. In ordered databases it also moves backwards.
  bool Scan(std::mt19937& random, std::string_view key) {
    auto it = db().MakeIterator();
    const bool from_end = random() % 2 == 0;
    if constexpr (OrderedDBM<typename Base::Db>) {
      if (random() % 2 == 0) {
        from_end ? it.Last() : it.JumpLower(key, true);
        return Scan(random, it, [&it] { it.Previous(); });
      }
    }
    from_end ? it.First() : it.Jump(key);
    return Scan(random, it, [&it] { it.Next(); });
  }

  template <class Iterator, class Move>
  bool Scan(std::mt19937& random, Iterator& it, Move move) {
    for (auto steps = random() % 10; steps > 0 && it.Valid(); --steps, move()) {
      if (!CheckValue("Iterator", it.value())) return false;
      if (random() % 10 == 0 && !Check("Remove", Tolerate(db().Remove(it.key())))) return false;
    }
    return Check("Iterator", it.status());
  }

  bool CheckValue(const char* operation, std::string_view value) {
    const bool is_whole = value.find_first_not_of("0123456789,") == value.npos;
    return is_whole || Check(operation, absl::DataLossError("a value that was never written"));
  }

  static Status Tolerate(const Status& status) { return absl::IsNotFound(status) ? absl::OkStatus() : status; }
};

}  // namespace hako::tool
