#include "hako/table/query_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/table/typed_value.h"

namespace hako::table {
namespace {

thread_local QueryRun* innermost = nullptr;  // the run of this thread whose visitor may run others

}  // namespace

QueryRun::QueryRun(const Query& query) : query_(query), core_(*query.core_), outer_(std::exchange(innermost, this)) {}

QueryRun::~QueryRun() {
  ReleaseIndices();
  innermost = outer_;
}

bool QueryRun::IsUsedHere(const Index& index) {
  for (const QueryRun* run = innermost; run != nullptr; run = run->outer_) {
    if (std::find(run->held_.begin(), run->held_.end(), &index) != run->held_.end()) return true;
  }
  return false;
}

Status QueryRun::Prepare(const std::optional<std::vector<std::string>>& columns, bool explains, bool counts) {
  HAKO_RETURN_IF_ERROR(query_.CheckOffset());
  if (query_.where_.node()) HAKO_RETURN_IF_ERROR(CheckNames(*query_.where_.node()));
  HAKO_RETURN_IF_ERROR(CheckName(query_.order_by_.value_or("")));
  where_ = TypedCondition(query_.where_, core_.catalogue.names());
  filter_ = Filter(where_, core_.catalogue.names(), query_.effort_);
  wanted_.where = &where_;
  wanted_.explains = explains;
  wanted_.counts = counts;
  wanted_.effort = query_.effort_;
  if (query_.limit_) {
    const std::uint64_t most = ~std::uint64_t{0} - query_.offset_;
    wanted_.rows = std::min(*query_.limit_, most) + query_.offset_;
  }
  HAKO_RETURN_IF_ERROR(SetOrder());
  SetColumns(columns);
  const auto has_texts = [this] { return std::ranges::any_of(core_.catalogue.indices(), &Index::is_text); };
  if (has_texts()) numbers_in_use_.emplace(core_.numbers);
  for (;;) {
    HAKO_RETURN_IF_ERROR(Planner(core_, wanted_).Make(&plan_));
    if (!numbers_in_use_ && has_texts()) {  // the first text index has just become ready
      numbers_in_use_.emplace(core_.numbers);
      continue;
    }
    if (HoldIndices(plan_.access)) break;
    ReleaseIndices();  // an index is being dropped
  }
  const auto& names = columns ? columns : query_.columns_;
  shows_keys_ = plan_.is_exact && plan_.is_ordered && names && names->empty() && !after_;
  sorts_keys_ = plan_.access.kind == Access::Kind::kNumbers && !plan_.is_ordered && wanted_.order_column == ColumnId::kKey;
  BeginBehind();
  return absl::OkStatus();
}

// The primary key is no column, so a condition on one of its name would hold for no row.
Status QueryRun::CheckName(std::string_view column) const {
  if (column != kKeyName || core_.catalogue.names().Find(column) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "there is no column 'key': the primary key is Key() in a condition, and has the empty name in OrderBy, Aggregate and GroupBy");
}
Status QueryRun::CheckNames(const Node& node) const {
  for (const auto& child : node.children) HAKO_RETURN_IF_ERROR(CheckNames(*child));
  return CheckName(node.column);
}

Status QueryRun::SetOrder() {
  const StoredColumn* column = nullptr;
  const bool is_numeric = query_.order_ >= RowOrder::kNumericAscending;
  wanted_.is_descending = query_.order_ == RowOrder::kDescending || query_.order_ == RowOrder::kNumericDescending;
  if (!query_.order_by_) {
    if (query_.HasLimit()) wanted_.order_column = ColumnId::kKey;
  } else if (query_.order_by_->empty()) {
    wanted_.order_column = is_numeric ? kKeyAsNumber : ColumnId::kKey;
  } else {
    column = core_.catalogue.names().Find(*query_.order_by_);
    wanted_.order_column = column == nullptr ? static_cast<ColumnId>(0xffff) : column->id;
  }
  if (query_.order_by_ && is_numeric) wanted_.order_kind = IndexKind::kNumeric;
  if (!query_.after_key_) return absl::OkStatus();
  after_.emplace();
  after_->key = *query_.after_key_;
  if (query_.order_by_.value_or("").empty()) {
    after_->order = OrderOf(after_->key, RowView());
    return absl::OkStatus();
  }
  if (!query_.after_value_)
    return absl::InvalidArgumentError(absl::StrCat("After: an order by column '", *query_.order_by_, "' needs the value of that row, too"));
  const OwnedValue value = TypedLiteral(column == nullptr ? ColumnType::kAny : column->type, query_.after_value_->get());
  if (!value.get().is_null() && value.get().kind() != Value::Kind::kBytes && !NumberOf(value.get()))
    return absl::InvalidArgumentError("After: the value is NaN, or an integer that exceeds int64");
  AppendPart(value.get(), wanted_.order_kind, &after_->order);
  return absl::OkStatus();
}

void QueryRun::SetColumns(const std::optional<std::vector<std::string>>& columns) {
  const auto& names = columns ? columns : query_.columns_;
  if (!names) return;
  wanted_.columns.emplace();
  for (const std::string& name : *names) {
    const StoredColumn* const column = core_.catalogue.names().Find(name);
    if (column != nullptr) wanted_.columns->push_back(column->id);
  }
  filter_.AddColumns(&*wanted_.columns);
  if (wanted_.order_column) wanted_.columns->push_back(*wanted_.order_column);
}

bool QueryRun::HoldIndices(const Access& access) {
  for (const Access& part : access.parts) {
    if (!HoldIndices(part)) return false;
  }
  const auto hold = [this](const Index* index) {
    index->users().fetch_add(1, std::memory_order_seq_cst);
    held_.push_back(index);
    return index->state() == IndexState::kReady;
  };
  return (access.range.index == nullptr || hold(access.range.index)) && std::ranges::all_of(access.indices, hold);
}

void QueryRun::ReleaseIndices() {
  for (const Index* const index : held_) index->users().fetch_sub(1, std::memory_order_release);
  held_.clear();
}

// If the range has the wanted order, narrows it to the part behind After. It may also leave the
// range unchanged, because Each tests every row against After.
void QueryRun::BeginBehind() {
  if (!after_ || (plan_.access.kind != Access::Kind::kRange && !plan_.access.IsOfRows())) return;
  RecordRange& range = plan_.access.range;
  const bool is_rows = plan_.access.IsOfRows() && wanted_.order_column == ColumnId::kKey;
  if (!is_rows && !plan_.access.gives_order) return;
  std::string position;
  bool has_key = true;  // whether the position names one row; otherwise entries at it may be behind After
  if (is_rows) {
    position = RowKey(after_->key);
  } else if (wanted_.order_column == ColumnId::kKey) {
    position = range.from.substr(0, range.key_at) + after_->key;
  } else {
    has_key = !plan_.access.is_unique || after_->order[0] == kNullPart;
    position = range.from.substr(0, plan_.access.order_at) + after_->order + (has_key ? after_->key : std::string());
  }
  if (has_key != wanted_.is_descending) position.push_back('\0');  // the first key behind the position
  if (wanted_.is_descending) {
    if (range.to.empty() || position < range.to) range.to = std::move(position);
  } else {
    range.from = std::max(range.from, std::move(position));
  }
}

std::string QueryRun::OrderOf(std::string_view key, const RowView& row) const {
  std::string order;
  if (wanted_.order_column == ColumnId::kKey) return order;
  AppendPart(wanted_.order_column == kKeyAsNumber ? Value(key) : row.Get(*wanted_.order_column), wanted_.order_kind, &order);
  return order;
}

Status QueryRun::Scan(KeyStream& stream, ShowRef show) {
  const ColumnNames* const names = &core_.catalogue.names();
  const auto look = [&](std::string_view key, const RowView& row) {
    const bool is_shown = Matches(key, row) && stream.Takes(key, row);
    return !filter_.IsStopped() && (!is_shown || show(key, row));
  };
  const bool may_lack_rows = !plan_.is_covered;
  const bool is_by_column = plan_.access.gives_order && wanted_.order_column != ColumnId::kKey;
  keys_.clear();
  orders_.clear();
  for (bool goes_on = true; goes_on && stream.Next();) {
    if (shows_keys_ || sorts_keys_) {
      goes_on = show(stream.key(), RowView());
      continue;
    }
    if (stream.row() && (plan_.access.ShowsRows() || !may_lack_rows)) {
      Note(stream.known());
      goes_on = look(stream.key(), RowView(*stream.row(), names));
      continue;
    }
    keys_.emplace_back(stream.key());
    if (is_by_column) {
      const std::string_view parts = stream.entry().substr(plan_.access.order_at);
      orders_.emplace_back(parts.substr(0, PartLength(parts)));
    }
    const bool is_union = plan_.access.kind == Access::Kind::kUnion;  // the stream's Takes asks its present part
    const std::size_t most = is_union                           ? 1
                             : wanted_.rows && plan_.is_ordered ? std::clamp<std::size_t>(*wanted_.rows, 1, kRowsAtOnce)
                                                                : kRowsAtOnce;
    if (keys_.size() < most) continue;
    HAKO_RETURN_IF_ERROR(FetchRows(keys_, orders_, stream.known(), look, &goes_on));
    keys_.clear();
    orders_.clear();
  }
  HAKO_RETURN_IF_ERROR(stream.status());
  bool goes_on = true;
  if (!keys_.empty()) HAKO_RETURN_IF_ERROR(FetchRows(keys_, orders_, stream.known(), look, &goes_on));
  return filter_.IsStopped() ? filter_.error() : absl::OkStatus();
}

void QueryRun::Note(const KeyStream::Known& known) {
  const bool is_same = known.met != 0 && known.moment && core_.Moment() == known.moment;
  met_ = is_same ? known.met : 0;
}

Status QueryRun::FetchRow(std::string_view key, const std::string* order, const KeyStream::Known& known, ShowRef show, bool* goes_on) {
  RowBuffer bytes;
  const Status status = key.size() > TableLimits::kKeySize ? AbsentError() : core_.FetchRow(key, &bytes);
  if (!status.ok() && !absl::IsNotFound(status)) return status;
  if (wanted_.effort != nullptr && !wanted_.effort->TakeRow(status.ok() ? bytes.view().size() : 0)) return wanted_.effort->error();
  if (!status.ok()) return absl::OkStatus();
  Note(known);
  const RowView row(bytes.view(), &core_.catalogue.names());
  if (order == nullptr || OrderOf(key, row) == *order) *goes_on = show(key, row);
  return absl::OkStatus();
}

Status QueryRun::FetchRows(std::span<const std::string> keys, std::span<const std::string> orders, const KeyStream::Known& known,
                           ShowRef show, bool* goes_on) {
  if (keys.size() == 1) return FetchRow(keys[0], orders.empty() ? nullptr : &orders[0], known, show, goes_on);
  std::vector<std::string> row_keys;
  std::vector<std::string_view> views;
  for (const std::string& key : keys) row_keys.push_back(RowKey(key));
  for (const std::string& key : row_keys) views.push_back(key);
  if (rows_.size() < keys.size()) rows_.resize(keys.size());
  std::vector<bool> found(keys.size());
  HAKO_RETURN_IF_ERROR(core_.store->FetchMulti(
      views,
      [this](std::size_t i, std::size_t size) {
        rows_[i].resize(size);
        return rows_[i].data();
      },
      [&found](std::size_t i, bool is_there) { found[i] = is_there; }));
  Note(known);
  for (std::size_t i = 0; i < keys.size() && *goes_on; ++i) {
    if (wanted_.effort != nullptr && !wanted_.effort->TakeRow(found[i] ? rows_[i].size() : 0)) return wanted_.effort->error();
    if (!found[i]) continue;
    const RowView row(rows_[i], &core_.catalogue.names());
    if (orders.empty() || OrderOf(keys[i], row) == orders[i]) *goes_on = show(keys[i], row);
  }
  return absl::OkStatus();
}

Status QueryRun::Each(Query::Visit visit) {
  if (query_.limit_ == 0) return absl::OkStatus();
  if (!plan_.is_ordered) return EachSorted(visit);
  std::uint64_t to_skip = query_.offset_, shown = 0;
  const auto show = [&](std::string_view key, const RowView& row) {
    if (after_ && !IsBefore(*after_, {OrderOf(key, row), std::string(key)})) return true;
    if (to_skip > 0) return --to_skip, true;
    ++shown;
    return visit(key, row) && shown != query_.limit_;
  };
  const bool is_reversed = wanted_.is_descending && wanted_.order_column;
  if (plan_.access.kind == Access::Kind::kRange) {
    RangeStream stream(core_, plan_.access.range, is_reversed, wanted_.effort);
    return Scan(stream, show);
  }
  return Scan(*MakeStream(core_, plan_.access, is_reversed, wanted_.effort), show);
}

// Keeps all rows, or with a limit the first rows of the order, in a heap whose top is the last of
// these.
Status QueryRun::Sort(std::uint64_t most, std::vector<Item>* items) {
  const auto is_before = [this](const Item& a, const Item& b) { return IsBefore(a, b); };
  std::uint64_t bytes = 0;
  Status full;
  const auto stream = MakeStream(core_, plan_.access, false, wanted_.effort);
  HAKO_RETURN_IF_ERROR(Scan(*stream, [&](std::string_view key, const RowView& row) {
    Item item{OrderOf(key, row), std::string(key)};
    if (after_ && !IsBefore(*after_, item)) return true;
    if (items->size() == most) {
      if (!IsBefore(item, items->front())) return true;
      std::pop_heap(items->begin(), items->end(), is_before);
      items->back() = std::move(item);
      std::push_heap(items->begin(), items->end(), is_before);
      return true;
    }
    bytes += item.order.size() + item.key.size() + sizeof(Item);
    items->push_back(std::move(item));
    if (items->size() == most) std::make_heap(items->begin(), items->end(), is_before);
    if (bytes > core_.sort_bytes)
      full = absl::ResourceExhaustedError(absl::StrCat("sorting by column '", query_.order_by_.value_or(""), "' takes more than ",
                                                       core_.sort_bytes,
                                                       " bytes (TableOptions::sort_bytes): give a limit, or create an index of it"));
    return full.ok();
  }));
  HAKO_RETURN_IF_ERROR(full);
  std::sort(items->begin(), items->end(), is_before);
  return absl::OkStatus();
}

// Leaves out a row that is gone when it is read, or that has another value than the one by which it
// was sorted. If the limit is not reached then, sorts the rows behind the last one.
Status QueryRun::EachSorted(Query::Visit visit) {
  static constexpr std::uint64_t kAll = ~std::uint64_t{0};
  std::uint64_t to_skip = query_.offset_, left = query_.limit_.value_or(kAll), most = wanted_.rows.value_or(kAll);
  if (sorts_keys_ && !plan_.is_exact) most = std::max<std::uint64_t>(most, kRowsAtOnce);
  for (std::vector<Item> items;; items.clear()) {
    HAKO_RETURN_IF_ERROR(Sort(most, &items));
    // Keys that are sorted without their rows need not be of rows that count for the offset.
    const std::uint64_t num_known = sorts_keys_ ? 0 : std::min<std::uint64_t>(to_skip, items.size());
    to_skip -= num_known;
    const auto behind_offset = std::span<const Item>(items).subspan(num_known);
    const auto show = [&](std::string_view key, const RowView& row) {
      const bool is_shown = Matches(key, row);
      if (filter_.IsStopped()) return false;
      if (is_shown && to_skip > 0) return --to_skip, true;
      return !is_shown || (visit(key, row) && --left != 0);
    };
    bool goes_on = true;
    HAKO_RETURN_IF_ERROR(ShowSorted(behind_offset, show, &goes_on));
    if (filter_.IsStopped()) return filter_.error();
    if (!goes_on || items.size() < most) return absl::OkStatus();
    after_ = std::move(items.back());
    most = std::max<std::uint64_t>(left + to_skip, sorts_keys_ ? 2 * most : kRowsAtOnce);  // sorts some more than needed
  }
}

Status QueryRun::ShowSorted(std::span<const Item> items, ShowRef show, bool* goes_on) {
  const bool is_of_set = plan_.access.kind == Access::Kind::kNumbers;
  const KeyStream::Known known = is_of_set ? KeyStream::Known{plan_.access.exact, plan_.access.moment} : KeyStream::Known();
  std::vector<std::string> keys, orders;
  for (std::size_t i = 0; i < items.size() && *goes_on; i += kRowsAtOnce) {
    keys.clear();
    orders.clear();
    for (const Item& item : items.subspan(i, std::min(kRowsAtOnce, items.size() - i))) {
      keys.push_back(item.key);
      orders.push_back(item.order);
    }
    HAKO_RETURN_IF_ERROR(FetchRows(keys, orders, known, show, goes_on));
  }
  return absl::OkStatus();
}

StatusOr<FiguresByGroup> QueryRun::FindFigures(const std::optional<std::string>& group_by, const std::vector<std::string>& columns) {
  std::vector<std::string> needed = columns;
  if (group_by) needed.push_back(*group_by);
  for (const std::string& column : needed) HAKO_RETURN_IF_ERROR(CheckName(column));
  HAKO_RETURN_IF_ERROR(Prepare(needed));
  FiguresByGroup groups;
  std::uint64_t bytes = 0;
  Status full;
  HAKO_RETURN_IF_ERROR(Each([&](std::string_view key, const RowView& row) {
    const auto value_of = [&](const std::string& column) { return column.empty() ? Value(key) : row.Get(column); };
    const Value name = group_by ? value_of(*group_by) : Value();
    auto [group, is_new] = groups.try_emplace(name, columns.size());
    if (is_new) {
      bytes += (name.kind() == Value::Kind::kBytes ? name.bytes().size() : 0) + sizeof(*group) + columns.size() * sizeof(Aggregates) + 64;
    } else if (StandsFor(name, group->first.get())) {
      FiguresByGroup::node_type renamed = groups.extract(group);
      renamed.key() = name;
      group = groups.insert(std::move(renamed)).position;
    }
    for (std::size_t i = 0; i < columns.size(); ++i) group->second[i].Add(value_of(columns[i]));
    if (bytes > core_.sort_bytes)
      full = absl::ResourceExhaustedError(absl::StrCat("the groups of column '", group_by.value_or(""), "' take more than ",
                                                       core_.sort_bytes, " bytes (TableOptions::sort_bytes)"));
    return full.ok();
  }));
  HAKO_RETURN_IF_ERROR(full);
  return groups;
}

}  // namespace hako::table
