#include "hako/dbm/any_dbm.h"

namespace hako {

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::Open(const AnyOptions& options) {
  const std::string_view kind = options.ResolvedKind();
  if ((options.capacity_bytes | options.capacity_records) != 0 && kind != AnyOptions::kTiny && kind != AnyOptions::kBaby && !kind.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("option ", options.capacity_bytes != 0 ? "capacity_bytes" : "capacity_records", " requires dbm=tiny or baby"));
  if (kind == AnyOptions::kTree) return OpenTreeFile(options);
  if (!options.order.empty() || !options.codec.empty()) return absl::InvalidArgumentError("options order and codec require dbm=tree");
  if (kind == AnyOptions::kHash) return OpenHashFile(options);
  if (kind == AnyOptions::kArray) return OpenArrayFile(options);
  if (kind == AnyOptions::kTiny) return OpenTinyInMemory(options);
  if (kind == AnyOptions::kBaby) return OpenBabyInMemory(options);
  if (!kind.empty()) return absl::InvalidArgumentError(absl::StrCat("unknown kind of database '", ToAbsl(kind), "'"));
  return absl::InvalidArgumentError(absl::StrCat(
      options.path,
      ": unknown suffix; use .hkh (hash), .hkt (tree), .hka (array) or .hks (tiny), or set dbm=hash, tree, array, tiny or baby"));
}

}  // namespace hako
