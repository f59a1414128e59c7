// Salvages the file of a HashDBM, a TreeDBM or an ArrayDBM, with its log. The new database is sound.
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/database.h"
#include "fuzz/mutate_files.h"
#include "fuzz/target.h"

namespace hako::fuzz {
namespace {

void Run(std::string_view input) {
  const FileSet set = FileSet::Decode(input);
  const std::string from = Folder::Instance().Path("db"), to = Folder::Instance().Path("rescued");
  WriteFiles(set, from);
  const auto report = AnyDBM::Salvage(from, to);
  if (!report.ok()) return Require(!std::filesystem::exists(to), "a salvage has failed and left a file:", report.status());
  const std::string made = ReadWhole(to);
  const bool is_hash = NewerSuperBlock<format::HashSuperBlock>(made, format::kHashFileMagic).has_value();
  const bool is_array = NewerSuperBlock<format::TreeSuperBlock>(made, format::kArrayFileMagic).has_value();
  auto db = AnyDBM::Open(OptionsOf(is_hash ? AnyOptions::kHash : is_array ? AnyOptions::kArray : AnyOptions::kTree, kNoLog, to));
  Require(db.ok(), "a database that was salvaged is refused:", db.status());
  Require((*db)->Verify().ok(), "a database that was salvaged is damaged:", (*db)->Verify());
  ReadAll(**db);
  if (report->num_updates == 0) Require((*db)->Count() == report->num_records, "a salvage reports another number of records");
}

std::vector<std::string> MakeSeeds() {
  std::vector<std::string> seeds;
  for (const std::string_view kind : {AnyOptions::kHash, AnyOptions::kTree}) {
    const unsigned mode = kSameBoot | (kind == AnyOptions::kHash ? kPositional : 0);
    AnyOptions options = OptionsOf(kind, mode, Folder::Instance().Path("db"));
    options.page_size = 512;
    AddSeeds(options, mode, 20, 600, &seeds);
  }
  AddArraySeeds(0, 100, &seeds);
  return seeds;
}

const Registration kTarget({.name = "salvage",
                            .run = Run,
                            .mutate = MutateFiles,
                            .make_seeds = MakeSeeds,
                            .golden = {"hash_7_damaged", "hash_7_headless", "tree_2_damaged", "tree_2_headless", "array_1_damaged"},
                            .input_of = InputOf<0>});

}  // namespace
}  // namespace hako::fuzz
