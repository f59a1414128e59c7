// Opens an ArrayDBM, mapped or positional, and its log, if there is one, which is replayed.
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/database.h"
#include "fuzz/mutate_files.h"
#include "fuzz/target.h"

namespace hako::fuzz {
namespace {

void Run(std::string_view input) { RunDatabase(AnyOptions::kArray, FileSet::Decode(input)); }

// With presence bits in the lines of pages, and in the pages.
std::vector<std::string> MakeSeeds() {
  std::vector<std::string> seeds;
  for (const unsigned width : {1u, 12u, 4096u}) AddArraySeeds(kUpdates | (width == 12 ? kPositional : 0), width, &seeds);
  return seeds;
}

const Registration kTarget({.name = "open_array",
                            .run = Run,
                            .mutate = MutateFiles,
                            .make_seeds = MakeSeeds,
                            .mutants = 60,
                            .golden = {"array_1_width_1", "array_1_width_12", "array_1_crashed"},
                            .input_of = InputOf<kUpdates | kNoLog>});

}  // namespace
}  // namespace hako::fuzz
