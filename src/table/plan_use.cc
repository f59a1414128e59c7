// Makes the stream of keys of a plan, and its text.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/table/plan.h"

namespace hako::table {

std::unique_ptr<KeyStream> MakeStream(TableCore& core, const Access& access, bool is_reversed, QueryEffort* effort) {
  switch (access.kind) {
    case Access::Kind::kList:
      return std::make_unique<ListStream>(access.keys, is_reversed);
    case Access::Kind::kNumbers: {
      const KeyStream::Known known = {access.exact, access.moment};
      if (access.in_key_order) return std::make_unique<SetStream>(core, access.range, access.set, known, is_reversed, effort);
      return std::make_unique<NumberStream>(core, access.set, known, effort);
    }
    case Access::Kind::kZones:
      return std::make_unique<ZoneStream>(core, access.range, *access.source, is_reversed, effort);
    case Access::Kind::kIntersection: {
      std::vector<std::unique_ptr<KeyStream>> parts;
      for (const Access& part : access.parts) parts.push_back(MakeStream(core, part, false, effort));
      return std::make_unique<IntersectionStream>(std::move(parts), access.exact != 0);
    }
    case Access::Kind::kUnion: {
      std::vector<UnionStream::Part> parts;
      for (std::size_t i = 0; i < access.parts.size(); ++i)
        parts.push_back({MakeStream(core, access.parts[i], false, effort), Filter(access.conditions[i], core.catalogue.names(), effort)});
      return std::make_unique<UnionStream>(std::move(parts), access.is_disjoint);
    }
    case Access::Kind::kRange:
      break;
  }
  return std::make_unique<RangeStream>(core, access.range, is_reversed, effort);
}

namespace {

void AppendAccess(const Access& access, const std::string& indent, std::string* out) {
  absl::StrAppend(out, indent);
  switch (access.kind) {
    case Access::Kind::kList:
      absl::StrAppend(out, "rows by key: ", access.text);
      break;
    case Access::Kind::kNumbers:
    case Access::Kind::kZones:
      for (const Index* const index : access.indices) absl::StrAppend(out, index == access.indices[0] ? "index " : " and ", index->name());
      absl::StrAppend(out, ": ", access.text, access.kind == Access::Kind::kZones ? ", the first rows by key" : "");
      break;
    case Access::Kind::kIntersection:
      absl::StrAppend(out, "keys in all of");
      break;
    case Access::Kind::kUnion:
      absl::StrAppend(out, "keys in any of");
      break;
    case Access::Kind::kRange:
      if (access.range.index != nullptr) absl::StrAppend(out, "index ", access.range.index->name(), access.text.empty() ? "" : ": ");
      absl::StrAppend(out, access.text);
      break;
  }
  const std::string_view unit = access.kind == Access::Kind::kNumbers ? "row" : "entr";
  const std::string_view end = access.kind == Access::Kind::kNumbers ? (access.count == 1 ? "" : "s") : access.count == 1 ? "y" : "ies";
  if (access.count) absl::StrAppend(out, ", ", *access.count, " ", ToAbsl(unit), ToAbsl(end));
  absl::StrAppend(out, "\n");
  for (const Access& part : access.parts) AppendAccess(part, indent + "  ", out);
}

}  // namespace

std::string PlanText(const Plan& plan, const Wanted& wanted) {
  std::string text;
  AppendAccess(plan.access, "", &text);
  absl::StrAppend(&text, plan.is_covered ? "columns from the index, no row is read" : "rows are read", " of ", plan.num_rows, " rows\n");
  if (wanted.where->node() && !plan.is_exact) absl::StrAppend(&text, "rows that meet: ", wanted.where->ToText(), "\n");
  if (wanted.order_column) absl::StrAppend(&text, plan.is_ordered ? "in the order of the index or the keys\n" : "sorted in memory\n");
  return text;
}

}  // namespace hako::table
