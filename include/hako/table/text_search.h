// TextSearch: the rows that meet a condition on words or substrings, as sets of row numbers from the
// posting lists of text indices.
//
// The set of a condition has every row that meets it; an exact set has no other. AND, OR and NOT of
// conditions are operations on sets. The smallest lists are read first; a list is not read if looking at
// the rows that are left costs less, and only those of its blocks are read that may have such a row.
//
// Phrases, and substrings longer than a q-gram, have exact sets if the index has positions.
//
// A set can be found in part, for a window of row numbers: see ZoneStream (table/key_stream.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hako/base/function_ref.h"
#include "hako/base/status.h"
#include "hako/table/condition.h"
#include "hako/table/index.h"
#include "hako/table/position_match.h"
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
  TextSearch(TableCore& core, std::vector<const Index*> indices, QueryEffort* effort)
      : core_(core), indices_(std::move(indices)), effort_(effort) {}

  static constexpr std::uint64_t kAll = std::uint64_t{1} << 32;
  // About how many rows a set has, or kAll if it may be a complement, and how many numbers in posting lists
  // must be read to find it.
  struct Size {
    std::uint64_t rows, numbers;
    bool has_prefixes = false;  // whether lists with a common beginning are read, of which there may be many
  };
  // Returns nullopt if there is no set, because the indices do not serve the condition.
  std::optional<Size> SizeOf(const Node& node);  // computed once for each node
  // Makes Find look only for rows with numbers in [begin, end), which has about this part of all rows.
  void SetWindow(std::uint64_t begin, std::uint64_t end, double part);
  // Returns the set. If `among` is not nullptr, the set may lack rows that are not in it.
  // REQUIRES: SizeOf returns a size (checked here)
  StatusOr<RowSet> Find(const Node& node, const RowSet* among = nullptr);
  // Returns the set of rows that meet all conditions, of which it may leave out some that save less than they
  // cost. `exact` receives, by bit, those that all its rows meet.
  StatusOr<RowSet> FindAll(std::span<const Node* const> nodes, std::uint64_t* exact);
  // The indices that Find uses for these conditions.
  std::vector<const Index*> IndicesFor(std::span<const Node* const> nodes);

 private:
  static constexpr std::uint64_t kNumbersOfRow = 100;  // numbers of a list that are read in the time of a row

  // The lists of a condition.
  struct Lists {
    const Index* index = nullptr;
    std::vector<std::pair<std::uint64_t, std::string>> by_size;  // ascending; the sizes are estimates
    PatternOffsets offsets = {};                                 // of their words; empty: the numbers suffice
    bool is_union = false;                                       // else an intersection
    bool is_prefix = false;                                      // all lists that begin with the only one
    bool is_exact = false;

    const PatternOffsets::value_type* OffsetsOf(std::string_view list) const {
      return &*offsets.find(std::string(list.substr(index->prefix().size())));
    }
  };
  struct Served {
    std::optional<Size> size;
    std::optional<Lists> lists;  // of a leaf
  };

  const Served& Serve(const Node& node);
  static void KeepNeeded(Lists* lists);
  std::optional<Size> SizeOfParts(const Node& node);
  std::optional<Lists> ListsOf(const Node& node) const;
  std::optional<Lists> GramsOf(const Node& node, const Index& index) const;
  std::uint64_t SizeAbout(const std::string& list, bool is_prefix);
  // Whether it pays to look for `count` more numbers in posting lists in order to read fewer than `num_rows` rows.
  bool Pays(std::uint64_t count, std::uint64_t num_rows) const;
  bool IsWindow() const { return begin_ != 0 || end_ != PostingBlock::kNoEnd; }
  // Calls take(block, end) for the blocks of a list that may have numbers in the window. `take` returns false if the
  // block is damaged. `wanted`, unless nullptr, are the numbers that are looked for.
  using TakeBlock = FunctionRef<bool(std::string_view block, std::uint64_t end)>;
  Status ReadBlocks(const std::string& list, std::uint64_t size, const std::vector<RowNumber>* wanted, TakeBlock take);
  // Adds the numbers of a list in the window to `out`.
  Status Read(const Index& index, const std::string& list, std::uint64_t size, const std::vector<RowNumber>* wanted,
              std::vector<RowNumber>* out);
  // Adds the numbers of all lists with this beginning, as they come.
  Status ReadAll(const Index& index, const std::string& beginning, std::vector<RowNumber>* out);
  // Reads the blocks of [next, end) of a list. If `next` is 0, the cursor is at the first one.
  Status ReadRest(PooledCursor& cursor, const std::string& list, std::uint64_t next, std::uint64_t end, std::span<const RowNumber> wanted,
                  TakeBlock take);
  StatusOr<RowSet> FindInLists(const Node& node, const Lists& lists, const RowSet* among);
  StatusOr<RowSet> FindByPositions(const Node& node, const Lists& lists, const std::vector<RowNumber>* wanted);
  // Reads rows, and removes those from `numbers` that do not meet the condition.
  Status TestRows(const Node& node, const Index& index, const std::vector<RowNumber>& rows, std::vector<RowNumber>* numbers);

  TableCore& core_;
  const std::vector<const Index*> indices_;
  QueryEffort* const effort_;
  std::unordered_map<const Node*, Served> served_;
  std::uint64_t begin_ = 0, end_ = PostingBlock::kNoEnd;
  double part_ = 1;
};

}  // namespace hako::table
