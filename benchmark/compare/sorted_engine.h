// The common part of LevelDB's and RocksDB's engines: scans by an iterator.
#pragma once

#include <memory>

#include "driver.h"

namespace hako::compare {

template <class DbT, class SliceT, class ReadT>
class SortedEngine {
 public:
  static constexpr bool kOnDisk = true, kConcurrent = true, kWritable = true;

  template <class Visit>
  bool ScanFrom(std::string_view key, std::size_t count, Visit visit) {
    const auto it = Owned(db_->NewIterator(ReadT()));
    for (it->Seek(Piece(key)); it->Valid() && count > 0; --count, it->Next()) visit(View(it->key()), View(it->value()));
    return Good(it->status());
  }

 protected:
  template <class T>
  static std::unique_ptr<T> Owned(T* object) {
    return std::unique_ptr<T>(object);
  }
  static SliceT Piece(std::string_view bytes) { return {bytes.data(), bytes.size()}; }
  static std::string_view View(const SliceT& bytes) { return {bytes.data(), bytes.size()}; }
  template <class StatusT>
  static bool Good(const StatusT& status) {
    return status.ok() || Fail(status.ToString().c_str());
  }

  std::unique_ptr<DbT> db_;
};

}  // namespace hako::compare
