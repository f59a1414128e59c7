// Moves images to the front of the file of a tree, so that the file can be truncated. The next
// commit makes the moves take effect, and moves the nodes of the page map.
//
// One thread, which may run checkpoints between two calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "hako/base/aligned_buffer.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/tree_file_format.h"
#include "hako/tree/file/file_space.h"
#include "hako/tree/file/free_space_map.h"
#include "hako/tree/file/shared_page_map.h"
#include "hako/tree/file/tree_file.h"

namespace hako::tree {

template <File FileT>
class ImageMover {
  using Entry = format::PageEntry;

 public:
  // Finds the images and nodes that lie too far back. REQUIRES: a checkpoint has begun (unchecked:
  // the space does not tell)
  static StatusOr<ImageMover> Begin(SharedPageMap<FileT>& pages, FileSpace<FileT>& space, TreeFile<FileT>& file) {
    ImageMover mover(pages, space, file);
    HAKO_RETURN_IF_ERROR(pages.ForEach([&](int level, std::uint64_t number, const Entry& entry) {
      // Skip an image that is near enough to the front.
      if ((entry.place() + entry.units()) * format::kTreeUnit <= space.used_bytes()) return absl::OkStatus();
      if (level < 0) {
        mover.images_.push_back({static_cast<std::uint32_t>(number), entry});
      } else {
        pages.MarkChanged(static_cast<unsigned>(level), number);
        ++mover.num_nodes_;
      }
      return absl::OkStatus();
    }));
    std::ranges::sort(mover.images_, [](const Image& a, const Image& b) { return a.entry.place() > b.entry.place(); });
    return mover;
  }

  std::uint64_t num_nodes() const { return num_nodes_; }  // of the page map, that the next commit moves
  bool is_done() const { return next_ == images_.size(); }

  // Moves images, the last one first, as long as there is room, and returns how many. Stops after
  // `max_bytes`. Images that move to adjacent places are written together.
  StatusOr<std::uint64_t> Move(std::uint64_t max_bytes) {
    space_->PreferFront();
    const AlignedBuffer buffer = MakeAlignedBuffer(kPart, HugePagesFor(file_->size(), kPart));
    std::vector<Step> steps;
    steps.reserve(kPart / format::kTreeUnit);
    std::uint64_t moved = 0, bytes = 0;
    const auto move_all = [&]() -> Status {
      if (steps.empty()) return absl::OkStatus();
      HAKO_RETURN_IF_ERROR(MoveTogether(steps, buffer.get()));
      moved += steps.size();
      steps.clear();
      bytes = 0;
      return absl::OkStatus();
    };
    for (std::uint64_t moved_bytes = 0; !is_done() && moved_bytes < max_bytes;) {
      const auto& [id, entry] = images_[next_++];
      HAKO_ASSIGN_OR_RETURN(const Entry now, pages_->EntryOf(id));
      // Skip an image that a checkpoint has written elsewhere.
      if (std::memcmp(&now, &entry, sizeof(entry)) != 0) continue;
      const std::uint64_t size = entry.units() * format::kTreeUnit;
      const FreeSpaceMap::Run run = space_->map().TakeFirst(entry.units(), entry.place(), &front_);
      if (run.units == 0) continue;
      const bool is_next = !steps.empty() && run.place == steps.back().to.place + steps.back().to.units;
      if (!is_next || bytes + size > kPart) {
        const Status status = move_all();
        if (!status.ok()) space_->Free(run);
        HAKO_RETURN_IF_ERROR(status);
      }
      steps.push_back({id, entry, run});
      bytes += size;
      moved_bytes += size;
    }
    HAKO_RETURN_IF_ERROR(move_all());
    return moved;
  }

 private:
  static constexpr std::uint64_t kPart = 1 << 20;
  struct Image {
    std::uint32_t id;
    Entry entry;
  };
  struct Step {
    std::uint32_t id;
    Entry from;
    FreeSpaceMap::Run to;
  };

  ImageMover(SharedPageMap<FileT>& pages, FileSpace<FileT>& space, TreeFile<FileT>& file) : pages_(&pages), space_(&space), file_(&file) {}

  // Moves images to adjacent places. Frees the places of those that fail.
  Status MoveTogether(std::span<const Step> steps, std::byte* buffer) {
    Status status = CatchNoMemory([&] { return Copy(steps, buffer); });
    for (const Step& step : steps) {
      if (!status.ok())
        space_->Free(step.to);
      else
        status = space_->Exchange(*pages_, step.id, Entry::For(step.to.place, step.to.units, step.from.check));
    }
    return status;
  }

  Status Copy(std::span<const Step> steps, std::byte* buffer) {
    std::uint64_t place = steps.front().to.place * format::kTreeUnit, filled = 0;  // where the buffer's bytes go, and how many
    const auto write = [&]() -> Status {
      HAKO_RETURN_IF_ERROR(file_->WriteAt(place, {buffer, filled}));
      place += std::exchange(filled, 0);
      return absl::OkStatus();
    };
    for (const Step& step : steps) {
      const std::uint64_t size = step.to.units * format::kTreeUnit;
      file_->CountReads(1, size);
      for (std::uint64_t at = 0; at < size;) {
        if (filled == kPart) HAKO_RETURN_IF_ERROR(write());
        const std::uint64_t part = std::min(kPart - filled, size - at);
        HAKO_RETURN_IF_ERROR(file_->ReadAt(step.from.place() * format::kTreeUnit + at, {buffer + filled, part}));
        filled += part;
        at += part;
      }
    }
    return write();
  }

  SharedPageMap<FileT>* pages_;
  FileSpace<FileT>* space_;
  TreeFile<FileT>* file_;
  std::vector<Image> images_;
  std::size_t next_ = 0;         // of images_
  std::uint64_t num_nodes_ = 0;  // that lie too far back
  FreeSpaceMap::Front front_;    // how far the search for places before them has come
};

}  // namespace hako::tree
