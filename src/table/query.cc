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

void Aggregates::Add(const Value& value) {
  if (value.is_null()) return;
  ++count;
  const auto replaces = [&value](const OwnedValue& best, std::weak_ordering order) {
    const std::weak_ordering found = value <=> best.get();
    return found == order || (std::is_eq(found) && table::StandsFor(value, best.get()));
  };
  if (count == 1 || replaces(min, std::weak_ordering::less)) min = value;
  if (count == 1 || replaces(max, std::weak_ordering::greater)) max = value;
  if (value.kind() == Value::Kind::kBytes) return;
  ++num_numbers;
  if (value.kind() == Value::Kind::kDouble) {
    ++num_doubles_;
    double_sum_ += value.double_value();
    return;
  }
  const std::int64_t number = value.kind() == Value::Kind::kInt ? value.int_value() : std::int64_t{value.bool_value()};
  if (__builtin_add_overflow(int_sum_, number, &int_sum_)) num_overflows_ += number > 0 ? 1 : -1;
}

Value Aggregates::Sum() const {
  if (num_doubles_ == 0 && num_overflows_ == 0) return int_sum_;
  constexpr double kTwoTo64 = 18446744073709551616.0;
  return double_sum_ + (static_cast<double>(int_sum_) + static_cast<double>(num_overflows_) * kTwoTo64);
}

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

Status Query::CheckOffset() const {
  if (!IntegerArg<std::uint64_t>(offset_).IsNegative()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("Limit: the offset is negative: ", static_cast<std::int64_t>(offset_)));
}

StatusOr<std::uint64_t> Query::Count() const HAKO_TRY {
  HAKO_RETURN_IF_ERROR(CheckOffset());
  if (limit_ == 0) return std::uint64_t{0};
  if (after_key_) {  // which depends on the order
    std::uint64_t count = 0;
    QueryRun run(*this);
    HAKO_RETURN_IF_ERROR(run.Prepare(std::vector<std::string>()));
    HAKO_RETURN_IF_ERROR(run.Each([&](std::string_view, const RowView&) { return ++count, true; }));
    return count;
  }
  Query all = *this;
  all.limit_.reset();
  all.offset_ = 0;
  all.order_by_.reset();
  const auto within_limit = [this](std::uint64_t count) {
    return std::min(count - std::min(count, offset_), limit_.value_or(~std::uint64_t{0}));
  };
  if (!where_.node()) {
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t count, core_->CountRows());
    return within_limit(count);
  }
  QueryRun run(all);
  HAKO_RETURN_IF_ERROR(run.Prepare(std::vector<std::string>(), false, true));
  const table::Access& access = run.plan().access;
  std::uint64_t count = 0;
  if (run.plan().is_exact && access.kind == table::Access::Kind::kRange && access.range.index != nullptr && effort_ == nullptr) {
    HAKO_ASSIGN_OR_RETURN(count, core_->store->CountRange(access.range.from, access.range.to));
    return within_limit(count);
  }
  if (run.plan().is_exact && access.kind == table::Access::Kind::kNumbers) {
    if (!access.set->is_complement) return within_limit(access.set->numbers.size());
    // All rows but those of the set: both are counted at one moment.
    HAKO_RETURN_IF_ERROR(core_->CountRows().status());
    return core_->gate.RunExclusive([&]() -> StatusOr<std::uint64_t> {
      QueryRun again(all);
      HAKO_RETURN_IF_ERROR(again.Prepare(std::vector<std::string>(), false, true));
      HAKO_ASSIGN_OR_RETURN(const std::uint64_t num_rows, core_->CountRows());
      const table::Access& same = again.plan().access;
      if (again.plan().is_exact && same.kind == table::Access::Kind::kNumbers) {
        const std::uint64_t num_found = same.set->numbers.size();
        return within_limit(same.set->is_complement ? num_rows - std::min(num_rows, num_found) : num_found);
      }
      HAKO_RETURN_IF_ERROR(again.Each([&](std::string_view, const RowView&) { return ++count, true; }));
      return within_limit(count);
    });
  }
  HAKO_RETURN_IF_ERROR(run.Each([&](std::string_view, const RowView&) {
    ++count;
    return !limit_ || count < offset_ || count - offset_ < *limit_;
  }));
  return within_limit(count);
}
HAKO_OR_NO_MEMORY

StatusOr<Aggregates> Query::Aggregate(StringArg column) const HAKO_TRY {
  QueryRun run(*this);
  HAKO_ASSIGN_OR_RETURN(table::FiguresByGroup all, run.FindFigures(std::nullopt, {std::string(column)}));
  return all.empty() ? Aggregates() : std::move(all.begin()->second[0]);
}
HAKO_OR_NO_MEMORY

StatusOr<Query::Groups> Query::GroupBy(StringArg column, StringArg of) const HAKO_TRY {
  QueryRun run(*this);
  HAKO_ASSIGN_OR_RETURN(table::FiguresByGroup figures, run.FindFigures(std::string(column), {std::string(of)}));
  Groups groups;
  for (auto& [group, all] : figures) groups.emplace_hint(groups.end(), group, std::move(all[0]));
  return groups;
}
HAKO_OR_NO_MEMORY

namespace {

// Makes one change of each row with these keys, in one atomic step.
StatusOr<std::uint64_t> ChangeKeys(table::TableCore& core, const table::Filter& filter, table::ChangeKind kind,
                                   std::span<const std::string> keys, std::span<const Cell> cells) {
  if (keys.empty()) return std::uint64_t{0};
  std::vector<table::Change> changes;
  for (const std::string& key : keys) changes.push_back({kind, key, cells, &filter});
  std::uint64_t num_changed = 0;
  HAKO_RETURN_IF_ERROR(table::MakeChanges(core, changes, &num_changed));
  return num_changed;
}

// The same in several steps of `size` rows. If the entries of its rows make a step too large, it is
// halved, and so are the later ones. *total also counts the rows that were changed before an error.
Status ChangeInBatches(table::TableCore& core, const table::Filter& filter, table::ChangeKind kind, std::span<const std::string> keys,
                       std::span<const Cell> cells, std::size_t* size, std::uint64_t* total) {
  while (!keys.empty()) {
    const auto batch = keys.first(std::min(*size, keys.size()));
    const StatusOr<std::uint64_t> changed = ChangeKeys(core, filter, kind, batch, cells);
    if (absl::IsOutOfRange(changed.status()) && batch.size() > 1) {
      *size = batch.size() / 2;
      continue;
    }
    HAKO_RETURN_IF_ERROR(changed.status());
    *total += *changed;
    keys = keys.subspan(batch.size());
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::uint64_t> Query::Change(table::ChangeKind kind, std::span<const Cell> cells) const {
  static constexpr std::size_t kKeysMax = table::ChangeSet::kRecordsMax;  // keys of one step
  static constexpr std::size_t kKeysAtOnce = std::size_t{1} << 17;        // keys that are read at once for batches
  const auto find_keys = [](QueryRun& run) -> StatusOr<std::vector<std::string>> {
    std::vector<std::string> keys;
    HAKO_RETURN_IF_ERROR(run.Prepare(std::vector<std::string>()));
    HAKO_RETURN_IF_ERROR(run.Each([&keys](std::string_view key, const RowView&) {
      keys.emplace_back(key);
      return keys.size() <= kKeysMax;
    }));
    return keys;
  };
  if (batch_rows_ == 0) {
    QueryRun run(*this);
    HAKO_ASSIGN_OR_RETURN(const std::vector<std::string> keys, find_keys(run));
    if (keys.size() > kKeysMax)
      return absl::OutOfRangeError(absl::StrCat("the query has more than ", kKeysMax,
                                                " rows, the limit of one atomic step; give a limit, or change them in batches"));
    return ChangeKeys(*core_, run.filter(), kind, keys, cells);
  }
  if (order_by_.value_or("") != "" || order_ != RowOrder::kAscending)
    return absl::InvalidArgumentError("batches are in the order of the keys, not in another one");
  Query page = *this;
  page.OrderBy("");
  std::uint64_t left = limit_.value_or(~std::uint64_t{0}), total = 0;
  auto size = static_cast<std::size_t>(batch_rows_);
  for (;;) {
    page.Limit(std::min<std::uint64_t>(left, kKeysAtOnce), page.offset_);
    QueryRun run(page);
    HAKO_ASSIGN_OR_RETURN(const std::vector<std::string> keys, find_keys(run));
    if (const Status status = ChangeInBatches(*core_, run.filter(), kind, keys, cells, &size, &total); !status.ok())
      return Status(status.code(), absl::StrCat("after ", total, total == 1 ? " row: " : " rows: ", status.message()));
    left -= keys.size();
    if (keys.size() < *page.limit_ || left == 0) return total;
    page.offset_ = 0;
    page.After(keys.back());
  }
}

StatusOr<std::uint64_t> Query::Update(std::span<const Cell> cells) const HAKO_TRY { return Change(table::ChangeKind::kUpdate, cells); }
HAKO_OR_NO_MEMORY

StatusOr<std::uint64_t> Query::Remove() const HAKO_TRY { return Change(table::ChangeKind::kRemove, {}); }
HAKO_OR_NO_MEMORY

StatusOr<std::string> Query::Explain() const HAKO_TRY {
  QueryRun run(*this);
  HAKO_RETURN_IF_ERROR(run.Prepare(std::nullopt, true));
  return table::PlanText(run.plan(), run.wanted());
}
HAKO_OR_NO_MEMORY

OwnedValue FigureOf(const Statement::Aggregate& aggregate, const Aggregates& all) {
  if (aggregate.function == "count") return static_cast<std::int64_t>(all.count);
  if (aggregate.function == "sum") return all.Sum();
  return aggregate.function == "min" ? all.min : all.max;
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

}  // namespace hako
