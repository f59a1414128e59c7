// Tables in memory, and in files that are read and written by position.
#include <utility>

#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/positional_tree_dbm.h"
#include "hako/table/table_dbm.h"

namespace hako {

StatusOr<std::unique_ptr<TableDBM>> TableDBM::OpenPositional(const std::string& path, const TableOptions& options) {
  return OpenInTree<TreeDBM<PositionalParallelFile>>(path, options);
}

StatusOr<std::unique_ptr<TableDBM>> TableDBM::OpenInMemory(const TableOptions& options) HAKO_TRY {
  if (options.tree.durability == Durability::kPower)
    return absl::InvalidArgumentError("TableOptions::tree.durability kPower requires a path: nothing of a table in memory is durable");
  if (!options.tree.log_archive.empty() && options.tree.log_archive != kNoLogArchive)
    return absl::InvalidArgumentError("TableOptions::tree.log_archive requires a path: a table in memory has no log");
  BabyOptions baby;
  baby.page_size = options.tree.page_size;
  baby.snapshot_bytes = options.tree.snapshot_bytes;
  baby.durability = Durability::kNone;
  HAKO_ASSIGN_OR_RETURN(auto db, BabyDBM<>::Open(baby));
  return Open(std::move(db), options);
}
HAKO_OR_NO_MEMORY

}  // namespace hako
