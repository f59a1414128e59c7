// Plan: how a query finds its rows.
//
// The condition is an AND of conjuncts. Each of these may have candidates:
//   - ranges of an index: equalities of its first columns, then a range of the next one
//   - an equality of all columns of an index: its entries are sorted by the rows' keys
//   - a range of primary keys, or a list of them
//   - the set of rows that text indices give for all conjuncts that they serve (table/text_search.h); for the
//     first rows by key, a part of the set at a time (ZoneStream)
// The planner counts the entries of all candidates side by side, in steps that double, until one
// candidate ends: the smallest. So the cost of planning is a small part of the cost of the plan. A
// candidate larger than kScanPart of the table gives way to a scan of all rows. Sorted candidates
// are intersected with the smallest one. If all candidates are sorted, none is counted: the
// intersection seeks from key to key, so its cost is that of the smallest.
//
// A query with an order and a limit reads an index that has the order if it expects to find the
// first rows sooner there: when w * n < s * s, for n rows of the table, s rows of the smallest
// candidate, and w rows wanted.
//
// An OR is planned part by part, if each part has a candidate. The set of text indices is found while
// the query is planned, if no other candidate is smaller.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hako/base/status.h"
#include "hako/table/condition.h"
#include "hako/table/key_stream.h"
#include "hako/table/query_text.h"
#include "hako/table/table_core.h"
#include "hako/table/text_search.h"

namespace hako::table {

// Stands for an order by the cast `numeric` of the primary key, which no index has.
inline constexpr ColumnId kKeyAsNumber{0xfffe};

// The parts of a query that the plan depends on.
struct Wanted {
  const Condition* where;
  std::optional<ColumnId> order_column;        // kKey = the primary key; or kKeyAsNumber
  IndexKind order_kind = IndexKind::kOrdered;  // or kNumeric = by the cast
  bool is_descending = false;
  std::optional<std::uint64_t> rows;             // limit and offset
  std::optional<std::vector<ColumnId>> columns;  // that are needed, including those of the condition; nullopt = all
  bool explains = false;                         // whether the plan needs texts
  bool counts = false;                           // whether the query only counts rows
  QueryEffort* effort = nullptr;                 // of the run
};

// A way to find rows.
struct Access {
  enum class Kind : std::uint8_t { kRange, kList, kNumbers, kZones, kIntersection, kUnion };
  Kind kind = Kind::kRange;
  RecordRange range = {};                                     // kRange, kZones; by default all rows
  std::string text = {};                                      // the range, for people to read
  std::shared_ptr<const std::vector<std::string>> keys = {};  // kList
  std::shared_ptr<const RowSet> set = {};                     // kNumbers; a complement only if the query counts and this is its whole plan
  std::shared_ptr<const ZoneStream::Source> source = {};      // kZones
  std::vector<const Index*> indices = {};                     // kNumbers, kZones: that give the rows
  std::vector<Access> parts = {};                             // kIntersection, kUnion
  std::vector<Condition> conditions = {};                     // kUnion: the conditions of the parts
  bool is_disjoint = false;                                   // kUnion
  bool in_key_order = false;                                  // kNumbers: among the rows of the range
  bool is_sorted = false;                                     // by key
  bool is_single = false;                                     // one row at most
  bool is_unique = false;                                     // its entries have the row's key only if a part is null
  bool gives_order = false;                                   // it gives the wanted order, after its first bytes
  std::size_t order_at = 0;                                   // how many first bytes of each entry the order ignores
  // The conjuncts, by bit, that a row meets if and only if this access finds it.
  std::uint64_t exact = 0;
  std::optional<std::uint64_t> moment = {};  // kNumbers: of the WriterGate, when the set was found
  std::optional<std::uint64_t> count = {};   // entries, if they were counted

  // Whether its stream reads rows.
  bool ShowsRows() const { return (kind == Kind::kRange || in_key_order) && range.index == nullptr; }
  // Whether it gives the rows of a range in the order of their keys.
  bool IsOfRows() const { return ShowsRows() || kind == Kind::kZones; }
};

struct Plan {
  Access access;
  bool is_ordered = false;     // whether it gives the wanted order
  bool is_exact = false;       // whether it finds exactly the rows that meet the condition
  bool is_covered = false;     // whether the index has all needed columns
  std::uint64_t num_rows = 0;  // rows of the table, if the plan has texts
};

class Planner {
 public:
  static constexpr std::uint64_t kScanPart = 8;

  Planner(TableCore& core, const Wanted& wanted) : core_(core), wanted_(wanted) {}
  Status Make(Plan* plan);

 private:
  using NodeRef = std::shared_ptr<const Node>;
  using Nodes = std::span<const NodeRef>;

  std::optional<Access> Best(Nodes conjuncts, bool is_whole);
  std::optional<Access> OfUnion(const Node& node);
  std::optional<Access> OfIn(const NodeRef& node);
  void AddKeyAccess(Nodes conjuncts, std::vector<Access>* candidates);
  void AddIndexAccess(const Index& index, Nodes conjuncts, std::vector<Access>* candidates, std::optional<Access>* ordered);
  // Returns about how many rows text indices give; nullopt if they serve no conjunct.
  std::optional<std::uint64_t> RowsInTexts(Nodes conjuncts, TextSearch& search, bool is_whole);
  // Returns the set of rows that they give; nullopt if it is a complement that the query cannot use.
  std::optional<Access> OfTexts(Nodes conjuncts, TextSearch& search, bool is_whole);
  // Returns the way to find their first rows by key; nullopt if it would have to read most of the set.
  std::optional<Access> OfZones(Nodes conjuncts, std::shared_ptr<TextSearch> search, std::uint64_t num_rows, const Access& ordered);
  static std::vector<const Node*> NodesOf(Nodes conjuncts, TextSearch& search);
  // Has the rows of the set found in the order of their keys, if that is faster than sorting them.
  void InKeyOrder(Nodes conjuncts, const Access& ordered, Access* set);
  bool IsUsable(const Index& index, Nodes conjuncts);
  bool IsOrder(const Index& index, std::size_t num_equal) const;
  void AddText(const Node& node, std::string* text) const;
  static std::string TextOf(const Node& node);
  static Access AllRows();
  std::uint64_t NumRows();
  // Returns the smallest candidate whose range is not that of `without`, if it has at most `budget` entries.
  std::optional<std::size_t> Race(std::vector<Access>& candidates, std::uint64_t budget, const Access* without = nullptr);
  Access Intersect(std::vector<Access>& candidates, std::size_t smallest);

  TableCore& core_;
  const Wanted& wanted_;
  Status status_;
};

// Makes the stream of an access. The access must outlive the stream.
std::unique_ptr<KeyStream> MakeStream(TableCore& core, const Access& access, bool is_reversed, QueryEffort* effort);
// Returns the plan as text, with a line for each step.
std::string PlanText(const Plan& plan, const Wanted& wanted);

}  // namespace hako::table
