// Opens a TinyDBM or a BabyDBM with a snapshot.
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/database.h"
#include "fuzz/mutate_files.h"
#include "fuzz/target.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tiny_dbm.h"

namespace hako::fuzz {
namespace {

template <class D>
void Load(const std::string& path) {
  auto db = D::Open();
  Require(db.ok(), "cannot open:", db.status());
  Require((*db)->Set("before", "before").ok(), "cannot set");
  const Status loaded = (*db)->Load(path);
  Require((*db)->Verify().ok(), "a database is not sound after Load:", (*db)->Verify());
  Require(loaded.ok() || (*db)->Get("before").ok() || (*db)->Count() == 0, "Load has failed and left a part of the snapshot");
}

void Run(std::string_view input) {
  const FileSet set = DecodeOneFile(input);
  const bool is_tree = (set.mode & kPositional) != 0;
  WriteFiles(set, Folder::Instance().Path("db"));
  is_tree ? Load<BabyDBM<>>(Folder::Instance().Path("db")) : Load<TinyDBM<>>(Folder::Instance().Path("db"));
  RunDatabase(is_tree ? AnyOptions::kBaby : AnyOptions::kTiny, set);
}

std::vector<std::string> MakeSeeds() {
  std::vector<std::string> seeds;
  for (const std::string_view kind : {AnyOptions::kTiny, AnyOptions::kBaby}) {
    const unsigned mode = kUpdates | (kind == AnyOptions::kBaby ? kPositional : 0);
    AddSeeds(OptionsOf(kind, mode, Folder::Instance().Path("db")), mode, 20, 300, &seeds);
  }
  return seeds;
}

const Registration kTarget({.name = "load_snapshot",
                            .run = Run,
                            .mutate = MutateFiles,
                            .make_seeds = MakeSeeds,
                            .golden = {"snapshot_1_tiny_clean", "snapshot_2_baby_crashed", "snapshot_2_tiny_clean"},
                            .input_of = InputOf<kUpdates>});

}  // namespace
}  // namespace hako::fuzz
