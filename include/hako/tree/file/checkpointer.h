// Makes the tree of a buffer pool durable as of one moment, beside readers and writers.
//
// A checkpoint begins an epoch (tree/file/dirty_pages.h), for which it stops the writers for a moment.
// Then it locks the pages that were changed before that moment, one by one, encodes them and puts
// their images into the store (tree/file/page_store.h); a thread that is about to change such a
// page first captures its image. Pages are pinned until the store has written its buffer. They can
// then be evicted, before the whole checkpoint is durable.
//
// One thread at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hako/base/endian.h"
#include "hako/base/no_memory.h"
#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/tree_file_format.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/sync/version_lock.h"
#include "hako/tree/file/buffer_pool.h"
#include "hako/tree/file/dirty_pages.h"
#include "hako/tree/file/long_values.h"
#include "hako/tree/file/page_encoding.h"
#include "hako/tree/file/page_kind.h"

namespace hako::tree {

template <File FileT, PageCodec Codec = NoCodec>
class Checkpointer {
 public:
  explicit Checkpointer(BufferPool<FileT, Codec>& pool) : pool_(pool), store_(pool.store()) {}
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Makes the tree as it is at one moment of the call durable. Calls describe(superblock) at that
  // moment.
  template <class ForEachWriter, class F>
  Status Checkpoint(ForEachWriter&& for_each_writer, F&& describe) {
    HAKO_RETURN_IF_ERROR(pool_.BeginStore());
    Epoch epoch;
    pool_.gate().RunExclusive(for_each_writer, [&] { return BeginEpoch(&epoch, describe), 0; });
    pool_.dirty().Unregister(epoch);
    const Status status = CatchNoMemory([&] { return Write(epoch); });
    pool_.dirty().EndCapturing();
    Finish(epoch, status);
    return status;
  }

 private:
  using Line = format::PageLine;
  using Shape = format::PageShape;
  // What one checkpoint writes.
  struct Epoch : DirtyPages::Epoch {
    std::vector<LongValues::Unsaved> unsaved;
    std::uint64_t held_bytes = 0;
    format::TreeSuperBlock description{};
    log::Position log;  // position after the epoch's last update in the log
    // Ids of the pages whose images were put: those that are pinned, and those whose captured image
    // was put.
    std::vector<std::uint32_t> pinned, captured;
  };

  // Called while no writer is active. The steps that need memory come before any change.
  template <class F>
  void BeginEpoch(Epoch* epoch, F& describe) {
    pool_.gate().AssertNoWriters();
    pool_.dirty().PrepareEpoch(pool_.arena().page_end());
    epoch->unsaved = pool_.long_values().AllUnsaved();
    pool_.dirty().BeginEpoch(epoch);
    pool_.progress().Begin();
    epoch->held_bytes = pool_.holds().unsaved_bytes.load(std::memory_order_relaxed);
    for (const auto& [id, value] : epoch->unsaved) pool_.dirty().NoteKnown(id);
    epoch->description.num_long = pool_.long_values().num_values();
    epoch->description.log_id = pool_.log().id();
    epoch->log = pool_.log().BeginCheckpoint();
    describe(epoch->description);
  }

  // Runs beside writers, which capture pages that they change before it has written them.
  Status Write(Epoch& epoch) {
    SortPages(epoch);
    const Status written = WritePages(epoch);
    pool_.dirty().EndCapturing();
    HAKO_RETURN_IF_ERROR(written);
    pool_.progress().BeginWriting();
    for (const auto& [id, value] : epoch.unsaved) HAKO_RETURN_IF_ERROR(store_.PutLong(id, value->Wait()));
    std::ranges::sort(epoch.freed);
    for (const std::uint32_t id : epoch.freed) HAKO_RETURN_IF_ERROR(store_.Forget(id));
    HAKO_RETURN_IF_ERROR(pool_.log().PrepareCheckpoint(epoch.log));
    return store_.Commit([&](format::TreeSuperBlock& super) {
      super.num_records = epoch.description.num_records;
      super.root = epoch.description.root;
      super.id_end = pool_.arena().PageEndWithout(epoch.freed);
      super.num_ids = pool_.arena().num_pages() - epoch.freed.size();
      super.num_long = epoch.description.num_long;
      super.metadata = epoch.description.metadata;
      super.type = epoch.description.type;
      super.applied_index = epoch.description.applied_index;
      super.log_id = epoch.description.log_id;
      super.log_lsn = epoch.log.lsn;
      super.log_sequence = epoch.log.sequence;
    });
  }

  // Puts leaves first, ordered by the bytes of their keys, so that neighbours are written together.
  // The order need not be exact.
  void SortPages(Epoch& epoch) {
    struct Changed {
      unsigned level;
      std::string low;
      std::uint32_t id;
    };
    std::vector<Changed> changed;
    for (const std::uint32_t id : epoch.pages) {
      Line& line = pool_.lines()[id];
      Shape shape = std::atomic_ref(line.shape).load(std::memory_order_relaxed);
      if ((shape.kind & Shape::kMark) != epoch.mark) continue;  // captured, or freed
      if (const PageKind* const kind = pool_.limits().kind; kind != nullptr) {
        std::string number(sizeof(std::uint64_t), '\0');
        StoreBigEndian(kind->NumberOf(shape), number.data());
        changed.push_back({shape.level(), std::move(number), id});
        continue;
      }
      format::PageTail tail;
      const char* const end = pool_.At(line) + shape.size() - sizeof(tail);
      sync::LoadShared(reinterpret_cast<char*>(&tail), end, sizeof(tail));
      // A writer may be changing the page.
      if (tail.low > shape.heap || shape.prefix > shape.heap) tail.low = shape.prefix = 0;
      std::string low(std::min<std::size_t>(tail.low, 256), '\0');
      sync::LoadShared(low.data(), end - shape.prefix - tail.low, low.size());
      changed.push_back({shape.level(), std::move(low), id});
    }
    std::ranges::sort(changed, [](const Changed& a, const Changed& b) { return a.level != b.level ? a.level < b.level : a.low < b.low; });
    epoch.pages.clear();
    for (const Changed& page : changed) epoch.pages.push_back(page.id);
    // Reserve now, because nothing may run out of memory once pages are locked.
    epoch.pinned.reserve(epoch.pages.size());
  }

  Status WritePages(Epoch& epoch) {
    alignas(64) char image[format::kPageImageMax];
    std::uint64_t flushes = store_.num_flushes();
    for (const std::uint32_t id : epoch.pages) {
      Line& line = pool_.lines()[id];
      if (!pool_.LockPage(id)) continue;
      const Shape shape = line.shape;
      std::size_t size = 0;
      if ((shape.kind & Shape::kMark) == epoch.mark) {
        size = pool_.dirty().Encode(line, image);
        DirtyPages::StoreMark(line, 0);
        epoch.pinned.push_back(id);
        pool_.Pin(id);
      }
      sync::VersionLock(line.version).Unlock(false);
      if (size != 0) HAKO_RETURN_IF_ERROR(PutImage(id, {image, size}));
      HAKO_RETURN_IF_ERROR(WriteCaptured(epoch));
      if (store_.num_flushes() != flushes) {
        flushes = store_.num_flushes();
        Unpin(&epoch.pinned, 1);
      }
    }
    return WriteCaptured(epoch);
  }

  Status WriteCaptured(Epoch& epoch) {
    for (const DirtyPages::Captured& page : pool_.dirty().TakeCaptured()) {
      epoch.captured.push_back(page.id);
      HAKO_RETURN_IF_ERROR(PutImage(page.id, page.image));
    }
    return absl::OkStatus();
  }

  Status PutImage(std::uint32_t id, std::span<const char> image) {
    [[maybe_unused]] char packed[std::same_as<Codec, NoCodec> ? 1 : format::kPageImageMax];
    if constexpr (!std::same_as<Codec, NoCodec>) {
      if (const std::size_t size = Pack<Codec>(image, packed); size != 0) image = {packed, size};
    }
    return store_.Put(id, std::as_bytes(image));
  }

  // Makes the written pages evictable, except the last `kept`.
  void Unpin(std::vector<std::uint32_t>* pinned, std::size_t kept) {
    const std::span<const std::uint32_t> ids = std::span(*pinned).first(pinned->size() - std::min(kept, pinned->size()));
    pool_.Unpin(ids);
    for (const std::uint32_t id : ids)
      pool_.dirty().NoteWritten(std::atomic_ref(pool_.lines()[id].shape).load(std::memory_order_relaxed).size());
    pinned->erase(pinned->begin(), pinned->begin() + static_cast<std::ptrdiff_t>(ids.size()));
    pool_.progress().NoteSaved();
  }

  // Call this after a failed checkpoint. Adds the pages of the epoch that are in memory to the next
  // epoch, and drops their images. Evicted pages keep their images. Needs no memory, because a lack
  // of memory may be why the checkpoint failed.
  void TakeBack(Epoch& epoch) {
    std::erase_if(epoch.pages, [this](std::uint32_t id) {
      if (!pool_.LockPage(id)) return true;
      pool_.dirty().TakeBack(pool_.lines()[id]);
      sync::VersionLock(pool_.lines()[id].version).Unlock(false);
      return false;
    });
    store_.BeginTakeBack();
    for (const std::uint32_t id : epoch.pages) store_.TakeBack(id);
    for (const std::uint32_t id : epoch.captured) store_.TakeBack(id);
    for (const auto& [id, value] : epoch.unsaved) {
      store_.TakeBack(id);
      pool_.dirty().AddLongBytes(static_cast<std::int64_t>(value->size()));
    }
    store_.EndTakeBack();
    pool_.dirty().TakeBack(&epoch);
  }

  void Finish(Epoch& epoch, const Status& status) {
    // Whether all images are in the file, even if no superblock names them yet.
    const bool is_saved = status.ok() || store_.is_written();
    if (is_saved) {
      for (const std::uint32_t id : epoch.freed) pool_.FreeForgotten(id);
      pool_.long_values().NoteSaved(epoch.unsaved);
      pool_.holds().unsaved_bytes.fetch_sub(epoch.held_bytes, std::memory_order_relaxed);
    } else {
      TakeBack(epoch);
    }
    if (status.ok()) pool_.log().NoteCheckpoint(epoch.log);
    pool_.arena().CutIds();
    if (!status.ok()) pool_.dirty().NoteChange();
    pool_.Unpin(epoch.pinned);
    pool_.dirty().NoteAllWritten();
    pool_.progress().End(status.ok());
    if (is_saved) pool_.clock().EvictToLimit(epoch.held_bytes);
    pool_.ShrinkMemory();
  }

  BufferPool<FileT, Codec>& pool_;
  PageStore<FileT>& store_;
};

}  // namespace hako::tree
