// Definitions of file/block_cache.h: write-back, and reads after a failed write.
#pragma once

#include "hako/file/block_cache.h"

namespace hako {

// Writes a dirty frame, and the frames of its shard that would have to be written next, each with
// its dirty neighbours.
template <BlockDevice Device>
Status BlockCache<Device>::WriteBack(Shard& shard, std::uint32_t victim) {
  std::array<std::uint64_t, kAtOnce / 2> blocks;
  std::size_t count = 0;
  {
    sync::MutexLock lock(shard.mutex);
    std::uint32_t frame = victim;
    for (std::uint32_t steps = 0; steps < (shard.end - shard.first) / 2 && count < blocks.size(); ++steps) {
      const Frame& content = frames_[frame];
      if (content.dirty && !content.busy && !content.recent) blocks[count++] = content.block;
      if (++frame == shard.end) frame = shard.first;
    }
  }
  Batch batch(*this);
  for (const std::uint64_t block : std::span(blocks).first(request_max_ == 1 ? std::min<std::size_t>(count, 1) : count)) {
    // Start at the first block of the unbroken run of dirty blocks before this one, within the
    // group.
    std::uint64_t first = block;
    {
      sync::MutexLock lock(shard.mutex);
      const auto can_go = [&](std::uint64_t other) {
        shard.mutex.AssertHeld();
        const std::uint32_t found = Find(shard, other);
        return found != kNone && frames_[found].dirty && !frames_[found].busy;
      };
      while (run_max_ > 1 && first > block / kGroup * kGroup && can_go(first - 1)) --first;
    }
    ClaimDirty(first, &batch);
    if (batch.IsFull() || batch.num_blocks() >= run_max_) break;
  }
  return batch.IsEmpty() ? absl::OkStatus() : WriteBatch(&batch);
}

// Makes consecutive dirty blocks from `first` on busy, and adds them to the batch.
template <BlockDevice Device>
void BlockCache<Device>::ClaimDirty(std::uint64_t first, Batch* batch) {
  std::size_t count = 0;
  for (std::uint64_t block = first; count < run_max_ && batch->HasRoomFor(block); ++block, ++count) {
    Shard& shard = ShardOf(block);
    sync::MutexLock lock(shard.mutex);
    const std::uint32_t frame = Find(shard, block);
    if (frame == kNone || !frames_[frame].dirty || frames_[frame].busy) return;
    frames_[frame].busy = true;
    batch->Add(block, Bytes(frame));
  }
}

// If a device call runs out of memory, the blocks stay dirty and are written later.
template <BlockDevice Device>
Status BlockCache<Device>::WriteBatch(Batch* batch) {
  const auto transfers = batch->transfers();
  Status status;
  bool has_memory = true;
  HAKO_TRY { status = transfers.size() == 1 ? device_.Write(transfers[0]) : device_.WriteMulti(transfers); }
  HAKO_CATCH_NO_MEMORY(has_memory = false; status = NoMemoryError();)
  MakeIdle(batch->blocks(), [&](Shard& shard, std::uint32_t frame) {
    shard.mutex.AssertHeld();
    if (status.ok()) SetDirty(shard, frame, false);
  });
  batch->Clear();
  if (!status.ok() && has_memory) failure_.Set(status);
  return status;
}

// Does nothing if the writer is awake. If the writer is just going to sleep, the next call wakes
// it.
template <BlockDevice Device>
void BlockCache<Device>::WakeWriter() {
  if (writer_is_up_.load(std::memory_order_relaxed) || writer_is_up_.exchange(true)) return;
  if (writer_ == nullptr) {
    auto started = sync::BackgroundThread::Start({}, [this] { WriteBehind(); });
    if (!started.ok()) return;  // continue without a writer
    writer_ = *std::move(started);
  }
  writer_->Wake();
}

// The writer thread.
template <BlockDevice Device>
void BlockCache<Device>::WriteBehind() {
  while (dirtied_.load(std::memory_order_relaxed) >= behind_ && CatchNoMemory([this] { return WriteIdleBlocks(); }).ok()) {
  }
  writer_is_up_.store(false);
}

// Writes dirty blocks that were not requested again, in file order, each with the dirty blocks that
// follow it.
template <BlockDevice Device>
Status BlockCache<Device>::WriteIdleBlocks() {
  dirtied_.store(0, std::memory_order_relaxed);
  const auto blocks = DirtyBlocks([](const Frame& frame) { return !frame.busy && !frame.recent; });
  if (blocks.size() < num_frames_ / 8) return absl::OkStatus();  // already written by others
  Batch batch(*this);
  for (const std::uint64_t block : blocks) {
    if (batch.IsFull()) HAKO_RETURN_IF_ERROR(WriteBatch(&batch));
    ClaimDirty(block, &batch);
  }
  return batch.IsEmpty() ? absl::OkStatus() : WriteBatch(&batch);
}

// Returns, in ascending order, the dirty blocks for whose frames `is_wanted` holds.
template <BlockDevice Device>
template <class F>
std::vector<std::uint64_t> BlockCache<Device>::DirtyBlocks(F&& is_wanted) const {
  std::vector<std::uint64_t> blocks;
  for (std::size_t i = 0; i < num_shards_; ++i) {
    const Shard& shard = shards_[i];
    sync::MutexLock lock(shard.mutex);
    for (std::size_t word = 0; word < shard.dirty.size(); ++word) {
      for (std::uint64_t rest = shard.dirty[word]; rest != 0; rest &= rest - 1) {
        const Frame& frame = frames_[shard.first + word * 64 + static_cast<std::size_t>(std::countr_zero(rest))];
        if (is_wanted(frame)) blocks.push_back(frame.block);
      }
    }
  }
  std::ranges::sort(blocks);
  return blocks;
}

template <BlockDevice Device>
Status BlockCache<Device>::Flush() {
  HAKO_RETURN_IF_ERROR(failure_.Get());
  Status status = FlushBlocks(DirtyBlocks([](const Frame&) { return true; }));
  return status.ok() ? failure_.Get() : status;  // another thread may have failed meanwhile
}

// Waits until no thread has the block's frame busy, and returns the frame, or kNone.
// REQUIRES: this thread has no busy frame (unchecked: no frame names its thread)
template <BlockDevice Device>
std::uint32_t BlockCache<Device>::FindIdle(Shard& shard, std::uint64_t block) {
  std::uint32_t frame;
  while ((frame = Find(shard, block)) != kNone && frames_[frame].busy) shard.changed.Wait(shard.mutex);
  return frame;
}

// Writes those of the blocks, which ascend, that are dirty.
template <BlockDevice Device>
Status BlockCache<Device>::FlushBlocks(std::span<const std::uint64_t> blocks) {
  Batch batch(*this);
  for (const std::uint64_t block : blocks) {
    if (!batch.HasRoomFor(block)) HAKO_RETURN_IF_ERROR(WriteBatch(&batch));
    Shard& shard = ShardOf(block);
    sync::MutexLock lock(shard.mutex);
    std::uint32_t frame = Find(shard, block);
    // Another thread has the frame busy. This thread may only wait if it has no busy frame itself.
    if (frame != kNone && frames_[frame].busy && !batch.IsEmpty()) {
      sync::MutexUnlock unlocked(shard.mutex);
      HAKO_RETURN_IF_ERROR(WriteBatch(&batch));
    }
    frame = FindIdle(shard, block);
    if (frame == kNone || !frames_[frame].dirty) continue;
    frames_[frame].busy = true;
    batch.Add(block, Bytes(frame));
  }
  return batch.IsEmpty() ? absl::OkStatus() : WriteBatch(&batch);
}

// Drops these blocks from all frames, clean or dirty.
template <BlockDevice Device>
void BlockCache<Device>::Forget(std::uint64_t first, std::uint64_t end) {
  for (std::uint64_t block = first; block < end; ++block) {
    Shard& shard = ShardOf(block);
    sync::MutexLock lock(shard.mutex);
    if (const std::uint32_t frame = FindIdle(shard, block); frame != kNone) GiveBack(shard, frame);
  }
}

template <BlockDevice Device>
void BlockCache<Device>::Drop(std::uint64_t offset) {
  HAKO_DCHECK(offset % block_size_ == 0);
  const std::uint64_t first = offset / block_size_;
  for (std::size_t i = 0; i < num_shards_; ++i) {
    Shard& shard = shards_[i];
    sync::MutexLock lock(shard.mutex);
    for (std::uint32_t frame = shard.first; frame < shard.unused; ++frame) {
      while (frames_[frame].busy) shard.changed.Wait(shard.mutex);  // the writer thread may have it
      if (frames_[frame].block != kNoBlock && frames_[frame].block >= first) GiveBack(shard, frame);
    }
  }
}

// Reads after a failed write. The cache may have no clean frame, so the read does not change it: it
// copies bytes from existing frames and reads the rest into separate memory.
template <BlockDevice Device>
Status BlockCache<Device>::ReadBeside(std::uint64_t offset, std::byte* bytes, std::size_t size) {
  ScratchBuffer& scratch = ThreadScratch<BlockCache>::Get();
  const ScratchUse use(scratch);
  while (size != 0) {
    const std::uint64_t first = offset / block_size_, before = offset % block_size_;
    const std::size_t part = std::min(size, kGroup * block_size_ - before), count = (before + part - 1) / block_size_ + 1;
    auto* const room = reinterpret_cast<std::byte*>(scratch.Take(count * block_size_));
    if (room == nullptr) return NoMemoryError();
    std::uint64_t missing = 0;
    for (std::size_t i = 0; i < count; ++i) {
      Shard& shard = ShardOf(first + i);
      sync::MutexLock lock(shard.mutex);
      std::byte* const block = room + i * block_size_;
      if (const std::uint32_t frame = FindIdle(shard, first + i); frame != kNone) {
        std::memcpy(block, Bytes(frame), block_size_);
      } else if (fresh_.Contains(first + i)) {
        std::memset(block, 0, block_size_);
      } else {
        missing |= std::uint64_t{1} << i;
      }
    }
    while (missing != 0) {
      const auto begin = static_cast<std::size_t>(std::countr_zero(missing));
      const auto run = static_cast<std::size_t>(std::countr_one(missing >> begin));
      const iovec to = {room + begin * block_size_, run * block_size_};
      HAKO_RETURN_IF_ERROR(device_.Read({(first + begin) * block_size_, std::span(&to, 1)}));
      missing &= ~(((std::uint64_t{1} << run) - 1) << begin);
    }
    std::memcpy(bytes, room + before, part);
    offset += part, bytes += part, size -= part;
  }
  return absl::OkStatus();
}

}  // namespace hako
