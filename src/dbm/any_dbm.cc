#include "hako/dbm/any_dbm.h"

namespace hako {

Status AnyOptions::Check() const {
  const std::string_view name = ResolvedKind();
  if ((capacity_bytes | capacity_records) != 0 && name != kTiny && name != kBaby && !name.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("option ", capacity_bytes != 0 ? "capacity_bytes" : "capacity_records", " requires dbm=tiny or baby"));
  if (name == kTree) return absl::OkStatus();
  if (!order.empty() || !codec.empty()) return absl::InvalidArgumentError("options order and codec require dbm=tree");
  if (name == kHash || name == kArray || name == kTiny || name == kBaby) return absl::OkStatus();
  if (!name.empty()) return absl::InvalidArgumentError(absl::StrCat("unknown kind of database '", ToAbsl(name), "'"));
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": unknown suffix; use .hkh (hash), .hkt (tree), .hka (array) or .hks (tiny), or set dbm=hash, tree, array, tiny or baby"));
}

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::Open(const AnyOptions& options) {
  HAKO_RETURN_IF_ERROR(options.Check());
  const std::string_view kind = options.ResolvedKind();
  if (kind == AnyOptions::kTree) return OpenTreeFile(options);
  if (kind == AnyOptions::kHash) return OpenHashFile(options);
  if (kind == AnyOptions::kArray) return OpenArrayFile(options);
  return kind == AnyOptions::kTiny ? OpenTinyInMemory(options) : OpenBabyInMemory(options);
}

}  // namespace hako
