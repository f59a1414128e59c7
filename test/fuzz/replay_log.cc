// Opens a database with a log, which is replayed: each of the four kinds.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/database.h"
#include "fuzz/mutate_files.h"
#include "fuzz/target.h"
#include "hako/dbm/log_summary.h"

namespace hako::fuzz {
namespace {

// The kind that the file is of; a snapshot is one of a tree if the mode has kPositional.
std::string_view KindOf(const FileSet& set) {
  const std::string_view file = set.files.empty() ? std::string_view() : set.files[0];
  if (NewerSuperBlock<format::HashSuperBlock>(file, format::kHashFileMagic)) return AnyOptions::kHash;
  if (NewerSuperBlock<format::TreeSuperBlock>(file, format::kTreeFileMagic)) return AnyOptions::kTree;
  return (set.mode & kPositional) != 0 ? AnyOptions::kBaby : AnyOptions::kTiny;
}

void Run(std::string_view input) {
  const FileSet set = FileSet::Decode(input);
  WriteFiles(set, Folder::Instance().Path("db"));
  (void)SummarizeLog(Folder::Instance().Path("db"), [](log::Lsn, std::span<const format::LogEntry>) {});
  RunDatabase(KindOf(set), set);
}

// With batches, ranges and values that take several records of the log.
std::vector<std::string> MakeSeeds() {
  std::vector<std::string> seeds;
  for (const std::string_view kind : {AnyOptions::kHash, AnyOptions::kTree, AnyOptions::kTiny, AnyOptions::kBaby}) {
    const unsigned mode = kind == AnyOptions::kTree || kind == AnyOptions::kTiny ? 0 : kPositional;
    Folder::Instance().Empty();
    const std::string path = Folder::Instance().Path("db");
    auto db = AnyDBM::Open(OptionsOf(kind, mode, path));
    Require(db.ok(), "cannot make a seed:", db.status());
    Fill(**db, 10, 300);
    WriteBatch batch;
    batch.Set("batch 1", "1");
    batch.Remove("key0");
    batch.SetAppliedIndex(5);
    Require((*db)->Write(batch).ok() && (*db)->WaitDurable((*db)->LastLsn()).ok(), "cannot write a batch");
    if ((*db)->IsOrdered()) Require((*db)->RemoveRange("key1", "key2").ok(), "cannot remove a range");
    seeds.push_back(SeedOf(mode | kUpdates, path));
    Require((*db)->Set("long", std::string(9'000, 'l')).ok() && (*db)->Clear().ok() && (*db)->Set("last", "l").ok(), "cannot set");
    seeds.push_back(SeedOf(mode, path));
  }
  return seeds;
}

const Registration kTarget({.name = "replay_log", .run = Run, .mutate = MutateFiles, .make_seeds = MakeSeeds});

}  // namespace
}  // namespace hako::fuzz
