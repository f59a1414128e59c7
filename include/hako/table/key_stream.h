// KeyStream: the keys of rows, one after the other, from an index, from the rows themselves, or from
// several streams together. A stream shows every row that meets the condition of a query, and may
// show others: the query tests the condition on each row.
//
// A sorted stream ascends by key, and can seek. An intersection takes only sorted streams.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/table/filter.h"
#include "hako/table/index.h"
#include "hako/table/query_effort.h"
#include "hako/table/table_core.h"
#include "hako/table/text_search.h"

namespace hako::table {

class KeyStream {
 public:
  virtual ~KeyStream() = default;
  // Moves to the next key. Returns false at the end or after an error.
  virtual bool Next() = 0;
  // Moves to the first key at or after `key`, which must not be before the present one.
  // REQUIRES: sorted (unchecked here: a stream that is not does not override it)
  virtual bool Seek(std::string_view key) = 0;
  // Returns about how many keys are left, or ~0 if that is unknown. REQUIRES: Next has returned
  // true (unchecked: a hint only)
  virtual std::uint64_t SizeHint() { return ~std::uint64_t{0}; }
  // The error that ended the stream.
  virtual Status status() const { return absl::OkStatus(); }
  // For a union: whether it takes this row from the present part, so that no row is shown twice.
  virtual bool Takes(std::string_view, const RowView&) const { return true; }

  std::string_view key() const { return key_; }  // valid until the next move
  // Returns the key of the entry in which the row's key was found. REQUIRES: the stream is a range
  // of an index
  std::string_view entry() const {
    HAKO_DCHECK(entry_.data() != nullptr);
    return entry_;
  }
  // Returns the row, or the columns of a covering index; nullopt if neither was read.
  const std::optional<std::string_view>& row() const { return row_; }
  // The conjuncts, by bit, that the row meets if it is read at that moment of the WriterGate.
  struct Known {
    std::uint64_t met = 0;
    std::optional<std::uint64_t> moment = {};
  };
  const Known& known() const { return known_; }

 protected:
  Known known_;
  std::string_view key_, entry_;
  std::optional<std::string_view> row_;
};

// A range of records: entries of an index, or rows (index = nullptr).
struct RecordRange {
  const Index* index = nullptr;
  std::string from, to;    // [from, to); an empty `to` is the end
  std::size_t key_at = 0;  // where the row's key begins, if that is the same in all entries of the range
};

class RangeStream final : public KeyStream {
 public:
  // `range` must outlive the stream. Each record takes a unit of `effort`; nullptr = no bound.
  RangeStream(TableCore& core, const RecordRange& range, bool is_reversed, QueryEffort* effort = nullptr)
      : core_(core), range_(range), effort_(effort), is_reversed_(is_reversed) {}
  bool Next() override;
  bool Seek(std::string_view key) override;
  std::uint64_t SizeHint() override { return range_.to.empty() ? KeyStream::SizeHint() : cursor().CountAbout(range_.to); }
  Status status() const override { return status_.ok() && cursor_ ? (*cursor_)->status() : status_; }

 private:
  bool Show();
  internal::AnyCursor& cursor() { return **cursor_; }

  TableCore& core_;
  const RecordRange& range_;
  QueryEffort* const effort_;
  std::optional<PooledCursor> cursor_;  // made by the first move, because a union may have very many streams
  const bool is_reversed_;
  bool is_started_ = false;
  std::string target_;
  Status status_;
};

class ListStream final : public KeyStream {
 public:
  explicit ListStream(std::shared_ptr<const std::vector<std::string>> keys, bool is_reversed)
      : keys_(std::move(keys)), is_reversed_(is_reversed) {}
  bool Next() override {
    if (at_ == keys_->size()) return false;
    key_ = (*keys_)[is_reversed_ ? keys_->size() - 1 - at_ : at_];
    ++at_;
    return true;
  }
  bool Seek(std::string_view key) override {
    while (at_ < keys_->size() && (*keys_)[at_] < key) ++at_;
    return Next();
  }

 private:
  std::shared_ptr<const std::vector<std::string>> keys_;
  bool is_reversed_;
  std::size_t at_ = 0;
};

// Looks up the keys of rows by number.
class NumberKeys {
 public:
  explicit NumberKeys(TableCore& core) : core_(core) {}
  // Returns the key, which is valid until the next call; nullopt if there is no such row.
  StatusOr<std::optional<std::string_view>> KeyOf(RowNumber number);

 private:
  TableCore& core_;
  std::uint64_t number_of_block_ = ~std::uint64_t{0};  // of the block that was read
  std::string bytes_;
  KeyBlockReader reader_;
  unsigned slot_ = 0;  // at which it is, or before which
};

// The rows of a set, which is no complement, in the order of their numbers.
class NumberStream final : public KeyStream {
 public:
  NumberStream(TableCore& core, std::shared_ptr<const RowSet> set, const Known& known, QueryEffort* effort)
      : keys_(core), set_(std::move(set)), effort_(effort) {
    known_ = known;
  }
  bool Next() override;
  bool Seek(std::string_view) override { return false; }
  Status status() const override { return status_; }

 private:
  NumberKeys keys_;
  const std::shared_ptr<const RowSet> set_;
  QueryEffort* const effort_;
  std::size_t at_ = 0;
  Status status_;
};

// The rows of a range that text indices give, in the order of their keys. It finds the rows of some zones
// (table/row_zones.h), looks up the keys of one zone after the other, and shows those that no row of a later
// zone can be before. So the first rows are shown before the others are found. If more keys are kept than
// TableOptions::sort_bytes allows, it goes on with all rows of the range, and the condition must be tested on each.
class ZoneStream final : public KeyStream {
 public:
  // A condition that text indices serve, and about how many rows are wanted.
  struct Source {
    std::shared_ptr<TextSearch> search;
    std::vector<const Node*> nodes;
    std::vector<std::uint64_t> bits;  // of these among the conjuncts
    std::uint64_t num_rows;           // that meet the condition, about
    std::uint64_t wanted;
  };
  // `range` is one of rows. It and `source` must outlive the stream.
  // REQUIRES: RowNumbers::KnowsOrder (checked in RowNumbers::SeeNextZones)
  ZoneStream(TableCore& core, const RecordRange& range, const Source& source, bool is_reversed, QueryEffort* effort);
  bool Next() override;
  bool Seek(std::string_view) override { return false; }
  Status status() const override { return status_.ok() && rest_ ? rest_->status() : status_; }

 private:
  Status FindMore();
  Status LookUp(const RowZones::Zone& zone);
  bool IsShownBefore(std::string_view a, std::string_view b) const { return is_reversed_ ? a > b : a < b; }
  auto OrderOfHeap() const {
    return [this](std::string_view a, std::string_view b) { return IsShownBefore(b, a); };
  }

  TableCore& core_;
  const RecordRange& range_;
  const Source& source_;
  const bool is_reversed_;
  QueryEffort* const effort_;
  NumberKeys number_keys_;
  const std::string_view from_, to_;  // the range of keys; an empty `to_` is the end
  RowZones::Seen seen_;
  const double num_zones_;                        // of the table
  std::size_t zones_at_once_;                     // of which rows are found together
  std::vector<RowZones::Zone> zones_;             // some that were seen, in their order
  std::size_t num_looked_up_ = 0, num_read_ = 0;  // of zones_: those whose keys were looked up, and whose rows were found
  std::vector<RowNumber> numbers_;                // of the rows that were found
  std::vector<std::string> found_;                // a heap of the keys that were not shown; the first one is at its top
  std::uint64_t found_bytes_ = 0;
  std::string shown_;  // the last key that was shown
  bool has_shown_ = false;
  std::optional<RecordRange> rest_range_;
  std::optional<RangeStream> rest_;  // all rows behind shown_
  Status status_;
};

// The rows of a range that are in a set, which is no complement.
class SetStream final : public KeyStream {
 public:
  SetStream(TableCore& core, const RecordRange& range, std::shared_ptr<const RowSet> set, const Known& known, bool is_reversed,
            QueryEffort* effort)
      : rows_(core, range, is_reversed, effort), set_(std::move(set)) {
    known_ = known;
  }
  bool Next() override;
  bool Seek(std::string_view) override { return false; }
  Status status() const override { return rows_.status(); }

 private:
  RangeStream rows_;
  const std::shared_ptr<const RowSet> set_;
};

// Seeks from key to key that all parts have, beginning with the smallest part. Unless it
// `keeps_all`, it uses only the few smallest parts, because the others cost more than they save.
class IntersectionStream final : public KeyStream {
 public:
  IntersectionStream(std::vector<std::unique_ptr<KeyStream>> parts, bool keeps_all) : parts_(std::move(parts)), keeps_all_(keeps_all) {}
  bool Next() override { return (is_started_ ? parts_[0]->Next() : Start()) && Agree(); }
  bool Seek(std::string_view key) override { return (is_started_ || Start()) && parts_[0]->Seek(key) && Agree(); }
  Status status() const override {
    for (const auto& part : parts_) HAKO_RETURN_IF_ERROR(part->status());
    return status_;
  }

 private:
  bool Start();
  bool Agree();

  std::vector<std::unique_ptr<KeyStream>> parts_;
  const bool keeps_all_;
  bool is_started_ = false;
  Status status_;
};

// Shows one stream after the other. It takes a row that several parts show from the first part
// whose condition the row meets.
class UnionStream final : public KeyStream {
 public:
  struct Part {
    std::unique_ptr<KeyStream> stream;
    Filter filter;
  };
  // `is_disjoint` says that no row meets the conditions of two parts.
  UnionStream(std::vector<Part> parts, bool is_disjoint) : parts_(std::move(parts)), is_disjoint_(is_disjoint) {}
  bool Next() override;
  bool Seek(std::string_view) override { return false; }
  Status status() const override { return at_ < parts_.size() ? parts_[at_].stream->status() : absl::OkStatus(); }
  bool Takes(std::string_view key, const RowView& row) const override;

 private:
  std::vector<Part> parts_;
  const bool is_disjoint_;
  std::size_t at_ = 0;
};

}  // namespace hako::table
