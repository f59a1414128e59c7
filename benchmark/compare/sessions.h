// One session with a database that outlives the process, in place of the phases of driver.h:
//
//   PROGRAM --session=set|get --from=A --to=B --dir=DIR [--n=N] [--settings=...] [--random] [--counter=FILE]
//
// opens DIR/kName.compare, sets or gets the records numbered A .. B-1, and closes. The key is the
// number as %08d and the value equals the key. Prints a line of JSON: engine, session, ns (from
// Open to the end of Close), found, wrong, `found_before` and `wrong_before` (of numbers below
// --split=S, which are counted apart). --n is the number of records to tune for. --random draws N of
// the keys 1 .. N by the generator of Tokyo Cabinet's article of 2008, for sets and gets alike.
//
// With --counter the number of acknowledged Sets is stored in that file, which is mapped, so it
// survives a kill. Engines with transactions (the hooks of driver.h) then commit every 1,000
// records and acknowledge those; others acknowledge each.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <new>

#include "meter.h"

namespace hako::compare {

enum class Phase { kFill, kGet, kAbsent, kUpdate, kScan, kScan100, kRemove };

template <bool kBegin, class E>
bool RunHook(E& engine, Phase phase) {
  if constexpr (kBegin && requires { engine.BeginPhase(phase); }) return engine.BeginPhase(phase);
  if constexpr (!kBegin && requires { engine.EndPhase(phase); }) return engine.EndPhase(phase);
  return true;
}

inline std::atomic<std::uint64_t>* MapCounter(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0 || ftruncate(fd, 4096) != 0) return nullptr;
  void* const map = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return map == MAP_FAILED ? nullptr : new (map) std::atomic<std::uint64_t>(0);
}

template <class E>
int Session(int argc, char** argv) {
  std::uint64_t from = 0, to = 0, n = 0, split = 0;
  bool set = false, random = false;
  std::string counter_path;
  std::vector<char*> others = {argv[0]};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto number = [&](std::string_view name, std::uint64_t* out) {
      return argument.starts_with(name) &&
             std::from_chars(argument.data() + name.size(), argument.data() + argument.size(), *out).ec == std::errc();
    };
    if (argument == "--session=set")
      set = true;
    else if (argument == "--random")
      random = true;
    else if (argument.starts_with("--counter="))
      counter_path = argument.substr(10);
    else if (argument != "--session=get" && !number("--from=", &from) && !number("--to=", &to) && !number("--split=", &split) &&
             !number("--n=", &n))
      others.push_back(argv[i]);
  }
  const std::optional<Options> options = Options::Parse(static_cast<int>(others.size()), others.data());
  if (!options || to < from || to > workload::kRecordsMax) return 2;
  if (n == 0) n = to;
  std::atomic<std::uint64_t> unshared{0};
  std::atomic<std::uint64_t>* const counter = counter_path.empty() ? &unshared : MapCounter(counter_path);
  if (counter == nullptr) return Fail("cannot map the counter"), 2;

  workload::Rows keys;
  keys.Reset(8, to - from);
  std::vector<std::uint32_t> ids(to - from);
  srand48(1978);
  for (std::uint64_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::uint32_t>(random ? (static_cast<std::uint64_t>(lrand48()) + i) % ids.size() + 1 : from + i);
    workload::WriteDecimal(ids[i], 8, keys.row(i));
  }
  const std::string path = (std::filesystem::path(options->dir) / E::kName).concat(".compare").string();
  constexpr bool kHasHooks = requires(E & e) { e.EndPhase(Phase::kFill); };
  const std::uint64_t group = counter_path.empty() ? ~std::uint64_t{0} : kHasHooks ? 1'000 : 1;
  const Phase phase = set ? Phase::kFill : Phase::kGet;
  std::uint64_t found = 0, wrong = 0, found_before = 0, wrong_before = 0;
  std::string value;

  const std::uint64_t start = Nanoseconds();
  const auto engine = std::make_unique<E>();
  if (!engine->Open(path, n)) return Fail("open failed"), 3;
  if (!RunHook<true>(*engine, phase)) return Fail("the first transaction failed"), 3;
  for (std::uint64_t i = 0; i < ids.size(); ++i) {
    if (set) {
      if (!engine->Set(keys[i], keys[i])) return Fail("a Set failed"), 1;
      if ((i + 1) % group != 0) continue;
      if (group > 1 && (!RunHook<false>(*engine, phase) || !RunHook<true>(*engine, phase))) return Fail("a commit failed"), 1;
      counter->store(i + 1, std::memory_order_release);
    } else if (engine->Get(keys[i], &value)) {
      const bool before = ids[i] < split;
      ++(value != keys[i] ? before ? wrong_before : wrong : before ? found_before : found);
    }
  }
  if (!RunHook<false>(*engine, phase)) return Fail("the last commit failed"), 1;
  const bool closed = engine->Close();
  const std::uint64_t ns = Nanoseconds() - start;
  std::printf(
      "{\"engine\":\"%s\",\"session\":\"%s\",\"ns\":%llu,\"found\":%llu,\"wrong\":%llu,\"found_before\":%llu,\"wrong_before\":%llu}\n",
      std::string(E::kName).c_str(), set ? "set" : "get", static_cast<unsigned long long>(ns), static_cast<unsigned long long>(found),
      static_cast<unsigned long long>(wrong), static_cast<unsigned long long>(found_before), static_cast<unsigned long long>(wrong_before));
  return closed ? 0 : (Fail("close failed"), 1);
}

}  // namespace hako::compare
