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
// without a look at the rows, and mends the lists of rows that have changed.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
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
class PooledCursor;

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
  // For more changes of lists than a step should have, instead of Plan. After Sort, PlanSome replaces the operations by
  // those of some lists, in the order of their keys, from the list `first` on. Returns the first list that is left,
  // num_lists() in the end. The same lists may be planned again.
  void Sort();
  StatusOr<std::size_t> PlanSome(TableCore& core, std::size_t first);
  std::size_t num_lists() const { return lists_.size(); }
  // Calls visit(list, number, position) for each change of lists.
  template <class F>
  void ForEachChange(F&& visit) {
    MakePending();
    for (const List& list : lists_) {
      changes_.clear();
      Decode(list);
      for (const NumberChange& change : changes_) visit(list.key, change.number, std::uint32_t{change.position});
    }
  }
  // The operations.
  std::size_t size() const { return operations_.size(); }
  std::string_view key(std::size_t i) const { return operations_[i].key; }
  std::size_t bytes(std::size_t i) const { return operations_[i].key.size() + operations_[i].value.size(); }
  // For the visitor of ProcessMulti: returns what to do with the record of an operation; nullopt if the
  // step must be planned again. REQUIRES: the record is shown (unchecked: an
  // absent record and one that is not shown look alike)
  std::optional<Action> Visit(std::size_t i, std::optional<std::string_view> found);

  // How many changes of lists there are. Repetitions that follow each other count once.
  std::size_t num_changes() {
    MakePending();
    return num_changes_;
  }
  bool IsEmpty() const { return num_pending_ == 0 && lists_.empty() && keys_.empty(); }  // no change was added
  // After Plan: whether any block is not as the changes demand.
  bool HasChanges() const {
    return std::ranges::any_of(operations_, [](const Operation& one) { return one.was_there != one.is_there || one.before != one.value; });
  }
  // After Plan: how many numbers were added to lists or removed from them.
  std::uint64_t num_numbers() const { return changes_.size(); }
  // About how many bytes this object takes, with those for sorting the lists, and for a few thousand lists more. PlanSome
  // takes some more, and kBytesOfChange for each change of the list that has the most.
  static constexpr std::size_t kBytesOfChange = 48;
  std::size_t Bytes() const;
  // Whether this object has grown so large that its thread should not keep it.
  bool IsLarge() const {
    return num_changes_ > 65'536 || slots_.size() > 16'384 || list_bytes_.IsLarge() || bytes_.IsLarge() ||
           position_bytes_.capacity() > 65'536;
  }

 private:
  struct NumberChange {
    RowNumber number;
    std::uint32_t adds : 1, position : 31;  // or, once joined, where the positions begin in position_bytes_
  };
  // The changes of a list, in the order in which they came, are varints in slices of memory: the difference to the number
  // before, with its sign in the last bit, times 2, plus 1 if the number is added; then its position, if it has one. A
  // slice begins with the unit of the next one, and each is twice as large as the one before, up to a limit.
  struct List {
    std::string_view key;
    std::uint32_t slot, first_slice;
    bool has_positions;
  };
  // Of a hash table. A short list has its bytes in its slot, so that most look-ups read nothing else.
  struct Slot {
    std::uint64_t head;                     // of a short list, or the hash of a long one
    std::uint32_t list = 0;                 // the index in lists_ plus 1; 0 if the slot is empty
    RowNumber last;                         // added to the list
    std::uint32_t slice;                    // the last one
    std::uint32_t used : 13, log_size : 4;  // of the slice, in bytes
    std::uint32_t is_long : 1, adds : 1;
    std::uint32_t num_positions : 7;  // of the last number, at most one more than can be stored
  };
  static_assert(kPositionBytesMax < 127);
  struct Ordered {
    std::uint64_t head;
    std::uint32_t list;
  };
  // Bytes that stay in their places.
  class Arena {
   public:
    std::span<char> Room(std::size_t size);
    void Clear();
    bool IsLarge() const { return chunks_.size() > 4; }
    std::size_t Bytes() const { return chunks_.size() * kChunk; }

   private:
    static constexpr std::size_t kChunk = 64 << 10;
    std::deque<std::string> chunks_;
  };
  // Slices, by the number of their first unit.
  class Slices {
   public:
    std::uint32_t Make(unsigned log_size);
    char* at(std::uint32_t slice) const { return blocks_[slice / kUnits].get() + slice % kUnits * kUnit; }
    void Clear();
    std::size_t Bytes() const { return blocks_.size() * kUnits * kUnit; }

   private:
    static constexpr std::size_t kUnit = 16, kUnits = 4096;
    std::vector<std::unique_ptr<char[]>> blocks_;
    std::uint32_t used_ = 0;  // units
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

  // A few changes of short lists wait for each other, so that their reads of memory overlap.
  struct Pending {
    std::uint64_t head;
    std::size_t size;  // of the list
    NumberChange change;
    Slot* slot;
  };
  static constexpr std::size_t kPendingMax = 16;

  void Change(std::string_view list, RowNumber number, bool adds, std::uint32_t position) {
    if (num_pending_ == kPendingMax) MakePending();
    AddPending(list, {number, adds, position & kNoPosition});
  }
  void AddPending(std::string_view list, const NumberChange& change);
  void MakePending();
  void MakeChange(Slot& slot, const NumberChange& change);
  // Copies bytes for as long as the operations live.
  std::string_view Keep(std::string_view bytes);
  static std::uint64_t Seed();
  std::size_t FirstSlot(std::uint64_t head) const {
    return static_cast<std::size_t>(head * (seed_ | 1) >> std::countl_zero(slots_.size() - 1));
  }
  // Finds the slot of a list, or makes it one. REQUIRES: a slot is empty
  Slot& SlotOf(std::string_view list, std::uint64_t head, bool is_long, bool has_positions);
  // Makes room for kPendingMax lists more.
  void MakeSlots();
  void PushByte(Slot& slot, char byte);
  void PushVarint(Slot& slot, std::uint64_t number);
  // Appends the changes of a list to changes_.
  void Decode(const List& list);
  // Appends the changes of a list to changes_, sorted, each number once.
  void DecodeChanges(const List& list);
  // Appends the positions that some changes of a number add, or remove, to position_bytes_.
  void KeepPositions(std::span<const NumberChange> changes, bool adds);
  std::string_view PositionsOf(const NumberChange& change) const {
    std::string_view bytes = std::string_view(position_bytes_).substr(change.position);
    return TakePositions(&bytes);
  }
  // Plans the changes of a few lists from *first on, at most up to `behind`, and moves *first behind them.
  Status PlanLists(TableCore& core, std::size_t* first, std::size_t behind);
  // `pooled` has the cursor with which the lists before were planned, if any needed one.
  Status PlanList(TableCore& core, const List& list, std::optional<std::string_view> last, std::size_t first, std::size_t behind,
                  std::optional<PooledCursor>* pooled);
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

  std::uint64_t seed_ = Seed();
  std::vector<Slot> slots_;  // a power of two
  std::vector<List> lists_;  // in the order in which they came
  Slices slices_;
  std::array<Pending, kPendingMax> pending_;
  std::size_t num_pending_ = 0;
  std::size_t num_changes_ = 0;
  std::map<std::uint32_t, std::vector<KeyChange>> keys_;  // by key block
  Arena list_bytes_, bytes_;                              // of lists_ and of operations_

  std::vector<NumberChange> changes_;  // list by list
  std::vector<Ordered> order_;         // the lists by their keys
  std::vector<KeyChange> key_changes_;
  std::vector<Operation> operations_;
  std::string position_bytes_;
  std::vector<std::uint32_t> positions_;
  Postings before_, after_;
  std::string buffer_;
  KeyBlock key_block_;
};

}  // namespace hako::table
