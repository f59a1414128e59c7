// The driver for tables: rows of five columns with two indices, and texts with an index of words and
// one of substrings. Each engine is a program, and each phase prints a line of JSON: engine, phase,
// ops, ns_per_op, sum. table.py runs the programs in turn and demands that their sums are equal.
//
//   put       rows in the order of their keys, each by itself
//   put1000   the same into a new table, a thousand in one step
//   get       a row by its key, at random; all five columns are read
//   search    the rows whose string is this one, at random; all five columns are read
//   range     the ten rows of the least numbers of a range of a thousandth of all
//   text      the texts of a new table, a tenth as many, with their indices, a thousand in one step
//   substring the rows whose text contains 10 characters, which are drawn from a text
//   words     the rows whose text has three words, which are drawn from a text
//
// Programs take --n=ROWS --ops=QUERIES --dir=DIR.
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workload.h"

namespace hako::compare {

struct TableRow {
  std::string key, str, num, a, b, text;
};

class TableData {
 public:
  static constexpr std::uint64_t kWords = 5000;

  explicit TableData(std::uint64_t n) : n_(n) {}
  std::uint64_t n() const { return n_; }

  static std::string Hex(std::uint64_t word, std::size_t digits) {
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(word));
    return std::string(text, digits);
  }
  static std::string Word(std::uint64_t number) {
    std::string word;
    for (std::uint64_t rest = workload::Mix(number + 77) >> 8, i = 0; i < 3 + number % 6; ++i, rest /= 26)
      word.push_back(static_cast<char>('a' + rest % 26));
    return word;
  }
  std::uint64_t Num(std::uint64_t id) const { return id * 7919 % n_; }
  static std::string Str(std::uint64_t id) { return Hex(workload::Mix(id), 12); }
  static std::string Key(std::uint64_t id) {
    char text[24];
    std::snprintf(text, sizeof(text), "%08llu", static_cast<unsigned long long>(id));
    return text;
  }
  // Ten words, the first of the dictionary more often.
  static std::string Text(std::uint64_t id) {
    std::string text;
    for (std::uint64_t i = 0; i < 10; ++i) {
      const double u = static_cast<double>(workload::Mix(id * 10 + i) >> 11) * 0x1p-53;
      if (i > 0) text.push_back(' ');
      text += Word(static_cast<std::uint64_t>(u * u * static_cast<double>(kWords)));
    }
    return text;
  }
  TableRow Row(std::uint64_t id) const {
    return {Key(id), Str(id), std::to_string(Num(id)), Hex(workload::Mix(id + 3), 8), std::to_string(id * 7), {}};
  }

 private:
  std::uint64_t n_;
};

// The sum of the rows that a query has shown: the same for each engine, in any order of the rows.
struct TableSum {
  std::uint64_t sum = 0;
  void Add(std::string_view cell) {
    std::uint64_t word = cell.size();
    std::memcpy(&word, cell.data(), std::min<std::size_t>(8, cell.size()));
    sum += word * 31 + cell.size();
  }
};

template <class Engine>
class TableDriver {
 public:
  TableDriver(std::uint64_t n, std::uint64_t ops, std::string dir) : data_(n), ops_(ops), path_(std::move(dir) + "/" + Engine::kName) {}

  bool Run() {
    if (!Load("put", 1) || !Load("put1000", 1000)) return false;
    const auto key_of = [&](std::uint64_t i) { return workload::Mix(i + 99) % data_.n(); };
    std::vector<std::string> keys, strings;
    for (std::uint64_t i = 0; i < ops_; ++i) {
      keys.push_back(TableData::Key(key_of(i)));
      strings.push_back(TableData::Str(key_of(i + 7)));
    }
    if (!Each("get", ops_, [&](std::uint64_t i) { return engine_.Get(keys[i], &sum_); })) return false;
    if (!Each("search", ops_, [&](std::uint64_t i) { return engine_.Search(strings[i], &sum_); })) return false;
    const std::uint64_t width = std::max<std::uint64_t>(data_.n() / 1000, 20);
    if (!Each("range", ops_ / 10, [&](std::uint64_t i) {
          const std::uint64_t low = key_of(i + 13) % (data_.n() - width);
          return engine_.Range(low, low + width, &sum_);
        }))
      return false;
    return engine_.Close() && Texts();
  }

 private:
  bool Load(const char* phase, std::uint64_t together) {
    std::vector<TableRow> rows;
    for (std::uint64_t id = 0; id < data_.n(); ++id) rows.push_back(data_.Row(id));
    Remove();
    if (!engine_.Open(path_, data_.n(), false)) return Fail("open");
    const bool good =
        Each(
            phase, data_.n() / together, [&](std::uint64_t i) { return engine_.Put(rows.data() + i * together, together); }, together) &&
        engine_.Flush();
    return good && (together > 1 || engine_.Close());
  }
  bool Texts() {
    const std::uint64_t n = std::max<std::uint64_t>(data_.n() / 10, 1000);
    std::vector<TableRow> rows;
    for (std::uint64_t id = 0; id < n; ++id) rows.push_back({TableData::Key(id), {}, {}, {}, {}, TableData::Text(id)});
    Remove();
    if (!engine_.Open(path_, n, true)) return Fail("open");
    if (!Each(
            "text", n / 1000, [&](std::uint64_t i) { return engine_.PutTexts(rows.data() + i * 1000, 1000); }, 1000) ||
        !engine_.Flush())
      return false;
    std::vector<std::string> pieces, words;
    for (std::uint64_t i = 0; i < std::max<std::uint64_t>(ops_ / 200, 100); ++i) {
      const std::string text = TableData::Text(workload::Mix(i) % n);
      pieces.push_back(text.substr(i % (text.size() - 10), 10));
      std::vector<std::string> split;
      for (std::size_t begin = 0, end = 0; end != text.npos; begin = end + 1)
        split.push_back(text.substr(begin, (end = text.find(' ', begin)) - begin));
      words.push_back(split[0] + " " + split[4] + " " + split[8]);
    }
    return Each("substring", pieces.size(), [&](std::uint64_t i) { return engine_.Substring(pieces[i], &sum_); }) &&
           Each("words", words.size(), [&](std::uint64_t i) { return engine_.Words(words[i], &sum_); }) && engine_.Close();
  }

  template <class F>
  bool Each(const char* phase, std::uint64_t ops, F&& operation, std::uint64_t rows = 1) {
    sum_ = {};
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < ops; ++i) {
      if (!operation(i)) return Fail(phase);
    }
    const double ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
    std::printf("{\"engine\": \"%s\", \"phase\": \"%s\", \"ops\": %llu, \"ns_per_op\": %.1f, \"sum\": %llu}\n", Engine::kName, phase,
                static_cast<unsigned long long>(ops * rows), ns / static_cast<double>(ops * rows),
                static_cast<unsigned long long>(sum_.sum));
    std::fflush(stdout);
    return true;
  }
  bool Fail(const char* phase) {
    std::fprintf(stderr, "%s: %s failed\n", Engine::kName, phase);
    return false;
  }
  void Remove() {
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(path_).parent_path())) {
      if (entry.path().filename().string().starts_with(Engine::kName)) std::filesystem::remove_all(entry.path());
    }
  }

  TableData data_;
  std::uint64_t ops_;
  std::string path_;
  Engine engine_;
  TableSum sum_;
};

template <class Engine>
int TableMain(int argc, char** argv) {
  std::uint64_t n = 1'000'000, ops = 200'000;
  std::string dir = ".";
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    const std::string_view value = text.substr(std::min(text.size(), text.find('=') + 1));
    if (text.starts_with("--n=")) std::from_chars(value.data(), value.data() + value.size(), n);
    if (text.starts_with("--ops=")) std::from_chars(value.data(), value.data() + value.size(), ops);
    if (text.starts_with("--dir=")) dir = value;
  }
  return TableDriver<Engine>(n, ops, dir).Run() ? 0 : 1;
}

}  // namespace hako::compare
