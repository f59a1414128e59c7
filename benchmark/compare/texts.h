// The driver for indices of text, of words and of substrings, over a corpus of texts_corpora.py. Each
// engine is a program, and each phase prints a line of JSON. texts.py runs the programs in turn and
// compares them.
//
//   import    Puts all rows into a new table without an index, into one with an index of words, and into
//             one with an index of substrings, --batch rows or 2 MiB in one step. Prints the seconds; those
//             that the merging of what the load has left takes, if the engine has that; those of
//             closing; the growth of peak memory (VmHWM, which counts pages of mapped files) since
//             before the import; the bytes of the closed files, and once more after they are made as
//             small as the engine can (Rebuild, VACUUM, compact).
//   build     Creates the index of words on the full table, then that of substrings. Prints the same
//             without the last.
//   count     With both indices: counts the rows of each query of a kind. Prints the ns of a query:
//             the median of the passes over all queries of the kind that fit into --budget seconds.
//             The program fails unless every count is that of the corpus.
//   first     The same, but shows all columns of the first ten rows. `sum` is over them.
//   put       With both indices: puts one row in a step. The key is new, and the other columns are those
//             of a row drawn at random. Prints the median, mean, 99.9 % and longest ns of --singles
//             rows, or of as many as fit into --seconds.
//   update    The same: gives a row the text of another one, and then its own text again.
//   remove    The same: removes the rows that were put. Afterwards the table is as before, and all
//             queries are counted again.
//
// Programs take --corpus=DIR/NAME --dir=DIR --batch=8000 --singles=N --seconds=S --budget=S.
//
// An engine is a class with the functions that TextsDriver calls. kIndices has the bits of its indices.
// kBuilds says whether it can index a full table, kHasOwnWords whether its words are those of SQLite,
// kFindsMore whether its substrings ignore case. An engine with BeginSingles takes part in put,
// update and remove.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "table.h"

namespace hako::compare {

inline constexpr unsigned kWords = 1, kGrams = 2;

// Reads a cell in the form of a corpus, and moves behind it.
inline std::string_view ReadCell(const char** at) {
  std::uint32_t size;
  std::memcpy(&size, *at, sizeof(size));
  const std::string_view cell(*at + sizeof(size), size);
  *at = cell.data() + cell.size();
  return cell;
}

struct TextRow {
  std::string_view bytes;               // as in the file
  std::vector<std::string_view> cells;  // the key first, the text last
  std::string_view words;               // of the text, folded, with blanks between them

  std::string_view key() const { return cells.front(); }
  std::string_view text() const { return cells.back(); }
};

struct TextQuery {
  enum Kind { kRareWord, kFrequentWord, kTwoWords, kPhrase, kNotWord, kRareSubstring, kFrequentSubstring, kTwoCharacters, kKinds };
  static constexpr const char* kNames[] = {"rare_word", "frequent_word",  "two_words",          "phrase",
                                           "not_word",  "rare_substring", "frequent_substring", "two_characters"};
  Kind kind;
  std::string argument;  // words with blanks between them, or a substring
  std::uint64_t count;   // of the rows

  bool IsOfWords() const { return kind < kRareSubstring; }
  // The words before and behind the first blank.
  std::string First() const { return argument.substr(0, argument.find(' ')); }
  std::string Second() const { return argument.substr(argument.find(' ') + 1); }
};

class Texts {
 public:
  std::vector<std::string> columns;  // of the key first, of the text last
  std::vector<TextRow> rows;
  std::vector<TextQuery> queries;

  // With `has_own_words` the counts are those by SQLite's words.
  bool Read(const std::string& corpus, bool has_own_words) {
    if (!ReadFile(corpus + ".rows", &bytes_) || !ReadFile(corpus + ".words", &words_)) return false;
    const char *at = bytes_.data(), *words = words_.data();
    std::uint32_t num_columns;
    std::memcpy(&num_columns, at, sizeof(num_columns));
    at += sizeof(num_columns), words += sizeof(num_columns);
    for (std::uint32_t i = 0; i < num_columns; ++i) columns.emplace_back(ReadCell(&at));
    ReadCell(&words);
    while (at < bytes_.data() + bytes_.size()) {
      TextRow row;
      const char* const begin = at;
      for (std::uint32_t i = 0; i < num_columns; ++i) row.cells.push_back(ReadCell(&at));
      row.bytes = {begin, static_cast<std::size_t>(at - begin)};
      row.words = ReadCell(&words);
      rows.push_back(std::move(row));
    }
    std::ifstream file(corpus + ".queries");
    for (std::string kind, argument, count, own_count; std::getline(file, kind, '\t') && std::getline(file, argument, '\t') &&
                                                       std::getline(file, count, '\t') && std::getline(file, own_count);) {
      const auto* const name = std::find(std::begin(TextQuery::kNames), std::end(TextQuery::kNames), kind);
      queries.push_back({static_cast<TextQuery::Kind>(name - TextQuery::kNames), argument, std::stoull(has_own_words ? own_count : count)});
    }
    return !rows.empty() && !queries.empty();
  }

 private:
  static bool ReadFile(const std::string& path, std::string* out) {
    std::ifstream file(path, std::ios::binary);
    out->resize(file ? std::filesystem::file_size(path) : 0);
    return file.read(out->data(), static_cast<std::streamsize>(out->size())) && out->size() > 0;
  }

  std::string bytes_, words_;
};

struct TextsOptions {
  std::string corpus, dir = ".";
  std::uint64_t batch = 8000, singles = 100'000;
  double seconds = 20, budget = .2;
};

template <class Engine>
class TextsDriver {
 public:
  explicit TextsDriver(const TextsOptions& options) : options_(options), path_(options.dir + "/texts_" + Engine::kName) {}

  bool Run() {
    if (!texts_.Read(options_.corpus, Engine::kHasOwnWords)) return Fail("no corpus", options_.corpus);
    std::printf("{\"engine\": \"%s\", \"phase\": \"corpus\", \"rows\": %zu, \"columns\": %zu}\n", Engine::kName, texts_.rows.size(),
                texts_.columns.size());
    // The last table stays: indices are built on it or, if the engine builds none, it has the words.
    for (const unsigned kind : Engine::kBuilds ? std::array{kWords, kGrams, 0u} : std::array{0u, kGrams, kWords}) {
      if ((kind & ~Engine::kIndices) == 0 && !Import(kind)) return Fail("import", NameOf(kind));
    }
    for (const unsigned kind : {kWords, kGrams}) {
      if (Engine::kBuilds && !Build(kind)) return Fail("build", NameOf(kind));
    }
    if (!engine_.Open(path_, texts_, Engine::kIndices, false) || !Queries(true)) return Fail("queries", "");
    if constexpr (requires { engine_.BeginSingles(); }) {
      if (!engine_.BeginSingles() || !Singles() || !Queries(false)) return Fail("single rows", "");
    }
    const bool good = engine_.Close();
    Remove();
    return good;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kBatchBytes = 2 << 20;
  static double Since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }
  static const char* NameOf(unsigned kind) { return kind == 0 ? "none" : kind == kWords ? "words" : "grams"; }

  template <class F>
  static bool Timed(double* seconds, F&& f) {
    const auto begin = Clock::now();
    const bool good = f();
    *seconds = Since(begin);
    return good;
  }
  // Loads or builds, merges, and closes.
  template <class F>
  bool Measure(const char* phase, unsigned kind, F&& f) {
    malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << 5;  // VmHWM is VmRSS from here on
    const std::int64_t before = MemoryKb("VmRSS:");
    double seconds, merge_seconds = 0, close_seconds;
    if (!Timed(&seconds, f) || !Timed(&merge_seconds, [&] { return kind == 0 || engine_.Merge(kind); }) ||
        !Timed(&close_seconds, [&] { return engine_.Close(); }))
      return false;
    std::printf(
        "{\"engine\": \"%s\", \"phase\": \"%s\", \"kind\": \"%s\", \"seconds\": %.4f, \"merge_seconds\": %.4f, "
        "\"close_seconds\": %.4f, \"peak_kb\": %lld, \"bytes\": %llu",
        Engine::kName, phase, NameOf(kind), seconds, merge_seconds, close_seconds, static_cast<long long>(MemoryKb("VmHWM:") - before),
        static_cast<unsigned long long>(FileBytes()));
    return true;
  }
  bool Import(unsigned kind) {
    Remove();
    const bool good = Measure("import", kind, [&] {
      if (!engine_.Open(path_, texts_, kind, true)) return false;
      for (std::size_t i = 0, end; i < texts_.rows.size(); i = end) {
        std::size_t bytes = 0;
        for (end = i; end < texts_.rows.size() && end - i < options_.batch && bytes < kBatchBytes; ++end)
          bytes += texts_.rows[end].bytes.size();
        if (!engine_.Put(texts_.rows.data() + i, end - i)) return false;
      }
      return engine_.Flush();
    });
    double seconds;
    if (!good || !engine_.Open(path_, texts_, kind, false) || !Timed(&seconds, [&] { return engine_.Compact(); }) || !engine_.Close())
      return false;
    std::printf(", \"compact_seconds\": %.4f, \"compact_bytes\": %llu}\n", seconds, static_cast<unsigned long long>(FileBytes()));
    std::fflush(stdout);
    return true;
  }
  bool Build(unsigned kind) {
    if (!engine_.Open(path_, texts_, kind - 1, false)) return false;  // the indices before this one
    if (!Measure("build", kind, [&] { return engine_.Build(kind); })) return false;
    std::printf("}\n");
    std::fflush(stdout);
    return true;
  }
  bool Queries(bool timed) {
    for (int kind = 0; kind < TextQuery::kKinds; ++kind) {
      std::vector<const TextQuery*> queries;
      for (const TextQuery& query : texts_.queries) {
        if (query.kind == kind && engine_.Answers(query)) queries.push_back(&query);
      }
      if (queries.empty()) continue;
      for (const TextQuery* query : queries) {
        std::uint64_t count = 0;
        if (!engine_.Count(*query, &count)) return Fail(TextQuery::kNames[kind], query->argument);
        if (count != query->count && !(Engine::kFindsMore && !query->IsOfWords() && count > query->count)) {
          std::fprintf(stderr, "%s: %s '%s': %llu rows, not %llu\n", Engine::kName, TextQuery::kNames[kind], query->argument.c_str(),
                       static_cast<unsigned long long>(count), static_cast<unsigned long long>(query->count));
          return false;
        }
      }
      if (!timed) continue;
      TableSum sum;
      std::uint64_t count = 0, rows = 0, wanted = 0;
      for (const TextQuery* query : queries) wanted += std::min<std::uint64_t>(10, query->count);
      if (!Passes(
              "count", queries, [&](const TextQuery& query) { return engine_.Count(query, &count); }, 0) ||
          !Passes(
              "first", queries, [&](const TextQuery& query) { return engine_.First(query, &sum, &rows); }, &sum, &rows))
        return false;
      if (rows != wanted && !(Engine::kFindsMore && rows > wanted)) return Fail("rows shown", TextQuery::kNames[kind]);
    }
    return true;
  }
  template <class F>
  bool Passes(const char* phase, const std::vector<const TextQuery*>& queries, F&& f, TableSum* sum, std::uint64_t* rows = nullptr) {
    std::vector<double> passes;
    const auto begin = Clock::now();
    do {
      if (sum != nullptr) *sum = {}, *rows = 0;
      double seconds;
      const auto pass = [&] { return std::all_of(queries.begin(), queries.end(), [&](const TextQuery* query) { return f(*query); }); };
      if (!Timed(&seconds, pass)) return Fail(phase, TextQuery::kNames[queries.front()->kind]);
      passes.push_back(seconds);
    } while (Since(begin) < options_.budget);
    std::printf("{\"engine\": \"%s\", \"phase\": \"%s\", \"kind\": \"%s\", \"ns\": %.0f, \"passes\": %zu, \"sum\": %llu}\n", Engine::kName,
                phase, TextQuery::kNames[queries.front()->kind], 1e9 * Quantile(&passes, .5) / static_cast<double>(queries.size()),
                passes.size(), static_cast<unsigned long long>(sum == nullptr ? 0 : sum->sum));
    std::fflush(stdout);
    return true;
  }
  bool Singles() {
    const std::uint64_t n = texts_.rows.size();
    const auto drawn = [&](std::uint64_t i) -> const TextRow& { return texts_.rows[workload::Mix(i) % n]; };
    const auto key = [](std::uint64_t i) { return "~" + TableData::Key(i); };
    std::uint64_t put = 0;
    return Each("put", options_.singles, &put, [&](std::uint64_t i) { return engine_.PutRow(key(i), drawn(i)); }) &&
           Each("update", options_.singles & ~std::uint64_t{1}, nullptr,
                [&](std::uint64_t i) { return engine_.UpdateRow(drawn(i / 2), i % 2 == 0 ? drawn(i + n) : drawn(i / 2)); }) &&
           Each("remove", put, nullptr, [&](std::uint64_t i) { return engine_.RemoveRow(key(i)); });
  }
  // Runs `ops` operations, or an even number of them if the time is up; all removals are made. *done is their number.
  template <class F>
  bool Each(const char* phase, std::uint64_t ops, std::uint64_t* done, F&& f) {
    std::vector<double> times;
    const auto begin = Clock::now();
    const bool is_bounded = std::string_view(phase) != "remove";
    for (std::uint64_t i = 0; i < ops && (!is_bounded || i % 2 == 1 || Since(begin) < options_.seconds); ++i) {
      double seconds;
      if (!Timed(&seconds, [&] { return f(i); })) return Fail(phase, std::to_string(i));
      times.push_back(seconds);
    }
    if (done != nullptr) *done = times.size();
    const double mean = Since(begin) / static_cast<double>(times.size());
    std::printf(
        "{\"engine\": \"%s\", \"phase\": \"%s\", \"kind\": \"both\", \"ops\": %zu, \"ns\": %.0f, \"mean_ns\": %.0f, \"p999_ns\": %.0f, "
        "\"longest_ns\": %.0f}\n",
        Engine::kName, phase, times.size(), 1e9 * Quantile(&times, .5), 1e9 * mean, 1e9 * Quantile(&times, .999),
        1e9 * Quantile(&times, 1));
    std::fflush(stdout);
    return true;
  }

  static double Quantile(std::vector<double>* values, double q) {
    std::sort(values->begin(), values->end());
    return values->empty() ? 0 : (*values)[static_cast<std::size_t>(q * static_cast<double>(values->size() - 1))];
  }
  static std::int64_t MemoryKb(std::string_view field) {
    std::ifstream file("/proc/self/status");
    for (std::string name; file >> name;) {
      if (name != field) continue;
      std::int64_t kb = 0;
      file >> kb;
      return kb;
    }
    return 0;
  }
  bool Fail(const char* what, const std::string& which) {
    std::fprintf(stderr, "%s: %s failed: %s\n", Engine::kName, what, which.c_str());
    return false;
  }
  std::vector<std::filesystem::path> Files() const {
    std::vector<std::filesystem::path> files;
    const std::filesystem::path path(path_);
    for (const auto& entry : std::filesystem::directory_iterator(path.parent_path())) {
      if (entry.path().filename().string().starts_with(path.filename().string() + ".")) files.push_back(entry.path());
    }
    return files;
  }
  std::uint64_t FileBytes() const {
    std::uint64_t bytes = 0;
    for (const auto& file : Files()) {
      if (!std::filesystem::is_directory(file)) {
        bytes += std::filesystem::file_size(file);
        continue;
      }
      for (const auto& entry : std::filesystem::recursive_directory_iterator(file)) bytes += entry.is_directory() ? 0 : entry.file_size();
    }
    return bytes;
  }
  void Remove() const {
    for (const auto& file : Files()) std::filesystem::remove_all(file);
  }

  const TextsOptions options_;
  const std::string path_;
  Texts texts_;
  Engine engine_;
};

template <class Engine>
int TextsMain(int argc, char** argv) {
  TextsOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    const std::string_view value = text.substr(std::min(text.size(), text.find('=') + 1));
    const auto read = [&](auto* number) { std::from_chars(value.data(), value.data() + value.size(), *number); };
    if (text.starts_with("--corpus=")) options.corpus = value;
    if (text.starts_with("--dir=")) options.dir = value;
    if (text.starts_with("--batch=")) read(&options.batch);
    if (text.starts_with("--singles=")) read(&options.singles);
    if (text.starts_with("--seconds=")) read(&options.seconds);
    if (text.starts_with("--budget=")) read(&options.budget);
  }
  return TextsDriver<Engine>(options).Run() ? 0 : 1;
}

}  // namespace hako::compare
