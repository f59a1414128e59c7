// Definitions of file/block_cache.h.
#pragma once

#include "hako/file/block_cache.h"

namespace hako {

template <BlockDevice Device>
template <bool kWrites>
Status BlockCache<Device>::Access(std::uint64_t offset, std::byte* bytes, std::size_t size) {
  const std::uint64_t first = offset / block_size_;
  const std::size_t count = (offset + size - 1) / block_size_ - first + 1;
  const std::size_t before = offset % block_size_, after = count * block_size_ - before - size;  // bytes of the blocks that are not wanted
  const std::uint64_t kept = (before > 0 ? 1 : 0) | (after > 0 ? std::uint64_t{1} << (count - 1) : 0);  // parts of these stay
  std::array<std::uint32_t, kGroup> room;
  const std::span<std::uint32_t> frames = std::span(room).first(count);

  Locks locks(*this, first, first + count - 1);
  for (;;) {
    std::uint64_t missing = 0;
    Shard* busy = nullptr;
    for (std::size_t i = 0; i < count && busy == nullptr; ++i) {
      frames[i] = Find(ShardOf(first + i), first + i);
      if (frames[i] == kNone)
        missing |= std::uint64_t{1} << i;
      else if (frames_[frames[i]].busy)
        busy = &ShardOf(first + i);
    }
    if (busy != nullptr) {
      locks.Wait(*busy);
      continue;
    }

    const std::uint64_t wanted = kWrites ? missing & kept : missing;
    const std::uint64_t taken = wanted != 0 ? wanted : missing;
    std::uint32_t dirty = kNone;
    Shard* full = nullptr;
    if (!TakeFrames(frames, first, taken, &dirty, &full)) {
      if (dirty == kNone)
        locks.Wait(*full);
      else
        HAKO_RETURN_IF_ERROR(WriteAround(dirty, locks));
      continue;
    }
    if (wanted == 0) break;

    locks.Unlock();
    const Status status = ReadRuns(first, frames, wanted);
    locks.Lock();
    for (std::uint64_t rest = wanted; rest != 0; rest &= rest - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(rest));
      Shard& shard = ShardOf(first + i);
      frames_[frames[i]].busy = false;
      if (!status.ok()) GiveBack(shard, frames[i]);
      shard.changed.notify_all();
    }
    HAKO_RETURN_IF_ERROR(status);
  }

  for (std::size_t i = 0, done = 0; i < count; ++i) {
    Frame& frame = frames_[frames[i]];
    const std::size_t begin = i == 0 ? before : 0, part = std::min(block_size_ - begin, size - done);
    if constexpr (kWrites) {
      std::memcpy(Bytes(frames[i]) + begin, bytes + done, part);
      frame.dirty = true;
    } else {
      std::memcpy(bytes + done, Bytes(frames[i]) + begin, part);
    }
    frame.recent = std::exchange(frame.seen, true);
    frame.busy = false;
    done += part;
  }
  return absl::OkStatus();
}

// Frames for the blocks of the bits in `which`, linked and busy; none if there is no room for all of them: then *dirty is one that has to
// be written first, or all frames of *full are busy.
template <BlockDevice Device>
bool BlockCache<Device>::TakeFrames(std::span<std::uint32_t> frames, std::uint64_t first, std::uint64_t which, std::uint32_t* dirty,
                                    Shard** full) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if ((which >> i & 1) == 0 && frames[i] != kNone) frames_[frames[i]].busy = true;  // lest it be taken
  }
  std::uint64_t taken = 0;
  for (std::uint64_t rest = which; rest != 0 && *full == nullptr; rest &= rest - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(rest));
    Shard& shard = ShardOf(first + i);
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
    if (*full != nullptr && (taken >> i & 1) != 0) GiveBack(ShardOf(first + i), frames[i]);
  }
  return *full == nullptr;
}

template <BlockDevice Device>
std::uint32_t BlockCache<Device>::TakeFrame(Shard& shard, std::uint32_t* dirty) {
  if (!shard.free.empty()) {
    const std::uint32_t frame = shard.free.back();
    shard.free.pop_back();
    return frame;
  }
  for (std::size_t steps = 0; steps < 2 * shard.frames.size(); ++steps) {
    const std::uint32_t frame = shard.frames[shard.hand++ % shard.frames.size()];
    Frame& content = frames_[frame];
    if (content.busy || content.block == kNoBlock) continue;
    if (std::exchange(content.recent, false)) continue;
    if (content.dirty) {
      *dirty = frame;
      return kNone;
    }
    Unlink(shard, frame);
    return frame;
  }
  return kNone;
}

// Reads the wanted blocks, which are busy, by as few transfers as there can be.
template <BlockDevice Device>
Status BlockCache<Device>::ReadRuns(std::uint64_t first, std::span<const std::uint32_t> frames, std::uint64_t wanted) {
  std::array<iovec, kGroup> parts;
  while (wanted != 0) {
    const auto begin = static_cast<std::size_t>(std::countr_zero(wanted));
    std::size_t end = begin;
    for (std::size_t i = begin; i < frames.size() && i <= end + kGap; ++i) {
      const bool is_wanted = (wanted >> i & 1) != 0;
      parts[i - begin] = {is_wanted ? Bytes(frames[i]) : scratch(), block_size_};
      if (is_wanted) end = i + 1;
    }
    HAKO_RETURN_IF_ERROR(device_.ReadBlocks((first + begin) * block_size_, std::span(parts).first(end - begin)));
    wanted = wanted >> end << end;
  }
  return absl::OkStatus();
}

// Writes a dirty block, with those of its group that are dirty on both sides of it.
template <BlockDevice Device>
Status BlockCache<Device>::WriteAround(std::uint32_t frame, Locks& locks) {
  const std::uint64_t block = frames_[frame].block, group = block / kGroup * kGroup;
  const auto can_go = [&](std::uint64_t other) {
    const std::uint32_t found = Find(ShardOf(block), other);
    return found != kNone && frames_[found].dirty && !frames_[found].busy;
  };
  std::uint64_t first = block, end = block + 1;
  while (first > group && can_go(first - 1)) --first;
  while (end < group + kGroup && can_go(end)) ++end;
  return WriteRun(first, end - first, locks);
}

// REQUIRES: the blocks are dirty and not busy, their shards are among those that are locked
template <BlockDevice Device>
Status BlockCache<Device>::WriteRun(std::uint64_t first, std::size_t count, Locks& locks) {
  std::array<iovec, kRunMax> parts;
  const auto for_each = [&](auto&& visit) {
    for (std::size_t i = 0; i < count; ++i) visit(i, ShardOf(first + i), Find(ShardOf(first + i), first + i));
  };
  for_each([&](std::size_t i, Shard&, std::uint32_t frame) {
    frames_[frame].busy = true;
    parts[i] = {Bytes(frame), block_size_};
  });
  locks.Unlock();
  const Status status = device_.WriteBlocks(first * block_size_, std::span(parts).first(count));
  locks.Lock();
  for_each([&](std::size_t, Shard& shard, std::uint32_t frame) {
    frames_[frame].busy = false;
    frames_[frame].dirty = !status.ok();
    shard.changed.notify_all();
  });
  return status;
}

template <BlockDevice Device>
Status BlockCache<Device>::Flush() {
  std::vector<std::uint64_t> blocks;
  for (std::size_t i = 0; i < num_shards_; ++i) {
    std::lock_guard lock(shards_[i].mutex);
    for (const std::uint32_t frame : shards_[i].frames) {
      if (frames_[frame].dirty) blocks.push_back(frames_[frame].block);
    }
  }
  std::ranges::sort(blocks);
  for (std::size_t next = 0; next < blocks.size();) {
    std::size_t end = next + 1;
    while (end < blocks.size() && end - next < kRunMax && blocks[end] == blocks[end - 1] + 1) ++end;
    Locks locks(*this, blocks[next], blocks[end - 1]);
    // Some may have been written meanwhile, or be just being.
    std::size_t run = next;
    Shard* busy = nullptr;
    for (; run < end && busy == nullptr; ++run) {
      Shard& shard = ShardOf(blocks[run]);
      const std::uint32_t frame = Find(shard, blocks[run]);
      if (frame == kNone || !frames_[frame].dirty) break;
      if (frames_[frame].busy) {
        busy = &shard;
        break;
      }
    }
    if (run > next) {
      HAKO_RETURN_IF_ERROR(WriteRun(blocks[next], run - next, locks));
      next = run;
    } else if (busy != nullptr) {
      locks.Wait(*busy);
    } else {
      ++next;
    }
  }
  return absl::OkStatus();
}

template <BlockDevice Device>
void BlockCache<Device>::Drop(std::uint64_t offset) {
  for (std::size_t i = 0; i < num_shards_; ++i) {
    std::lock_guard lock(shards_[i].mutex);
    for (const std::uint32_t frame : shards_[i].frames) {
      if (frames_[frame].block == kNoBlock || frames_[frame].block < offset / block_size_) continue;
      GiveBack(shards_[i], frame);
    }
  }
}

}  // namespace hako
