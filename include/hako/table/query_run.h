// QueryRun: one run of a query. It makes the plan, and shows the rows.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hako/table/plan.h"
#include "hako/table/query.h"

namespace hako::table {

// The figures of some columns for each group.
using FiguresByGroup = std::map<OwnedValue, std::vector<Aggregates>>;

class QueryRun {
 public:
  explicit QueryRun(const Query& query);
  ~QueryRun();
  QueryRun(const QueryRun&) = delete;

  // Whether a run of this thread uses the index: then DropIndex would wait for itself.
  static bool IsUsedHere(const Index& index);

  // Makes the plan. `columns` are the columns that are needed beside those of the condition and the
  // order; nullopt = those that the query wants.
  Status Prepare(const std::optional<std::vector<std::string>>& columns, bool explains = false, bool counts = false);
  Status Each(Query::Visit visit);
  // Makes the plan and runs it, and groups the rows by the value of the column `group_by`; an empty
  // name is the primary key. With nullopt all rows form one group, null, which exists only if there
  // is a row.
  StatusOr<FiguresByGroup> FindFigures(const std::optional<std::string>& group_by, const std::vector<std::string>& columns);

  const Plan& plan() const { return plan_; }
  const Wanted& wanted() const { return wanted_; }
  const Filter& filter() const { return filter_; }

 private:
  static constexpr std::size_t kRowsAtOnce = 32;
  struct Item {  // of a sort
    std::string order, key;
    bool operator<(const Item& other) const {
      const int by_order = order.compare(other.order);
      return by_order != 0 ? by_order < 0 : key < other.key;
    }
  };
  using ShowRef = FunctionRef<bool(std::string_view key, const RowView& row)>;

  Status CheckName(std::string_view column) const;
  Status CheckNames(const Node& node) const;
  Status SetOrder();
  void SetColumns(const std::optional<std::vector<std::string>>& columns);
  bool HoldIndices(const Access& access);
  void ReleaseIndices();
  void BeginBehind();
  std::string OrderOf(std::string_view key, const RowView& row) const;
  bool IsBefore(const Item& a, const Item& b) const { return wanted_.is_descending ? b < a : a < b; }
  // Shows the rows of the stream that meet the condition, until `show` returns false.
  Status Scan(KeyStream& stream, ShowRef show);
  // Shows the row of this key. `order`, unless nullptr, is the value by which the row was found in
  // the order: a row that has another value by now is left out, because it no longer belongs there.
  Status FetchRow(std::string_view key, const std::string* order, const KeyStream::Known& known, ShowRef show, bool* goes_on);
  Status FetchRows(std::span<const std::string> keys, std::span<const std::string> orders, const KeyStream::Known& known, ShowRef show,
                   bool* goes_on);
  // Sets met_ for rows that have just been read.
  void Note(const KeyStream::Known& known);
  bool Matches(std::string_view key, const RowView& row) const { return filter_.MatchesRest(key, row, met_); }
  // Finds the first `most` rows behind after_ in the order.
  Status Sort(std::uint64_t most, std::vector<Item>* items);
  Status EachSorted(Query::Visit visit);
  Status ShowSorted(std::span<const Item> items, ShowRef show, bool* goes_on);

  const Query& query_;
  TableCore& core_;
  QueryRun* const outer_;  // the run of this thread whose visitor runs this one
  Condition where_;        // of the query, with literals converted to the types of the columns
  Wanted wanted_{};
  Filter filter_;
  Plan plan_;
  absl::InlinedVector<const Index*, 2> held_;
  std::optional<NumbersInUse> numbers_in_use_;  // if the table has text indices
  std::optional<Item> after_;
  bool shows_keys_ = false;  // whether it shows keys without reading rows
  bool sorts_keys_ = false;  // whether it sorts keys without reading rows
  std::uint64_t met_ = 0;    // the conjuncts, by bit, that the rows which are shown are known to meet
  absl::InlinedVector<std::string, 1> keys_;
  std::vector<std::string> orders_, rows_;
};

}  // namespace hako::table
