// Opens a HashDBM, mapped or positional, as after a kill, a power cut or Close.
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/database.h"
#include "fuzz/mutate_files.h"
#include "fuzz/target.h"

namespace hako::fuzz {
namespace {

void Run(std::string_view input) { RunDatabase(AnyOptions::kHash, DecodeOneFile(input)); }

std::vector<std::string> MakeSeeds() {
  std::vector<std::string> seeds;
  for (const unsigned device : {0u, kPositional}) {
    const unsigned mode = device | kSameBoot | kNoLog | kUpdates;
    AddSeeds(OptionsOf(AnyOptions::kHash, mode, Folder::Instance().Path("db")), mode, 20, 300, &seeds);
  }
  return seeds;
}

const Registration kTarget({.name = "open_hash",
                            .run = Run,
                            .mutate = MutateFiles,
                            .make_seeds = MakeSeeds,
                            .golden = {"hash_6_crashed", "hash_7_clean", "hash_7_crashed", "hash_7_positional"},
                            .input_of = InputOf<kUpdates>});

}  // namespace
}  // namespace hako::fuzz
