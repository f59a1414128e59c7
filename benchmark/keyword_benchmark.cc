// Case-insensitive look-up of names in the token table of h2o (http_names.h, 81 names): the keyword
// table of hako beside chains of strncasecmp, the switch that h2o had, gperf and a hash map.
//
//   seed      the look-ups of the post "h2o kosokuka challenge" (2014): six names and two misses, in turn
//   misses    the same names with one byte changed
//   case      the same in random case
//   shuffled  the same in random order
//   all       every name of the table, in random order
//
// The items are look-ups; one run of the loop makes 64 Ki, with the results added up, and is checked
// against the chain before the clock starts. Each look-up is a call of a function that is not
// inlined. The texts are few, so this is the price of the look-up, not of memory.
#include <benchmark/benchmark.h>
#include <strings.h>

#include <cctype>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hako/base/keyword_table.h"
#include "hako/version.h"
#include "http_names.h"
#include "workload.h"

#ifdef HAKO_HAVE_GPERF
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wregister"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#include "http_names_gperf.inc"
#pragma GCC diagnostic pop
#endif

namespace hako {
namespace {

using benchmark::State;

#define HAKO_VIEW_AND_COMMA(name) std::string_view(name),
constexpr std::string_view kNames[] = {HAKO_HTTP_NAMES(HAKO_VIEW_AND_COMMA)};
constexpr KeywordTable<std::size(kNames)> kTable({HAKO_HTTP_NAMES(HAKO_VIEW_AND_COMMA)});

constexpr char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

[[gnu::noinline]] int Keywords(const char* text, std::size_t size) { return kTable.Find({text, size}); }

[[gnu::noinline]] int RuntimeKeywords(const char* text, std::size_t size) {
  static const RuntimeKeywordTable* const table =
      new RuntimeKeywordTable(*RuntimeKeywordTable::Make(std::vector<std::string>(std::begin(kNames), std::end(kNames))));
  return table->Find({text, size});
}

[[gnu::noinline]] int Chain(const char* text, std::size_t size) {
  int index = 0;
#define HAKO_COMPARE(name)                                                                      \
  if (size == sizeof(name) - 1 && strncasecmp(text, name, sizeof(name) - 1) == 0) return index; \
  ++index;
  HAKO_HTTP_NAMES(HAKO_COMPARE)
  return -1;
}

[[gnu::noinline]] bool EqualByBytes(const char* text, const char* name, std::size_t size) {
  for (; size != 0; --size) {
    if (Lower(*text++) != *name++) return false;
  }
  return true;
}
[[gnu::noinline]] int Switch(const char* text, std::size_t size) {
#define EQUAL(text, name, size) EqualByBytes(text, name, size)
#include "http_names_switch.inc"
#undef EQUAL
}
[[gnu::noinline]] int SwitchStrncasecmp(const char* text, std::size_t size) {
#define EQUAL(text, name, size) (strncasecmp(text, name, size) == 0)
#include "http_names_switch.inc"
#undef EQUAL
}

#ifdef HAKO_HAVE_GPERF
[[gnu::noinline]] int Gperf(const char* text, std::size_t size) {
  const GperfName* const name = GperfNames::Find(text, size);
  return name == nullptr ? -1 : name->index;
}
#endif

[[gnu::noinline]] int FlatHashMap(const char* text, std::size_t size) {
  static const auto* const map = [] {
    auto* made = new absl::flat_hash_map<std::string, int>;
    for (std::size_t i = 0; i < std::size(kNames); ++i) made->emplace(kNames[i], static_cast<int>(i));
    return made;
  }();
  char folded[64];
  if (size > sizeof(folded)) return -1;
  for (std::size_t i = 0; i < size; ++i) folded[i] = Lower(text[i]);
  const auto found = map->find(absl::string_view(folded, size));
  return found == map->end() ? -1 : found->second;
}

constexpr const char* kSeed[] = {"content-length", "if-modified-since", "last-modified", "user-agent",
                                 "Content-Length", "If-Modified-Since", "user-agemt",    "if-modified-sinke"};

struct Workload {
  explicit Workload(std::string_view name) {
    workload::Random random(2014);
    std::deque<std::string>& all = texts;
    if (name == "all") {
      all.assign(std::begin(kNames), std::end(kNames));
    } else {
      const int rounds = name == "misses" || name == "case" ? 32 : 1;
      for (int i = 0; i < rounds; ++i) all.insert(all.end(), std::begin(kSeed), std::end(kSeed));
    }
    for (std::string& text : all) {
      if (name == "misses") text[random.Below(static_cast<std::uint32_t>(text.size()))] ^= static_cast<char>(1 + random.Below(25));
      for (char& c : text) {
        if (name == "case" && std::isalpha(static_cast<unsigned char>(c)) != 0 && random.Below(2) != 0) c ^= 32;
      }
    }
    const bool shuffles = name == "shuffled" || name == "all";
    for (std::uint32_t i = 0; i < 65536; ++i)
      lookups.push_back(all[shuffles ? random.Below(static_cast<std::uint32_t>(all.size())) : i % all.size()]);
  }

  std::deque<std::string> texts;
  std::vector<std::string_view> lookups;
};

using Find = int (*)(const char*, std::size_t);

template <Find kFind>
void Look(State& state, const char* name) {
  const Workload workload(name);
  for (const std::string_view text : workload.lookups) {
    if (kFind(text.data(), text.size()) != Chain(text.data(), text.size())) return state.SkipWithError("a look-up is wrong");
  }
  std::int64_t sum = 0;
  for (auto _ : state) {
    for (const std::string_view text : workload.lookups) sum += kFind(text.data(), text.size());
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(workload.lookups.size()));
  state.counters["each"] = benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(workload.lookups.size()),
                                              benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void RegisterAll() {
  benchmark::AddCustomContext("hako", HAKO_VERSION_STRING);
  benchmark::AddCustomContext("build", HAKO_BUILD_FACTS);
  for (const char* workload : {"seed", "misses", "case", "shuffled", "all"}) {
    const auto add = [&](const char* way, void (*look)(State&, const char*)) {
      benchmark::RegisterBenchmark((std::string(workload) + "/" + way).c_str(), look, workload);
    };
    add("hako", Look<Keywords>);
    add("hako_runtime", Look<RuntimeKeywords>);
    add("chain", Look<Chain>);
    add("switch", Look<Switch>);
    add("switch_strncasecmp", Look<SwitchStrncasecmp>);
#ifdef HAKO_HAVE_GPERF
    add("gperf", Look<Gperf>);
#endif
    add("flat_hash_map", Look<FlatHashMap>);
  }
}
[[maybe_unused]] const bool registered = (RegisterAll(), true);

}  // namespace
}  // namespace hako
