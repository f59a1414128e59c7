// The file of a TreeDBM: images of pages and long values by id, and checkpoints
// (format/tree_file_format.h). Its parts are the device (tree/tree_file.h), the page map, by which
// images are read (tree/shared_page_map.h), the allocation of space (tree/file_space.h) and the
// buffer of images to be written (tree/image_writer.h).
//
// A checkpoint is Begin, then Put, PutLong and Forget for the changes, then Commit. A failed one is
// taken back (TakeBack): its images are dropped and their space is free at once, so the file does
// not grow with each attempt.
//
// Invariants
//   1. Units that the newer valid superblock reaches are not overwritten: they become free only
//      when a later Commit is durable. Nor are those that the other superblock reaches, until the
//      newer one is known to be durable.
//   2. Images that were put since num_flushes last changed are in memory only. After a Put or a
//      Commit that failed, unless is_written(), the caller takes back the images that it has put,
//      and puts them again.
//   3. A failed sync is not retried: the data it was to write may be lost although a later sync
//      returns OK. After it no Commit succeeds any more.
//
// Thread-safe: Copy, the counters, and what pages() says. One thread at a time may call the rest.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/aligned_buffer.h"
#include "hako/base/no_memory.h"
#include "hako/base/random_seed.h"
#include "hako/base/status.h"
#include "hako/base/wall_clock.h"
#include "hako/file/file.h"
#include "hako/format/tree_file_format.h"
#include "hako/log/update_log.h"
#include "hako/storage/superblock_slots.h"
#include "hako/sync/raise_to.h"
#include "hako/tree/file_space.h"
#include "hako/tree/free_space_map.h"
#include "hako/tree/image_writer.h"
#include "hako/tree/page_map.h"
#include "hako/tree/shared_page_map.h"
#include "hako/tree/tree_file.h"

namespace hako::tree {

template <File FileT>
class PageStore {
 public:
  using Super = format::TreeSuperBlock;
  using Entry = format::PageEntry;
  using Pages = SharedPageMap<FileT>;
  static constexpr storage::FileKind kKind{"tree", format::kTreeFileMagic, 1, format::kTreeFileVersion};

  // `kind`: of the file; only a tree's has the page sizes of a tree. `clock`: of a new file; see
  // format::TreeSuperBlock.
  static StatusOr<std::unique_ptr<PageStore>> Open(FileT file, std::string_view comparator, std::string_view codec, std::uint32_t page_size,
                                                   const storage::FileKind& kind = kKind, std::uint64_t clock = 0);
  // InvalidArgument if the file has another comparator or codec.
  static Status CheckNames(const Super& super, std::string_view comparator, std::string_view codec);
  // Reads the file as of a checkpoint that is pinned there.
  static StatusOr<std::unique_ptr<PageStore>> OpenAt(FileT file, const Super& super) {
    HAKO_ASSIGN_OR_RETURN(PageMap map, PageMap::Create(super.map, super.id_end));
    return std::unique_ptr<PageStore>(new PageStore(std::move(file), super, std::move(map), kKind));
  }
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  // The superblock of the last checkpoint; its root is 0 if there was none yet.
  const Super& super() const { return super_; }
  FileT& file() { return file_.device(); }
  const storage::FileKind& kind() const { return kind_; }
  // Images and long values are read here.
  Pages& pages() { return pages_; }
  const Pages& pages() const { return pages_; }
  FileCounters counters() const { return file_.counters(); }
  // The size of the file, and how much of it is free. The latter is known after the first Begin, or
  // after CountFree, which then reads the whole page map.
  std::uint64_t file_bytes() const { return file_.size(); }
  std::uint64_t free_bytes() const { return free_bytes_.load(std::memory_order_relaxed); }
  Status CountFree();
  std::uint64_t num_commits() const { return num_commits_.load(std::memory_order_relaxed); }
  std::uint64_t synced_at() const { return synced_at_.load(std::memory_order_relaxed); }

  // Gives the next superblock this clock, if the file has one. From any thread.
  void NoteClock(std::uint64_t latest) { sync::RaiseTo(clock_, latest); }
  // See format::TreeSuperBlock. Of those that are written from now on, as the database is closed.
  void NoteFirstExpiry(std::uint64_t time) { first_expiry_ = time; }
  // Makes durable which log the file needs, without a checkpoint; zeros = none.
  Status SetLog(const log::DatabaseId& id, log::Position position);
  // The position that the last checkpoint names.
  log::Position log_position() const { return {super_.log_lsn, super_.log_sequence}; }
  // Makes the superblock durable that was read by Open. REQUIRES: the file is writable
  Status MakeSuperDurable();
  // Begins a checkpoint of about that many bytes. The first call finds the free space, and calls
  // is_free(first, end) for ids without an image.
  template <class F>
  Status Begin(F&& is_free, std::uint64_t expected = 0) {
    HAKO_RETURN_IF_ERROR(Health());
    if (!space_is_known_) {
      if (file_.device().IsWritable()) HAKO_RETURN_IF_ERROR(MakeSuperDurable());
      HAKO_RETURN_IF_ERROR(FindFreeSpace(is_free));
    }
    space_.Rewind();
    is_written_ = false;
    writer_.Begin(std::max(expected, file_.size()));  // a large file has long free runs
    return absl::OkStatus();
  }
  Status Put(std::uint32_t id, std::span<const std::byte> image) {
    HAKO_ASSIGN_OR_RETURN(const Entry entry,
                          writer_.Write(image, pages_.SeedOf(id), format::TreeUnitsFor(image.size()) * format::kTreeUnit));
    return Exchange(id, entry);
  }
  Status PutLong(std::uint32_t id, std::string_view value) {
    HAKO_ASSIGN_OR_RETURN(const Entry entry, writer_.Write(std::as_bytes(std::span(value)), pages_.SeedOf(id), value.size()));
    return Exchange(id, entry);
  }
  Status Forget(std::uint32_t id) { return Exchange(id, Entry{}); }
  // When a Put changes this number, all images that were put before it can be read from the file.
  std::uint64_t num_flushes() const { return writer_.num_flushes(); }

  // Makes all that was put durable. change(superblock) sets the caller's fields.
  template <class F>
  Status Commit(F&& change);
  // Whether all that was put is in the file, although no superblock may name it yet.
  bool is_written() const { return is_written_; }

  // After a Put or a Commit that failed, unless is_written(): BeginTakeBack drops the images that
  // were not flushed, TakeBack(id) drops an image that will be put again, and EndTakeBack drops the
  // nodes of the map that were written. They free the space and need no memory.
  void BeginTakeBack() { writer_.Drop(); }
  void TakeBack(std::uint32_t id) {
    pages_.TakeBack(id, [this](const Entry& entry) { return space_.Withdraw(entry); });
  }
  void EndTakeBack() {
    pages_.TakeBackNodes([this](const Entry& entry) { return space_.Withdraw(entry); });
  }

  // Whether the device has become full. From then on the reserve may be used, until it is complete
  // again.
  bool is_short() const { return file_.is_short(); }
  // OK, or FailedPrecondition after a failed write or sync: no checkpoint can be committed any
  // more. A write that finds the device full is not such a failure.
  Status Health() const { return file_.Health(); }
  void Poison(const Status& why) { file_.Poison(why); }

  // The images that lie too far back in the file, the last one first, and how far the search for
  // places before them has come.
  struct Moving {
    struct Image {
      std::uint32_t id;
      Entry entry;
    };
    std::vector<Image> images;
    std::size_t next = 0;         // of `images`
    std::uint64_t num_nodes = 0;  // nodes of the page map that lie too far back
    FreeSpaceMap::Front front;
  };
  // Finds them, and has the next Commit move the nodes of the map that lie too far back.
  StatusOr<Moving> BeginMoving();
  // Moves images towards the front of the file as far as there is room, and returns how many; the
  // next Commit makes the moves take effect. Starts no further image after `max_bytes`. Checkpoints
  // may run between two calls.
  StatusOr<std::uint64_t> MoveForward(Moving* moving, std::uint64_t max_bytes);
  // Truncates the file behind the units that the last checkpoint needs.
  // REQUIRES: no Put since (unchecked: its units count as used until the next checkpoint, so they stay)
  Status CutFile();

  // The last checkpoint, readable until Unpin. Between the two, Copy may write it to another file,
  // from any thread.
  struct Pinned {
    Super super;
    std::vector<FreeSpaceMap::Run> runs;
  };
  // The copy names this log.
  StatusOr<Pinned> Pin(const log::NamedLog& log = {});
  // The same for a reader that has taken the entries that it needs from pages().
  void PinSpace() { space_.Pin(); }
  bool space_is_pinned() const { return space_.is_pinned(); }
  void Unpin() { space_.Unpin(); }
  template <File OtherFile>
  Status Copy(const Pinned& pinned, OtherFile& out) const;

 private:
  PageStore(FileT file, const Super& super, PageMap map, const storage::FileKind& kind)
      : kind_(kind), file_(std::move(file)), super_(super), pages_(file_, std::move(map), super.secret) {
    NoteSuper();
  }

  static constexpr std::uint64_t kMovingPart = 1 << 20;
  struct Move {
    std::uint32_t id;
    Entry from;
    FreeSpaceMap::Run to;
  };
  // Moves images to adjacent places. Frees the places of those that fail.
  Status MoveImages(std::span<const Move> moves, std::byte* buffer);
  Status CopyImages(std::span<const Move> moves, std::byte* buffer);

  static StatusOr<Super> Create(FileT& file, std::string_view comparator, std::string_view codec, std::uint32_t page_size,
                                const storage::FileKind& kind, std::uint64_t clock);
  static std::uint32_t VersionOf(const storage::FileKind& kind, std::uint64_t clock) {
    return kind.magic == kKind.magic && clock == 0 ? format::kTreeFilePlainVersion : kind.newest;
  }
  static Status Validate(const Super& super, std::uint64_t size, std::string_view comparator, std::string_view codec);
  Status StoreSuper(Super super);
  template <class F>
  Status FindFreeSpace(F& is_free);
  // Sets the entry of an id, whose space is freed if that fails.
  Status Exchange(std::uint32_t id, const Entry& entry) {
    const StatusOr<Entry> before = CatchNoMemory([&] {
      space_.MakeRoomToRetire();
      return pages_.Exchange(id, entry);
    });
    if (!before.ok()) space_.Free(entry);
    HAKO_RETURN_IF_ERROR(before.status());
    space_.Retire(*before);
    return absl::OkStatus();
  }
  Status WriteMap();
  // `file_bytes`: the size that the file has, or gets.
  void NoteFree(std::uint64_t file_bytes, std::uint64_t used_bytes) {
    free_bytes_.store(file_bytes > used_bytes ? file_bytes - used_bytes : 0, std::memory_order_relaxed);
  }
  void NoteSuper() {
    num_commits_.store(super_.sequence, std::memory_order_relaxed);
    synced_at_.store(super_.synced_at, std::memory_order_relaxed);
  }

  const storage::FileKind kind_;
  TreeFile<FileT> file_;
  Super super_;
  Pages pages_;
  FileSpace<FileT> space_{file_};
  ImageWriter<FileT> writer_{file_, space_};
  bool space_is_known_ = false;
  std::atomic<std::uint64_t> clock_{0};
  std::uint64_t first_expiry_ = 0;
  bool super_is_durable_ = false;
  bool is_written_ = false;
  std::atomic<std::uint64_t> free_bytes_{0}, num_commits_{0}, synced_at_{0};
};

}  // namespace hako::tree

#include "hako/tree/page_moving-inl.h"
#include "hako/tree/page_store-inl.h"
