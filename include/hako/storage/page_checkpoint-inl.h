// Definitions of storage/page_cache.h: checkpoints.
#pragma once

#include "hako/storage/page_cache.h"

namespace hako::storage {

template <File FileT, PageCodec Codec>
void PageCache<FileT, Codec>::TouchSlowly(Line& line) {
  const Shape shape = line.shape;
  if ((shape.kind & Shape::kMark) != 0 && collecting_.load(std::memory_order_relaxed)) {
    const auto id = static_cast<std::uint32_t>(&line - lines_);
    alignas(64) char image[format::kPageImageMax];
    const std::size_t size = EncodePage(id, shape, At(line.unit), limits_.order.inlined, image);
    Captured captured{id, std::string(image, size)};
    std::lock_guard lock(captured_mutex_);
    captured_.push_back(std::move(captured));
    frozen_bytes_.fetch_sub(static_cast<std::int64_t>(shape.size()), std::memory_order_relaxed);
  }
  StoreMark(line, shape, mark());
  NoteDirty(shape.size());
}

template <File FileT, PageCodec Codec>
template <class ForEachSlot, class F>
Status PageCache<FileT, Codec>::Checkpoint(ForEachSlot&& for_each_slot, F&& describe) {
  std::lock_guard only(checkpoint_mutex_);
  HAKO_RETURN_IF_ERROR(store_->Begin([this](std::uint32_t id) {
    std::lock_guard lock(mutex_);
    if (!IsLong(id)) return;  // it was met: the file is damaged
    SetState(id, kFree);
    slab_->FreePage(id);
  }));
  std::uint8_t frozen = 0;
  std::vector<std::uint32_t> freed, written;
  std::vector<std::pair<std::uint32_t, std::shared_ptr<const std::string>>> unsaved;
  format::TreeSuperBlock description{};
  std::uint64_t held_bytes = 0;
  gate_.RunAlone(for_each_slot, [&] {
    frozen = mark();
    collecting_.store(true, std::memory_order_relaxed);
    mark_.store(frozen == kMarks[0] ? kMarks[1] : kMarks[0], std::memory_order_relaxed);
    frozen_bytes_.store(dirty_bytes_.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
    changed_.store(false, std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    is_saving_ = true;
    held_bytes = unsaved_held_bytes_;
    freed = std::move(freed_);
    freed_.clear();
    unsaved.assign(unsaved_.begin(), unsaved_.end());
    description.num_long = num_long_;
    description.id_end = slab_->page_end();
    describe(description);
    return 0;
  });

  Status status = WritePages(frozen, &written);
  collecting_.store(false, std::memory_order_relaxed);
  for (std::size_t i = 0; i < unsaved.size() && status.ok(); ++i) status = store_->PutLong(unsaved[i].first, *unsaved[i].second);
  for (std::size_t i = 0; i < freed.size() && status.ok(); ++i) status = store_->Forget(freed[i]);
  if (status.ok()) {
    status = store_->Commit([&](format::TreeSuperBlock& super) {
      super.num_records = description.num_records;
      super.root = description.root;
      super.id_end = description.id_end;
      super.num_long = description.num_long;
      super.metadata = description.metadata;
      super.type = description.type;
    });
  }

  if (!status.ok()) MarkAgain(frozen, written);
  for (const std::uint32_t id : freed) {
    if (status.ok()) slab_->FreePage(id);
  }
  std::unique_lock lock(mutex_);
  is_saving_ = false;
  if (status.ok()) {
    unsaved_held_bytes_ -= held_bytes;
    for (const auto& [id, value] : unsaved) {
      if (const auto found = unsaved_.find(id); found != unsaved_.end() && found->second == value) {
        unsaved_bytes_ -= value->size();
        unsaved_.erase(found);
      }
    }
  } else {
    freed_.insert(freed_.end(), freed.begin(), freed.end());
    changed_.store(true, std::memory_order_relaxed);
  }
  LetGo(&written, 0);
  frozen_bytes_.store(0, std::memory_order_relaxed);
  lock.unlock();
  if (status.ok()) EvictToLimit(held_bytes);
  ShrinkMemory();
  return status;
}

// What was written may go, but for the last ones. REQUIRES: mutex_
template <File FileT, PageCodec Codec>
void PageCache<FileT, Codec>::LetGo(std::vector<std::uint32_t>* written, std::size_t kept) {
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

// The pages that were changed in the epoch before: leaves first, and in the order of their keys' bytes, so that neighbours are written
// together. That order need not be exact.
template <File FileT, PageCodec Codec>
std::vector<std::uint32_t> PageCache<FileT, Codec>::ChangedPages(std::uint8_t frozen) {
  struct Changed {
    unsigned level;
    std::string low;
    std::uint32_t id;
  };
  std::vector<std::uint32_t> ids;
  {
    std::lock_guard lock(mutex_);
    ids = resident_;
  }
  std::vector<Changed> changed;
  for (const std::uint32_t id : ids) {
    Line& line = lines_[id];
    Shape shape = std::atomic_ref(line.shape).load(std::memory_order_relaxed);
    if ((shape.kind & Shape::kMark) != frozen) continue;
    format::PageTail tail;
    const char* const end = At(std::atomic_ref(line.unit).load(std::memory_order_relaxed)) + shape.size() - sizeof(tail);
    sync::LoadShared(reinterpret_cast<char*>(&tail), end, sizeof(tail));
    if (tail.low > shape.heap || shape.prefix > shape.heap) tail.low = shape.prefix = 0;  // a writer is at work
    std::string low(std::min<std::size_t>(tail.low, 256), '\0');
    sync::LoadShared(low.data(), end - shape.prefix - tail.low, low.size());
    changed.push_back({shape.level(), std::move(low), id});
  }
  std::ranges::sort(changed, [](const Changed& a, const Changed& b) { return a.level != b.level ? a.level < b.level : a.low < b.low; });
  ids.clear();
  for (const Changed& page : changed) ids.push_back(page.id);
  return ids;
}

// Locks a page, unless it is gone.
template <File FileT, PageCodec Codec>
bool PageCache<FileT, Codec>::LockIfChanged(std::uint32_t id) {
  for (sync::Backoff backoff; !sync::VersionLock(lines_[id].version).TryLock(); backoff.Pause()) {
    const std::uint8_t state = State(id);
    if (state == kFree || state == kLong || state == kAway || state == kLoading) return false;
    if (state == kCooling) (void)Bring(id, -1, false);
  }
  if (State(id) == kHere || State(id) == kHereOnce) return true;
  sync::VersionLock(lines_[id].version).Unlock(false);  // an id without a page
  return false;
}

template <File FileT, PageCodec Codec>
Status PageCache<FileT, Codec>::WritePages(std::uint8_t frozen, std::vector<std::uint32_t>* written) {
  alignas(64) char image[format::kPageImageMax];
  std::uint64_t flushes = store_->num_flushes();
  for (const std::uint32_t id : ChangedPages(frozen)) {
    Line& line = lines_[id];
    if (!LockIfChanged(id)) continue;
    const Shape shape = line.shape;
    std::size_t size = 0;
    if ((shape.kind & Shape::kMark) == frozen) {
      size = EncodePage(id, shape, At(line.unit), limits_.order.inlined, image);
      StoreMark(line, shape, 0);
      written->push_back(id);
      std::lock_guard lock(mutex_);
      SetFlag(id, kPinned, true);
    }
    sync::VersionLock(line.version).Unlock(false);
    if (size != 0) HAKO_RETURN_IF_ERROR(PutImage(id, {image, size}));
    HAKO_RETURN_IF_ERROR(PutCaptured());
    if (store_->num_flushes() != flushes) {
      flushes = store_->num_flushes();
      std::lock_guard lock(mutex_);
      LetGo(written, 1);
    }
  }
  return PutCaptured();
}

template <File FileT, PageCodec Codec>
Status PageCache<FileT, Codec>::PutImage(std::uint32_t id, std::span<const char> image) {
  [[maybe_unused]] char packed[std::same_as<Codec, NoCodec> ? 1 : format::kPageImageMax];
  if constexpr (!std::same_as<Codec, NoCodec>) {
    if (const std::size_t size = Pack<Codec>(image, packed); size != 0) image = {packed, size};
  }
  return store_->Put(id, std::as_bytes(image));
}

template <File FileT, PageCodec Codec>
Status PageCache<FileT, Codec>::PutCaptured() {
  std::vector<Captured> captured;
  {
    std::lock_guard lock(captured_mutex_);
    captured.swap(captured_);
  }
  for (const Captured& page : captured) HAKO_RETURN_IF_ERROR(PutImage(page.id, page.image));
  return absl::OkStatus();
}

// After a checkpoint that failed: its pages are changed still.
template <File FileT, PageCodec Codec>
void PageCache<FileT, Codec>::MarkAgain(std::uint8_t frozen, const std::vector<std::uint32_t>& written) {
  std::vector<std::uint32_t> ids = ChangedPages(frozen);
  ids.insert(ids.end(), written.begin(), written.end());
  for (const std::uint32_t id : ids) {
    if (!LockIfChanged(id)) continue;
    const Shape shape = lines_[id].shape;
    if ((shape.kind & Shape::kMark) != mark()) {
      StoreMark(lines_[id], shape, mark());
      dirty_bytes_.fetch_add(shape.size(), std::memory_order_relaxed);
    }
    sync::VersionLock(lines_[id].version).Unlock(false);
  }
  std::lock_guard lock(captured_mutex_);
  captured_.clear();
}

}  // namespace hako::storage
