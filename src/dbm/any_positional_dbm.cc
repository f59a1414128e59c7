// AnyDBM over databases in files that are read and written by position.
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/positional_array_dbm.h"
#include "hako/dbm/positional_hash_dbm.h"
#include "hako/dbm/positional_tree_dbm.h"

namespace hako {

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenPositionalFile(const AnyOptions& options) {
  using F = PositionalParallelFile;
  const std::string_view kind = options.ResolvedKind();
  if (kind == AnyOptions::kHash) {
    return Over<HashDBM<F>>([&] { return HashDBM<F>::Open(options.path, HashOptionsOf(options), options.file); });
  }
  if (kind == AnyOptions::kArray) {
    return Over<ArrayDBM<F>>([&] { return ArrayDBM<F>::Open(options.path, ArrayOptionsOf(options), options.file); });
  }
  return Over<TreeDBM<F>>([&] { return TreeDBM<F>::Open(options.path, TreeOptionsOf(options), options.file); });
}

}  // namespace hako
