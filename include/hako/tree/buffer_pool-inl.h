// Definitions of tree/buffer_pool.h: making and loading pages.
#pragma once

#include "hako/tree/buffer_pool.h"

namespace hako::tree {

template <File FileT, PageCodec Codec>
auto BufferPool<FileT, Codec>::Create(std::unique_ptr<PageStore<FileT>> store, PoolLimits limits, std::function<void()> ask)
    -> StatusOr<std::unique_ptr<BufferPool>> {
  const std::uint64_t id_capacity = store->pages().id_capacity();
  const std::uint64_t wanted = std::min(limits.memory_bytes, kBytesMax);
  const std::uint64_t small = std::min(limits.memory_bytes / 16, storage::Arena::kSmallUsual);
  HAKO_ASSIGN_OR_RETURN(auto arena, PageArena::Create(wanted + kSpare, small, id_capacity));
  HAKO_ASSIGN_OR_RETURN(auto states, storage::ReservedMemory::Reserve(id_capacity));
  HAKO_ASSIGN_OR_RETURN(auto dirty, storage::ReservedMemory::Reserve(id_capacity));
  // Where the process has little address space, the spare is half of the room for pages.
  const std::uint64_t room = arena->max_page_bytes();
  limits.memory_bytes = std::min(limits.memory_bytes, room - std::min(room / 2, kSpare));
  limits.dirty_bytes = std::min(limits.dirty_bytes, limits.memory_bytes / 2);
  HAKO_RETURN_IF_ERROR(arena->RestorePages(store->super().id_end));
  const format::TreeSuperBlock super = store->super();
  std::unique_ptr<BufferPool> pool(
      new BufferPool(std::move(store), std::move(arena), std::move(states), std::move(dirty), limits, std::move(ask)));
  if (const std::uint32_t root = super.root; root != 0) {
    std::atomic_ref(pool->lines_[root].version).store(sync::VersionLock::kLocked);
    if (limits.kind != nullptr)
      pool->bounds_.Store(root, limits.kind->root_level(), 0);
    else
      pool->bounds_.Store(root, {}, {}, format::PageTail::kNoLow | format::PageTail::kNoHigh);
    HAKO_RETURN_IF_ERROR(pool->LoadPage(root, -1, false));
  }
  // If many ids are free, they are found now and used first; otherwise the first checkpoint finds
  // them.
  const bool is_sparse = super.num_ids != 0 && super.id_end > PageArena::kFirstId + super.num_ids + super.num_ids / 4 + kIdsSpare;
  // The first checkpoint reports an error.
  if (is_sparse && pool->store_->file().IsWritable()) (void)pool->BeginStore();
  return pool;
}

template <File FileT, PageCodec Codec>
std::uint32_t BufferPool<FileT, Codec>::NewPage() {
  const std::uint32_t id = arena_->NewPage();
  if (id == 0) return 0;
  if (!dirty_.TryAddNew(lines_[id])) return arena_->FreePage(id), 0;
  {
    sync::MutexLock lock(states_.mutex);
    if (List(id)) return states_.Set(id, PageStates::kCached), id;
  }
  DirtyPages::StoreMark(lines_[id], 0);
  return arena_->FreePage(id), 0;
}

template <File FileT, PageCodec Codec>
Status BufferPool<FileT, Codec>::LoadPage(std::uint32_t id, int level, bool once) {
  return LoadPage(id, {.level = level, .once = once, .must = true});
}

template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::LoadLeaves(std::span<const std::uint32_t> ids) {
  const std::size_t half = read_ahead_.Request(ids.subspan(ids.size() / 2), 0) ? ids.size() / 2 : ids.size();
  LoadSome(ids.first(half), 0);
}

template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::LoadSome(std::span<const std::uint32_t> ids, int level) {
  if constexpr (BatchFile<FileT>) {
    LoadPages(ids, level, level == 0);
  } else {
    for (const std::uint32_t id : ids) (void)LoadPage(id, {.level = level, .once = level == 0, .must = false});
  }
}

template <File FileT, PageCodec Codec>
Status BufferPool<FileT, Codec>::LoadPage(std::uint32_t id, const HowToInstall& how) {
  Line& line = lines_[id];
  {
    sync::MutexLock lock(states_.mutex);
    while (states_.Of(id) == PageStates::kLoading) loaded_.Wait(states_.mutex);
    if (states_.Of(id) == PageStates::kCooling) {
      states_.Set(id, PageStates::kCached);
      sync::VersionLock(line.version).Unlock(false);
      return absl::OkStatus();
    }
    const bool is_locked = (sync::VersionLock(line.version).ReadVersion() & sync::VersionLock::kLocked) != 0;
    if (states_.Of(id) != PageStates::kEvicted || !is_locked) return absl::OkStatus();
    states_.Set(id, PageStates::kLoading);
  }
  alignas(64) std::byte bytes[kImageRoom];
  const StatusOr<std::size_t> size = CatchNoMemory([&] { return store_->pages().Read(id, std::span(bytes).first(format::kPageImageMax)); });
  Arrived page{id, std::span(bytes).first(size.ok() ? *size : 0), size.status()};
  Install(std::span(&page, 1), how);
  return page.status;
}

template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::LoadPages(std::span<const std::uint32_t> ids, int level, bool once) {
  if constexpr (BatchFile<FileT>) {
    absl::InlinedVector<typename SharedPageMap<FileT>::ImageRequest, 32> images;
    images.reserve(ids.size());
    {
      sync::MutexLock lock(states_.mutex);
      for (const std::uint32_t id : ids) {
        const bool is_locked = (sync::VersionLock(lines_[id].version).ReadVersion() & sync::VersionLock::kLocked) != 0;
        if (states_.Of(id) != PageStates::kEvicted || !is_locked) continue;
        states_.Set(id, PageStates::kLoading);
        images.push_back({id});
      }
    }
    HAKO_TRY { store_->pages().ReadMulti(images); }
    HAKO_CATCH_NO_MEMORY()  // pages that were not read stay evicted
    for (std::size_t i = 0; i < images.size(); i += kInstalledTogether) {
      std::array<Arrived, kInstalledTogether> pages;
      const std::size_t count = std::min(images.size() - i, kInstalledTogether);
      for (std::size_t j = 0; j < count; ++j) pages[j] = {images[i + j].id, images[i + j].image};
      Install(std::span(pages).first(count), {.level = level, .once = once, .must = false});
    }
  }
}

// Installs the images of pages, which are kLoading. A page stays evicted after an error and,
// without `must`, if there is no room for it. Checks and copies without the lock, as these take
// long.
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::Install(std::span<Arrived> pages, const HowToInstall& how) {
  std::byte unpacked[std::same_as<Codec, NoCodec> ? 1 : kImageRoom];
  std::array<std::optional<PageImage>, kInstalledTogether> images;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    StatusOr<PageImage> image = CatchNoMemory([&] { return Parse(pages[i], how.level, unpacked); });
    if (image.ok()) images[i] = *image;
    pages[i].status = image.status();
  }
  {
    sync::MutexLock lock(states_.mutex);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if (!images[i]) continue;
      HAKO_TRY { pages[i].status = FindPlace(pages[i].id, *images[i], how.must, &pages[i].unit); }
      HAKO_CATCH_NO_MEMORY(pages[i].status = NoMemoryError();)  // of an error's text
    }
  }
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (!pages[i].status.ok()) continue;
    Line& line = lines_[pages[i].id];
    images[i]->Store(At(pages[i].unit), line.hints);
    std::atomic_ref(line.unit).store(pages[i].unit, std::memory_order_relaxed);
    std::atomic_ref(line.shape).store(images[i]->shape(), std::memory_order_relaxed);
  }
  sync::MutexLock lock(states_.mutex);
  for (const Arrived& page : pages) {
    states_.Set(page.id, !page.status.ok() ? PageStates::kEvicted : how.once ? PageStates::kProbationary : PageStates::kCached);
    if (!page.status.ok()) continue;
    sync::VersionLock(lines_[page.id].version).Unlock(true);
  }
  loaded_.NotifyAll();
}

// Checks an image, and that its level and fences are those that the tree expects.
template <File FileT, PageCodec Codec>
StatusOr<PageImage> BufferPool<FileT, Codec>::Parse(const Arrived& page, int level, std::span<std::byte> unpacked) const {
  HAKO_RETURN_IF_ERROR(page.status);
  HAKO_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Unpack<Codec>(page.id, page.bytes, unpacked));
  const bool is_other = limits_.kind != nullptr;
  HAKO_ASSIGN_OR_RETURN(PageImage image, is_other ? PageImage::Parse(page.id, bytes, *limits_.kind, arena_->page_end())
                                                  : PageImage::Parse(page.id, bytes, limits_.order, arena_->page_end()));
  if (level >= 0 && image.shape().level() != static_cast<unsigned>(level))
    return absl::DataLossError(absl::StrCat("page ", page.id, ": level does not match the parent"));
  if (is_other) {
    if (bounds_.Match(page.id, image.shape().level(), image.other().number)) return image;
    return absl::DataLossError(absl::StrCat("page ", page.id, ": number does not match the page that names it"));
  }
  if (!bounds_.Match(page.id, image)) return absl::DataLossError(absl::StrCat("page ", page.id, ": fence keys do not match the parent"));
  return image;
}

// Finds memory for a page, and registers its children.
template <File FileT, PageCodec Codec>
Status BufferPool<FileT, Codec>::FindPlace(std::uint32_t id, const PageImage& image, bool must, std::uint32_t* unit) {
  if (!RegisterChildren(image)) return absl::DataLossError(absl::StrCat("page ", id, ": a child has another parent already"));
  *unit = FindMemory(image.shape().units, must);
  if (*unit != 0 && List(id)) return absl::OkStatus();
  if (*unit != 0) GiveBack(*unit, image.shape().units);
  ForgetChildren(image, image.num_children());
  *unit = 0;
  return NoMemoryError();
}

// Registers the children of an inner page. Inner pages are never evicted, so each is loaded once,
// and its children are evicted pages that were not registered yet. From now on their lines are
// locked and hold the hash of their fences. False if a child is registered already or its id is not
// that of an evicted page: then the file is not a tree.
template <File FileT, PageCodec Codec>
bool BufferPool<FileT, Codec>::RegisterChildren(const PageImage& image) {
  const unsigned count = image.num_children();
  PageImage::KeyBuffer buffers[2];
  std::string_view low = limits_.kind == nullptr ? image.low() : std::string_view();
  for (unsigned i = 0; i < count; ++i) {
    const std::uint32_t id = image.ChildId(i);
    std::atomic_ref version(lines_[id].version);
    if (states_.Of(id) != PageStates::kEvicted || (version.load(std::memory_order_relaxed) & sync::VersionLock::kLocked) != 0) {
      ForgetChildren(image, i);
      return false;
    }
    version.fetch_or(sync::VersionLock::kLocked, std::memory_order_relaxed);
    if (limits_.kind != nullptr) {
      bounds_.Store(id, image.shape().level() - 1, limits_.kind->ChildOf(image.other(), i).number);
      continue;
    }
    const bool is_last = i + 1 == count;
    const std::string_view high = is_last ? image.high() : image.Key(i + 1, limits_.order, buffers[i % 2]);
    const unsigned edges =
        (i == 0 ? image.edges() & format::PageTail::kNoLow : 0) | (is_last ? image.edges() & format::PageTail::kNoHigh : 0);
    bounds_.Store(id, low, high, edges);
    low = high;
  }
  return true;
}

// Unregisters the first `count` children.
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::ForgetChildren(const PageImage& image, unsigned count) {
  for (unsigned i = 0; i < count; ++i)
    std::atomic_ref(lines_[image.ChildId(i)].version).fetch_and(~sync::VersionLock::kLocked, std::memory_order_relaxed);
}

template <File FileT, PageCodec Codec>
bool BufferPool<FileT, Codec>::LockPage(std::uint32_t id) {
  for (sync::Backoff backoff; !sync::VersionLock(lines_[id].version).TryLock(); backoff.Pause()) {
    const PageStates::State state = states_.Of(id);
    if (state == PageStates::kCooling)
      (void)LoadPage(id, -1, false);
    else if (!states_.IsInMemory(id))
      return false;
  }
  if (states_.IsInMemory(id)) return true;
  sync::VersionLock(lines_[id].version).Unlock(false);  // an id without a page
  return false;
}

}  // namespace hako::tree
