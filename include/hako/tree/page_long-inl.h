// Definitions of tree/buffer_pool.h: long values, which are copied, read and freed while nothing is
// locked.
//
// A leaf names a long value by its id and its size. The bytes are in memory until a checkpoint has
// written them (UnsavedValue), then in the file. Bytes that a thread has read for a name are the
// value of that name as long as the page map has the same check for the id: an id may be reused,
// even for a value of the same size, but the check covers the bytes. An error counts only if the
// value has not been moved since: its old place may have been cut off or used again.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "hako/base/no_memory.h"
#include "hako/tree/buffer_pool.h"

namespace hako::tree {

// The work that an update leaves until it holds no lock: to copy values that the tree names
// already, and to free the memory of others. Done in Finish or the destructor. REQUIRES: by then
// the thread has released its locks, and the values it stored are still valid (unchecked: neither leaves a trace)
template <File FileT, PageCodec Codec>
class BufferPool<FileT, Codec>::Deferred {
 public:
  explicit Deferred(BufferPool& pool) : pool_(pool) {}
  Deferred(const Deferred&) = delete;
  ~Deferred() { Finish(); }
  void Finish() {
    for (const auto& [to, value] : copies_) to->Fill(value);
    copies_.clear();
    dropped_.clear();
    if (std::exchange(waits_, false)) pool_.WaitForLongValues();
  }

 private:
  friend BufferPool;
  BufferPool& pool_;
  absl::InlinedVector<std::pair<std::shared_ptr<UnsavedValue>, std::string_view>, 1> copies_;
  absl::InlinedVector<std::shared_ptr<UnsavedValue>, 1> dropped_;
  bool waits_ = false;  // whether Finish must wait until other long values are written
};

// Reads a long value by turns: Has, while the leaf that names it is locked or its version is
// checked afterwards; Read, with nothing locked; Has again, until it is true. A value that was
// replaced meanwhile is read again.
template <File FileT, PageCodec Codec>
class BufferPool<FileT, Codec>::LongRead {
 public:
  explicit LongRead(BufferPool& pool) : pool_(&pool) {}

  // Whether status() and bytes() are those of the value of this name. Never waits for the thread
  // that stores it.
  bool Has(const format::OverflowValue& name) {
    const auto id = static_cast<std::uint32_t>(name.place);
    if (name.place != name_.place || name.size != name_.size) Forget();
    name_ = name;
    if (name.place > pool_->id_mask() || name.size > kValueSizeMax) {
      status_ = absl::DataLossError("a reference to a long value is damaged");
      return true;
    }
    unsaved_ = pool_->long_values_.Find(id);
    if (unsaved_ != nullptr) {
      Forget();
      return unsaved_->is_filled();
    }
    // Before memory is taken for a value that the file cannot hold. If the value was replaced
    // meanwhile, the leaf has another version.
    if (!has_read_ && name.size > pool_->store_->file().Size()) {
      status_ = absl::DataLossError("a reference to a long value is damaged");
      return true;
    }
    if (!has_read_) return false;
    const StatusOr<format::PageEntry> now = pool_->store_->pages().EntryOf(id);
    if (!now.ok()) status_ = now.status();
    if (!now.ok()) return true;
    // The bytes do not depend on the place, but an error may be that of the previous place.
    if (!status_.ok() && now->place() != entry_.place()) return false;
    return now->units() == entry_.units() && now->check == entry_.check;
  }
  // After Has returned false: whether the reason is that the thread that stores the value has not
  // filled it in yet. Read waits for that thread.
  bool IsBeingFilled() const { return unsaved_ != nullptr && !unsaved_->is_filled(); }
  // Reads the value that the last Has asked for, into `out` if given.
  void Read(char* out = nullptr) {
    if (unsaved_ != nullptr) return (void)unsaved_->Wait();
    has_read_ = true;
    const auto id = static_cast<std::uint32_t>(name_.place);
    const auto size = static_cast<std::size_t>(name_.size);
    const StatusOr<format::PageEntry> entry = pool_->store_->pages().EntryOf(id);
    entry_ = entry.ok() ? *entry : format::PageEntry{};
    status_ = entry.status();
    if (status_.ok() && out == nullptr) {
      if (bytes_ == nullptr) bytes_.reset(new (std::nothrow) char[size]);
      out = bytes_.get();
      if (out == nullptr) status_ = NoMemoryError();
    }
    if (status_.ok()) status_ = pool_->store_->pages().ReadLong(id, entry_, {out, size});
    view_ = {out, size};
  }

  // Read, of which only status() is wanted.
  void Check() {
    if (unsaved_ != nullptr) return (void)unsaved_->Wait();
    has_read_ = true;
    const auto id = static_cast<std::uint32_t>(name_.place);
    const StatusOr<format::PageEntry> entry = pool_->store_->pages().EntryOf(id);
    entry_ = entry.ok() ? *entry : format::PageEntry{};
    status_ = entry.ok() ? pool_->store_->pages().CheckLong(id, entry_, static_cast<std::size_t>(name_.size)) : entry.status();
  }

  // REQUIRES: the last Has returned true (unchecked: the result is not kept)
  const Status& status() const { return status_; }
  std::string_view bytes() const { return unsaved_ != nullptr ? unsaved_->Wait() : view_; }

 private:
  void Forget() {
    has_read_ = false;
    status_ = absl::OkStatus();
    bytes_.reset();
  }

  BufferPool* pool_;
  format::OverflowValue name_{};
  std::shared_ptr<const UnsavedValue> unsaved_;  // if the value is not in the file
  bool has_read_ = false;
  format::PageEntry entry_{};  // of the value that was read; status_ is the result
  Status status_;
  std::unique_ptr<char[]> bytes_;
  std::string_view view_;
};

template <File FileT, PageCodec Codec>
std::uint64_t BufferPool<FileT, Codec>::StoreLong(std::string_view value, Deferred& deferred) {
  std::shared_ptr<UnsavedValue> unsaved = UnsavedValue::Make(value.size());
  if (unsaved == nullptr) return 0;
  deferred.copies_.reserve(deferred.copies_.size() + 1);
  const std::uint32_t id = arena_->NewPage();
  if (id == 0) return 0;
  const std::uint64_t before = long_values_.unsaved_bytes();
  if (!long_values_.Add(id, unsaved)) return arena_->FreePage(id), 0;
  deferred.copies_.emplace_back(std::move(unsaved), value);
  {
    sync::MutexLock lock(states_.mutex);
    states_.Set(id, PageStates::kLong);
  }
  dirty_.AddNewId(id);
  if (before > UnsavedMax()) deferred.waits_ = true;
  const auto size = static_cast<std::int64_t>(value.size());
  AskIfDue(dirty_.AddLongBytes(size) + dirty_.bytes(), size);
  return id;
}

template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::FreeLong(const format::OverflowValue& value, Deferred& deferred) {
  const auto id = static_cast<std::uint32_t>(value.place);
  {
    sync::MutexLock lock(states_.mutex);
    if (!IsLong(value.place)) return;  // the file is damaged
    states_.Set(id, PageStates::kFree);
  }
  std::shared_ptr<UnsavedValue> unsaved = long_values_.Remove(id);
  const bool is_new = dirty_.Forget(id);
  if (unsaved != nullptr && is_new) dirty_.AddLongBytes(-static_cast<std::int64_t>(unsaved->size()));
  if (unsaved != nullptr) (void)TryPushBack(deferred.dropped_, std::move(unsaved));
  if (is_new) arena_->FreePage(id);
  dirty_.NoteChange();
}

// Waits until earlier long values have been written. Only threads that store long values wait here;
// threads that change pages do not.
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::WaitForLongValues() {
  const auto has_room = [this] { return long_values_.unsaved_bytes() <= UnsavedMax() || progress_.has_failed(); };
  while (!has_room()) {
    // A checkpoint that is not writing may be waiting for a lock of the caller.
    if (!progress_.WaitFor(std::chrono::seconds(1), has_room) && !progress_.is_writing()) return;
  }
}

}  // namespace hako::tree
