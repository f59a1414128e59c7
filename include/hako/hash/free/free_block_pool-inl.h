// Definitions of hash/free/free_block_pool.h: what happens under the mutex.
#pragma once

#include "hako/hash/free/free_block_pool.h"

namespace hako::hash {

template <class F>
void FreeBlockPool::FreeGap(Cache& cache, Run run, F&& visit) {
  if (run.bytes() >= kRunMin) {
    FreeRun(run);
    return;
  }
  // Cut the run into the largest blocks that fit and do not cross the end of a region.
  while (run.bytes() >> shift_ != 0) {
    const std::uint64_t most = std::min(run.end, FreeRegions::EndOf(run.begin)) - run.begin;
    unsigned size_class = std::min(format::SizeClassOf(most >> shift_), last_small_);
    while (BytesOf(size_class) > most) --size_class;
    const auto handle = static_cast<std::uint32_t>(run.begin >> shift_);
    visit(handle, BytesOf(size_class));
    Push(cache, size_class, handle);
    run.begin += BytesOf(size_class);
  }
}

inline Run FreeBlockPool::TakeBlock(std::uint64_t bytes, std::uint64_t alignment) {
  const std::uint64_t unit = std::uint64_t{1} << shift_;
  alignment = std::max(alignment, unit);
  sync::MutexLock lock(mutex_);
  const Run found = FindRun(bytes + alignment - unit);
  if (found.bytes() == 0) return {};
  const std::uint64_t begin = (found.begin + alignment - 1) & ~(alignment - 1);
  if (handed_out_ != nullptr) handed_out_->Add(begin >> shift_);
  return regions_.Take({begin, begin + bytes});
}

inline ChunkRest FreeBlockPool::TakeChunk(std::uint64_t bytes, std::uint64_t most) {
  HAKO_DCHECK(bytes <= kRegion / 4);
  sync::MutexLock lock(mutex_);
  Run run = FindRun(std::max(2 * bytes, kRunMin));
  if (run.bytes() == 0) return {};
  if (FreeRegions::EndOf(run.begin) - run.begin < bytes) run.begin = FreeRegions::EndOf(run.begin);
  run.end = std::min({run.end, FreeRegions::EndOf(run.begin), run.begin + std::max(most, 2 * bytes)});
  if (handed_out_ != nullptr) handed_out_->Add(run.begin >> shift_, run.end >> shift_);
  regions_.Take(run);
  return {run.begin, run.end};
}

inline Run FreeBlockPool::TakeSmallBlock(unsigned first, unsigned size_class) {
  sync::MutexLock lock(mutex_);
  CountAll();
  for (unsigned list = first + size_class; list <= first + last_small_; ++list) {
    for (std::uint32_t m; (m = magazines_[list]) != 0;) {
      Magazine& magazine = At(m);
      while (magazine.count != 0) {
        const Run block = BlockAt(list, magazine.handles[--magazine.count]);
        if (list < kUnstamped && !IsCurrent(magazine, block)) continue;
        if (list < kUnstamped && FreeRegions::CanBeListed(block)) regions_.Unlist(block);
        if (handed_out_ != nullptr) handed_out_->Add(block.begin >> shift_, block.end >> shift_);
        return block;
      }
      store_.Recycle(TakeFrom(list, magazines_[list]));
    }
  }
  return {};
}

template <class IsInside, class F>
void FreeBlockPool::TakeAll(const std::vector<Run>& ranges, IsInside&& is_inside, F&& visit) {
  sync::MutexLock lock(mutex_);
  CountAll();
  for (unsigned list = kFree; list < kUnstamped; ++list) {
    VisitList(list, [&](std::uint32_t handle) {
      if (!is_inside(handle)) return;
      const Run block = BlockAt(list, handle);
      mutex_.AssertHeld();
      if (FreeRegions::CanBeListed(block)) regions_.Unlist(block);
      visit(block);
    });
  }
  for (const Run range : ranges) regions_.TakeAll(range, visit);
}

inline bool FreeBlockPool::CountSome() {
  if (num_uncounted_ == 0) return false;
  { sync::MutexUnlock unlocked(mutex_); }
  std::uint32_t left = kCountedAtOnce;
  for (unsigned list = kFree; list < kUnstamped && left != 0; ++list) {
    for (; uncounted_[list] != 0 && left != 0; --left) {
      const std::uint32_t m = TakeUncounted(list);
      CountIn(list, At(m));
      Link(list, m, &magazines_[list]);
      UpdateHas(list);
    }
  }
  return true;
}

inline void FreeBlockPool::Leave(unsigned list, Magazine& magazine) {
  std::uint16_t kept = 0;
  for (std::uint32_t i = 0; i < magazine.count; ++i) {
    const Run block = BlockAt(list, magazine.handles[i]);
    if (!IsCurrent(magazine, block)) continue;
    magazine.handles[kept++] = magazine.handles[i];
    if (FreeRegions::CanBeListed(block)) regions_.Unlist(block);
  }
  magazine.count = kept;
}

[[gnu::noinline]] inline void FreeBlockPool::Enter(unsigned list, std::uint32_t m) {
  Magazine& magazine = At(m);
  magazine.renewals = regions_.renewals();
  const bool counts_later = list < kUnstamped && num_uncounted_ < kUncountedMax;
  if (counts_later) {
    ++num_uncounted_;
    uncounted_bytes_ += magazine.count * BytesOf(list);
  } else if (list < kUnstamped) {
    CountIn(list, magazine);
  }
  Link(list, m, counts_later ? &uncounted_[list] : &magazines_[list]);
  UpdateHas(list);
}

// Keeps only current blocks, because the joined magazine has one number of renewals. Even blocks of
// `m` may be outdated, because counting them may have renewed their region.
inline void FreeBlockPool::Link(unsigned list, std::uint32_t m, std::uint32_t* chain) {
  Magazine& added = At(m);
  if (joins_ && list < kUnstamped && *chain != 0 && At(*chain).count + added.count <= At(*chain).limit) {
    Magazine& first = At(*chain);
    first.count = KeepCurrent(list, first, first.handles);
    first.count = static_cast<std::uint16_t>(first.count + KeepCurrent(list, added, first.handles + first.count));
    first.renewals = regions_.renewals();
    if (chain == &uncounted_[list]) --num_uncounted_;
    store_.Recycle(m);
    return;
  }
  added.next = *chain;
  *chain = m;
}

inline void FreeBlockPool::CountIn(unsigned list, const Magazine& magazine) {
  for (std::uint32_t i = 0; i < magazine.count; ++i) {
    const Run block = BlockAt(list, magazine.handles[i]);
    if (FreeRegions::CanBeListed(block)) regions_.List(block);
  }
}

inline void FreeBlockPool::DropOutdated() {
  sync::MutexLock lock(mutex_);
  for (unsigned list = kFree; list < kUnstamped; ++list) {
    for (std::uint32_t chain = std::exchange(magazines_[list], 0), next; chain != 0; chain = next) {
      next = At(chain).next;
      Magazine& magazine = At(chain);
      magazine.count = KeepCurrent(list, magazine, magazine.handles);
      magazine.count != 0 ? Link(list, chain, &magazines_[list]) : store_.Recycle(chain);
    }
    UpdateHas(list);
  }
}

inline bool FreeBlockPool::TakePart(Run range) {
  sync::MutexLock lock(mutex_);
  CountAll();
  if (!regions_.IsFree(range)) return false;
  regions_.Take(range);
  return true;
}

[[gnu::noinline]] inline bool FreeBlockPool::Refill(Cache& cache, unsigned list) {
  sync::MutexLock lock(mutex_);
  for (;;) {
    const bool is_uncounted = list < kUnstamped && uncounted_[list] != 0;
    if (!is_uncounted && magazines_[list] == 0) return false;
    const std::uint32_t next = is_uncounted ? TakeUncounted(list) : TakeFrom(list, magazines_[list]);
    if (list < kUnstamped && !is_uncounted) Leave(list, At(next));
    for (std::uint32_t i = 0; handed_out_ != nullptr && i < At(next).count; ++i) handed_out_->Add(At(next).handles[i]);
    if (At(next).count == 0) {
      store_.Recycle(next);
      continue;
    }
    std::uint32_t& full = cache.full[list];
    if (full != 0) store_.Recycle(full);
    full = next;
    return true;
  }
}

[[gnu::noinline]] inline bool FreeBlockPool::MakeRoom(Cache& cache, unsigned list) {
  std::uint32_t& full = cache.full[list];
  std::uint32_t& given = cache.given[list];
  HAKO_DCHECK(given == 0 || At(given).count == At(given).limit);
  if (full == 0 || At(full).count == 0) std::swap(full, given);
  if (given != 0 && At(given).count == 0) return true;
  sync::MutexLock lock(mutex_);
  const std::uint32_t fresh = store_.New(LimitOf(list));
  if (fresh == 0) return false;
  if (given != 0) Enter(list, given);
  given = fresh;
  return true;
}

}  // namespace hako::hash
