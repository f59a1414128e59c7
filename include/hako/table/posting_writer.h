// PostingWriter: the changes that a step makes in posting lists and in the keys of rows by number
// (table/posting_block.h), as operations of one ProcessMulti.
//
// The changes of all rows of a step are grouped by list and block, so that a step writes each block
// once. Plan reads the blocks and makes the operations. An operation of which the block has been changed
// meanwhile makes its changes in the new block: two rows with the same word do not conflict. Only if the
// block would have to be split, or is gone, the step is aborted, and is planned again.
//
// A step that adds a number to a list, or removes it, also shows the record of the row with this number,
// and aborts if that is not as it was read. A block that is as it should be is shown, too: the row may have
// changed and changed back since Plan has read the block. While an index is being built its builder adds numbers
// without changing rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/batch.h"
#include "hako/base/status.h"
#include "hako/dbm/any_model.h"
#include "hako/table/posting_block.h"

namespace hako::table {

struct TableCore;

class PostingWriter {
 public:
  // Removes all changes and operations.
  void Clear();

  // Adds a row to a list (table/index_key.h), or removes it, once for each position of its word or q-gram, in
  // order. An addition and a removal of the same number cancel each other, unless the positions differ: then it
  // gets the added ones.
  void Add(std::string_view list, RowNumber number, std::uint32_t position) { Change(list, number, true, position); }
  void Remove(std::string_view list, RowNumber number, std::uint32_t position) { Change(list, number, false, position); }
  // Give a number to the row of this key, which must outlive this object's operations, or take it away.
  void AddKey(RowNumber number, std::string_view key) { keys_[number / kKeysOfBlock].push_back({number, key, true}); }
  void RemoveKey(RowNumber number, std::string_view key) { keys_[number / kKeysOfBlock].push_back({number, key, false}); }

  // Reads the blocks, and makes the operations that change them. Returns Aborted if they change while they
  // are read.
  Status Plan(TableCore& core);
  // The operations.
  std::size_t size() const { return operations_.size(); }
  std::string_view key(std::size_t i) const { return operations_[i].key; }
  std::size_t bytes(std::size_t i) const { return operations_[i].key.size() + operations_[i].value.size(); }
  // For the visitor of ProcessMulti: returns what to do with the record of an operation; nullopt if the
  // step must be planned again. REQUIRES: the record is shown (unchecked: an
  // absent record and one that is not shown look alike)
  std::optional<Action> Visit(std::size_t i, std::optional<std::string_view> found);

  // How many changes of lists there are. Repetitions that follow each other count once.
  std::size_t num_changes() const { return num_changes_; }
  // After Plan: whether any block is not as the changes demand.
  bool HasChanges() const {
    return std::ranges::any_of(operations_, [](const Operation& one) { return one.was_there != one.is_there || one.before != one.value; });
  }
  // After Plan: how many numbers were added to lists or removed from them.
  std::uint64_t num_numbers() const { return changes_.size(); }
  // Whether this object has grown so large that its thread should not keep it.
  bool IsLarge() const {
    return postings_.capacity() > 65'536 || slots_.size() > 65'536 || chunks_.size() > 4 || position_bytes_.capacity() > 65'536;
  }

 private:
  struct Posting {
    std::uint32_t list;
    RowNumber number;
    std::uint32_t adds : 1, position : 31;
  };
  struct NumberChange {
    RowNumber number;
    std::uint32_t adds : 1, position : 31;  // until Join; then where the positions begin in position_bytes_
  };
  struct List {
    std::string_view key;
    std::uint64_t hash;
    std::uint32_t slot;
    RowNumber last_number;  // added to the list
    bool last_adds;
    std::uint32_t num_positions;  // of it, at most one more than can be stored; 0 in an index without positions
  };
  struct KeyChange {
    RowNumber number;
    std::string_view key;
    bool adds;
  };
  struct Operation {
    std::string_view key, before, value;  // the record as it was read, and as it becomes
    bool was_there, is_there;
    bool is_part;                           // of the split of a block: `before` must be unchanged
    std::uint64_t end;                      // of the block
    std::size_t first_change, num_changes;  // in changes_ or, for a key block, in key_changes_
    bool is_of_keys, has_positions;
  };

  // Some postings of a list. There are as many positions as numbers, or none.
  struct Postings {
    std::vector<RowNumber> numbers;
    std::vector<std::string_view> positions;
  };

  void Change(std::string_view list, RowNumber number, bool adds, std::uint32_t position);
  // Return bytes that live until Clear.
  std::span<char> Room(std::size_t size);
  std::string_view Keep(std::string_view bytes);
  std::uint32_t SlotOf(std::string_view list, std::uint64_t hash) const;
  void Join();
  // Appends the positions that some changes of a number add, or remove, to position_bytes_.
  void KeepPositions(std::span<const NumberChange> changes, bool adds);
  std::string_view PositionsOf(const NumberChange& change) const {
    std::string_view bytes = std::string_view(position_bytes_).substr(change.position);
    return TakePositions(&bytes);
  }
  Status PlanLists(TableCore& core, std::span<const std::uint32_t> lists);
  Status PlanList(TableCore& core, const List& list, std::optional<std::string_view> last, std::size_t first, std::size_t behind);
  Status PlanBlock(const List& list, std::uint64_t end, std::optional<std::string_view> before, std::size_t first, std::size_t behind);
  void PlanKeys();
  // Changes one number of a block in place, into buffer_. Returns false if there are more changes or the block
  // must be made again.
  bool ChangeInPlace(const Operation& operation, std::string_view block);
  // Decodes a block into before_.
  std::optional<PostingBlock> Decode(const Operation& operation, std::string_view block);
  // Makes after_ of before_ and the changes. Returns whether anything changes.
  bool Apply(std::span<const NumberChange> changes, bool has_positions);
  std::optional<Action> VisitKeys(const Operation& operation, std::optional<std::string_view> found);

  std::vector<std::uint32_t> slots_;  // a hash table: the index in lists_ plus 1, or 0; a power of two
  std::vector<List> lists_;           // in the order in which they came
  std::vector<Posting> postings_;
  std::size_t num_changes_ = 0;
  std::map<std::uint32_t, std::vector<KeyChange>> keys_;  // by key block
  std::deque<std::string> chunks_;                        // of the bytes that views in this object refer to

  std::vector<std::uint32_t> ends_;    // of the changes of each list
  std::vector<NumberChange> changes_;  // list by list
  std::vector<KeyChange> key_changes_;
  std::vector<Operation> operations_;
  std::string position_bytes_;
  std::vector<std::uint32_t> positions_;
  Postings before_, after_;
  std::string buffer_;
  KeyBlock key_block_;
};

}  // namespace hako::table
