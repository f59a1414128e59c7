// Definitions of file/block_cache.h: single and multiple requests.
#pragma once

#include "hako/file/block_cache.h"

namespace hako {

// ---- a request ----

template <BlockDevice Device>
Status BlockCache<Device>::Read(std::uint64_t offset, std::span<std::byte> out) {
  const ReadRequest read = {offset, out};
  return ReadMulti(std::span(&read, 1));
}

template <BlockDevice Device>
Status BlockCache<Device>::Write(std::uint64_t offset, std::span<const std::byte> in) {
  const WriteRequest write = {offset, in};
  return WriteMulti(std::span(&write, 1));
}

template <BlockDevice Device>
Status BlockCache<Device>::WriteMulti(std::span<const WriteRequest> writes) {
  HAKO_RETURN_IF_ERROR(failure_.Get());
  for (const WriteRequest& write : writes) {
    auto* const bytes = const_cast<std::byte*>(write.in.data());
    HAKO_RETURN_IF_ERROR(
        ForEachPart(write.offset, bytes, write.in.size(), [&](std::uint64_t from, std::size_t begin, std::size_t size, bool is_long) {
          return is_long ? AccessLong<true>(from, bytes + begin, size) : Access<true>(from, bytes + begin, size);
        }));
  }
  if (dirtied_.load(std::memory_order_relaxed) >= behind_) WakeWriter();
  if (keeps_) return absl::OkStatus();
  absl::InlinedVector<std::uint64_t, 2 * kGroup> blocks;
  for (const WriteRequest& write : writes) {
    const std::uint64_t end = write.in.empty() ? 0 : (write.offset + write.in.size() - 1) / block_size_ + 1;
    for (std::uint64_t block = write.offset / block_size_; block < end; ++block) blocks.push_back(block);
  }
  std::ranges::sort(blocks);
  const Status status = FlushBlocks(blocks);
  for (const WriteRequest& write : writes) ReleaseClean(write.offset, write.in.size());
  return status;
}

template <BlockDevice Device>
template <class F>
Status BlockCache<Device>::ForEachPart(std::uint64_t offset, const std::byte* bytes, std::size_t size, F&& access) {
  const std::size_t usual = request_max_ * block_size_;
  // Whether the rest of the request, from the block that starts here, can bypass the frames.
  const auto is_long = [&](std::size_t begin) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(bytes + begin) % memory_alignment_ == 0;
    return aligned && request_max_ > 1 && size > begin && size - begin > usual;
  };
  for (std::size_t begin = 0; begin < size;) {
    const std::uint64_t from = offset + begin;
    const std::size_t within = from % block_size_, rest = size - begin;
    if (within == 0 && is_long(begin)) {
      const std::size_t part = rest / block_size_ * block_size_;
      HAKO_RETURN_IF_ERROR(access(from, begin, part, true));
      begin += part;
    } else {
      const bool ends_soon = within != 0 && is_long(begin + block_size_ - within);
      const std::size_t part = std::min(rest, (ends_soon ? block_size_ : usual) - within);
      HAKO_RETURN_IF_ERROR(access(from, begin, part, false));
      begin += part;
    }
  }
  return absl::OkStatus();
}

template <BlockDevice Device>
template <bool kWrites>
Status BlockCache<Device>::Access(std::uint64_t offset, std::byte* bytes, std::size_t size) {
  const std::uint64_t first = offset / block_size_;
  const std::size_t count = (offset + size - 1) / block_size_ - first + 1;
  const std::size_t before = offset % block_size_, after = count * block_size_ - before - size;  // bytes of the blocks outside the request
  const std::uint64_t kept = (before > 0 ? 1 : 0) | (after > 0 ? std::uint64_t{1} << (count - 1) : 0);  // blocks changed in part
  std::array<std::uint32_t, kGroup> room;
  const std::span<std::uint32_t> frames = std::span(room).first(count);

  Locks locks(*this, first, first + count - 1);
  for (;;) {
    std::uint64_t missing = 0, fresh = 0;
    Shard* busy = nullptr;
    for (std::size_t i = 0; i < count && busy == nullptr; ++i) {
      Shard& shard = ShardOf(first + i);
      shard.mutex.AssertHeld();
      frames[i] = Find(shard, first + i);
      if (frames[i] == kNone) {
        missing |= std::uint64_t{1} << i;
        if (fresh_.Contains(first + i)) fresh |= std::uint64_t{1} << i;
      } else if (frames_[frames[i]].busy) {
        busy = &shard;
      }
    }
    if (busy != nullptr) {
      locks.Wait(*busy);
      continue;
    }
    if (missing == 0) break;
    if (!failure_.IsOk()) {
      if (kWrites) return failure_.Get();
      locks.Unlock();
      const Status status = CatchNoMemory([&] { return ReadBeside(offset, bytes, size); });
      locks.Lock();
      return status;
    }

    const std::uint64_t wanted = missing & ~fresh & (kWrites ? kept : missing);
    const std::uint64_t taken = wanted != 0 ? wanted : missing;
    std::uint32_t dirty = kNone;
    Shard* full = nullptr;
    if (!TakeFrames(frames, first, taken, &dirty, &full)) {
      if (dirty == kNone) {
        locks.Wait(*full);
        continue;
      }
      locks.Unlock();
      const Status status = CatchNoMemory([&] { return WriteBack(*full, dirty); });
      locks.Lock();
      if (kWrites) HAKO_RETURN_IF_ERROR(status);  // a read tries again
      continue;
    }
    if (wanted == 0) {
      for (std::uint64_t rest = fresh & (kWrites ? kept : fresh); rest != 0; rest &= rest - 1)
        std::memset(Bytes(frames[static_cast<std::size_t>(std::countr_zero(rest))]), 0, block_size_);
      if (fresh != 0) fresh_.Remove(first, first + count);
      break;
    }

    locks.Unlock();
    const Status status = CatchNoMemory([&] { return ReadRuns(first, frames, wanted); });
    locks.Lock();
    for (std::uint64_t rest = wanted; rest != 0; rest &= rest - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(rest));
      Shard& shard = ShardOf(first + i);
      shard.mutex.AssertHeld();
      frames_[frames[i]].busy = false;
      if (!status.ok()) GiveBack(shard, frames[i]);
      shard.changed.NotifyAll();
    }
    HAKO_RETURN_IF_ERROR(status);
  }

  std::size_t dirtied = 0;
  for (std::size_t i = 0, done = 0; i < count; ++i) {
    Frame& frame = frames_[frames[i]];
    const std::size_t begin = i == 0 ? before : 0, part = std::min(block_size_ - begin, size - done);
    if constexpr (kWrites) {
      std::memcpy(Bytes(frames[i]) + begin, bytes + done, part);
      if (!frame.dirty) {
        Shard& shard = ShardOf(first + i);
        shard.mutex.AssertHeld();
        SetDirty(shard, frames[i], true);
        ++dirtied;
      }
    } else {
      std::memcpy(bytes + done, Bytes(frames[i]) + begin, part);
    }
    frame.recent = std::exchange(frame.seen, true);
    frame.busy = false;
    done += part;
  }
  if (dirtied != 0) dirtied_.fetch_add(dirtied, std::memory_order_relaxed);
  return absl::OkStatus();
}

template <BlockDevice Device>
template <bool kWrites>
Status BlockCache<Device>::AccessLong(std::uint64_t offset, std::byte* bytes, std::size_t size) {
  const std::uint64_t first = offset / block_size_, end = first + size / block_size_;
  const iovec part = {bytes, size};
  if constexpr (kWrites) {
    fresh_.Remove(first, end);
    Forget(first, end);  // no dirty block may be written after this
    const Status status = device_.Write({offset, std::span(&part, 1)});
    Forget(first, end);  // drop blocks that were read meanwhile
    return status;
  } else {
    std::vector<std::uint64_t> blocks;
    for (std::uint64_t block = first; block < end; ++block) {
      Shard& shard = ShardOf(block);
      sync::MutexLock lock(shard.mutex);
      if (const std::uint32_t frame = Find(shard, block); frame != kNone && frames_[frame].dirty) blocks.push_back(block);
    }
    if (!failure_.IsOk() || !FlushBlocks(blocks).ok()) return ReadBeside(offset, bytes, size);
    return device_.Read({offset, std::span(&part, 1)});
  }
}

template <BlockDevice Device>
Status BlockCache<Device>::ReadDevice(std::uint64_t offset, std::span<std::byte> out) {
  static constexpr std::size_t kPiece = 256 << 10;
  const AlignedBuffer buffer = MakeAlignedBuffer(std::min(kPiece, out.size()) + 2 * block_size_);
  for (std::size_t done = 0, size; done < out.size(); done += size) {
    size = std::min(kPiece, out.size() - done);
    const std::size_t before = (offset + done) % block_size_;
    const std::size_t whole = (before + size + block_size_ - 1) / block_size_ * block_size_;
    HAKO_RETURN_IF_ERROR(AccessLong<false>(offset + done - before, buffer.get(), whole));
    std::memcpy(out.data() + done, buffer.get() + before, size);
  }
  return absl::OkStatus();
}

// Frees the clean frames of these bytes if the cache keeps no blocks.
template <BlockDevice Device>
void BlockCache<Device>::ReleaseClean(std::uint64_t offset, std::size_t size) {
  if (size == 0) return;
  for (std::uint64_t block = offset / block_size_; block <= (offset + size - 1) / block_size_; ++block) {
    Shard& shard = ShardOf(block);
    sync::MutexLock lock(shard.mutex);
    const std::uint32_t frame = Find(shard, block);
    if (frame != kNone && !frames_[frame].busy && !frames_[frame].dirty) GiveBack(shard, frame);
  }
}

// Takes frames for the blocks whose bits are set in `which`, and makes them linked and busy. If a
// shard has too few frames, takes none, sets *full to the shard, and *dirty to a frame of the shard
// that must be written first, or kNone if all are busy.
template <BlockDevice Device>
bool BlockCache<Device>::TakeFrames(std::span<std::uint32_t> frames, std::uint64_t first, std::uint64_t which, std::uint32_t* dirty,
                                    Shard** full) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if ((which >> i & 1) == 0 && frames[i] != kNone) frames_[frames[i]].busy = true;  // so that it is not taken
  }
  std::uint64_t taken = 0;
  for (std::uint64_t rest = which; rest != 0 && *full == nullptr; rest &= rest - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(rest));
    Shard& shard = ShardOf(first + i);
    shard.mutex.AssertHeld();
    frames[i] = TakeFrame(shard, dirty);
    if (frames[i] == kNone) {
      *full = &shard;
    } else {
      Link(shard, frames[i], first + i);
      frames_[frames[i]].busy = true;
      taken |= std::uint64_t{1} << i;
    }
  }
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if ((which >> i & 1) == 0 && frames[i] != kNone) frames_[frames[i]].busy = false;
    if (*full == nullptr || (taken >> i & 1) == 0) continue;
    Shard& shard = ShardOf(first + i);
    shard.mutex.AssertHeld();
    GiveBack(shard, frames[i]);
  }
  return *full == nullptr;
}

// Takes a frame that is not busy. If `dirty` is nullptr, takes a clean frame. Otherwise takes the
// next frame in CLOCK order; if that frame is dirty, takes none and returns it in *dirty.
template <BlockDevice Device>
std::uint32_t BlockCache<Device>::TakeFrame(Shard& shard, std::uint32_t* dirty) {
  if (const std::uint32_t frame = shard.free; frame != kNone) {
    shard.free = std::exchange(frames_[frame].next, kNone);
    return frame;
  }
  if (shard.unused != shard.end) {
    std::construct_at(&frames_[shard.unused]);
    if (num_used_.fetch_add(1, std::memory_order_relaxed) == kFewFrames) AdviseHugePages(memory_.get(), num_frames_ * block_size_);
    return shard.unused++;
  }
  for (std::uint32_t steps = 0; steps < 2 * (shard.end - shard.first); ++steps) {
    const std::uint32_t frame = shard.hand;
    if (++shard.hand == shard.end) shard.hand = shard.first;
    Frame& content = frames_[frame];
    if (content.busy || content.block == kNoBlock) continue;
    if (std::exchange(content.recent, false)) continue;
    if (content.dirty) {
      if (dirty == nullptr) continue;
      *dirty = frame;
      return kNone;
    }
    HAKO_DCHECK(!content.dirty && !content.busy);  // invariants 2 and 3
    Unlink(shard, frame);
    return frame;
  }
  return kNone;
}

// Reads the wanted blocks, which are busy, by as few transfers as possible. Each block in a gap is
// read into separate scratch memory: if gaps shared memory, a file system that verifies data after
// a read could find the bytes of another block there.
template <BlockDevice Device>
Status BlockCache<Device>::ReadRuns(std::uint64_t first, std::span<const std::uint32_t> frames, std::uint64_t wanted) {
  std::array<iovec, kGroup> parts;
  std::size_t num_gaps = 0;
  for (std::uint64_t rest = wanted; rest != 0; rest &= rest - 1) {
    const auto gap = static_cast<std::size_t>(std::countr_zero(rest & (rest - 1)) - std::countr_zero(rest) - 1);
    if ((rest & (rest - 1)) != 0 && gap <= kGap) num_gaps += gap;
  }
  ScratchBuffer& scratch = ThreadScratch<BlockCache>::Get();
  const ScratchUse use(scratch);
  auto* gap = num_gaps == 0 ? nullptr : reinterpret_cast<std::byte*>(scratch.Take(num_gaps * block_size_));
  const std::size_t gap_max = gap != nullptr ? kGap : 0;  // without scratch memory each run is read separately
  while (wanted != 0) {
    const auto begin = static_cast<std::size_t>(std::countr_zero(wanted));
    std::size_t count = 0;
    for (std::uint64_t rest = wanted >> begin << begin, end = begin; rest != 0; rest &= rest - 1) {
      const auto next = static_cast<std::size_t>(std::countr_zero(rest));
      if (next - end > gap_max) break;
      for (; end < next; ++end, gap += block_size_) parts[count++] = {gap, block_size_};
      std::byte* const to = Bytes(frames[next]);
      if (count != 0 && EndsAt(parts[count - 1], to))
        parts[count - 1].iov_len += block_size_;
      else
        parts[count++] = {to, block_size_};
      end = next + 1;
      wanted &= ~(std::uint64_t{1} << next);
    }
    HAKO_RETURN_IF_ERROR(device_.Read({(first + begin) * block_size_, std::span(parts).first(count)}));
  }
  return absl::OkStatus();
}

// ---- many requests ----

template <BlockDevice Device>
Status BlockCache<Device>::ReadMulti(std::span<const ReadRequest> reads) {
  for (; !reads.empty(); reads = reads.subspan(std::min(reads.size(), kAtOnce)))
    HAKO_RETURN_IF_ERROR(ReadTogether(reads.first(std::min(reads.size(), kAtOnce))));
  return absl::OkStatus();
}

// Reads the missing blocks of the requests together, as far as frames allow. Repeats failed reads
// one by one, and returns only errors of the repeated reads. The thread does not wait while it has
// busy frames.
template <BlockDevice Device>
Status BlockCache<Device>::ReadTogether(std::span<const ReadRequest> reads) {
  if (reads.size() > 1 && request_max_ > 1 && failure_.IsOk()) {
    Batch batch(*this);
    for (const ReadRequest& read : reads) Claim(read, &batch);
    const bool succeeded = batch.IsEmpty() || CatchNoMemory([&] { return device_.ReadMulti(batch.transfers()); }).ok();
    MakeIdle(batch.blocks(), [&](Shard& shard, std::uint32_t frame) {
      shard.mutex.AssertHeld();
      if (!succeeded) GiveBack(shard, frame);
    });
  }
  Status status;
  for (const ReadRequest& read : reads) {
    status.Update(ForEachPart(
        read.offset, read.out.data(), read.out.size(), [&](std::uint64_t from, std::size_t begin, std::size_t size, bool is_long) {
          return is_long ? AccessLong<false>(from, read.out.data() + begin, size) : Access<false>(from, read.out.data() + begin, size);
        }));
  }
  for (const ReadRequest& read : reads) {  // only after all are done, because they may share blocks
    if (!keeps_) ReleaseClean(read.offset, read.out.size());
  }
  return status;
}

// Takes frames for the missing blocks of the request, and adds them to the batch.
template <BlockDevice Device>
void BlockCache<Device>::Claim(const ReadRequest& read, Batch* batch) {
  if (read.out.empty() || read.out.size() > request_max_ * block_size_) return;  // long requests bypass the frames
  const std::uint64_t last = (read.offset + read.out.size() - 1) / block_size_;
  for (std::uint64_t block = read.offset / block_size_; block <= last && batch->HasRoomFor(block); ++block) {
    Shard& shard = ShardOf(block);
    sync::MutexLock lock(shard.mutex);
    if (Find(shard, block) != kNone || fresh_.Contains(block)) continue;
    const std::uint32_t frame = TakeFrame(shard, nullptr);
    if (frame == kNone) return;
    Link(shard, frame, block);
    frames_[frame].busy = true;
    batch->Add(block, Bytes(frame));
  }
}

// Calls visit(shard, frame) for each of these blocks, which this thread made busy, and ends their
// busy state.
template <BlockDevice Device>
template <class F>
void BlockCache<Device>::MakeIdle(std::span<const std::uint64_t> blocks, F&& visit) {
  for (const std::uint64_t block : blocks) {
    Shard& shard = ShardOf(block);
    sync::MutexLock lock(shard.mutex);
    const std::uint32_t frame = Find(shard, block);
    HAKO_DCHECK(frame != kNone && frames_[frame].busy);  // invariant 2
    frames_[frame].busy = false;
    visit(shard, frame);
    shard.changed.NotifyAll();
  }
}

}  // namespace hako

#include "hako/file/block_cache_write-inl.h"
