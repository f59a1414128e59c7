// Tables in mapped files.
#include "hako/dbm/tree_dbm.h"
#include "hako/table/catalogue.h"
#include "hako/table/table_dbm.h"

namespace hako {

StatusOr<std::unique_ptr<TableDBM>> TableDBM::Open(const std::string& path, const TableOptions& options) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(table::Catalogue::Begin(options.columns).status());  // checks them before it creates a file
  const bool is_positional = options.positional || options.file.direct;
  return is_positional ? OpenPositional(path, options) : OpenInTree<TreeDBM<>>(path, options);
}
HAKO_OR_NO_MEMORY

}  // namespace hako
