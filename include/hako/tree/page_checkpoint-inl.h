// Definitions of tree/buffer_pool.h: checkpoints.
#pragma once

#include "hako/tree/buffer_pool.h"

namespace hako::tree {

// The changes of the epoch that a checkpoint writes.
template <File FileT, PageCodec Codec>
struct BufferPool<FileT, Codec>::Epoch {
  using OverflowValue = std::pair<std::uint32_t, std::shared_ptr<UnsavedValue>>;
  std::uint8_t mark;
  std::vector<std::uint32_t> touched, freed;  // ids
  std::vector<OverflowValue> unsaved;
  format::TreeSuperBlock description{};
  // Ids of pages that were put; in `written` only until they can be evicted.
  std::vector<std::uint32_t> written, captured;
};

template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::TouchSlowly(Line& line) {
  const Shape shape = line.shape;
  const auto id = static_cast<std::uint32_t>(&line - lines_);
  NoteChanged(id);
  if ((shape.kind & Shape::kMark) != 0 && collecting_.load(std::memory_order_relaxed)) {
    alignas(64) char image[format::kPageImageMax];
    const std::size_t size = EncodePage(id, shape, At(line.unit), limits_.order.inlined, image);
    Captured captured{id, std::string(image, size)};
    {
      std::lock_guard lock(mutex_);
      SetFlag(id, kNew, false);
    }
    std::lock_guard lock(touched_mutex_);
    captured_.push_back(std::move(captured));
    frozen_bytes_.fetch_sub(static_cast<std::int64_t>(shape.size()), std::memory_order_relaxed);
  }
  StoreMark(line, shape, mark());
  NoteDirty(shape.size());
}

template <File FileT, PageCodec Codec>
Status BufferPool<FileT, Codec>::FindFreeSpace() {
  return store_->Begin([this](std::uint32_t first, std::uint32_t end) { slab_->FreeIds(first, end); });
}

template <File FileT, PageCodec Codec>
template <class ForEachWriter, class F>
Status BufferPool<FileT, Codec>::Checkpoint(ForEachWriter&& for_each_writer, F&& describe) {
  std::lock_guard only(checkpoint_mutex_);
  HAKO_RETURN_IF_ERROR(FindFreeSpace());
  Epoch epoch;
  std::uint64_t held_bytes = 0;
  gate_.RunExclusive(for_each_writer, [&] {
    {  // steps that need memory come before any change
      std::lock_guard lock(mutex_);
      ListFreed();
      epoch.unsaved.assign(unsaved_.begin(), unsaved_.end());
      touched_.insert(touched_.end(), touched_again_.begin(), touched_again_.end());
      touched_again_.clear();
    }
    epoch.mark = mark();
    collecting_.store(true, std::memory_order_relaxed);
    mark_.store(epoch.mark == kMarks[0] ? kMarks[1] : kMarks[0], std::memory_order_relaxed);
    frozen_bytes_.store(dirty_bytes_.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
    long_bytes_.store(0, std::memory_order_relaxed);
    changed_.store(false, std::memory_order_relaxed);
    epoch.touched.swap(touched_);  // no writer is active
    std::lock_guard lock(mutex_);
    is_saving_ = true;
    held_bytes = unsaved_held_bytes_;
    epoch.freed.swap(freed_);
    for (const auto& [id, value] : epoch.unsaved) SetFlag(id, kNew, false);
    epoch.description.num_long = num_long_.load(std::memory_order_relaxed);
    describe(epoch.description);
    return 0;
  });

  ForgetNoted(epoch.touched, epoch.mark);
  const Status status = CatchNoMemory([&] { return WriteEpoch(epoch); });
  collecting_.store(false, std::memory_order_relaxed);
  // Although no superblock may name it yet.
  const bool is_saved = status.ok() || store_->is_written();
  if (!is_saved) TakeBack(epoch);
  for (const std::uint32_t id : epoch.freed) {
    if (is_saved) slab_->FreePage(id);
  }
  slab_->CutIds();
  std::unique_lock lock(mutex_);
  is_saving_ = is_writing_ = false;
  has_failed_ = !status.ok();
  if (is_saved) {
    unsaved_held_bytes_ -= held_bytes;
    for (const auto& [id, value] : epoch.unsaved) {
      if (const auto found = unsaved_.find(id); found != unsaved_.end() && found->second == value) {
        unsaved_bytes_ -= value->size();
        unsaved_.erase(found);
      }
    }
  } else {
    freed_.swap(epoch.freed);
    for (const std::uint32_t id : epoch.freed) NoteFreed(id);
  }
  if (!status.ok()) changed_.store(true, std::memory_order_relaxed);
  LetGo(&epoch.written, 0);
  frozen_bytes_.store(0, std::memory_order_relaxed);
  lock.unlock();
  if (is_saved) EvictToLimit(held_bytes);
  ShrinkMemory();
  return status;
}

// Runs beside writers, which copy pages for it that they change before it has written them.
template <File FileT, PageCodec Codec>
Status BufferPool<FileT, Codec>::WriteEpoch(Epoch& epoch) {
  SortPages(epoch);
  const Status written = WritePages(epoch);
  collecting_.store(false, std::memory_order_relaxed);
  HAKO_RETURN_IF_ERROR(written);
  {
    std::lock_guard lock(mutex_);
    is_writing_ = true;
  }
  for (const auto& [id, value] : epoch.unsaved) HAKO_RETURN_IF_ERROR(store_->PutLong(id, value->Wait()));
  std::ranges::sort(epoch.freed);
  for (const std::uint32_t id : epoch.freed) HAKO_RETURN_IF_ERROR(store_->Forget(id));
  return store_->Commit([&](format::TreeSuperBlock& super) {
    super.num_records = epoch.description.num_records;
    super.root = epoch.description.root;
    super.id_end = slab_->PageEndWithout(epoch.freed);
    super.num_ids = slab_->num_pages() - epoch.freed.size();
    super.num_long = epoch.description.num_long;
    super.metadata = epoch.description.metadata;
    super.type = epoch.description.type;
  });
}

// Makes the written pages evictable, except the last `kept`. REQUIRES: mutex_
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::LetGo(std::vector<std::uint32_t>* written, std::size_t kept) {
  const auto end = written->end() - static_cast<std::ptrdiff_t>(std::min(kept, written->size()));
  for (auto id = written->begin(); id != end; ++id) {
    SetFlag(*id, kPinned, false);
    const Shape shape = std::atomic_ref(lines_[*id].shape).load(std::memory_order_relaxed);
    frozen_bytes_.fetch_sub(static_cast<std::int64_t>(shape.size()), std::memory_order_relaxed);
  }
  written->erase(written->begin(), end);
  ++saves_;
  saved_.notify_all();
}

// Leaves first, ordered by the bytes of their keys, so that neighbours are written together. The
// order need not be exact.
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::SortPages(Epoch& epoch) {
  struct Changed {
    unsigned level;
    std::string low;
    std::uint32_t id;
  };
  std::vector<Changed> changed;
  for (const std::uint32_t id : epoch.touched) {
    Line& line = lines_[id];
    Shape shape = std::atomic_ref(line.shape).load(std::memory_order_relaxed);
    if ((shape.kind & Shape::kMark) != epoch.mark) continue;  // copied by a writer, or freed
    format::PageTail tail;
    const char* const end = At(std::atomic_ref(line.unit).load(std::memory_order_relaxed)) + shape.size() - sizeof(tail);
    sync::LoadShared(reinterpret_cast<char*>(&tail), end, sizeof(tail));
    // A writer is active.
    if (tail.low > shape.heap || shape.prefix > shape.heap) tail.low = shape.prefix = 0;
    std::string low(std::min<std::size_t>(tail.low, 256), '\0');
    sync::LoadShared(low.data(), end - shape.prefix - tail.low, low.size());
    changed.push_back({shape.level(), std::move(low), id});
  }
  std::ranges::sort(changed, [](const Changed& a, const Changed& b) { return a.level != b.level ? a.level < b.level : a.low < b.low; });
  epoch.touched.clear();
  for (const Changed& page : changed) epoch.touched.push_back(page.id);
  // Now, as later pages are locked and nothing may run out of memory.
  epoch.written.reserve(epoch.touched.size());
}

// Locks a page, unless it was freed or evicted.
template <File FileT, PageCodec Codec>
bool BufferPool<FileT, Codec>::LockIfChanged(std::uint32_t id) {
  for (sync::Backoff backoff; !sync::VersionLock(lines_[id].version).TryLock(); backoff.Pause()) {
    const std::uint8_t state = State(id);
    if (state == kFree || state == kLong || state == kAway || state == kLoading) return false;
    if (state == kCooling) (void)LoadPage(id, -1, false);
  }
  if (State(id) == kCached || State(id) == kProbationary) return true;
  sync::VersionLock(lines_[id].version).Unlock(false);  // an id without a page
  return false;
}

template <File FileT, PageCodec Codec>
Status BufferPool<FileT, Codec>::WritePages(Epoch& epoch) {
  alignas(64) char image[format::kPageImageMax];
  std::uint64_t flushes = store_->num_flushes();
  for (const std::uint32_t id : epoch.touched) {
    Line& line = lines_[id];
    if (!LockIfChanged(id)) continue;
    const Shape shape = line.shape;
    std::size_t size = 0;
    if ((shape.kind & Shape::kMark) == epoch.mark) {
      size = EncodePage(id, shape, At(line.unit), limits_.order.inlined, image);
      StoreMark(line, shape, 0);
      epoch.written.push_back(id);
      std::lock_guard lock(mutex_);
      SetFlag(id, kPinned, true);
      SetFlag(id, kNew, false);
    }
    sync::VersionLock(line.version).Unlock(false);
    if (size != 0) HAKO_RETURN_IF_ERROR(PutImage(id, {image, size}));
    HAKO_RETURN_IF_ERROR(PutCaptured(epoch));
    if (store_->num_flushes() != flushes) {
      flushes = store_->num_flushes();
      std::lock_guard lock(mutex_);
      LetGo(&epoch.written, 1);
    }
  }
  return PutCaptured(epoch);
}

template <File FileT, PageCodec Codec>
Status BufferPool<FileT, Codec>::PutImage(std::uint32_t id, std::span<const char> image) {
  [[maybe_unused]] char packed[std::same_as<Codec, NoCodec> ? 1 : format::kPageImageMax];
  if constexpr (!std::same_as<Codec, NoCodec>) {
    if (const std::size_t size = Pack<Codec>(image, packed); size != 0) image = {packed, size};
  }
  return store_->Put(id, std::as_bytes(image));
}

template <File FileT, PageCodec Codec>
Status BufferPool<FileT, Codec>::PutCaptured(Epoch& epoch) {
  std::vector<Captured> captured;
  {
    std::lock_guard lock(touched_mutex_);
    captured.swap(captured_);
  }
  for (const Captured& page : captured) {
    epoch.captured.push_back(page.id);
    HAKO_RETURN_IF_ERROR(PutImage(page.id, page.image));
  }
  return absl::OkStatus();
}

// After a failed checkpoint: the epoch's pages that are in memory are added to the next epoch, and
// their images are dropped. Evicted pages keep theirs. Needs no memory, as a lack of memory may be
// why the checkpoint failed.
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::TakeBack(Epoch& epoch) {
  std::erase_if(epoch.touched, [this](std::uint32_t id) {
    if (!LockIfChanged(id)) return true;
    const Shape shape = lines_[id].shape;
    if ((shape.kind & Shape::kMark) != mark()) {
      StoreMark(lines_[id], shape, mark());
      dirty_bytes_.fetch_add(shape.size(), std::memory_order_relaxed);
    }
    sync::VersionLock(lines_[id].version).Unlock(false);
    return false;
  });
  {
    std::lock_guard lock(touched_mutex_);
    captured_.clear();
  }
  store_->BeginTakeBack();
  for (const std::uint32_t id : epoch.touched) store_->TakeBack(id);
  for (const std::uint32_t id : epoch.captured) store_->TakeBack(id);
  for (const auto& [id, value] : epoch.unsaved) {
    store_->TakeBack(id);
    long_bytes_.fetch_add(static_cast<std::int64_t>(value->size()), std::memory_order_relaxed);
  }
  store_->EndTakeBack();
  touched_again_.swap(epoch.touched);
}

}  // namespace hako::tree
