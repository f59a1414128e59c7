// Definitions of tree/buffer_pool.h: loading and evicting pages.
#pragma once

#include "hako/tree/buffer_pool.h"

namespace hako::tree {

template <File FileT, PageCodec Codec>
Status BufferPool<FileT, Codec>::LoadPage(std::uint32_t id, int level, bool once) {
  Line& line = lines_[id];
  std::unique_lock lock(mutex_);
  loaded_.wait(lock, [&] { return State(id) != kLoading; });
  if (State(id) == kCooling) {
    SetState(id, kCached);
    sync::VersionLock(line.version).Unlock(false);
    return absl::OkStatus();
  }
  if (State(id) != kAway || (sync::VersionLock(line.version).ReadVersion() & sync::VersionLock::kLocked) == 0) return absl::OkStatus();

  SetState(id, kLoading);
  lock.unlock();
  alignas(64) std::byte bytes[kImageRoom];
  const StatusOr<std::size_t> size = CatchNoMemory([&] { return store_->Read(id, std::span(bytes).first(format::kPageImageMax)); });
  Arrived page{id, std::span(bytes).first(size.ok() ? *size : 0), size.status()};
  Install(std::span(&page, 1), {.level = level, .once = once, .must = true});
  return page.status;
}

template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::BringTogether(std::span<const std::uint32_t> ids, int level, bool once) {
  if constexpr (BatchFile<FileT>) {
    absl::InlinedVector<typename PageStore<FileT>::ImageRequest, 32> images;
    images.reserve(ids.size());
    {
      std::lock_guard lock(mutex_);
      for (const std::uint32_t id : ids) {
        const bool is_locked = (sync::VersionLock(lines_[id].version).ReadVersion() & sync::VersionLock::kLocked) != 0;
        if (State(id) != kAway || !is_locked) continue;
        SetState(id, kLoading);
        images.push_back({id});
      }
    }
    HAKO_TRY { store_->ReadMulti(images); }
    HAKO_CATCH_NO_MEMORY()  // pages that were not read stay evicted
    for (std::size_t i = 0; i < images.size(); i += kInstalledTogether) {
      std::array<Arrived, kInstalledTogether> pages;
      const std::size_t count = std::min(images.size() - i, kInstalledTogether);
      for (std::size_t j = 0; j < count; ++j) pages[j] = {images[i + j].id, images[i + j].image};
      Install(std::span(pages).first(count), {.level = level, .once = once, .must = false});
    }
  }
}

template <File FileT, PageCodec Codec>
bool BufferPool<FileT, Codec>::ReadAhead(std::span<const std::uint32_t> ids, int level) {
  std::lock_guard lock(ahead_mutex_);
  // The device is slower than the scan.
  if (ahead_.size() > 2 * kAheadParts || is_closing_) return false;
  // Inner pages first, as they name more pages that will be needed.
  ahead_.insert(level > 0 ? ahead_.begin() : ahead_.end(), Ahead{level, {ids.begin(), ids.end()}});
  const std::size_t parts = ids.size() / (ahead_max() / kAheadParts + 1) + 1;
  for (std::size_t i = 0; i < std::min(parts, readers_.size()); ++i) {
    sync::BackgroundThread::Pointer& reader = readers_[i];
    if (reader == nullptr) {
      auto started = sync::BackgroundThread::Start({}, [this] { BringAhead(); });
      if (!started.ok()) return ahead_.clear(), false;
      reader = *std::move(started);
    }
    reader->Wake();
  }
  return true;
}

template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::BringAhead() {
  const std::size_t part = ahead_max() / kAheadParts + 1;
  for (;;) {
    Ahead wanted;
    {
      std::lock_guard lock(ahead_mutex_);
      if (ahead_.empty()) return;
      Ahead& first = ahead_.front();
      const auto end = first.ids.begin() + static_cast<std::ptrdiff_t>(std::min(first.ids.size(), part));
      wanted = {first.level, {first.ids.begin(), end}};
      first.ids.erase(first.ids.begin(), end);
      if (first.ids.empty()) ahead_.pop_front();
    }
    BringTogether(wanted.ids, wanted.level, wanted.level == 0);
  }
}

// Installs the images of pages, which are kLoading. A page stays evicted after an error and,
// without `must`, if there is no room for it. Checks and copies without the lock, as these take
// long.
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::Install(std::span<Arrived> pages, const HowToInstall& how) {
  std::byte unpacked[std::same_as<Codec, NoCodec> ? 1 : kImageRoom];
  const auto parse = [&](const Arrived& page) -> StatusOr<PageImage> {
    HAKO_RETURN_IF_ERROR(page.status);
    HAKO_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Unpack<Codec>(page.id, page.bytes, unpacked));
    HAKO_ASSIGN_OR_RETURN(PageImage image, PageImage::Parse(page.id, bytes, limits_.order, slab_->page_end()));
    if (how.level >= 0 && image.shape().level() != static_cast<unsigned>(how.level))
      return absl::DataLossError(absl::StrCat("page ", page.id, ": level does not match the parent"));
    if (!HasExpectedBounds(page.id, image))
      return absl::DataLossError(absl::StrCat("page ", page.id, ": fence keys do not match the parent"));
    return image;
  };
  std::array<std::optional<PageImage>, kInstalledTogether> images;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    StatusOr<PageImage> image = CatchNoMemory([&] { return parse(pages[i]); });
    if (image.ok()) images[i] = *image;
    pages[i].status = image.status();
  }
  {
    std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if (!images[i]) continue;
      if (RegisterChildren(*images[i])) {
        pages[i].unit = FindMemory(images[i]->shape().units, how.must);
        if (pages[i].unit != 0 && List(pages[i].id)) continue;
        if (pages[i].unit != 0) GiveBack(pages[i].unit, images[i]->shape().units);
        ForgetChildren(*images[i], images[i]->shape().count);
        pages[i].status = absl::ResourceExhaustedError("out of memory for a page");
      } else {
        pages[i].status = absl::DataLossError(absl::StrCat("page ", pages[i].id, ": a child has another parent already"));
      }
    }
  }
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (!pages[i].status.ok()) continue;
    Line& line = lines_[pages[i].id];
    images[i]->Store(At(pages[i].unit), line.hints);
    std::atomic_ref(line.unit).store(pages[i].unit, std::memory_order_relaxed);
    std::atomic_ref(line.shape).store(images[i]->shape(), std::memory_order_relaxed);
  }
  std::lock_guard lock(mutex_);
  for (const Arrived& page : pages) {
    SetState(page.id, !page.status.ok() ? kAway : how.once ? kProbationary : kCached);
    if (!page.status.ok()) continue;
    sync::VersionLock(lines_[page.id].version).Unlock(true);
  }
  loaded_.notify_all();
}

// Registers the children of an inner page. Inner pages are never evicted, so each is loaded once,
// and its children are evicted pages that were not registered yet. From now on their lines are
// locked and hold the hash of their fences. False if a child is registered already or its id is not
// that of an evicted page: then the file is not a tree.
template <File FileT, PageCodec Codec>
bool BufferPool<FileT, Codec>::RegisterChildren(const PageImage& image) {
  const unsigned count = image.shape().level() > 0 ? image.shape().count : 0;
  PageImage::KeyBuffer buffers[2];
  std::string_view low = image.low();
  for (unsigned i = 0; i < count; ++i) {
    const std::uint32_t id = image.child(i);
    std::atomic_ref version(lines_[id].version);
    if (State(id) != kAway || (version.load(std::memory_order_relaxed) & sync::VersionLock::kLocked) != 0) {
      ForgetChildren(image, i);
      return false;
    }
    version.fetch_or(sync::VersionLock::kLocked, std::memory_order_relaxed);
    const bool is_last = i + 1 == count;
    const std::string_view high = is_last ? image.high() : image.Key(i + 1, limits_.order, buffers[i % 2]);
    const unsigned edges =
        (i == 0 ? image.edges() & format::PageTail::kNoLow : 0) | (is_last ? image.edges() & format::PageTail::kNoHigh : 0);
    Expect(id, HashOfBounds(low, high, edges));
    low = high;
  }
  return true;
}

// Unregisters the first `count` children.
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::ForgetChildren(const PageImage& image, unsigned count) {
  for (unsigned i = 0; image.shape().level() > 0 && i < count; ++i)
    std::atomic_ref(lines_[image.child(i)].version).fetch_and(~sync::VersionLock::kLocked, std::memory_order_relaxed);
}

// Memory for a page that is changed. Evicts other pages for it, but waits for nothing.
template <File FileT, PageCodec Codec>
std::uint32_t BufferPool<FileT, Codec>::AllocateSlowly(unsigned units) {
  std::lock_guard lock(mutex_);
  for (unsigned gone = 0; gone < kCooledAtOnce && EvictOne(); ++gone) {
    if (const std::uint32_t unit = slab_->Allocate(units, PageLimit()); unit != 0) return unit;
  }
  return slab_->Allocate(units);  // beyond the limit, until the next checkpoint
}

// Memory for a page to load; evicts other pages for it. 0 if there is none or, without `must`, none
// within the limit.
template <File FileT, PageCodec Codec>
std::uint32_t BufferPool<FileT, Codec>::FindMemory(unsigned units, bool must) {
  std::uint32_t unit = 0;
  for (bool has_evicted = false;; has_evicted = true) {
    const std::uint64_t limit = PageLimit();
    if (used_bytes() + units * format::kPageUnit <= limit / 8 * 7) unit = slab_->Allocate(units, limit);
    if (unit != 0) break;
    // If few pages can be evicted, one eviction must do: otherwise each load would cost many of
    // them.
    if (has_evicted && StayingBytes() > static_cast<std::int64_t>(limit / 2)) break;
    if (!EvictOne()) break;
  }
  // Beyond the limit, until the next checkpoint has ended.
  if (unit == 0 && must) unit = slab_->Allocate(units);
  if (unit != 0) used_units_.fetch_add(units, std::memory_order_relaxed);
  return unit;
}

// Waits until a checkpoint has made pages evictable, or has ended.
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::WaitForCheckpoint(std::unique_lock<std::mutex>& lock) {
  if (has_failed_) return;  // there may be no disk space for a long time
  if (!is_saving_) ask_();
  // With a timeout: the checkpoint may be waiting for a lock of the caller.
  saved_.wait_for(lock, std::chrono::seconds(1), [this, seen = saves_] { return saves_ != seen; });
}

// Evicts a page. False if a few moves of the hand found none to evict: when most pages are dirty, a
// longer search would cost more than the load. The next call continues where this one ended.
template <File FileT, PageCodec Codec>
bool BufferPool<FileT, Codec>::EvictOne() {
  for (unsigned moves = 0; moves < kMovesMax; ++moves) {
    CoolSome();
    while (!cooling_.empty()) {
      const std::uint32_t id = cooling_.front();
      cooling_.pop_front();
      if (State(id) != kCooling) continue;
      Evict(id);
      return true;
    }
  }
  return false;
}

// Moves the hand on by up to kCooledAtOnce pages, while at most an eighth of all are cooling.
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::CoolSome() {
  for (unsigned steps = 0; steps < kCooledAtOnce && cooling_.size() <= resident_.size() / 8 && !resident_.empty(); ++steps) {
    if (hand_ >= resident_.size()) hand_ = 0;
    const std::uint32_t id = resident_[hand_];
    const std::uint8_t state = State(id);
    if (state == kFree || state == kLong || state == kAway) {
      SetFlag(id, kListed, false);
      resident_[hand_] = resident_.back();
      resident_.pop_back();
      continue;
    }
    ++hand_;
    if ((state != kCached && state != kProbationary) || !LockToGo(id)) continue;
    SetState(id, kCooling);
    HAKO_TRY { state == kProbationary ? cooling_.push_front(id) : cooling_.push_back(id); }
    HAKO_CATCH_NO_MEMORY(SetState(id, state); sync::VersionLock(lines_[id].version).Unlock(false); return;)
  }
}

// Locks a cached page if it may be evicted.
template <File FileT, PageCodec Codec>
bool BufferPool<FileT, Codec>::LockToGo(std::uint32_t id) {
  Line& line = lines_[id];
  const auto can_go = [&] {
    const Shape shape = std::atomic_ref(line.shape).load(std::memory_order_relaxed);
    return shape.level() == 0 && (shape.kind & Shape::kMark) == 0 && !HasFlag(id, kPinned | kHeld) && id != root_;
  };
  if (!can_go() || !sync::VersionLock(line.version).TryLock()) return false;
  if (can_go()) return true;
  sync::VersionLock(line.version).Unlock(false);
  return false;
}

template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::Demote(std::uint32_t id) {
  if (store_->file_bytes() <= limits_.memory_bytes / 8 * 7) return;
  std::lock_guard lock(mutex_);
  behind_.push_back(id);
  for (; behind_.size() > ahead_max(); behind_.pop_front()) {
    if (State(behind_.front()) == kProbationary && LockToGo(behind_.front())) Evict(behind_.front());
  }
}

template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::Evict(std::uint32_t id) {
  Line& line = lines_[id];
  GiveBack(line.unit, line.shape.units);
  Expect(id, 0);
  SetState(id, kAway);  // its line stays locked
}

// The tables have grown, so pages must take less memory: pages beyond the limit move to free memory
// below it.
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::ShrinkMemory() {
  const std::uint64_t limit = PageLimit();
  if (slab_->page_bytes() <= limit) return;
  const std::uint64_t end = limit - limit / 64;
  slab_->Retreat(end);
  std::vector<std::uint32_t> ids;
  {
    std::lock_guard lock(mutex_);
    HAKO_TRY { ids = resident_; }
    HAKO_CATCH_NO_MEMORY()  // then only memory that is free at the end is returned
  }
  for (const std::uint32_t id : ids) {
    Line& line = lines_[id];
    const auto is_behind = [&] {
      const Shape shape = std::atomic_ref(line.shape).load(std::memory_order_relaxed);
      return (std::atomic_ref(line.unit).load(std::memory_order_relaxed) + std::uint64_t{shape.units}) * format::kPageUnit > end;
    };
    if (!is_behind()) continue;
    std::lock_guard lock(mutex_);
    const std::uint8_t state = State(id);
    if (state != kCooling && ((state != kCached && state != kProbationary) || !sync::VersionLock(line.version).TryLock())) continue;
    const std::uint32_t before = line.unit;
    const std::uint32_t unit = is_behind() ? slab_->Allocate(line.shape.units, 0) : 0;
    if (unit != 0) {
      sync::StoreShared(At(unit), At(line.unit), line.shape.size());
      std::atomic_ref(line.unit).store(unit, std::memory_order_relaxed);
      sync::VersionLock(line.version).Advance();  // LoadPage unlocks a cooling page as unchanged
      slab_->Free(before, line.shape.units);
    }
    if (state != kCooling) sync::VersionLock(line.version).Unlock(false);
  }
  slab_->CutEnd();
}

template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::EvictIfNeeded() {
  needs_eviction_.store(false, std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  // There may be no disk space for a long time.
  if (const std::chrono::microseconds pause = Pause(); pause.count() != 0 && !has_failed_) {
    if (!is_saving_) ask_();
    saved_.wait_for(lock, pause, [this] { return Pause().count() == 0; });
  }
  for (unsigned evicted = 0; IsOverLimit() && EvictOne();) {
    if (++evicted < kEvictedAtOnce) continue;
    needs_eviction_.store(true, std::memory_order_relaxed);
    break;
  }
}

}  // namespace hako::tree
