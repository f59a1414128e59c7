// Filter: a condition whose columns have been looked up in a table, to be tested on many rows.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hako/base/assert.h"
#include "hako/base/function_ref.h"
#include "hako/table/column_names.h"
#include "hako/table/condition.h"
#include "hako/table/query_effort.h"
#include "hako/table/row.h"

namespace hako::table {

class Filter {
 public:
  // Returns nullptr if there is no such column.
  using FindColumn = FunctionRef<const StoredColumn*(std::string_view)>;

  // Holds for every row.
  Filter() = default;
  // `effort` bounds the work of Matches; nullptr = no bound. Once it is spent, the results of
  // Matches have no meaning: see IsStopped.
  Filter(const Condition& condition, const ColumnNames& names, QueryEffort* effort = nullptr)
      : Filter(
            condition, [&names](std::string_view name) { return names.Find(name); }, effort) {}
  Filter(const Condition& condition, FindColumn find, QueryEffort* effort = nullptr);

  bool Matches(std::string_view key, const RowView& row) const { return tests_.empty() || Holds(0, key, row); }
  // The same for a row that is known to meet some conjuncts of the condition, by bit.
  bool MatchesRest(std::string_view key, const RowView& row, std::uint64_t met) const;
  bool IsAlways() const { return tests_.empty(); }
  bool IsStopped() const { return effort_ != nullptr && effort_->is_spent(); }
  Status error() const {  // REQUIRES: IsStopped()
    HAKO_DCHECK(IsStopped());
    return effort_->error();
  }
  // Adds the columns that the condition reads.
  void AddColumns(std::vector<ColumnId>* columns) const;

 private:
  struct Test {
    const Node* node;
    ColumnId column;       // kKey = the primary key; kNone = no row had it yet: each row is asked by name
    std::uint32_t behind;  // the number of the test after this one and its children
  };
  static constexpr ColumnId kNone{0xffff};

  void Add(const Node& node, FindColumn find);
  bool Holds(std::size_t i, std::string_view key, const RowView& row) const;

  Condition condition_;                 // keeps the nodes
  absl::InlinedVector<Test, 2> tests_;  // a parent before its children
  QueryEffort* effort_ = nullptr;
};

// Whether a value meets a leaf of a condition.
bool MeetsLeaf(const Node& node, const Value& value, QueryEffort* effort);

}  // namespace hako::table
