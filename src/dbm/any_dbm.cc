#include "hako/dbm/any_dbm.h"

#include "hako/base/no_memory.h"

namespace hako {

Status AnyOptions::Check() const {
  const std::string_view name = ResolvedKind();
  if ((capacity_bytes | capacity_records) != 0 && name != kTiny && name != kBaby && !name.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("option ", capacity_bytes != 0 ? "capacity_bytes" : "capacity_records", " requires dbm=tiny or baby"));
  if (file.direct && device == "mmap" && (name == kHash || name == kTree || name == kArray))
    return absl::InvalidArgumentError("option direct requires file=pos");
  if (snapshot_bytes && (name == kHash || name == kTiny))
    return absl::InvalidArgumentError("option snapshot_bytes requires an ordered database: dbm=tree, array or baby");
  if (expiry && name == kArray) return absl::InvalidArgumentError("option expiry: the records of an array do not expire");
  HAKO_RETURN_IF_ERROR(CheckKinds());
  if (name == kTree) return absl::OkStatus();
  if (!order.empty() || !codec.empty()) return absl::InvalidArgumentError("options order and codec require dbm=tree");
  if (name == kHash || name == kArray || name == kTiny || name == kBaby) return absl::OkStatus();
  if (!name.empty()) return absl::InvalidArgumentError(absl::StrCat("unknown kind of database '", ToAbsl(name), "'"));
  if (path.empty()) return absl::InvalidArgumentError("no file name, and no kind: name a file, or set dbm=tiny or baby for one in memory");
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": unknown suffix; use .hkh (hash), .hkt (tree), .hka (array) or .hks (tiny), or set dbm=hash, tree, array, tiny or baby"));
}

// Checks that the kind has the given options.
Status AnyOptions::CheckKinds() const {
  struct Option {
    std::string_view name;
    bool is_given;
    std::array<std::string_view, 2> kinds;
  };
  const std::string_view name = ResolvedKind();
  const Option all[] = {{"num_records", num_records != 0, {kHash, kTiny}},
                        {"align_pow", align_pow.has_value(), {kHash, kTiny}},
                        {"seed", seed != 0, {kHash, kTiny}},
                        {"reclaim_bytes", reclaim_bytes.has_value(), {kHash, kHash}},
                        {"page_size", page_size.has_value(), {kTree, kBaby}},
                        {"max_bytes", max_bytes.has_value(), {kBaby, kBaby}},
                        {"width", width.has_value(), {kArray, kArray}},
                        {"cache_bytes", cache_bytes.has_value(), {kTree, kArray}},
                        {"reader_bytes", reader_bytes.has_value(), {kTree, kArray}},
                        {"reader_age", reader_age.count() != 0, {kTree, kArray}},
                        {"checkpoint_bytes", checkpoint_bytes.has_value(), {kTree, kArray}},
                        {"raw", raw, {kTree, kTree}}};
  for (const Option& option : all) {
    const auto& [first, second] = option.kinds;
    if (!option.is_given || name.empty() || name == first || name == second) continue;
    return absl::InvalidArgumentError(absl::StrCat("option ", ToAbsl(option.name), " requires dbm=", ToAbsl(first),
                                                   first == second ? "" : " or ", first == second ? absl::string_view() : ToAbsl(second)));
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::Open(const AnyOptions& options) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(options.Check());
  const std::string_view kind = options.ResolvedKind();
  if (kind == AnyOptions::kTree) return OpenTreeFile(options);
  if (kind == AnyOptions::kHash) return OpenHashFile(options);
  if (kind == AnyOptions::kArray) return OpenArrayFile(options);
  return kind == AnyOptions::kTiny ? OpenTinyInMemory(options) : OpenBabyInMemory(options);
}
HAKO_OR_NO_MEMORY

}  // namespace hako
