// Opens a TreeDBM, mapped or positional.
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
  RunDatabase(AnyOptions::kTree, set);
}

// Of one page, of several levels with small pages, and with long values.
std::vector<std::string> MakeSeeds() {
  std::vector<std::string> seeds;
  for (const unsigned page_size : {128u, 512u, 8192u}) {
    const unsigned mode = kNoLog | kUpdates | (page_size == 512 ? kPositional : 0);
    AnyOptions options = OptionsOf(AnyOptions::kTree, mode, Folder::Instance().Path("db"));
    options.page_size = page_size;
    for (std::string& seed : SeedsOf(options, mode, 30, page_size)) seeds.push_back(std::move(seed));
  }
  return seeds;
}

std::string InputOf(std::string_view file) { return FileSet{.mode = kUpdates, .files = {std::string(file)}}.Encode(); }

const Registration kTarget({.name = "open_tree",
                            .run = Run,
                            .mutate = MutateFiles,
                            .make_seeds = MakeSeeds,
                            .golden = {"tree_1_crashed", "tree_2_clean"},
                            .input_of = InputOf});

}  // namespace
}  // namespace hako::fuzz
