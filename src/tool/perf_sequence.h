// "perf sequence": the phases Setting, Getting, Iterating, Removing, in turn, each in all threads
// at once. As in tkrzw_dbm_perf, keys are made within the timing, records are read in the order in
// which they were set, and a value is looked up but not copied. Options change each of these three
// (--honest changes all), and can mix in absent keys.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tool/perf_keys.h"
#include "tool/perf_run.h"

namespace hako::tool {

template <class Target>
class Sequence : PerfRun<Target> {
  using Base = PerfRun<Target>;
  using Base::Check;
  using Base::db;
  using Base::Loop;
  using Base::options_;

 public:
  explicit Sequence(const PerfOptions& options) : Base(options) {}

  // Returns the exit code.
  int Run() {
    const bool all = options_.IsAll();
    if (all || options_.set_only) Run({.name = "Setting", .is_update = true, .truncate = true}, &Sequence::SetRecords);
    if (all || options_.get_only) Run({.name = "Getting"}, &Sequence::GetRecords);
    if (all || options_.iter_only) Run({.name = "Iterating"}, &Sequence::Iterate);
    if (all || options_.remove_only) Run({.name = "Removing", .is_update = true}, &Sequence::RemoveRecords);
    return Base::ExitCodeOfRun();
  }

 private:
  // The keys of one thread in the phase.
  class Keys {
   public:
    Keys(const Sequence& sequence, int thread) : prepared_(sequence.prepared_.get()), thread_(thread), stream_(sequence.options_, thread) {}
    std::string_view Next(std::int64_t i) { return prepared_ != nullptr ? prepared_->Key(thread_, i) : key_.Set(stream_.Next(i)); }
    bool IsAbsent(std::int64_t i) const { return prepared_ != nullptr && prepared_->IsAbsent(thread_, i); }

   private:
    const PreparedKeys* prepared_;
    int thread_;
    NumberStream stream_;
    NumberKey key_;
  };

  void Run(typename Base::Phase phase, void (Sequence::*task)(int)) {
    const bool gets = phase.name == "Getting";
    const std::string order = gets ? options_.get_order : "same";
    const std::int64_t miss_percent = gets ? options_.miss_percent : 0;
    prepared_.reset();
    if (options_.honest || order != "same" || miss_percent > 0) {
      const std::int64_t before = ResidentBytes();
      prepared_ = std::make_unique<PreparedKeys>(options_, order, miss_percent);
      phase.extra_mem = ResidentBytes() - before;
    }
    Base::RunPhase(phase, [this, task](int thread) { (this->*task)(thread); });
  }

  void SetRecords(int thread) {
    Keys keys(*this, thread);
    ValueStream values(options_, thread);
    Loop(thread, [&](std::int64_t i) { return Check("Set", db().Set(keys.Next(i), values.Next(i))); });
  }

  void GetRecords(int thread) {
    Keys keys(*this, thread);
    std::string value;
    Loop(thread, [&](std::int64_t i) {
      const std::string_view key = keys.Next(i);
      const Status status = options_.get_copy ? db().Get(key, &value) : db().GetSize(key).status();
      if (keys.IsAbsent(i)) return absl::IsNotFound(status) || Check("Get", absl::InternalError("an absent key was found"));
      if (options_.get_copy && status.ok() && !IsPlausible(value)) return Check("Get", absl::DataLossError("a value of another size"));
      return Check("Get", IgnoreAbsent(status));
    });
  }

  void Iterate(int thread) {
    Keys keys(*this, thread);
    std::optional<decltype(db().MakeIterator())> it;
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
    Keys keys(*this, thread);
    Loop(thread, [&](std::int64_t i) {
      const Status status = db().Remove(keys.Next(i));
      return Check("Remove", absl::IsNotFound(status) ? absl::OkStatus() : status);
    });
  }

  bool IsPlausible(const std::string& value) const {
    return options_.random_value || value.size() == static_cast<std::size_t>(options_.value_size);
  }

  // If random keys differ from phase to phase, an absent key is no error.
  Status IgnoreAbsent(Status status) const {
    return absl::IsNotFound(status) && options_.random_key && options_.random_seed < 0 ? absl::OkStatus() : status;
  }

  std::unique_ptr<PreparedKeys> prepared_;
};

}  // namespace hako::tool
