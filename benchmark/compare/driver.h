// The driver that measures one engine. Each engine is a separate program, so that symbols,
// allocators and caches do not mix:
//
//   int main(int argc, char** argv) { return hako::compare::Main<LmdbEngine>(argc, argv); }
//
// An engine is a class with the members of `Engine` below. The driver runs a workload
// (../workload.h) in phases and prints one line of JSON for each: open, fill (Set of new keys; in
// rnd8 some are old), get, absent (Get that misses), update (Set of existing keys), scan (all
// records), scan100 (engines in order: from each of n / 100 random keys on, 100 records in order;
// an operation is all of them), remove, close. It ends with status 1 and a message on stderr if the
// engine returns a wrong result: the checksum of each phase is compared with that of the workload,
// and --verify compares every byte, untimed, after get and after update.
//
// Fair to all: keys and values are made before the clock starts and lie in the order of use; a Get
// copies the value into a string whose capacity is reused; one compiler and one set of flags for
// all adapters; the loop calls the engine directly. What an engine needs to make a phase complete
// in its own terms (a commit, cdb's index) is on the clock as well.
//
// With --threads T the point operations are split into T runs of consecutive operations, one a
// thread. With --latency each operation is timed on its own, which costs about 50 ns: read those
// quantiles, not that run's ns_per_op.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>

#include "meter.h"
#include "sessions.h"
#include "workload.h"

namespace hako::compare {

struct NoVisitor {
  void operator()(std::string_view, std::string_view) const {}
};

// kName is the program's name; kOnDisk: `path` is used, and is empty otherwise; kConcurrent: point
// operations may run in several threads; kWritable: update and remove exist, and fill may set a key
// twice. Get returns whether the key exists; the others, whether all went well. `n` = records to
// expect. Optional: Count; the hooks BeginPhase(Phase) and EndPhase(Phase), which run on the clock;
// and of engines in order ScanFrom(key, count, visitor), which shows `count` records from that of
// `key` on, or as many as there are; it serves as Scan where there is none. Open finds no file in a
// run of phases; a session (sessions.h) opens what an earlier one wrote.
template <class E>
concept Engine = std::default_initializable<E> &&
    requires(E& e, const std::string& path, std::uint64_t n, std::string_view bytes, std::string* value) {
  { E::kName } -> std::convertible_to<std::string_view>;
  { E::kOnDisk } -> std::convertible_to<bool>;
  { E::kConcurrent } -> std::convertible_to<bool>;
  { E::kWritable } -> std::convertible_to<bool>;
  { e.Open(path, n) } -> std::same_as<bool>;
  { e.Set(bytes, bytes) } -> std::same_as<bool>;
  { e.Get(bytes, value) } -> std::same_as<bool>;
  { e.Remove(bytes) } -> std::same_as<bool>;
  { e.Close() } -> std::same_as<bool>;
} &&(
    requires(E& e) {
      { e.Scan(NoVisitor{}) } -> std::same_as<bool>;
    } ||
    requires(E & e, std::string_view key, std::size_t count) {
      { e.ScanFrom(key, count, NoVisitor{}) } -> std::same_as<bool>;
    });

template <class E>
concept OrderedEngine = Engine<E> && requires(E& e, std::string_view key, std::size_t count) {
  { e.ScanFrom(key, count, NoVisitor{}) } -> std::same_as<bool>;
};

// Cheap, and touches both ends of the copied value.
inline std::uint64_t Edges(std::string_view bytes) {
  if (bytes.size() < 8) return bytes.size();
  std::uint64_t first, last;
  std::memcpy(&first, bytes.data(), 8);
  std::memcpy(&last, bytes.data() + bytes.size() - 8, 8);
  return first + last + bytes.size();
}

// Touches every byte.
inline std::uint64_t Words(std::string_view bytes) {
  std::uint64_t sum = bytes.size(), word = 0;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::memcpy(&word, bytes.data() + i, 8);
    sum += word;
  }
  word = 0;
  std::memcpy(&word, bytes.data() + i, bytes.size() - i);
  return sum + word;
}

inline std::uint64_t RecordSum(std::string_view key, std::string_view value) {
  return (Words(key) | 1) * (Words(value) + 0x9e3779b97f4a7c15);
}

// One run: one engine, one workload, from Open to Close.
template <Engine E>
class Driver {
 public:
  Driver(const Options& options, const workload::Workload& work) : options_(options), work_(work), meter_(options, E::kName, work) {}

  bool Run() {
    if (E::kOnDisk) meter_.set_path((std::filesystem::path(options_.dir) / E::kName).concat(".compare"));
    meter_.Start();
    if (!Whole("open", 1, [this] { return engine_.emplace().Open(meter_.path(), work_.num_records); })) return false;
    if (!Fill() || !Get() || !Absent() || !Update() || !Scan() || !Scan100() || !Remove()) return false;
    return Whole("close", 1, [this] { return engine_->Close(); });
  }

 private:
  bool Fill() {
    const workload::Operands& ops = work_.fill;
    std::vector<std::uint32_t> once;  // a write-once engine is given each record once
    if constexpr (!E::kWritable) {
      std::vector<bool> seen(work_.n);
      for (std::uint32_t i = 0; i < ops.size(); ++i) {
        if (!seen[ops.ids[i]]) once.push_back(i);
        seen[ops.ids[i]] = true;
      }
    }
    const auto sum = Each(Phase::kFill, "fill", E::kWritable ? ops.size() : once.size(), [&](std::size_t i, std::string&) -> std::uint64_t {
      if constexpr (!E::kWritable) i = once[i];
      return engine_->Set(ops.keys[i], ops.values[i]) ? 0 : 1;
    });
    if (!Expect("fill", sum, 0)) return false;
    if constexpr (requires { engine_->Count(); }) return Expect("count after fill", engine_->Count(), work_.num_records);
    return true;
  }

  bool Get() {
    const workload::Operands& ops = work_.get;
    if (!options_.Wants("get")) return true;
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) expected += Edges(work_.Value(ops.ids[i], 0)) * (2 * i + 1);
    const auto sum = Each(Phase::kGet, "get", ops.size(), [&](std::size_t i, std::string& value) -> std::uint64_t {
      return engine_->Get(ops.keys[i], &value) ? Edges(value) * (2 * i + 1) : 1;
    });
    return Expect("get", sum, expected) && Verify(ops, 0);
  }

  bool Absent() {
    if (!options_.Wants("absent")) return true;
    const auto sum = Each(Phase::kAbsent, "absent", work_.absent.size(), [&](std::size_t i, std::string& value) -> std::uint64_t {
      return engine_->Get(work_.absent.keys[i], &value) ? 1 : 0;
    });
    return Expect("absent", sum, 0);
  }

  bool Update() {
    const workload::Operands& ops = work_.update;
    if (!E::kWritable || !options_.Wants("update")) return true;
    const auto sum = Each(Phase::kUpdate, "update", ops.size(),
                          [&](std::size_t i, std::string&) -> std::uint64_t { return engine_->Set(ops.keys[i], ops.values[i]) ? 0 : 1; });
    updated_ = true;
    return Expect("update", sum, 0) && Verify(ops, 1);
  }

  bool Scan() {
    if (!options_.Wants("scan")) return true;
    const std::vector<bool> updated = UpdatedIds();
    std::uint64_t expected = work_.num_records;
    for (std::size_t i = 0; i < work_.remove.size(); ++i) {
      const std::uint32_t id = work_.remove.ids[i];
      expected += RecordSum(work_.remove.keys[i], work_.Value(id, updated[id] ? 1 : 0));
    }
    std::uint64_t sum = 0;
    const auto visit = [&sum](std::string_view key, std::string_view value) { sum += RecordSum(key, value) + 1; };
    const bool done = Whole(
        "scan", work_.num_records, [&] { return Hook<true>(Phase::kScan) && ScanAll(visit) && Hook<false>(Phase::kScan); }, &sum);
    return done && Expect("scan", sum, expected);
  }

  template <class Visit>
  bool ScanAll(Visit& visit) {
    if constexpr (requires { engine_->Scan(visit); })
      return engine_->Scan(visit);
    else
      return engine_->ScanFrom(std::string_view(""), std::numeric_limits<std::size_t>::max(), visit);
  }

  bool Scan100() {
    if constexpr (OrderedEngine<E>) {
      constexpr std::size_t kLength = 100;
      if (!options_.Wants("scan100")) return true;
      const workload::Operands& all = work_.remove;  // each record once
      std::vector<std::uint32_t> order(all.size());
      std::iota(order.begin(), order.end(), 0u);
      std::sort(order.begin(), order.end(), [&all](std::uint32_t a, std::uint32_t b) { return all.keys[a] < all.keys[b]; });
      const std::vector<bool> updated = UpdatedIds();
      std::vector<std::uint64_t> sums(all.size());  // of the records, in order
      for (std::size_t i = 0; i < order.size(); ++i) {
        const std::uint32_t id = all.ids[order[i]];
        sums[i] = RecordSum(all.keys[order[i]], work_.Value(id, updated[id] ? 1 : 0));
      }
      workload::Rows starts;
      starts.Reset(work_.key_size, std::max<std::size_t>(1, work_.n / kLength));
      workload::Random random(work_.seed ^ kLength);
      std::uint64_t expected = 0;
      for (std::size_t i = 0; i < starts.size(); ++i) {
        const std::size_t first = random.Below(static_cast<std::uint32_t>(order.size()));
        std::memcpy(starts.row(i), all.keys[order[first]].data(), work_.key_size);
        std::uint64_t sum = 0;
        for (std::size_t at = first; at < std::min(first + kLength, sums.size()); ++at) sum = sum * 31 + sums[at];
        expected += sum * (2 * i + 1);
      }
      const auto sum = Each(Phase::kScan100, "scan100", starts.size(), [&](std::size_t i, std::string&) -> std::uint64_t {
        std::uint64_t found = 0;
        const auto visit = [&found](std::string_view key, std::string_view value) { found = found * 31 + RecordSum(key, value); };
        return engine_->ScanFrom(starts[i], kLength, visit) ? found * (2 * i + 1) : 1;
      });
      return Expect("scan100", sum, expected);
    }
    return true;
  }

  bool Remove() {
    const workload::Operands& ops = work_.remove;
    if (!E::kWritable || !options_.Wants("remove")) return true;
    const auto sum = Each(Phase::kRemove, "remove", ops.size(),
                          [&](std::size_t i, std::string&) -> std::uint64_t { return engine_->Remove(ops.keys[i]) ? 0 : 1; });
    if (!Expect("remove", sum, 0)) return false;
    if constexpr (requires { engine_->Count(); }) return Expect("count after remove", engine_->Count(), 0);
    return true;
  }

  // By id, whether the record has the value that update gave it.
  std::vector<bool> UpdatedIds() const {
    std::vector<bool> updated(work_.n);
    if (updated_)
      for (std::uint32_t id : work_.update.ids) updated[id] = true;
    return updated;
  }

  // A phase of `n` point operations: op(index, a string of the thread's own) returns what is to be
  // summed up. Reports the phase and returns the sum, or nothing if the engine's hooks failed.
  template <class Op>
  std::optional<std::uint64_t> Each(Phase phase, const char* name, std::size_t n, Op op) {
    std::uint64_t sum = 0;
    const std::size_t threads = E::kConcurrent ? options_.threads : 1;
    meter_.Begin(threads, options_.latency ? n : 0);
    bool good = Hook<true>(phase);
    if (options_.latency)
      sum = Spread(threads, n, [&](std::size_t begin, std::size_t end) { return TimedLoop(begin, end, op); });
    else
      sum = Spread(threads, n, [&](std::size_t begin, std::size_t end) { return Loop(begin, end, op); });
    good = Hook<false>(phase) && good;
    meter_.End(name, n, sum);
    return good ? std::optional(sum) : std::nullopt;
  }

  template <class Op>
  [[gnu::noinline]] static std::uint64_t Loop(std::size_t begin, std::size_t end, Op& op) {
    std::string value;
    std::uint64_t sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += op(i, value);
    return sum;
  }

  template <class Op>
  [[gnu::noinline]] std::uint64_t TimedLoop(std::size_t begin, std::size_t end, Op& op) {
    std::string value;
    std::uint64_t sum = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint64_t start = Nanoseconds();
      sum += op(i, value);
      meter_.Sample(i, Nanoseconds() - start);
    }
    return sum;
  }

  // A phase that is one call of the engine for `n` records.
  template <class Body>
  bool Whole(const char* name, std::uint64_t n, Body body, const std::uint64_t* sum = nullptr) {
    meter_.Begin(1, 0);
    const bool good = body();
    meter_.End(name, n, sum == nullptr ? 0 : *sum);
    return good || meter_.Fail(name, "the engine reported an error");
  }

  template <bool kBegin>
  bool Hook(Phase phase) {
    return RunHook<kBegin>(*engine_, phase);
  }

  bool Verify(const workload::Operands& ops, int generation) {
    if (!options_.verify || !kValidates) return true;
    const Phase phase = Phase::kGet;
    std::string value;
    bool good = Hook<true>(phase);
    for (std::size_t i = 0; i < ops.size() && good; ++i)
      good = engine_->Get(ops.keys[i], &value) && value == work_.Value(ops.ids[i], generation);
    good = Hook<false>(phase) && good;
    return good || meter_.Fail("verify", "a value is missing or differs");
  }

  bool Expect(const char* what, std::optional<std::uint64_t> found, std::uint64_t expected) {
    if (!kValidates || found == expected) return true;
    return meter_.Fail(what, found ? "the checksum is wrong" : "the engine reported an error");
  }

  static constexpr bool kValidates = !requires { E::kNull; };  // the null engine stores nothing

  const Options& options_;
  const workload::Workload& work_;
  Meter meter_;
  std::optional<E> engine_;  // made at open: its memory is to be counted
  bool updated_ = false;
};

template <Engine E>
int Main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]).starts_with("--session=")) return Session<E>(argc, argv);
  const std::optional<Options> options = Options::Parse(argc, argv);
  if (!options) return 2;
  if (!E::kConcurrent && options->threads > 1) return std::fprintf(stderr, "%s: one thread only\n", std::string(E::kName).c_str()), 2;
  for (workload::Kind kind : options->workloads) {
    const workload::Workload work = workload::Make(kind, options->n, options->seed);
    if (!Driver<E>(*options, work).Run()) return 1;
  }
  return 0;
}

}  // namespace hako::compare
