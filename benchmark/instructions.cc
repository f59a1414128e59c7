// Runs operations whose instructions callgrind counts (count_instructions.sh):
//   instructions {tree,baby,hash,tiny} {seq8,rnd8,uniq16x100} n
// prints a line for each phase; a phase lies between the calls of PhaseBegin and PhaseEnd.
//
// With HAKO_TREE_ONLY there is only `tree`, with an order of the program's own, so that all of it is
// compiled with the program's flags; TreeDBM<> comes from the library.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "hako/dbm/tree_dbm.h"
#include "workload.h"

#if !defined(HAKO_TREE_ONLY)
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#endif

extern "C" {
[[gnu::noinline]] void PhaseBegin() { asm volatile(""); }
[[gnu::noinline]] void PhaseEnd() { asm volatile(""); }
}

namespace {

#if defined(HAKO_TREE_ONLY)
struct OwnOrder : hako::BytewiseComparator {};
using Tree = hako::TreeDBM<hako::MemoryMapParallelFile, OwnOrder>;
#else
using Tree = hako::TreeDBM<>;
#endif

using hako::workload::Operands;
using hako::workload::Workload;

// A function for each phase, as a program would have.
template <class D>
[[gnu::noinline]] bool Set(D& db, const Operands& operands) {
  bool good = true;
  for (std::size_t i = 0; i < operands.size(); ++i) good &= db.Set(operands.keys[i], operands.values[i]).ok();
  return good;
}
template <class D>
[[gnu::noinline]] std::size_t Get(D& db, const Operands& operands) {
  std::string value;
  std::size_t found = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) found += db.Get(operands.keys[i], &value).ok() ? 1 : 0;
  return found;
}
template <class D>
[[gnu::noinline]] bool Remove(D& db, const Operands& operands) {
  bool good = true;
  for (std::size_t i = 0; i < operands.size(); ++i) good &= db.Remove(operands.keys[i]).ok();
  return good;
}
template <class D>
[[gnu::noinline]] std::size_t Iterate(D& db) {
  std::size_t count = 0;
  auto it = db.MakeIterator();
  for (it.First(); it.Valid(); it.Next()) count += it.value().empty() ? 0 : 1;
  return count;
}

// Counted per operation: `n` of them.
template <class Body>
void Phase(const char* name, std::size_t n, Body body) {
  PhaseBegin();
  const bool good = body();
  PhaseEnd();
  std::printf("%s %zu\n", name, n);
  if (good) return;
  std::fprintf(stderr, "%s: a result is wrong\n", name);
  std::exit(1);
}

template <class D>
void Run(D& db, const Workload& w) {
  Phase("fill", w.n, [&] { return Set(db, w.fill); });
  Phase("set", w.n, [&] { return Set(db, w.update); });
  Phase("get", w.n, [&] { return Get(db, w.get) == w.n; });
  Phase("absent", w.n, [&] { return Get(db, w.absent) == 0; });
  Phase("iterate", w.num_records, [&] { return Iterate(db) == w.num_records; });
  Phase("remove", w.num_records, [&] { return Remove(db, w.remove); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc == 4 ? argv[1] : "";
  const auto kind = hako::workload::ParseKind(argc == 4 ? argv[2] : "");
  if (!kind) return std::fputs("usage: instructions {tree,baby,hash,tiny} {seq8,rnd8,uniq16x100} n\n", stderr), 2;
  const Workload w = hako::workload::Make(*kind, static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10)));
  const std::string path = std::filesystem::temp_directory_path() / ("hako_instructions." + std::to_string(getpid()));
  const hako::FileOptions file{.mode = hako::OpenMode::kTruncate};
  if (name == "tree") Run(**Tree::Open(path, {}, file), w);
#if !defined(HAKO_TREE_ONLY)
  if (name == "baby") Run(**hako::BabyDBM<>::Open(), w);
  if (name == "hash") Run(**hako::HashDBM<>::Open(path, {}, file), w);
  if (name == "tiny") Run(**hako::TinyDBM<>::Open(), w);
#endif
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return 0;
}
