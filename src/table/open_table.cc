// Tables on the databases that the library compiles.
#include <utility>

#include "hako/dbm/any_model.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/positional_tree_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/table/catalogue.h"
#include "hako/table/table_dbm.h"

namespace hako {

namespace {

// Calls open_in(store, open_store) with a store for a tree in an F.
template <class F, class OpenIn>
auto OpenTree(const std::string& path, const TableOptions& options, OpenIn open_in) {
  auto owned = std::make_unique<internal::AnyModel<TreeDBM<F>>>();
  auto& store = *owned;
  const auto open_store = [&]() -> Status {
    TreeOptions tree = options.tree;
    tree.type = kTableType;
    HAKO_ASSIGN_OR_RETURN(auto db, TreeDBM<F>::Open(path, tree, options.file));
    store.Take(std::move(db));
    return absl::OkStatus();
  };
  return open_in(std::move(owned), open_store);
}

}  // namespace

StatusOr<std::unique_ptr<TableDBM>> TableDBM::Open(const std::string& path, const TableOptions& options) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(table::Catalogue::Begin(options.columns).status());  // checks them before it creates a file
  const auto open_in = [&](std::unique_ptr<internal::AnyDatabase> store, FunctionRef<Status()> open_store) {
    return OpenIn(std::move(store), options, path, open_store);
  };
  const bool is_positional = options.positional || options.file.direct;
  return is_positional ? OpenTree<PositionalParallelFile>(path, options, open_in) : OpenTree<MemoryMapParallelFile>(path, options, open_in);
}
HAKO_OR_NO_MEMORY

StatusOr<std::unique_ptr<TableDBM>> TableDBM::OpenInMemory(const TableOptions& options) HAKO_TRY {
  if (options.tree.durability == Durability::kPower)
    return absl::InvalidArgumentError("TableOptions::tree.durability kPower requires a path: nothing of a table in memory is durable");
  if (!options.tree.log_archive.empty() && options.tree.log_archive != kNoLogArchive)
    return absl::InvalidArgumentError("TableOptions::tree.log_archive requires a path: a table in memory has no log");
  BabyOptions baby;
  baby.page_size = options.tree.page_size;
  baby.durability = Durability::kNone;
  HAKO_ASSIGN_OR_RETURN(auto db, BabyDBM<>::Open(baby));
  return Open(std::move(db), options);
}
HAKO_OR_NO_MEMORY

}  // namespace hako
