// Tables on the databases that the library compiles.
#include <utility>

#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/log_place.h"
#include "hako/dbm/positional_tree_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/path.h"
#include "hako/table/catalogue.h"
#include "hako/table/table_dbm.h"
#include "hako/table/table_store.h"

namespace hako {

namespace {

template <class F>
StatusOr<std::unique_ptr<table::TableStore>> OpenStore(const std::string& path, const TableOptions& options) {
  TreeOptions tree = options.tree;
  tree.type = kTableType;
  HAKO_ASSIGN_OR_RETURN(auto db, TreeDBM<F>::Open(path, tree, options.file));
  return std::make_unique<table::TreeStore<TreeDBM<F>>>(std::move(db));
}

}  // namespace

StatusOr<std::unique_ptr<TableDBM>> TableDBM::Open(const std::string& path, const TableOptions& options) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(table::Catalogue::Begin(options.columns).status());  // checks them before it creates a file
  const auto is_absent = [](const std::string& name) { return RefuseExisting(name, "a table").ok(); };
  const bool is_new = is_absent(path) && is_absent(LogPathOf(path));
  const bool is_positional = options.positional || options.file.direct;
  auto store = is_positional ? OpenStore<PositionalParallelFile>(path, options) : OpenStore<MemoryMapParallelFile>(path, options);
  if (!store.ok()) return store.status();
  const auto remove = [&] {
    if (!is_new) return;
    (void)RemoveFile(path);
    (void)RemoveFile(LogPathOf(path));
  };
  auto table = OpenIn(*std::move(store), options, remove);
  if (table.ok()) return table;
  return Status(table.status().code(), absl::StrCat(path, ": ", table.status().message()));
}
HAKO_OR_NO_MEMORY

StatusOr<std::unique_ptr<TableDBM>> TableDBM::OpenInMemory(const TableOptions& options) HAKO_TRY {
  if (options.tree.durability == Durability::kPower)
    return absl::InvalidArgumentError("TableOptions::tree.durability kPower requires a path: nothing of a table in memory is durable");
  BabyOptions baby;
  baby.log_archive = options.tree.log_archive;  // refused: it requires a path, too
  baby.page_size = options.tree.page_size;
  baby.durability = Durability::kNone;
  HAKO_ASSIGN_OR_RETURN(auto db, BabyDBM<>::Open(baby));
  return Open(std::make_unique<table::TreeStore<BabyDBM<>>>(std::move(db)), options);
}
HAKO_OR_NO_MEMORY

}  // namespace hako
