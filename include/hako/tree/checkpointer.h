// Makes the tree of a buffer pool durable as of one moment, beside readers and writers.
//
// A checkpoint begins an epoch (tree/dirty_pages.h), for which it stops the writers for a moment.
// Then it locks the pages that were changed before that moment, one by one, encodes them and puts
// their images into the store (tree/page_store.h); a thread that wants to change such a page first
// captures its image. Pages are pinned until the store has written its buffer; then they can be
// evicted, before all of the checkpoint is durable.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/tree_file_format.h"
#include "hako/tree/buffer_pool.h"
#include "hako/tree/dirty_pages.h"
#include "hako/tree/long_values.h"

namespace hako::tree {

template <File FileT, PageCodec Codec = NoCodec>
class Checkpointer {
 public:
  explicit Checkpointer(BufferPool<FileT, Codec>& pool) : pool_(pool), store_(pool.store()) {}
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Makes the tree durable as of one moment of the call. Calls describe(superblock) at that moment.
  template <class ForEachWriter, class F>
  Status Checkpoint(ForEachWriter&& for_each_writer, F&& describe);

 private:
  using Line = format::PageLine;
  using Shape = format::PageShape;
  // What one checkpoint writes.
  struct Epoch : DirtyPages::Epoch {
    std::vector<LongValues::Unsaved> unsaved;
    std::uint64_t held_bytes = 0;
    format::TreeSuperBlock description{};
    log::Position log;  // behind its last update
    // Ids of pages that were put: those that are pinned, and those that were captured.
    std::vector<std::uint32_t> pinned, captured;
  };

  template <class F>
  void BeginEpoch(Epoch* epoch, F& describe);
  Status Write(Epoch& epoch);
  void SortPages(Epoch& epoch);
  Status WritePages(Epoch& epoch);
  Status WriteCaptured(Epoch& epoch);
  Status PutImage(std::uint32_t id, std::span<const char> image);
  void Unpin(std::vector<std::uint32_t>* pinned, std::size_t kept);
  void TakeBack(Epoch& epoch);
  void Finish(Epoch& epoch, const Status& status);

  BufferPool<FileT, Codec>& pool_;
  PageStore<FileT>& store_;
};

}  // namespace hako::tree

#include "hako/tree/checkpointer-inl.h"
