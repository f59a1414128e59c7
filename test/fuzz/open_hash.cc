// Opens a HashDBM, mapped or positional, as after a kill, a power cut or Close.
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/database.h"
#include "fuzz/mutate_files.h"
#include "fuzz/target.h"

namespace hako::fuzz {
namespace {

void Run(std::string_view input) {
  FileSet set = FileSet::Decode(input);
  set.mode |= kNoLog;
  set.files.resize(1);
  RunDatabase(AnyOptions::kHash, set);
}

std::vector<std::string> MakeSeeds() {
  std::vector<std::string> seeds;
  for (const unsigned device : {0u, kPositional}) {
    const unsigned mode = device | kSameBoot | kNoLog | kUpdates;
    for (std::string& seed : SeedsOf(OptionsOf(AnyOptions::kHash, mode, Folder::Instance().Path("db")), mode, 20, 300))
      seeds.push_back(std::move(seed));
  }
  return seeds;
}

std::string InputOf(std::string_view file) { return FileSet{.mode = kUpdates, .files = {std::string(file)}}.Encode(); }

const Registration kTarget({.name = "open_hash",
                            .run = Run,
                            .mutate = MutateFiles,
                            .make_seeds = MakeSeeds,
                            .golden = {"hash_6_crashed", "hash_7_clean", "hash_7_crashed", "hash_7_positional"},
                            .input_of = InputOf});

}  // namespace
}  // namespace hako::fuzz
