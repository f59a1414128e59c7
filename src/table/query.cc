#include "hako/table/query.h"

#include <algorithm>
#include <compare>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/no_memory.h"
#include "hako/table/change_set.h"
#include "hako/table/query_run.h"
#include "hako/table/table_dbm.h"

namespace hako {

using table::QueryRun;

namespace {

// Whether a number is the least or, with `order` greater, the greatest of the two. Of equal ones it is the
// int64, so that the order of the rows does not matter.
bool IsFirst(const Value& number, const Value& other, std::partial_ordering order) {
  const std::partial_ordering found = *table::NumberOf(number) <=> *table::NumberOf(other);
  return found == order || (std::is_eq(found) && number.kind() == Value::Kind::kInt);
}

void AddTo(Aggregates& all, const Value& value) {
  ++all.count;
  std::string buffer;
  const std::string_view text = value.Text(&buffer);
  if (!all.min_text || text < *all.min_text) all.min_text = std::string(text);
  if (!all.max_text || text > *all.max_text) all.max_text = std::string(text);
  const std::optional<Value> parsed = value.kind() == Value::Kind::kBytes ? table::ParseDecimal(value.bytes()) : std::optional(value);
  if (!parsed) return;
  const bool is_double = parsed->kind() == Value::Kind::kDouble;
  const Value number = is_double ? *parsed : Value(parsed->int_value());  // a bool is 0 or 1
  ++all.num_numbers;
  if (is_double) {
    ++all.num_doubles;
    all.sum += number.double_value();
  } else {
    all.sum += static_cast<double>(number.int_value());
    if (__builtin_add_overflow(all.int_sum, number.int_value(), &all.int_sum)) all.num_overflows += number.int_value() > 0 ? 1 : -1;
  }
  all.is_int = all.num_doubles == 0 && all.num_overflows == 0;
  if (!all.min || IsFirst(number, *all.min, std::partial_ordering::less)) all.min = number;
  if (!all.max || IsFirst(number, *all.max, std::partial_ordering::greater)) all.max = number;
}

}  // namespace

Status Query::Each(Visit visit) const HAKO_TRY {
  QueryRun run(*this);
  HAKO_RETURN_IF_ERROR(run.Prepare(std::nullopt));
  return run.Each(visit);
}
HAKO_OR_NO_MEMORY

StatusOr<std::vector<std::string>> Query::Keys() const HAKO_TRY {
  QueryRun run(*this);
  HAKO_RETURN_IF_ERROR(run.Prepare(std::vector<std::string>()));
  std::vector<std::string> keys;
  HAKO_RETURN_IF_ERROR(run.Each([&keys](std::string_view key, const RowView&) {
    keys.emplace_back(key);
    return true;
  }));
  return keys;
}
HAKO_OR_NO_MEMORY

StatusOr<std::uint64_t> Query::Count() const HAKO_TRY {
  if (!where_.node() && !HasLimit()) return core_->CountRows();
  QueryRun run(*this);
  HAKO_RETURN_IF_ERROR(run.Prepare(std::vector<std::string>()));
  const table::Access& access = run.plan().access;
  if (run.plan().is_exact && access.kind == table::Access::Kind::kRange && access.range.index != nullptr && !HasLimit() &&
      effort_ == nullptr)
    return core_->store->CountRange(access.range.from, access.range.to);
  std::uint64_t count = 0;
  HAKO_RETURN_IF_ERROR(run.Each([&count](std::string_view, const RowView&) {
    ++count;
    return true;
  }));
  return count;
}
HAKO_OR_NO_MEMORY

StatusOr<Aggregates> Query::Aggregate(std::string_view column) const HAKO_TRY {
  QueryRun run(*this);
  HAKO_RETURN_IF_ERROR(run.Prepare(std::vector<std::string>{std::string(column)}));
  Aggregates all;
  HAKO_RETURN_IF_ERROR(run.Each([&](std::string_view key, const RowView& row) {
    const Value value = column.empty() ? Value(key) : row.Get(column);
    if (!value.is_null()) AddTo(all, value);
    return true;
  }));
  return all;
}
HAKO_OR_NO_MEMORY

StatusOr<Query::Groups> Query::GroupBy(std::string_view column, std::string_view of) const HAKO_TRY {
  QueryRun run(*this);
  HAKO_RETURN_IF_ERROR(run.Prepare(std::vector<std::string>{std::string(column), std::string(of)}));
  Groups groups;
  std::uint64_t bytes = 0;
  Status full;
  HAKO_RETURN_IF_ERROR(run.Each([&](std::string_view key, const RowView& row) {
    const Value name = column.empty() ? Value(key) : row.Get(column);
    const auto [group, is_new] = groups.try_emplace(name.is_null() ? std::nullopt : std::optional(name.ToText()));
    if (is_new) bytes += (group->first ? group->first->size() : 0) + sizeof(*group) + 64;
    const Value value = of.empty() ? Value(key) : row.Get(of);
    if (!value.is_null()) AddTo(group->second, value);
    if (bytes > core_->sort_bytes)
      full = absl::ResourceExhaustedError(absl::StrCat("the groups of column '", ToAbsl(column), "' take more than ", core_->sort_bytes,
                                                       " bytes (TableOptions::sort_bytes)"));
    return full.ok();
  }));
  HAKO_RETURN_IF_ERROR(full);
  return groups;
}
HAKO_OR_NO_MEMORY

namespace {

// Makes one change of each row of a query.
StatusOr<std::uint64_t> ChangeRows(table::TableCore& core, QueryRun& run, table::Change::Kind kind, std::span<const Cell> cells) {
  std::vector<std::string> keys;
  HAKO_RETURN_IF_ERROR(run.Each([&keys](std::string_view key, const RowView&) {
    keys.emplace_back(key);
    return keys.size() <= table::ChangeSet::kRecordsMax;
  }));
  if (keys.empty()) return std::uint64_t{0};
  if (keys.size() > table::ChangeSet::kRecordsMax)
    return absl::OutOfRangeError(
        absl::StrCat("the query has more than ", table::ChangeSet::kRecordsMax, " rows, the limit of one step; give a limit"));
  std::vector<table::Change> changes;
  for (const std::string& key : keys) changes.push_back({kind, key, cells, &run.filter()});
  std::uint64_t num_changed = 0;
  HAKO_RETURN_IF_ERROR(table::MakeChanges(core, changes, &num_changed));
  return num_changed;
}

}  // namespace

StatusOr<std::uint64_t> Query::Update(std::span<const Cell> cells) const HAKO_TRY {
  QueryRun run(*this);
  HAKO_RETURN_IF_ERROR(run.Prepare(std::vector<std::string>()));
  return ChangeRows(*core_, run, table::Change::Kind::kUpdate, cells);
}
HAKO_OR_NO_MEMORY

StatusOr<std::uint64_t> Query::Remove() const HAKO_TRY {
  QueryRun run(*this);
  HAKO_RETURN_IF_ERROR(run.Prepare(std::vector<std::string>()));
  return ChangeRows(*core_, run, table::Change::Kind::kRemove, {});
}
HAKO_OR_NO_MEMORY

StatusOr<std::string> Query::Explain() const HAKO_TRY {
  QueryRun run(*this);
  HAKO_RETURN_IF_ERROR(run.Prepare(std::nullopt, true));
  return table::PlanText(run.plan(), run.wanted());
}
HAKO_OR_NO_MEMORY

table::OwnedValue FigureOf(const Statement::Aggregate& aggregate, const Aggregates& all) {
  if (aggregate.function == "count") return table::OwnedValue(Value(static_cast<std::int64_t>(all.count)));
  if (aggregate.function == "sum") return table::OwnedValue(all.is_int ? Value(all.int_sum) : Value(all.sum));
  const bool is_min = aggregate.function == "min";
  const auto& number = is_min ? all.min : all.max;
  const auto& word = is_min ? all.min_text : all.max_text;
  if (all.num_numbers > 0 && all.num_numbers == all.count) return table::OwnedValue(*number);
  return table::OwnedValue(word ? Value(*word) : Value());
}

std::string LabelOf(const Statement::Aggregate& aggregate) {
  const absl::string_view column = aggregate.of_rows ? "*" : aggregate.column.empty() ? "key" : absl::string_view(aggregate.column);
  return absl::StrCat(aggregate.function, "(", column, ")");
}

StatusOr<Condition> Query::AsCondition() const {
  if (!HasLimit()) return where_;
  HAKO_ASSIGN_OR_RETURN(std::vector<std::string> keys, Keys());
  std::sort(keys.begin(), keys.end());
  return table::KeyIn(std::move(keys));
}

StatusOr<Query> Query::Union(const Query& other) const HAKO_TRY {
  HAKO_ASSIGN_OR_RETURN(const Condition mine, AsCondition());
  HAKO_ASSIGN_OR_RETURN(const Condition theirs, other.AsCondition());
  return Query(core_).Where(mine || theirs);
}
HAKO_OR_NO_MEMORY
StatusOr<Query> Query::Intersection(const Query& other) const HAKO_TRY {
  HAKO_ASSIGN_OR_RETURN(const Condition mine, AsCondition());
  HAKO_ASSIGN_OR_RETURN(const Condition theirs, other.AsCondition());
  return Query(core_).Where(mine && theirs);
}
HAKO_OR_NO_MEMORY
StatusOr<Query> Query::Difference(const Query& other) const HAKO_TRY {
  HAKO_ASSIGN_OR_RETURN(const Condition mine, AsCondition());
  HAKO_ASSIGN_OR_RETURN(const Condition theirs, other.AsCondition());
  return Query(core_).Where(mine && !theirs);
}
HAKO_OR_NO_MEMORY

Query TableDBM::Select(const Statement& statement) {
  Query query = Select();
  query.Where(statement.where);
  if (statement.order_by) query.OrderBy(*statement.order_by, statement.order);
  if (statement.limit) query.Limit(*statement.limit, statement.offset);
  query.offset_ = statement.offset;
  return query;
}

}  // namespace hako
