// Plan: how a query finds its rows.
//
// The condition is an AND of conjuncts. Each of these may have candidates:
//   - ranges of an index: equalities of its first columns, then a range of the next one
//   - the entries of a word or a q-gram, which are sorted by key as those of a full equality
//   - a range of primary keys, or a list of them
// The number of entries of each candidate is not kept but counted: all are counted side by side, in
// steps that double, until one ends, which is the smallest. So the cost of planning is a small part of
// the cost of the plan. A candidate larger than kScanPart of the table gives way to a scan of all rows.
// Sorted candidates are intersected with the smallest one. If all candidates are sorted, none is
// counted: the intersection leaps from key to key, so its cost is that of the smallest.
//
// An order with a limit is taken from an index if the first rows of it are expected sooner there: with
// the rows of the table n, of the smallest candidate s, and wanted w, when w * n < s * s.
//
// An OR is planned part by part, if each part has a candidate.
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

namespace hako::table {

// An order by the cast `numeric` of the primary key, which no index has.
inline constexpr ColumnId kKeyAsNumber{0xfffe};

// The parts of a query that the plan depends on.
struct Wanted {
  const Condition* where;
  std::optional<ColumnId> order_column;        // kKey: the primary key; kKeyAsNumber
  IndexKind order_kind = IndexKind::kOrdered;  // or kNumeric: by the cast
  bool is_descending = false;
  std::optional<std::uint64_t> rows;             // limit and offset
  std::optional<std::vector<ColumnId>> columns;  // needed, with those of the condition; nullopt: all
  bool explains = false;                         // the plan is to have texts
  QueryEffort* effort = nullptr;                 // of the run
};

// A way to find rows.
struct Access {
  enum class Kind : std::uint8_t { kRange, kList, kIntersection, kUnion };
  Kind kind = Kind::kRange;
  RecordRange range = {};                                     // kRange; by default all rows
  std::string text = {};                                      // of it, for people to read
  std::shared_ptr<const std::vector<std::string>> keys = {};  // kList
  std::vector<Access> parts = {};                             // kIntersection, kUnion
  std::vector<Condition> conditions = {};                     // kUnion: of the parts
  bool is_disjoint = false;                                   // kUnion
  bool is_sorted = false;                                     // by key
  bool is_single = false;                                     // one row at most
  bool is_unique = false;                                     // an entry has its row's key only beside a null
  bool gives_order = false;                                   // the order that is wanted, after the first
  std::size_t order_at = 0;                                   // bytes of each entry
  // Conjuncts, by bit, that a row meets if and only if it is in here.
  std::uint64_t exact = 0;
  std::uint64_t word_of = 0;                // the conjunct that has this word, beside others
  std::size_t num_words = 0;                // of that conjunct
  std::optional<std::uint64_t> count = {};  // of the entries, if they were counted
};

struct Plan {
  Access access;
  bool is_ordered = false;     // it gives the order that is wanted
  bool is_exact = false;       // it has exactly the rows that meet the condition
  bool is_covered = false;     // the index has all columns that are needed
  std::uint64_t num_rows = 0;  // of the table, if the plan has texts
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
  void AddWordAccess(Nodes conjuncts, std::vector<Access>* candidates);
  bool IsUsable(const Index& index, Nodes conjuncts);
  bool IsOrder(const Index& index, std::size_t num_equal) const;
  void AddText(const Node& node, std::string* text) const;
  static std::string TextOf(const Node& node);
  static Access AllRows();
  std::uint64_t NumRows();
  // The smallest candidate, if it has at most `budget` entries.
  std::optional<std::size_t> Race(std::vector<Access>& candidates, std::uint64_t budget);
  Access Intersect(std::vector<Access>& candidates, std::size_t smallest);

  TableCore& core_;
  const Wanted& wanted_;
  Status status_;
};

// The stream of an access, which must outlive it.
std::unique_ptr<KeyStream> MakeStream(TableCore& core, const Access& access, bool is_reversed, QueryEffort* effort);
// The plan as text, a line a step.
std::string PlanText(const Plan& plan, const Wanted& wanted);

}  // namespace hako::table
