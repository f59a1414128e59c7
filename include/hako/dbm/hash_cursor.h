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

  void First() { Start(0); }

  // To the record of `key`; not Valid if there is none. Next then goes on in the index's order.
  void Jump(std::string_view key) {
    Start(Index::PositionOf(space_->KeyHash(key)));
    while (item_ < bucket_.items.size() && bucket_.key(item_) != key) ++item_;
    if (item_ == bucket_.items.size()) Finish(status_);
  }

  // REQUIRES: Valid()
  void Next() {
    ++item_;
    FillBucket();
  }

  bool Valid() const { return item_ < bucket_.items.size(); }
  std::string_view key() const { return bucket_.key(item_); }      // REQUIRES: Valid(); until the next move
  std::string_view value() const { return bucket_.value(item_); }  // REQUIRES: Valid(); until the next move
  // OK at the end; otherwise what stopped the walk.
  const Status& status() const { return status_; }

 private:
  void Start(std::uint64_t position) {
    position_ = position;
    done_ = false;
    status_ = absl::OkStatus();
    bucket_.items.clear();
    item_ = 0;
    FillBucket();
  }
  void FillBucket() {
    while (item_ >= bucket_.items.size()) {
      StatusOr<bool> more = index_->Collect(&position_, &done_, &bucket_);
      if (!more.ok()) return Finish(more.status());
      if (!*more) return Finish(absl::OkStatus());
      item_ = 0;
    }
  }
  void Finish(Status status) {
    status_ = std::move(status);
    bucket_.items.clear();
    item_ = 0;
    done_ = true;
  }

  Index* index_;
  Space* space_;
  index::BucketCopy bucket_;
  std::size_t item_ = 0;
  std::uint64_t position_ = 0;
  bool done_ = true;
  Status status_;
};

}  // namespace hako
