// The iterator of the hash DBMs: walks the buckets in the index's own order and copies one bucket's records at a time.
//
// Every record that is there from First() to the end is visited exactly once, however much the table grows meanwhile; records that come or
// go are visited at most once, with a value that they had at that moment. Writers are not stopped. One thread; the database must outlive
// it.
#pragma once

#include <cstdint>
#include <string_view>

#include "hako/base/status.h"
#include "hako/index/bucket_index.h"

namespace hako {

template <class Index, class Space>
class HashCursor {
 public:
  HashCursor(Index& index, Space& space) : index_(&index), space_(&space) {}

  void First() {
    index_->StartWalk(&walk_);
    Begin();
  }

  // To the record of `key`; not Valid if there is none. Next then goes on in the index's order.
  void Jump(std::string_view key) {
    index_->StartWalkAt(space_->KeyHash(key), &walk_);
    status_ = absl::OkStatus();
    if (StatusOr<bool> more = index_->Step(&walk_); !more.ok()) return Finish(more.status());
    item_ = 0;
    while (item_ < walk_.size && walk_.key(item_) != key) ++item_;
    if (item_ == walk_.size) Finish(absl::OkStatus());
  }

  // REQUIRES: Valid()
  void Next() {
    ++item_;
    FillBucket();
  }

  bool Valid() const { return item_ < walk_.size; }
  std::string_view key() const { return walk_.key(item_); }      // REQUIRES: Valid(); until the next move
  std::string_view value() const { return walk_.value(item_); }  // REQUIRES: Valid(); until the next move
  // OK at the end; otherwise what stopped the walk.
  const Status& status() const { return status_; }

 private:
  void Begin() {
    status_ = absl::OkStatus();
    walk_.Clear();
    item_ = 0;
    FillBucket();
  }
  void FillBucket() {
    while (item_ >= walk_.size) {
      StatusOr<bool> more = index_->Step(&walk_);
      if (!more.ok()) return Finish(more.status());
      if (!*more) return Finish(absl::OkStatus());
      item_ = 0;
    }
  }
  void Finish(Status status) {
    status_ = std::move(status);
    walk_.Clear();
    walk_.next = walk_.lines;
    item_ = 0;
  }

  Index* index_;
  Space* space_;
  index::BucketWalk walk_;
  std::size_t item_ = 0;
  Status status_;
};

}  // namespace hako
