// Workloads: the keys and values of a benchmark, made before any clock starts.
//
// A workload holds, for each kind of operation, its operands back to back in the order in which the
// operations will use them. The timed loop reads them in sequence and the hardware prefetches them,
// so the figures are those of the engine, not of the benchmark's own memory. The same name, size and seed
// give the same bytes on every machine and with every compiler (no <random> distribution, no
// std::shuffle).
//
// A *record id* is a number below n and decides the key. The value depends on the id and on a
// *generation*: 0 is what `fill` stores, 1 what `update` stores over it; both have the same size.
// So a record stored twice by `fill` has one value, regardless of the order of the threads.
//
//             keys                      fill                        get, update                          remove
// seq8        %08d of 0 .. n-1          in order                    in order in order rnd8
// the same                  n draws of [0, n): about    each n independent draws of the      each
// of the present ones
//                                       0.632 n distinct records,   records that are present             once, shuffled
//                                       the other draws overwrite
// uniq16x100  16 hashed bytes, unique   each once, in id order,     each once, reshuffled each
// once, reshuffled
//                                       which for a hash is random
//
// Values are 8 bytes, in uniq16x100 100 bytes; they do not compress. `absent` has n distinct keys
// that are never stored, as long as the others and lying among them in sort order: every get and
// update hits, every absent misses.
//
// Immutable once made; any number of threads may read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hako::workload {

enum class Kind { kSeq8, kRnd8, kUniq16x100 };
inline constexpr Kind kKinds[] = {Kind::kSeq8, Kind::kRnd8, Kind::kUniq16x100};

inline std::string_view KindName(Kind kind) {
  switch (kind) {
    case Kind::kSeq8:
      return "seq8";
    case Kind::kRnd8:
      return "rnd8";
    case Kind::kUniq16x100:
      return "uniq16x100";
  }
  return "";
}

inline std::optional<Kind> ParseKind(std::string_view name) {
  for (Kind kind : kKinds)
    if (name == KindName(kind)) return kind;
  return std::nullopt;
}

inline constexpr std::uint32_t kRecordsMax = 100'000'000;  // %08d has no more keys

// Steele, Lea and Flood's SplitMix64: its finaliser is a bijection, which makes the hashed keys
// unique.
inline constexpr std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(Mix(seed)) {}
  std::uint64_t Next() { return Mix(state_ += 0x9e3779b97f4a7c15); }
  // Uniform in [0, bound), except for a bias of bound / 2^32.
  std::uint32_t Below(std::uint32_t bound) { return static_cast<std::uint32_t>(((Next() >> 32) * bound) >> 32); }

 private:
  std::uint64_t state_;
};

// Byte strings of one width, back to back.
struct Rows {
  std::size_t width = 0;
  std::vector<char> bytes;

  std::size_t size() const { return width == 0 ? 0 : bytes.size() / width; }
  std::string_view operator[](std::size_t index) const { return {bytes.data() + index * width, width}; }
  char* row(std::size_t index) { return bytes.data() + index * width; }
  void Reset(std::size_t row_width, std::size_t count) {
    width = row_width;
    bytes.assign(row_width * count, '\0');
  }
};

// What one kind of operation needs, in the order of use. `ids` is for checks; keys and values are
// all that a timed loop touches.
struct Operands {
  std::vector<std::uint32_t> ids;  // empty for absent keys
  Rows keys;
  Rows values;  // empty where the operation stores nothing
  std::size_t size() const { return keys.size(); }
};

struct Workload {
  Kind kind{};
  std::uint32_t n = 0;            // operations of fill, get, absent and update
  std::uint32_t num_records = 0;  // distinct records after fill = operations of remove
  std::uint64_t seed = 0;
  std::size_t key_size = 0;
  std::size_t value_size = 0;
  Operands fill, get, absent, update, remove;

  std::string_view name() const { return KindName(kind); }
  // The value of a record after fill (generation 0) or after update (1), by a slow way, for checks.
  std::string Value(std::uint32_t id, int generation) const;
};

inline void WriteDecimal(std::uint32_t number, std::size_t width, char* out) {
  for (std::size_t i = width; i-- > 0; number /= 10) out[i] = static_cast<char>('0' + number % 10);
}

inline void WriteHashedKey(std::uint64_t id, std::uint64_t seed, char* out) {
  const std::uint64_t words[2] = {Mix(id ^ seed), Mix(id + 0x5851f42d4c957f2d)};
  std::memcpy(out, words, sizeof(words));
}

inline void WriteKey(Kind kind, std::uint32_t id, std::uint64_t seed, char* out) {
  if (kind == Kind::kUniq16x100) return WriteHashedKey(id, seed, out);
  WriteDecimal(id, 8, out);
}

// Beside the decimal keys lie seven digits and a letter, beside the hashed ones those of ids that
// nobody stores.
inline void WriteAbsentKey(Kind kind, std::uint32_t id, std::uint64_t seed, char* out) {
  if (kind == Kind::kUniq16x100) return WriteHashedKey(std::uint64_t{kRecordsMax} + id, seed, out);
  WriteDecimal(id / 10, 7, out);
  out[7] = static_cast<char>('a' + id % 10);
}

inline void WriteValue(std::uint32_t id, int generation, std::uint64_t seed, char* out, std::size_t size) {
  std::uint64_t word = Mix(seed ^ (std::uint64_t{id} << 8) ^ static_cast<std::uint64_t>(generation));
  for (std::size_t i = 0; i < size; i += sizeof(word), word = Mix(word))
    std::memcpy(out + i, &word, size - i < sizeof(word) ? size - i : sizeof(word));
}

inline std::string Workload::Value(std::uint32_t id, int generation) const {
  std::string value(value_size, '\0');
  WriteValue(id, generation, seed, value.data(), value.size());
  return value;
}

// 0 .. n-1 in a random order (Fisher and Yates).
inline std::vector<std::uint32_t> Shuffled(std::vector<std::uint32_t> ids, Random random) {
  for (std::size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random.Below(static_cast<std::uint32_t>(i))]);
  return ids;
}

// n draws, with repetition, out of `ids`.
inline std::vector<std::uint32_t> Drawn(const std::vector<std::uint32_t>& ids, std::uint32_t n, Random random) {
  std::vector<std::uint32_t> drawn(n);
  for (std::uint32_t& id : drawn) id = ids[random.Below(static_cast<std::uint32_t>(ids.size()))];
  return drawn;
}

// REQUIRES: 0 < n <= kRecordsMax. Takes about 4 (key_size + 4) + 2 value_size bytes of memory an
// operation.
inline Workload Make(Kind kind, std::uint32_t n, std::uint64_t seed = 1) {
  Workload w;
  w.kind = kind;
  w.n = n;
  w.seed = Mix(seed);
  w.key_size = kind == Kind::kUniq16x100 ? 16 : 8;
  w.value_size = kind == Kind::kUniq16x100 ? 100 : 8;
  const auto random = [&w](std::uint64_t stream) { return Random(w.seed ^ Mix(stream)); };

  std::vector<std::uint32_t> all(n);
  for (std::uint32_t id = 0; id < n; ++id) all[id] = id;
  if (kind == Kind::kRnd8) {
    w.fill.ids = Drawn(all, n, random(1));
    std::vector<bool> present(n);
    for (std::uint32_t id : w.fill.ids) present[id] = true;
    std::erase_if(all, [&present](std::uint32_t id) { return !present[id]; });
    w.get.ids = Drawn(all, n, random(2));
    w.update.ids = Drawn(all, n, random(3));
    w.remove.ids = Shuffled(all, random(4));
  } else {
    const bool shuffle = kind == Kind::kUniq16x100;
    w.fill.ids = all;
    w.get.ids = shuffle ? Shuffled(all, random(2)) : all;
    w.update.ids = shuffle ? Shuffled(all, random(3)) : all;
    w.remove.ids = shuffle ? Shuffled(all, random(4)) : all;
  }
  w.num_records = static_cast<std::uint32_t>(all.size());

  for (Operands* operands : {&w.fill, &w.get, &w.update, &w.remove}) {
    operands->keys.Reset(w.key_size, operands->ids.size());
    for (std::size_t i = 0; i < operands->ids.size(); ++i) WriteKey(kind, operands->ids[i], w.seed, operands->keys.row(i));
  }
  for (int generation : {0, 1}) {
    Operands& operands = generation == 0 ? w.fill : w.update;
    operands.values.Reset(w.value_size, operands.ids.size());
    for (std::size_t i = 0; i < operands.ids.size(); ++i)
      WriteValue(operands.ids[i], generation, w.seed, operands.values.row(i), w.value_size);
  }
  std::vector<std::uint32_t> absent(n);
  for (std::uint32_t id = 0; id < n; ++id) absent[id] = id;
  if (kind == Kind::kRnd8) absent = Shuffled(std::move(absent), random(5));
  w.absent.keys.Reset(w.key_size, n);
  for (std::size_t i = 0; i < n; ++i) WriteAbsentKey(kind, absent[i], w.seed, w.absent.keys.row(i));
  return w;
}

}  // namespace hako::workload
