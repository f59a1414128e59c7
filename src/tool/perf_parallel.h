// "perf parallel": every thread mixes CompareExchange, Remove, Set and Get, on separate keys or,
// with --keys, on few shared ones.
#pragma once

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "tool/perf_keys.h"
#include "tool/perf_run.h"

namespace hako::tool {

template <class Target>
class Parallel : PerfRun<Target> {
  using Base = PerfRun<Target>;
  using Base::Check;
  using Base::db;
  using Base::Loop;
  using Base::options_;

 public:
  explicit Parallel(const PerfOptions& options) : Base(options) {}

  int Run() {
    Base::RunPhase({.name = "Doing", .is_update = true, .truncate = true}, [this](int thread) { Work(thread); });
    return Base::ExitCodeOfRun();
  }

 private:
  void Work(int thread) {
    NumberStream numbers(options_, thread);
    NumberKey key;
    std::mt19937 random(SeedOf(options_, options_.random_seed * 3 + thread + 1));
    const std::string full(static_cast<std::size_t>(options_.value_size), static_cast<char>('0' + thread % 10));
    Loop(thread, [&](std::int64_t i) {
      std::int64_t number = numbers.Next(i);
      if (options_.num_keys > 0) number %= options_.num_keys;
      const std::string_view value = std::string_view(full).substr(0, options_.random_value ? random() % (full.size() + 1) : full.size());
      // The threads take turns.
      if (options_.rebuild && i % 100 == 0 && i / 100 % options_.num_threads == thread && !Check("Rebuild", Base::target().MaybeRebuild()))
        return false;
      const bool done = Operate(random, key.Set(number), value);
      if (options_.sleep_seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(options_.sleep_seconds));
      return done;
    });
  }

  bool Operate(std::mt19937& random, std::string_view key, std::string_view value) {
    if (random() % 5 == 0) {
      const std::array expected = {Expect::Value(""), Expect::Any(), Expect::Absent()};
      const std::array desired = {Action::Set(""), Action::Keep(), Action::Remove()};
      const Status status = db().CompareExchange(key, expected[random() % 3], desired[random() % 3]);
      return Check("CompareExchange", absl::IsAborted(status) ? absl::OkStatus() : status);
    }
    if (random() % 5 == 0) return Check("Remove", Tolerate(db().Remove(key)));
    if (random() % 2 == 0) return Check("Set", db().Set(key, value));
    return Check("Get", Tolerate(db().GetSize(key).status()));
  }

  static Status Tolerate(const Status& status) { return absl::IsNotFound(status) ? absl::OkStatus() : status; }
};

}  // namespace hako::tool
