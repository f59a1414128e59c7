// Reads a long value of a tree in a file, while nothing is locked.
//
// A leaf names a long value by its id and its size. The bytes are in memory until a checkpoint has
// written them (UnsavedValue), then in the file. An id may be reused, even for a value of the same
// size. But the page map has a check of the bytes of each id, so bytes that were read are the right
// value as long as the check is unchanged. An error counts only if the value has not been moved
// since, because its old place may have been cut off or reused.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <string_view>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/page_format.h"
#include "hako/format/record_format.h"
#include "hako/format/tree_file_format.h"
#include "hako/tree/file/long_values.h"
#include "hako/tree/file/page_store.h"
#include "hako/tree/file/unsaved_value.h"

namespace hako::tree {

// Reads a long value in alternating steps: Has, while the leaf that names the value is locked or
// its version is checked afterwards; Read, with nothing locked; Has again, until it returns true. A
// value that was replaced in between is read again.
template <File FileT>
class LongRead {
 public:
  // Reads from the store of this pool.
  template <class Pool>
  explicit LongRead(Pool& pool) : store_(&pool.store()), values_(&pool.long_values()), id_max_(pool.id_mask()) {}

  // Whether status() and bytes() are those of the value with this name. Never waits for the thread
  // that stores the value.
  bool Has(const format::OverflowValue& name) {
    const auto id = static_cast<std::uint32_t>(name.place);
    if (name.place != name_.place || name.size != name_.size) Forget();
    name_ = name;
    if (name.place > id_max_ || name.size > kValueSizeMax) {
      status_ = absl::DataLossError("a reference to a long value is damaged");
      return true;
    }
    unsaved_ = values_->Find(id);
    if (unsaved_ != nullptr) {
      Forget();
      return unsaved_->is_filled();
    }
    // Check before taking memory that the file can hold a value of this size. If the value was
    // replaced meanwhile, the leaf has another version.
    if (!has_read_ && name.size > store_->file().Size()) {
      status_ = absl::DataLossError("a reference to a long value is damaged");
      return true;
    }
    if (!has_read_) return false;
    const StatusOr<format::PageEntry> now = store_->pages().EntryOf(id);
    if (!now.ok()) status_ = now.status();
    if (!now.ok()) return true;
    // The bytes do not depend on the place, but an error may be that of the previous place.
    if (!status_.ok() && now->place() != entry_.place()) return false;
    return now->units() == entry_.units() && now->check == entry_.check;
  }
  // Call after Has returned false. Returns whether the thread that stores the value has not yet
  // filled it in. Read waits for that thread.
  bool IsBeingFilled() const { return unsaved_ != nullptr && !unsaved_->is_filled(); }
  // Reads the value of the last call of Has, into `out` if given.
  void Read(char* out = nullptr) {
    if (unsaved_ != nullptr) return (void)unsaved_->Wait();
    has_read_ = true;
    const auto id = static_cast<std::uint32_t>(name_.place);
    const auto size = static_cast<std::size_t>(name_.size);
    const StatusOr<format::PageEntry> entry = store_->pages().EntryOf(id);
    entry_ = entry.ok() ? *entry : format::PageEntry{};
    status_ = entry.status();
    if (status_.ok() && out == nullptr) {
      if (bytes_ == nullptr) bytes_.reset(new (std::nothrow) char[size]);
      out = bytes_.get();
      if (out == nullptr) status_ = NoMemoryError();
    }
    if (status_.ok()) status_ = store_->pages().ReadLong(id, entry_, {out, size});
    view_ = {out, size};
  }

  // As Read, but only for status().
  void Check() {
    if (unsaved_ != nullptr) return (void)unsaved_->Wait();
    has_read_ = true;
    const auto id = static_cast<std::uint32_t>(name_.place);
    const StatusOr<format::PageEntry> entry = store_->pages().EntryOf(id);
    entry_ = entry.ok() ? *entry : format::PageEntry{};
    status_ = entry.ok() ? store_->pages().CheckLong(id, entry_, static_cast<std::size_t>(name_.size)) : entry.status();
  }

  // REQUIRES: the last call of Has returned true (unchecked: the result is not kept)
  const Status& status() const { return status_; }
  std::string_view bytes() const { return unsaved_ != nullptr ? unsaved_->Wait() : view_; }

 private:
  void Forget() {
    has_read_ = false;
    status_ = absl::OkStatus();
    bytes_.reset();
  }

  PageStore<FileT>* store_;
  LongValues* values_;
  std::uint32_t id_max_;
  format::OverflowValue name_{};
  std::shared_ptr<const UnsavedValue> unsaved_;  // if the value is not in the file
  bool has_read_ = false;
  format::PageEntry entry_{};  // of the value that was read; status_ is the result
  Status status_;
  std::unique_ptr<char[]> bytes_;
  std::string_view view_;
};

}  // namespace hako::tree
