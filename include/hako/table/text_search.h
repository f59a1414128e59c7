// TextSearch: the rows that meet a condition on words or substrings, as sets of row numbers from the
// posting lists of text indices.
//
// The set of a condition has every row that meets it; an exact set has no other. AND, OR and NOT of
// conditions are operations on sets. The smallest lists are read first; a list is not read if looking at
// the rows that are left costs less, and only those of its blocks are read that may have such a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hako/base/status.h"
#include "hako/table/condition.h"
#include "hako/table/index.h"
#include "hako/table/posting_block.h"
#include "hako/table/query_effort.h"
#include "hako/table/table_core.h"

namespace hako::table {

struct RowSet {
  std::vector<RowNumber> numbers;  // ascending
  bool is_complement = false;      // all rows but these
  bool is_exact = true;
};

RowSet Intersection(const RowSet& a, const RowSet& b);

class TextSearch {
 public:
  // Uses these text indices, which may have all rows that the query wants.
  TextSearch(TableCore& core, std::span<const Index* const> indices, QueryEffort* effort)
      : core_(core), indices_(indices), effort_(effort) {}

  static constexpr std::uint64_t kAll = std::uint64_t{1} << 32;
  // About how many rows a set has, or kAll if it may be a complement, and how many numbers in posting lists
  // must be read to find it.
  struct Size {
    std::uint64_t rows, numbers;
  };
  // Returns nullopt if there is no set, because the indices do not serve the condition.
  std::optional<Size> SizeOf(const Node& node);  // computed once for each node
  // Returns the set. If `among` is not nullptr, the set may lack rows that are not in it.
  // REQUIRES: SizeOf returns a size (checked here)
  StatusOr<RowSet> Find(const Node& node, const RowSet* among = nullptr);
  // The indices that Find has used.
  const std::vector<const Index*>& used() const { return used_; }
  // Whether it pays to look for `count` more numbers in posting lists in order to read fewer than `num_rows` rows.
  static bool Pays(std::uint64_t count, std::uint64_t num_rows) { return count / kNumbersOfRow < num_rows; }

  // Whether an index serves the condition; for texts of plans, the lists of a leaf.
  struct Lists {
    const Index* index = nullptr;
    std::vector<std::string> words;
    bool is_union = false;   // else an intersection
    bool is_prefix = false;  // all words that begin with the only one
    bool is_exact = false;
  };
  std::optional<Lists> ListsOf(const Node& node) const;

 private:
  static constexpr std::uint64_t kNumbersOfRow = 100;  // numbers of a list that are read in the time of a row

  std::optional<Size> ComputeSize(const Node& node);
  std::optional<Lists> GramsOf(const Node& node, const Index& index) const;
  std::uint64_t SizeAbout(const std::string& list, bool is_prefix);
  // Adds the numbers of a list or, with `is_prefix`, of all lists that begin with it, to `out`, as they come.
  Status Read(const std::string& list, bool is_prefix, const RowSet* among, std::vector<RowNumber>* out);
  StatusOr<RowSet> FindInLists(const Lists& lists, const RowSet* among);

  TableCore& core_;
  const std::span<const Index* const> indices_;
  QueryEffort* const effort_;
  std::unordered_map<const Node*, std::optional<Size>> sizes_;
  std::vector<const Index*> used_;
};

}  // namespace hako::table
