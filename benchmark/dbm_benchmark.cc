// Every DBM on every kind of file, under the names of LevelDB's db_bench:
//
//   fillseq, fillrandom  Set of n new keys, ascending or shuffled, into a database made with default options: it grows all the while
//   overwrite            Set of another value of the same size for a random key
//   overwritebatch<m>    the same in batches: WriteBatch of m keys, and Write; an item is one record
//   readseq              all records by ProcessEach, in the order of the table or of the keys
//   readreverse          all records by an iterator, from the last to the first (in order only, as the next two)
//   seekrandom           Jump to a random key, and its value
//   scan100              Jump to a random key, and the values of 100 records from there on; an item is one of them
//   readrandom           Get of a random key into a string that is reused
//   readmulti            GetMulti of 32 random keys into strings that are reused
//   readmissing          Get of a key that is not there, but lies among those that are
//   deleterandom         Remove of all n keys, shuffled
//
// One item is one operation on one record. fill* and delete* time n operations as one iteration,
// without opening, Synchronize and Close. The others share one database, filled in ascending order,
// until kind or arguments change; with several threads each has its own part of the keys. Keys and
// values are generated before the clock starts and stored in the order of use.
//
// Every result is checked: a timed loop adds up a checksum, which is compared afterwards.
//
// Files are in $TMPDIR, else in /tmp. NOTES.md describes how to measure.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "hako/hako.h"
#include "workload.h"

namespace hako {
namespace {

using benchmark::State;
using workload::Rows;
using Ids = std::vector<std::uint32_t>;

constexpr std::uint64_t kSeed = 1978;

struct Shape {
  std::uint32_t n = 0;
  std::size_t key_size = 0;
  std::size_t value_size = 0;
  friend bool operator==(const Shape&, const Shape&) = default;
};

Shape ShapeOf(const State& state) {
  return {static_cast<std::uint32_t>(state.range(0)), static_cast<std::size_t>(state.range(1)), static_cast<std::size_t>(state.range(2))};
}

// Cheap, and touches both ends of the copied value.
std::uint64_t Edges(std::string_view bytes) {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  const std::size_t size = std::min(bytes.size(), sizeof(first));
  std::memcpy(&first, bytes.data(), size);
  std::memcpy(&last, bytes.data() + bytes.size() - size, size);
  return first * 3 + last + bytes.size();
}

// The operands of a kind of operation, in the order of use.
struct Operands {
  Rows keys;
  Rows values;
  std::vector<std::uint64_t> edges;  // of the values

  void Make(const Shape& shape, const Ids& ids, int generation) {
    keys.Reset(shape.key_size, ids.size());
    values.Reset(shape.value_size, ids.size());
    edges.resize(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      workload::WriteDecimal(ids[i], shape.key_size, keys.row(i));
      workload::WriteValue(ids[i], generation, kSeed, values.row(i), shape.value_size);
      edges[i] = Edges(values[i]);
    }
  }
};

struct Data {
  Shape shape;
  Operands ascending, shuffled;
  Operands other;  // as shuffled, with other values
  Rows missing;

  explicit Data(const Shape& s) : shape(s) {
    Ids ids(s.n);
    std::iota(ids.begin(), ids.end(), 0u);
    ascending.Make(s, ids, 0);
    ids = workload::Shuffled(std::move(ids), workload::Random(kSeed));
    shuffled.Make(s, ids, 0);
    other.Make(s, ids, 1);
    missing.Reset(s.key_size, s.n);
    for (std::size_t i = 0; i < ids.size(); ++i) {  // digits, then a letter
      workload::WriteDecimal(ids[i] / 10, s.key_size - 1, missing.row(i));
      missing.row(i)[s.key_size - 1] = static_cast<char>('a' + ids[i] % 10);
    }
  }

  // The data of the benchmark that runs; one at a time, as it may be large.
  static const Data& Of(const State& state) {
    static std::unique_ptr<Data> current;
    if (current == nullptr || current->shape != ShapeOf(state)) {
      current.reset();
      current = std::make_unique<Data>(ShapeOf(state));
    }
    return *current;
  }
};

// A folder for the files, removed at the end.
const std::filesystem::path& Folder() {
  struct Holder {
    std::filesystem::path path = std::filesystem::temp_directory_path() / ("hako_dbm_benchmark." + std::to_string(getpid()));
    Holder() { std::filesystem::create_directories(path); }
    ~Holder() { std::filesystem::remove_all(path); }
  };
  static const Holder holder;
  return holder.path;
}

template <class D>
StatusOr<std::unique_ptr<D>> OpenNew(const char* name) {
  if constexpr (std::same_as<D, TinyDBM<>> || std::same_as<D, BabyDBM<>>) {
    return D::Open();
  } else if constexpr (std::same_as<D, TreeDBM<>>) {  // without a log, as the others
    return D::Open(Folder() / name, {.durability = Durability::kNone}, FileOptions{.mode = OpenMode::kTruncate});
  } else if constexpr (std::same_as<D, HashDBM<MemoryFile>>) {
    return D::Open(MemoryFile());
  } else {
    return D::Open(Folder() / name, HashOptions(), FileOptions{.mode = OpenMode::kTruncate});
  }
}

// A new database that holds `content`.
template <class D>
StatusOr<std::unique_ptr<D>> NewHolding(const char* name, const Operands& content) {
  HAKO_ASSIGN_OR_RETURN(auto db, OpenNew<D>(name));
  for (std::size_t i = 0; i < content.keys.size(); ++i) HAKO_RETURN_IF_ERROR(db->Set(content.keys[i], content.values[i]));
  return db;
}

// Whether the database holds records [begin, end) of `content`.
template <class D>
bool Holds(D& db, const Operands& content, std::size_t begin, std::size_t end) {
  std::string value;
  for (std::size_t i = begin; i < end; ++i) {
    if (!db.Get(content.keys[i], &value).ok() || value != content.values[i]) return false;
  }
  return true;
}

template <class D>
void CountBytes(State& state, D& db) {
  const Stats stats = db.GetStats();
  state.counters["bytes/record"] = static_cast<double>(stats.total_bytes) / static_cast<double>(stats.num_records);
}

// ---- n operations as one iteration; only `body` is timed ----

template <class Body>
void TimeWhole(State& state, Body body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  state.SetItemsProcessed(state.range(0));  // one iteration
}

template <class D>
void Fill(State& state, const Operands& content) {
  const std::size_t n = content.keys.size();
  for (auto _ : state) {
    const StatusOr<std::unique_ptr<D>> db = OpenNew<D>("fill");
    if (!db.ok()) return state.SkipWithError(db.status().ToString().c_str());
    bool good = true;
    TimeWhole(state, [&] {
      for (std::size_t i = 0; i < n; ++i) good &= (*db)->Set(content.keys[i], content.values[i]).ok();
    });
    CountBytes(state, **db);
    if (!good || (*db)->Count() != n || !Holds(**db, content, 0, n)) return state.SkipWithError("a record is missing or wrong");
  }
}

template <class D>
void FillSeq(State& state) {
  Fill<D>(state, Data::Of(state).ascending);
}

template <class D>
void FillRandom(State& state) {
  Fill<D>(state, Data::Of(state).shuffled);
}

template <class D>
void DeleteRandom(State& state) {
  const Data& data = Data::Of(state);
  for (auto _ : state) {
    const StatusOr<std::unique_ptr<D>> db = NewHolding<D>("delete", data.ascending);
    if (!db.ok()) return state.SkipWithError(db.status().ToString().c_str());
    bool good = true;
    TimeWhole(state, [&] {
      for (std::size_t i = 0; i < data.shuffled.keys.size(); ++i) good &= (*db)->Remove(data.shuffled.keys[i]).ok();
    });
    if (!good || (*db)->Count() != 0) return state.SkipWithError("a record was not removed");
  }
}

// ---- operations one by one, on a database that stays from benchmark to benchmark ----

// One at a time, of any kind.
struct {
  const std::type_info* kind = nullptr;
  Shape shape;
  StatusOr<std::shared_ptr<void>> db = absl::UnknownError("not made");
} shared;

// Before the threads of a benchmark start.
template <class D>
void MakeShared(const State& state) {
  const Data& data = Data::Of(state);
  if (shared.db.ok() && *shared.kind == typeid(D) && shared.shape == data.shape) return;
  shared.db = absl::UnknownError("not made");  // closes the one there is
  shared.kind = &typeid(D);
  shared.shape = data.shape;
  StatusOr<std::unique_ptr<D>> db = NewHolding<D>("shared", data.ascending);
  if (db.ok()) {
    shared.db = std::shared_ptr<D>(*std::move(db));
  } else {
    shared.db = db.status();
  }
}

// nullptr after an error, which is then told.
template <class D>
D* GetShared(State& state) {
  if (shared.db.ok()) return static_cast<D*>(shared.db->get());
  state.SkipWithError(shared.db.status().ToString().c_str());
  return nullptr;
}

// The part of n operands that is this thread's, again and again.
class Turns {
 public:
  Turns(const State& state, std::size_t n)
      : begin_(n * static_cast<std::size_t>(state.thread_index()) / static_cast<std::size_t>(state.threads())),
        end_(n * static_cast<std::size_t>(state.thread_index() + 1) / static_cast<std::size_t>(state.threads())),
        at_(begin_) {}

  std::size_t Next() {
    const std::size_t at = at_++;
    if (at_ == end_) at_ = begin_;
    return at;
  }
  std::size_t begin() const { return begin_; }
  std::size_t end() const { return end_; }

 private:
  std::size_t begin_, end_, at_;
};

// Runs op(database, data, index of the operand) in a loop, counts, and asks whether all went well
// by check(database, data).
template <class D, class Op, class Check>
void EachByTurns(State& state, Op op, Check check) {
  D* const db = GetShared<D>(state);
  if (db == nullptr) return;
  const Data& data = Data::Of(state);
  Turns turns(state, data.shape.n);
  bool good = true;
  for (auto _ : state) good &= op(*db, data, turns.Next());
  state.SetItemsProcessed(state.iterations());
  if (state.thread_index() == 0) CountBytes(state, *db);
  if (!good || !check(*db, data)) state.SkipWithError("a result is wrong");
}

template <class D>
void ReadRandom(State& state) {
  std::string value;
  std::uint64_t sum = 0;
  const auto get = [&](D& db, const Data& data, std::size_t i) {
    const bool good = db.Get(data.shuffled.keys[i], &value).ok();
    sum += Edges(value);
    return good;
  };
  EachByTurns<D>(state, get, [&](D&, const Data& data) {
    Turns turns(state, data.shape.n);
    for (std::int64_t i = 0; i < state.iterations(); ++i) sum -= data.shuffled.edges[turns.Next()];
    return sum == 0;
  });
}

// Counted in keys.
template <class D>
void ReadMulti(State& state) {
  constexpr std::size_t kKeys = 32;
  D* const db = GetShared<D>(state);
  if (db == nullptr) return;
  const Operands& operands = Data::Of(state).shuffled;
  Turns turns(state, operands.keys.size());
  std::array<std::string_view, kKeys> keys;
  std::array<std::optional<std::string>, kKeys> values;
  std::uint64_t sum = 0, expected = 0;
  bool good = true;
  for (auto _ : state) {
    for (std::string_view& key : keys) {
      const std::size_t i = turns.Next();
      key = operands.keys[i];
      expected += operands.edges[i];
    }
    good &= db->GetMulti(keys, values).ok();
    for (const std::optional<std::string>& value : values) sum += value ? Edges(*value) : 0;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kKeys));
  if (!good || sum != expected) state.SkipWithError("a result is wrong");
}

template <class D>
void ReadMissing(State& state) {
  std::string value;
  const auto get = [&](D& db, const Data& data, std::size_t i) { return absl::IsNotFound(db.Get(data.missing[i], &value)); };
  EachByTurns<D>(state, get, [](D&, const Data&) { return true; });
}

// Counted in records.
template <class D, std::size_t kSize>
void OverwriteBatch(State& state) {
  D* const db = GetShared<D>(state);
  if (db == nullptr) return;
  const Data& data = Data::Of(state);
  Turns turns(state, data.shape.n);
  WriteBatch batch;
  bool good = true;
  for (auto _ : state) {
    batch.Clear();
    for (std::size_t n = 0; n < kSize; ++n) {
      const std::size_t i = turns.Next();
      batch.Set(data.other.keys[i], data.other.values[i]);
    }
    good &= db->Write(batch).ok();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kSize));
  const std::size_t end = turns.begin() + std::min(turns.end() - turns.begin(), static_cast<std::size_t>(state.iterations()) * kSize);
  good &= Holds(*db, data.other, turns.begin(), end);
  for (std::size_t i = turns.begin(); i < end; ++i) good &= db->Set(data.shuffled.keys[i], data.shuffled.values[i]).ok();
  if (!good) state.SkipWithError("a result is wrong");
}

template <class D>
void Overwrite(State& state) {
  const auto set = [](D& db, const Data& data, std::size_t i) { return db.Set(data.other.keys[i], data.other.values[i]).ok(); };
  EachByTurns<D>(state, set, [&](D& db, const Data& data) {
    const Turns turns(state, data.shape.n);
    const std::size_t end = turns.begin() + std::min(turns.end() - turns.begin(), static_cast<std::size_t>(state.iterations()));
    bool good = Holds(db, data.other, turns.begin(), end);
    for (std::size_t i = turns.begin(); i < end; ++i) good &= db.Set(data.shuffled.keys[i], data.shuffled.values[i]).ok();
    return good;
  });
}

template <class D>
void ReadSeq(State& state) {
  D* const db = GetShared<D>(state);
  if (db == nullptr) return;
  const Operands& content = Data::Of(state).ascending;
  const auto sum_of = [](std::string_view key, std::string_view value) { return (Edges(key) | 1) * (Edges(value) | 1); };
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < content.keys.size(); ++i) expected += sum_of(content.keys[i], content.values[i]);
  bool good = true;
  for (auto _ : state) {
    std::uint64_t sum = 0;
    good &= db->ProcessEach([&](std::string_view key, std::string_view value) { sum += sum_of(key, value); }).ok();
    good &= sum == expected;
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  CountBytes(state, *db);
  if (!good) state.SkipWithError("the scan is wrong");
}

// ---- in order ----

template <class D>
void ReadReverse(State& state) {
  D* const db = GetShared<D>(state);
  if (db == nullptr) return;
  const Operands& content = Data::Of(state).ascending;
  bool good = true;
  for (auto _ : state) {
    std::uint64_t sum = 0, expected = 0;
    std::size_t i = content.keys.size();
    auto it = db->MakeIterator();
    for (it.Last(); it.Valid() && i > 0; it.Previous()) {
      sum += Edges(it.value()) * (Edges(it.key()) | 1);
      --i;
      expected += content.edges[i] * (Edges(content.keys[i]) | 1);
    }
    good &= i == 0 && !it.Valid() && sum == expected;
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  if (!good) state.SkipWithError("the scan is wrong");
}

// Jumps to a random key again and again, by an iterator that stays, and reads kLength records.
template <class D, std::size_t kLength>
void Seek(State& state) {
  D* const db = GetShared<D>(state);
  if (db == nullptr) return;
  const Data& data = Data::Of(state);
  const std::size_t n = data.shape.n;
  Turns turns(state, n);
  auto it = db->MakeIterator();
  std::uint64_t sum = 0;
  for (auto _ : state) {
    std::size_t left = kLength;
    for (it.Jump(data.shuffled.keys[turns.Next()]); left > 0 && it.Valid(); --left, it.Next()) sum += Edges(it.value());
  }
  Turns again(state, n);
  std::uint64_t num_read = 0;
  for (std::int64_t i = 0; i < state.iterations(); ++i) {
    const std::size_t first = std::stoul(std::string(data.shuffled.keys[again.Next()]));  // a key is its place, in digits
    for (std::size_t at = first; at < std::min(first + kLength, n); ++at, ++num_read) sum -= data.ascending.edges[at];
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(num_read));
  if (sum != 0 || !it.status().ok()) state.SkipWithError("a result is wrong");
}

// ---- what there is to run ----

template <class D>
void Register(const std::string& name, const Shape& shape) {
  const auto add = [&](const char* operation, void (*function)(State&)) {
    return benchmark::RegisterBenchmark((operation + ("/" + name)).c_str(), function)
        ->ArgNames({"n", "key", "value"})
        ->Args({shape.n, static_cast<std::int64_t>(shape.key_size), static_cast<std::int64_t>(shape.value_size)});
  };
  const auto add_whole = [&](const char* operation, void (*function)(State&)) {
    add(operation, function)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
  };
  const auto add_shared = [&](const char* operation, void (*function)(State&)) {
    return add(operation, function)->Setup(MakeShared<D>)->UseRealTime();
  };
  add_whole("fillseq", FillSeq<D>);
  add_whole("fillrandom", FillRandom<D>);
  add_shared("readseq", ReadSeq<D>)->Unit(benchmark::kMillisecond);
  add_shared("readrandom", ReadRandom<D>)->ThreadRange(1, 2);
  add_shared("readmulti", ReadMulti<D>)->ThreadRange(1, 2);
  add_shared("readmissing", ReadMissing<D>)->ThreadRange(1, 2);
  add_shared("overwrite", Overwrite<D>)->ThreadRange(1, 2);
  add_shared("overwritebatch1", OverwriteBatch<D, 1>)->ThreadRange(1, 2);
  add_shared("overwritebatch10", OverwriteBatch<D, 10>)->ThreadRange(1, 2);
  add_shared("overwritebatch100", OverwriteBatch<D, 100>)->ThreadRange(1, 2);
  add_shared("overwritebatch1000", OverwriteBatch<D, 1000>)->ThreadRange(1, 2);
  if constexpr (OrderedDBM<D>) {
    add_shared("readreverse", ReadReverse<D>)->Unit(benchmark::kMillisecond);
    add_shared("seekrandom", Seek<D, 1>)->ThreadRange(1, 2);
    add_shared("scan100", Seek<D, 100>)->ThreadRange(1, 2);
  }
  add_whole("deleterandom", DeleteRandom<D>);
}

void RegisterAll() {
  benchmark::AddCustomContext("hako", HAKO_VERSION_STRING);
  benchmark::AddCustomContext("build", HAKO_BUILD_FACTS);
  const bool smoke = std::getenv("HAKO_BENCHMARK_SMOKE") != nullptr;
  for (const Shape& shape : {Shape{1'000'000, 8, 8}, Shape{1'000'000, 16, 100}, Shape{100'000, 24, 1000}}) {
    const Shape size{smoke ? 1000 : shape.n, shape.key_size, shape.value_size};
    Register<HashDBM<MemoryMapParallelFile>>("hash/mmap", size);
    Register<HashDBM<PositionalParallelFile>>("hash/pos", size);
    Register<HashDBM<MemoryFile>>("hash/memory", size);
    Register<HashDBM<AnyFile>>("hash/any", size);
    Register<TinyDBM<>>("tiny", size);
    Register<BabyDBM<>>("baby", size);
    Register<TreeDBM<>>("tree", size);
  }
}
[[maybe_unused]] const bool registered = (RegisterAll(), true);

}  // namespace
}  // namespace hako
