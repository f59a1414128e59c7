#include "hako/table/query.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/no_memory.h"
#include "hako/table/change_set.h"
#include "hako/table/query_run.h"
#include "hako/table/table_dbm.h"

namespace hako {

using table::QueryRun;

namespace {

void AddTo(Aggregates& all, const Value& value) {
  ++all.count;
  std::string buffer;
  const std::string_view text = value.Text(&buffer);
  if (!all.min_text || text < *all.min_text) all.min_text = std::string(text);
  if (!all.max_text || text > *all.max_text) all.max_text = std::string(text);
  const std::optional<Value> parsed = value.kind() == Value::Kind::kBytes ? table::ParseDecimal(value.bytes()) : std::optional(value);
  if (!parsed) return;
  const bool is_double = parsed->kind() == Value::Kind::kDouble;
  const double number = is_double ? parsed->double_value() : static_cast<double>(parsed->int_value());
  ++all.num_numbers;
  all.sum += number;
  if (is_double || __builtin_add_overflow(all.int_sum, parsed->int_value(), &all.int_sum)) all.is_int = false;
  if (!all.min || number < *all.min) all.min = number;
  if (!all.max || number > *all.max) all.max = number;
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

StatusOr<std::map<std::string, Aggregates>> Query::GroupBy(std::string_view column, std::string_view of) const HAKO_TRY {
  QueryRun run(*this);
  HAKO_RETURN_IF_ERROR(run.Prepare(std::vector<std::string>{std::string(column), std::string(of)}));
  std::map<std::string, Aggregates> groups;
  std::uint64_t bytes = 0;
  Status full;
  HAKO_RETURN_IF_ERROR(run.Each([&](std::string_view key, const RowView& row) {
    const auto [group, is_new] = groups.try_emplace(column.empty() ? std::string(key) : row.Get(column).ToText());
    if (is_new) bytes += group->first.size() + sizeof(*group) + 64;
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
  if (all.num_numbers > 0 && all.num_numbers == all.count)
    return table::OwnedValue(all.is_int && *number < 0x1p63 ? Value(static_cast<std::int64_t>(*number)) : Value(*number));
  return table::OwnedValue(word ? Value(*word) : Value());
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
