#include "hako/table/plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/table/words.h"

namespace hako::table {
namespace {

// Returns the bound behind all keys with this beginning.
std::string EndOf(std::string_view prefix) { return EndOfPrefix(prefix).value_or(std::string()); }

// The bounds of one part of an index, or of the primary key.
struct Bounds {
  std::string from, to;  // parts; empty = no bound
  std::string text;
  bool is_given = false;

  void From(std::string part) {
    if (part > from) from = std::move(part);
  }
  void To(std::string part) {
    if (to.empty() || part < to) to = std::move(part);
  }
};

// Whether an index of this kind stores what a condition is about: the values, or their casts.
bool FitsKind(const Node& node, IndexKind kind) { return kind == (node.is_numeric ? IndexKind::kNumeric : IndexKind::kOrdered); }

std::string PartOf(const Node& node, std::size_t i) {
  std::string part;
  AppendPart(node.values[i].get(), IndexKind::kOrdered, &part);
  return part;
}

// Whether in a column of this type only values of bytes can have a text with this beginning.
bool IsBeginningOfBytes(std::string_view begin, ColumnType type) {
  if (type == ColumnType::kString || type == ColumnType::kBytes) return true;
  return !begin.empty() && std::string_view("-0123456789tfin").find(begin[0]) == std::string_view::npos;  // t, f, i: true, false, inf
}

// Narrows the bounds by a comparison, if this kind of index can serve it.
bool Narrow(const Node& node, IndexKind kind, ColumnType type, Bounds* bounds) {
  if (!FitsKind(node, kind)) return false;
  if (node.op == Op::kBegins && kind == IndexKind::kOrdered && IsBeginningOfBytes(node.values[0].get().bytes(), type)) {
    std::string begin(1, kTextPart);
    AppendTextBeginning(node.values[0].get().bytes(), &begin);
    bounds->To(EndOf(begin));
    bounds->From(std::move(begin));
    return true;
  }
  if (node.op < Op::kEqual || node.op > Op::kBetween || node.op == Op::kNotEqual) return false;
  const std::string part = PartOf(node, 0);
  switch (node.op) {
    case Op::kLess:
      bounds->From({kNullPart + 1});
      bounds->To(part);
      return true;
    case Op::kLessEqual:
      bounds->From({kNullPart + 1});
      bounds->To(EndOf(part));
      return true;
    case Op::kGreater:
      bounds->From(EndOf(part));
      return true;
    case Op::kGreaterEqual:
      bounds->From(part);
      return true;
    default:  // kEqual, kBetween
      bounds->From(part);
      bounds->To(EndOf(PartOf(node, node.values.size() - 1)));
      return true;
  }
}

// Returns the column of a node, or its cast.
Column ColumnOf(const Node& node) {
  const Column column(node.column);  // the name of the primary key is empty
  return node.is_numeric ? column.Numeric() : column;
}

// Returns the parts of a condition that must all hold. The node must outlive them.
std::span<const std::shared_ptr<const Node>> ConjunctsOf(const std::shared_ptr<const Node>& node) {
  if (node->op == Op::kAnd) return node->children;
  return {&node, 1};
}

// Returns the bit of a conjunct; 0 for conjuncts behind the first 64.
std::uint64_t BitOf(std::span<const std::shared_ptr<const Node>> conjuncts, const Node& node) {
  for (std::size_t i = 0; i < conjuncts.size() && i < 64; ++i) {
    if (conjuncts[i].get() == &node) return std::uint64_t{1} << i;
  }
  return 0;
}

std::uint64_t AllBits(std::span<const std::shared_ptr<const Node>> conjuncts) {
  return conjuncts.size() >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << conjuncts.size()) - 1;
}

// Returns the conjunct that allows a column only one part, and appends the part to `parts`. Returns
// nullptr if there is none.
const Node* EqualityOf(std::span<const std::shared_ptr<const Node>> conjuncts, std::string_view column, IndexKind kind,
                       std::string* parts) {
  for (const auto& node : conjuncts) {
    if (node->is_key || node->column != column) continue;
    if (!FitsKind(*node, kind)) continue;
    if (node->op == Op::kEqual) {
      AppendPart(node->values[0].get(), IndexKind::kOrdered, parts);
      return node.get();
    }
    if (node->op == Op::kIsNull) {
      parts->push_back(kNullPart);
      return node.get();
    }
  }
  return nullptr;
}

}  // namespace

std::string Planner::TextOf(const Node& node) { return Condition(NodeRef(NodeRef(), &node)).ToText(); }

Access Planner::AllRows() {
  Access all{.text = "all rows", .is_sorted = true};
  all.range.from.assign(1, kRowSpace);
  all.range.to.assign(1, kRowSpace + 1);
  return all;
}

Status Planner::Make(Plan* plan) {
  HAKO_RETURN_IF_ERROR(wanted_.where->status());
  const NodeRef& node = wanted_.where->node();
  const Nodes conjuncts = node == nullptr ? Nodes() : ConjunctsOf(node);
  const bool by_key = wanted_.order_column == ColumnId::kKey;
  std::optional<Access> best = Best(conjuncts, true);
  if (wanted_.explains) plan->num_rows = NumRows();
  HAKO_RETURN_IF_ERROR(status_);
  plan->access = best ? *std::move(best) : AllRows();
  const Access& access = plan->access;
  plan->is_exact = conjuncts.size() <= 64 && access.exact == AllBits(conjuncts);
  const bool is_list = access.kind == Access::Kind::kList || access.ShowsRows();
  const bool keeps_keys = by_key && access.is_sorted && (is_list || !wanted_.is_descending);
  plan->is_ordered = !wanted_.order_column || access.gives_order || keeps_keys || access.is_single;
  const Index* const index = access.kind == Access::Kind::kRange ? access.range.index : nullptr;
  plan->is_covered = index != nullptr && index->is_covering() && wanted_.columns &&
                     std::all_of(wanted_.columns->begin(), wanted_.columns->end(), [index](ColumnId column) {
                       return column == ColumnId::kKey || std::binary_search(index->covered().begin(), index->covered().end(), column);
                     });
  return absl::OkStatus();
}

bool Planner::IsUsable(const Index& index, Nodes conjuncts) {
  if (index.state() != IndexState::kReady) return false;
  const NodeRef& where = index.where().node();
  if (where == nullptr) return true;
  const Nodes own = ConjunctsOf(where);
  return std::all_of(own.begin(), own.end(), [&](const NodeRef& needed) {
    const std::string text = TextOf(*needed);
    return std::any_of(conjuncts.begin(), conjuncts.end(), [&](const NodeRef& node) { return TextOf(*node) == text; });
  });
}

std::uint64_t Planner::NumRows() {
  const StatusOr<std::uint64_t> count = core_.EstimateRows();
  if (!count.ok()) status_ = count.status();
  return count.value_or(0);
}

void Planner::AddText(const Node& node, std::string* text) const {
  if (wanted_.explains) absl::StrAppend(text, text->empty() ? "" : " and ", TextOf(node));
}

void Planner::AddKeyAccess(Nodes conjuncts, std::vector<Access>* candidates) {
  const auto is_of_key = [](const NodeRef& node) { return node->is_key && !node->is_numeric; };
  if (std::none_of(conjuncts.begin(), conjuncts.end(), is_of_key)) return;
  Access access;
  access.range.from.assign(1, kRowSpace);
  access.range.to.assign(1, kRowSpace + 1);
  for (const NodeRef& node : conjuncts) {
    if (!is_of_key(node)) continue;
    if (node->op == Op::kKeyIn || node->op == Op::kEqual || node->op == Op::kIn) {
      std::vector<std::string> keys;
      for (const OwnedValue& value : node->values) keys.emplace_back(value.get().bytes());
      std::sort(keys.begin(), keys.end());
      keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
      std::erase_if(keys, [](const std::string& key) { return key.size() > TableLimits::kKeySize; });
      Access list{.kind = Access::Kind::kList, .is_sorted = true};
      AddText(*node, &list.text);
      list.keys = node->keys ? node->keys : std::make_shared<const std::vector<std::string>>(std::move(keys));
      list.count = list.keys->size();
      list.is_single = list.keys->size() <= 1;
      candidates->push_back(std::move(list));
      continue;
    }
    if (node->op != Op::kBegins && (node->op < Op::kEqual || node->op > Op::kBetween || node->op == Op::kNotEqual)) continue;
    const auto bound = [&](std::size_t i, bool behind) { return RowKey(node->values[i].get().bytes()).append(behind ? 1 : 0, '\0'); };
    const bool is_begins = node->op == Op::kBegins;
    if (node->op >= Op::kGreater || is_begins) access.range.from = std::max(access.range.from, bound(0, node->op == Op::kGreater));
    if (node->op == Op::kLess || node->op == Op::kLessEqual)
      access.range.to = std::min(access.range.to, bound(0, node->op == Op::kLessEqual));
    if (node->op == Op::kBetween) access.range.to = std::min(access.range.to, bound(1, true));
    if (is_begins) access.range.to = std::min(access.range.to, EndOf(bound(0, false)));
    AddText(*node, &access.text);
    access.is_sorted = true;
  }
  if (!access.is_sorted) return;
  candidates->push_back(std::move(access));
}

bool Planner::IsOrder(const Index& index, std::size_t num_equal) const {
  return wanted_.order_column && num_equal + 1 == index.parts().size() && index.parts()[num_equal].column == *wanted_.order_column &&
         index.parts()[num_equal].kind == wanted_.order_kind;
}

void Planner::AddIndexAccess(const Index& index, Nodes conjuncts, std::vector<Access>* candidates, std::optional<Access>* ordered) {
  const std::string& first = index.options().columns[0].column;
  if (!IsOrder(index, 0) && std::none_of(conjuncts.begin(), conjuncts.end(), [&](const NodeRef& node) { return node->column == first; }))
    return;
  Access access;
  std::string prefix = index.prefix();
  std::size_t num_equal = 0;
  bool has_null = false;
  for (; num_equal < index.parts().size(); ++num_equal) {
    const Node* const node = EqualityOf(conjuncts, index.options().columns[num_equal].column, index.parts()[num_equal].kind, &prefix);
    if (node == nullptr) break;
    has_null = has_null || node->op == Op::kIsNull;
    access.exact |= BitOf(conjuncts, *node);
    AddText(*node, &access.text);
  }
  access.range.index = &index;
  Bounds bounds;
  if (num_equal < index.parts().size()) {
    for (const NodeRef& node : conjuncts) {
      if (node->is_key || node->column != index.options().columns[num_equal].column) continue;
      const StoredColumn* const column = core_.catalogue.names().Get(index.parts()[num_equal].column);
      if (!Narrow(*node, index.parts()[num_equal].kind, column == nullptr ? ColumnType::kAny : column->type, &bounds)) continue;
      bounds.is_given = true;
      access.exact |= BitOf(conjuncts, *node);
      AddText(*node, &access.text);
    }
    if (num_equal == 0 && !bounds.is_given && !IsOrder(index, 0)) return;
  } else {
    access.is_single = index.is_unique() && !has_null;
    access.is_sorted = !access.is_single;
    if (access.is_sorted) access.range.key_at = prefix.size();
  }
  access.range.to = bounds.to.empty() ? EndOf(prefix) : prefix + bounds.to;
  access.order_at = prefix.size();
  access.range.from = std::move(prefix.append(bounds.from));
  access.is_unique = index.is_unique() && !has_null;
  access.gives_order = IsOrder(index, num_equal) || (wanted_.order_column == ColumnId::kKey && access.is_sorted);
  if (access.gives_order && (!*ordered || num_equal > 0 || bounds.is_given)) *ordered = access;
  if (num_equal > 0 || bounds.is_given) candidates->push_back(std::move(access));
}

std::optional<std::uint64_t> Planner::RowsInTexts(Nodes conjuncts, TextSearch& search, bool is_whole) {
  std::optional<std::uint64_t> least;
  for (const NodeRef& node : conjuncts) {
    const auto size = search.SizeOf(*node);
    if (size && (size->rows < TextSearch::kAll || (wanted_.counts && is_whole))) least = std::min(least.value_or(size->rows), size->rows);
  }
  return least;
}

std::vector<const Node*> Planner::NodesOf(Nodes conjuncts, TextSearch& search) {
  std::vector<const Node*> nodes;
  for (const NodeRef& node : conjuncts) {
    if (search.SizeOf(*node)) nodes.push_back(node.get());
  }
  return nodes;
}

std::optional<Access> Planner::OfTexts(Nodes conjuncts, TextSearch& search, bool is_whole) {
  const std::vector<const Node*> nodes = NodesOf(conjuncts, search);
  const std::optional<std::uint64_t> moment = core_.Moment();
  std::uint64_t exact = 0;
  StatusOr<RowSet> set = search.FindAll(nodes, &exact);
  if (!set.ok()) {
    status_ = set.status();
    return std::nullopt;
  }
  Access access{.kind = Access::Kind::kNumbers};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (i < 64 && (exact >> i & 1) != 0) access.exact |= BitOf(conjuncts, *nodes[i]);
    AddText(*nodes[i], &access.text);
  }
  if (!set->is_complement && set->numbers.empty()) access.exact = AllBits(conjuncts);  // no row meets the condition
  if (set->is_complement &&
      (core_.IsInTransaction() || !wanted_.counts || !is_whole || conjuncts.size() > 64 || access.exact != AllBits(conjuncts)))
    return std::nullopt;
  access.moment = moment;
  access.indices = search.IndicesFor(nodes);
  access.count = set->numbers.size();
  access.set = std::make_shared<const RowSet>(*std::move(set));
  return access;
}

std::optional<Access> Planner::OfZones(Nodes conjuncts, std::shared_ptr<TextSearch> search, std::uint64_t num_rows, const Access& ordered) {
  static constexpr std::uint64_t kRowsOfKey = 4;  // keys of the set that are sorted in the time that a wanted row takes here, about
  static constexpr std::uint64_t kRowsMin = 64, kRowsScanned = 512;
  if (core_.IsInTransaction() || !wanted_.rows || wanted_.counts || ordered.kind != Access::Kind::kRange || ordered.range.index != nullptr)
    return std::nullopt;
  if (num_rows < kRowsMin || num_rows / kRowsOfKey < *wanted_.rows || !core_.numbers.KnowsOrder(wanted_.is_descending)) return std::nullopt;
  Access access{.kind = Access::Kind::kZones, .range = ordered.range};
  ZoneStream::Source source{search, NodesOf(conjuncts, *search), {}, num_rows, *wanted_.rows};
  for (const Node* const node : source.nodes) {
    source.bits.push_back(BitOf(conjuncts, *node));
    if (search->SizeOf(*node)->has_prefixes) {  // many lists cost more than some rows that do not meet the condition
      return *wanted_.rows * NumRows() / num_rows <= kRowsScanned ? std::optional(ordered) : std::nullopt;
    }
    AddText(*node, &access.text);
  }
  access.indices = search->IndicesFor(source.nodes);
  access.source = std::make_shared<const ZoneStream::Source>(std::move(source));
  access.is_sorted = access.gives_order = true;
  return access;
}

// Sorting the keys of the set takes the time of a few rows for each; reading rows in their order, until
// the wanted ones of the set were found, needs no memory.
void Planner::InKeyOrder(Nodes conjuncts, const Access& ordered, Access* set) {
  static constexpr double kRowsOfKey = 0.5;  // rows that are read in the time in which a key of the set is found and sorted
  static constexpr std::uint64_t kBytesOfKey = TableLimits::kKeySize + 128;  // at most
  if (set->set->is_complement || ordered.kind != Access::Kind::kRange || ordered.range.index != nullptr) return;
  const auto size = static_cast<double>(set->set->numbers.size()), num_rows = static_cast<double>(NumRows());
  const double wanted = wanted_.rows ? static_cast<double>(*wanted_.rows) : size;
  // Keys of rows that do not meet the whole condition are sorted, too, until there are enough others.
  const double num_sorted = set->exact == AllBits(conjuncts) ? std::min(wanted, size) : size;
  if (wanted * num_rows > size * size * kRowsOfKey && num_sorted < static_cast<double>(core_.sort_bytes / kBytesOfKey)) return;
  set->in_key_order = set->is_sorted = true;
  set->range = ordered.range;
}

// Takes each of several equal values only once, because otherwise a row would be shown twice.
std::optional<Access> Planner::OfIn(const NodeRef& node) {
  const Column column = ColumnOf(*node);
  std::vector<Condition> alternatives;
  std::set<OwnedValue> values;
  for (const OwnedValue& value : node->values) {
    if (values.insert(value).second) alternatives.push_back(column == value.get());
  }
  if (alternatives.empty()) return std::nullopt;
  const Condition any = Joined(Op::kOr, alternatives);
  std::optional<Access> access = any.node()->op == Op::kOr ? OfUnion(*any.node()) : Best(ConjunctsOf(any.node()), false);
  if (access && access->kind == Access::Kind::kUnion) access->is_disjoint = true;
  return access;
}

std::optional<Access> Planner::OfUnion(const Node& node) {
  Access all{.kind = Access::Kind::kUnion};
  for (const NodeRef& part : node.children) {
    std::optional<Access> access = Best(ConjunctsOf(part), false);
    if (!access) return std::nullopt;
    all.parts.push_back(*std::move(access));
    all.conditions.emplace_back(part);
  }
  return all;
}

std::optional<Access> Planner::Best(Nodes conjuncts, bool is_whole) {
  std::vector<Access> candidates;
  std::optional<Access> ordered;
  AddKeyAccess(conjuncts, &candidates);
  std::vector<const Index*> text_indices;
  for (const Index* const index : core_.catalogue.indices()) {
    if (!IsUsable(*index, conjuncts)) continue;
    if (index->is_text())
      text_indices.push_back(index);
    else
      AddIndexAccess(*index, conjuncts, &candidates, &ordered);
  }
  for (Access& candidate : candidates) {
    if (candidate.is_single) return std::move(candidate);
  }
  if (wanted_.order_column == ColumnId::kKey && !ordered) {
    ordered = AllRows();
    for (const Access& candidate : candidates) {
      if (candidate.is_sorted && candidate.range.index == nullptr) ordered = candidate;
    }
  }
  // The order of the keys needs no other plan than that of a set of texts (InKeyOrder).
  std::shared_ptr<TextSearch> search;
  std::optional<std::uint64_t> texts;
  if (!text_indices.empty()) {
    search = std::make_shared<TextSearch>(core_, std::move(text_indices), wanted_.effort);
    texts = RowsInTexts(conjuncts, *search, is_whole);
  }
  const bool takes_order = is_whole && ordered && wanted_.rows;
  if (takes_order && !(texts && wanted_.order_column == ColumnId::kKey)) {
    const std::uint64_t budget = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(*wanted_.rows) * static_cast<double>(NumRows())));
    if ((!texts || *texts > budget) && !Race(candidates, budget, &*ordered)) return ordered;
  }
  if (texts && (candidates.empty() || !Race(candidates, std::min(*texts, NumRows() / kScanPart + 64)))) {
    const bool by_key = is_whole && wanted_.order_column == ColumnId::kKey;
    std::optional<Access> access;
    if (by_key) access = OfZones(conjuncts, search, *texts, *ordered);
    if (access) return access;
    access = OfTexts(conjuncts, *search, is_whole);
    if (access && by_key) InKeyOrder(conjuncts, *ordered, &*access);
    if (access || !status_.ok()) return access;
  }
  if (candidates.size() == 1 && candidates[0].is_sorted) return std::move(candidates[0]);
  const auto is_list = [](const Access& access) { return access.is_sorted && access.range.index != nullptr; };
  if (!candidates.empty() && std::all_of(candidates.begin(), candidates.end(), is_list)) return Intersect(candidates, 0);
  if (!candidates.empty()) {
    const auto smallest = Race(candidates, NumRows() / kScanPart + 64);
    if (smallest) return Intersect(candidates, *smallest);
    const auto listed = std::find_if(candidates.begin(), candidates.end(), is_list);
    if (listed != candidates.end()) return Intersect(candidates, static_cast<std::size_t>(listed - candidates.begin()));
  }
  for (const NodeRef& node : conjuncts) {
    std::optional<Access> access;
    if (node->op == Op::kIn) access = OfIn(node);
    if (node->op == Op::kOr) access = OfUnion(*node);
    if (access) return access;
  }
  if (is_whole && candidates.empty()) return ordered;  // cheaper than sorting all rows
  return std::nullopt;
}

std::optional<std::size_t> Planner::Race(std::vector<Access>& candidates, std::uint64_t budget, const Access* without) {
  struct Runner {
    std::size_t candidate;
    std::unique_ptr<RangeStream> stream;
    std::uint64_t count = 0;
  };
  std::vector<Runner> runners;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const RecordRange& range = candidates[i].range;
    if (without != nullptr && range.from == without->range.from && range.to == without->range.to) continue;
    if (candidates[i].kind == Access::Kind::kList) return *candidates[i].count <= budget ? std::optional(i) : std::nullopt;
    runners.push_back({i, std::make_unique<RangeStream>(core_, range, false, wanted_.effort)});
  }
  if (runners.empty()) return std::nullopt;
  for (std::uint64_t step = 32;; step *= 2) {
    const std::uint64_t most = std::min(step, budget);
    for (Runner& runner : runners) {
      for (; runner.count < most; ++runner.count) {
        if (runner.stream->Next()) continue;
        if (status_.ok()) status_ = runner.stream->status();
        candidates[runner.candidate].count = runner.count;
        return runner.candidate;
      }
    }
    if (most == budget) return std::nullopt;
  }
}

Access Planner::Intersect(std::vector<Access>& candidates, std::size_t smallest) {
  static constexpr std::uint64_t kFew = 8;
  static constexpr std::size_t kPartsMax = 8;
  Access first = std::move(candidates[smallest]);
  if (!first.is_sorted || (first.count && *first.count <= kFew) || first.kind != Access::Kind::kRange) return first;
  Access all{.kind = Access::Kind::kIntersection, .is_sorted = true};
  all.count = first.count;
  all.parts.push_back(std::move(first));
  for (std::size_t n = 1; n < candidates.size() && all.parts.size() < kPartsMax; ++n) {
    Access& other = candidates[(smallest + n) % candidates.size()];
    if (other.is_sorted && other.kind == Access::Kind::kRange && other.range.index != nullptr) all.parts.push_back(std::move(other));
  }
  if (all.parts.size() == 1) return std::move(all.parts[0]);
  for (const Access& part : all.parts) all.exact |= part.exact;
  return all;
}

}  // namespace hako::table
