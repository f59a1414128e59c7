// Opens a TreeDBM, mapped or positional.
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/database.h"
#include "fuzz/mutate_files.h"
#include "fuzz/target.h"

namespace hako::fuzz {
namespace {

void Run(std::string_view input) { RunDatabase(AnyOptions::kTree, DecodeOneFile(input)); }

// Of one page, of several levels with small pages, and with long values.
std::vector<std::string> MakeSeeds() {
  std::vector<std::string> seeds;
  for (const unsigned page_size : {128u, 512u, 8192u}) {
    const unsigned mode = kNoLog | kUpdates | (page_size == 512 ? kPositional : 0);
    AnyOptions options = OptionsOf(AnyOptions::kTree, mode, Folder::Instance().Path("db"));
    options.page_size = page_size;
    AddSeeds(options, mode, 30, page_size, &seeds);
  }
  return seeds;
}

const Registration kTarget({.name = "open_tree",
                            .run = Run,
                            .mutate = MutateFiles,
                            .make_seeds = MakeSeeds,
                            .golden = {"tree_1_crashed", "tree_2_clean"},
                            .input_of = InputOf<kUpdates>});

}  // namespace
}  // namespace hako::fuzz
