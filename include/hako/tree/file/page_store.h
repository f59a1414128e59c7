// The file of a TreeDBM: images of pages and long values by id, and checkpoints
// (format/tree_file_format.h). Its parts are the device (tree/file/tree_file.h), the page map, by which
// images are read (tree/file/shared_page_map.h), the allocation of space (tree/file/file_space.h) and the
// buffer of images to be written (tree/file/image_writer.h).
//
// A checkpoint is Begin, then Put, PutLong and Forget for the changes, then Commit. A failed
// checkpoint is taken back (TakeBack): its images are dropped and their space is free at once, so
// the file does not grow with each attempt.
//
// Invariants
//   1. Units that the newer valid superblock reaches are not overwritten: they become free only
//      when a later Commit is durable. Until the newer superblock is known to be durable, the units
//      that the other superblock reaches are not overwritten, either. Nor are those of checkpoints
//      that readers in other processes show (file/readers_file.h).
//   2. Images that were put since num_flushes last changed are in memory only. After a Put or a
//      Commit that failed, unless is_written(), the caller takes back the images that it has put,
//      and puts them again.
//   3. A failed sync is not retried: the data it was to write may be lost although a later sync
//      returns OK. After it all calls of Commit fail.
//
// Copy, the counters, and those functions of pages() that say so are thread-safe. Only one thread
// at a time may call the others.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
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
#include "hako/file/readers_file.h"
#include "hako/format/tree_file_format.h"
#include "hako/log/update_log.h"
#include "hako/storage/superblock_slots.h"
#include "hako/sync/raise_to.h"
#include "hako/sync/sticky_status.h"
#include "hako/tree/file/file_space.h"
#include "hako/tree/file/free_space_map.h"
#include "hako/tree/file/image_mover.h"
#include "hako/tree/file/image_writer.h"
#include "hako/tree/file/page_map.h"
#include "hako/tree/file/shared_page_map.h"
#include "hako/tree/file/tree_file.h"

namespace hako::tree {

template <File FileT>
class PageStore {
 public:
  using Super = format::TreeSuperBlock;
  using Entry = format::PageEntry;
  using Pages = SharedPageMap<FileT>;
  static constexpr storage::FileKind kKind{"tree", format::kTreeFileMagic, 1, format::kTreeFileVersion};

  // `kind` is the kind of the file; only the file of a tree has the page sizes of a tree. `clock`
  // is the clock of a new file: see format::TreeSuperBlock.
  static StatusOr<std::unique_ptr<PageStore>> Open(FileT file, std::string_view comparator, std::string_view codec, std::uint32_t page_size,
                                                   const storage::FileKind& kind = kKind, std::uint64_t clock = 0) {
    HAKO_ASSIGN_OR_RETURN(const bool blank, storage::IsBlankFile(file, kind));
    Super super{};
    if (blank) {
      HAKO_ASSIGN_OR_RETURN(super, Create(file, comparator, codec, page_size, kind, clock));
    } else {
      HAKO_ASSIGN_OR_RETURN(super, storage::ReadNewerSlot<Super>(file, kind, format::kTreeFirstUnit * format::kTreeUnit));
      HAKO_RETURN_IF_ERROR(Validate(super, file.Size(), comparator, codec));
    }
    HAKO_ASSIGN_OR_RETURN(PageMap map, PageMap::Create(super.map, super.id_end));
    return std::unique_ptr<PageStore>(new PageStore(std::move(file), super, std::move(map), kind));
  }

  // InvalidArgument if the file has another comparator or codec.
  static Status CheckNames(const Super& super, std::string_view comparator, std::string_view codec) {
    const auto name = [](const auto& padded) {
      const std::string_view whole(padded.data(), padded.size());
      return whole.substr(0, whole.find('\0'));
    };
    if (name(super.comparator) != comparator) {
      return absl::InvalidArgumentError(
          absl::StrCat("the keys of the file are in the order \"", ToAbsl(name(super.comparator)), "\", not \"", ToAbsl(comparator), "\""));
    }
    if (name(super.codec) != codec) {
      return absl::InvalidArgumentError(
          absl::StrCat("the pages of the file are compressed by \"", ToAbsl(name(super.codec)), "\", not \"", ToAbsl(codec), "\""));
    }
    return absl::OkStatus();
  }

  // Opens the file for reading at a checkpoint that is pinned in it.
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
  // The page map, by which images and long values are read.
  Pages& pages() { return pages_; }
  const Pages& pages() const { return pages_; }
  FileCounters counters() const { return file_.counters(); }
  // The size of the file, and how much of it is free. free_bytes is known after the first Begin, or
  // after CountFree, which reads the whole page map if there was no Begin.
  std::uint64_t file_bytes() const { return file_.size(); }
  std::uint64_t free_bytes() const { return free_bytes_.load(std::memory_order_relaxed); }
  Status CountFree() {
    if (space_is_known_) return absl::OkStatus();
    std::uint64_t used = format::kTreeFirstUnit;
    HAKO_RETURN_IF_ERROR(pages_.ForEach([&](int, std::uint64_t, const Entry& entry) -> Status {
      used += entry.units();
      return used <= super_.end ? absl::OkStatus()
                                : DataLossError("the images in the page map exceed the file, which ends", super_.end * format::kTreeUnit);
    }));
    NoteFree(file_.size(), used * format::kTreeUnit);
    return absl::OkStatus();
  }

  std::uint64_t num_commits() const { return num_commits_.load(std::memory_order_relaxed); }
  std::uint64_t synced_at() const { return synced_at_.load(std::memory_order_relaxed); }

  // ---- readers in other processes ----

  // Call before the first Begin: from now on no space is reused that a reader of the database at this path
  // needs, within these limits.
  void WatchReaders(const std::string& database, const ReaderLimits& limits) {
    HAKO_DCHECK(!space_is_known_);
    readers_ = std::make_unique<ReadersFile>(database);
    reader_limits_ = limits;
  }
  // Call after OpenAt or Open for reading: the space of this checkpoint is kept for `reader`.
  Status SetReader(std::unique_ptr<ReaderSlot> reader) {
    HAKO_RETURN_IF_ERROR(reader->SetEpoch(super_.sequence));
    reader_ = std::move(reader);
    file_.set_reader(reader_.get());
    return absl::OkStatus();
  }
  // Call when the file is closed.
  void LeaveReaders() {
    file_.set_reader(nullptr);
    reader_ = nullptr;
    readers_ = nullptr;
  }
  // Whether a state with the superblock `a`, and the updates of its log up to `a_lsn`, is later than `b`. Within one log the
  // later place counts: a writer that is replaying it makes checkpoints that have less than a reader that has
  // read all of it. True for another file.
  static bool IsNewer(const Super& a, log::Lsn a_lsn, const Super& b, log::Lsn b_lsn) {
    if (a.file_id != b.file_id || a.secret != b.secret) return true;
    const log::NamedLog log = log::NamedLogOf(a), other = log::NamedLogOf(b);
    if (log.IsNeeded() && other.IsNeeded() && log.id == other.id && a_lsn != b_lsn) return a_lsn > b_lsn;
    return a.sequence > b.sequence;
  }
  // Of a reader that shows the updates of its log up to `lsn`: whether the file has a newer checkpoint now. The writer may be
  // writing a superblock: then it is not there yet.
  StatusOr<bool> HasNewer(log::Lsn lsn) const {
    HAKO_DCHECK(reader_ != nullptr);
    for (std::uint64_t slot = 0; slot < 2; ++slot) {
      Super super{};
      HAKO_RETURN_IF_ERROR(reader_->ReadDatabase(slot * storage::kSlotDistance, std::as_writable_bytes(std::span(&super, 1))));
      const bool is_whole = super.magic == kind_.magic && super.check == format::CheckOf(super);
      if (is_whole && IsNewer(super, super.log_lsn, super_, lsn)) return true;
    }
    return false;
  }
  // See PoolHome::WaitForCheckpoint. REQUIRES: has_reader()
  StatusOr<bool> AwaitNewer(log::Lsn lsn, std::chrono::steady_clock::time_point deadline) const {
    HAKO_DCHECK(reader_ != nullptr);
    for (;;) {
      const std::uint32_t told = reader_->NumTold();  // before the look, so that a checkpoint after it is told
      if (reader_->IsCutOff() || reader_->IsReplaced()) return true;
      HAKO_ASSIGN_OR_RETURN(const bool has_newer, HasNewer(lsn));
      if (has_newer) return true;
      if (std::chrono::steady_clock::now() >= deadline) return false;
      reader_->AwaitNews(told, deadline);
    }
  }
  // The reader has found no newer checkpoint.
  void NoteNewest() const {
    if (reader_ != nullptr) (void)reader_->SetEpoch(super_.sequence);
  }
  // Whether the file is read beside a writer.
  bool has_reader() const { return reader_ != nullptr; }
  // Replaces the error of a read if the reader is cut off.
  Status Explain(Status status) const { return status.ok() ? status : file_.Explain(std::move(status)); }
  // Returns Aborted if the reader was cut off, so that bytes that were read without a check may be wrong.
  Status CheckReader() const {
    return reader_ != nullptr && reader_->IsCutOff() ? reader_->Explain(absl::AbortedError("")) : absl::OkStatus();
  }
  // What the last checkpoint has found: the readers that live, the oldest checkpoint that one of them shows (0 if
  // there is none, or unknown), the bytes that are kept for them.
  struct ReaderCounts {
    std::uint64_t num_readers, oldest, bytes;
  };
  ReaderCounts reader_counts() const {
    return {num_readers_.load(std::memory_order_relaxed), oldest_reader_.load(std::memory_order_relaxed),
            reader_bytes_.load(std::memory_order_relaxed)};
  }

  // OK, or why the last checkpoint could not know the readers, or cannot cut them off.
  Status readers_status() const { return readers_status_.Get(); }

  // Gives the next superblock this clock, if the file has a clock. Any thread may call this.
  void NoteClock(std::uint64_t latest) { sync::RaiseTo(clock_, latest); }
  // See format::TreeSuperBlock. Applies to superblocks that are written from now on, while the
  // database is being closed.
  void NoteFirstExpiry(std::uint64_t time) { first_expiry_ = time; }
  // Makes the name of the log that the file needs durable, without a checkpoint; zeros = none.
  Status SetLog(const log::DatabaseId& id, log::Position position) {
    HAKO_RETURN_IF_ERROR(Health());
    HAKO_RETURN_IF_ERROR(MakeSuperDurable());
    Super super = super_;
    super.log_id = id;
    super.log_lsn = position.lsn;
    super.log_sequence = position.sequence;
    return StoreSuper(super);
  }

  // The position that the last checkpoint names.
  log::Position log_position() const { return {super_.log_lsn, super_.log_sequence}; }
  // Makes the superblock durable that was read by Open. REQUIRES: the file is writable
  // The process that wrote the newer superblock may have died, or its sync may have failed: then
  // that superblock is only in the kernel's page cache, and the device still has the older one,
  // whose space must not be reused yet. After a failed sync another sync alone is not enough,
  // because the kernel may treat unwritten pages as clean. So one byte of the block is changed,
  // which makes the kernel write it again; a kill of the process cannot leave that change half
  // done.
  //
  // The images that the superblock names were synced before it was written. But since the file was
  // closed, a program may have copied it without syncing the copy. Then the whole file is synced,
  // which takes long only if much of it is not on the device.
  Status MakeSuperDurable() {
    HAKO_DCHECK(file_.device().IsWritable());
    if (super_is_durable_) return absl::OkStatus();
    ++reinterpret_cast<unsigned char&>(super_.touched[0]);
    HAKO_RETURN_IF_ERROR(file_.WriteAt(super_.sequence % 2 * storage::kSlotDistance + offsetof(Super, touched),
                                       std::as_bytes(std::span(super_.touched).first(1))));
    const bool was_in_use = !log::NamedLogOf(super_).IsNone();
    HAKO_RETURN_IF_ERROR(was_in_use ? file_.SyncFirst(storage::kSlotDistance + sizeof(super_)) : file_.Sync());
    super_is_durable_ = true;
    return absl::OkStatus();
  }

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
    return space_.Exchange(pages_, id, entry);
  }
  Status PutLong(std::uint32_t id, std::string_view value) {
    HAKO_ASSIGN_OR_RETURN(const Entry entry, writer_.Write(std::as_bytes(std::span(value)), pages_.SeedOf(id), value.size()));
    return space_.Exchange(pages_, id, entry);
  }
  Status Forget(std::uint32_t id) { return space_.Exchange(pages_, id, Entry{}); }
  // Once a Put changes this number, all images put before that Put can be read from the file.
  std::uint64_t num_flushes() const { return writer_.num_flushes(); }

  // Makes everything that was put durable. change(superblock) sets the caller's fields.
  template <class F>
  Status Commit(F&& change) {
    HAKO_RETURN_IF_ERROR(WriteMap());
    // Done before the point of no return, because it may fail.
    space_.PrepareCommit();
    HAKO_RETURN_IF_ERROR(file_.Sync());
    pages_.MarkWritten();
    space_.NoteWritten();  // even if the write of the superblock fails, it may be in the file
    is_written_ = true;
    Super super = super_;
    change(super);
    super.map = pages_.roots();
    super.end = space_.EndWithoutRetired();
    super.synced_at = WallClock();
    HAKO_RETURN_IF_ERROR(StoreSuper(super));
    space_.Commit(super_.sequence, [this] { return OldestNeeded(); });
    NoteReaders();
    NoteFree(file_.size(), space_.used_bytes());
    if (const ReaderCounts readers = reader_counts(); readers.num_readers != 0)
      readers_->Tell({super_.sequence, free_bytes(), readers.bytes, super_.log_lsn});
    return absl::OkStatus();
  }

  // Whether everything that was put is in the file, even if no superblock names it yet.
  bool is_written() const { return is_written_; }

  // Call these after a failed Put or Commit, unless is_written(). BeginTakeBack drops the images
  // that were not flushed, TakeBack(id) drops an image that will be put again, and EndTakeBack
  // drops the nodes of the map that were written. They free the space and need no memory.
  void BeginTakeBack() { writer_.Drop(); }
  void TakeBack(std::uint32_t id) {
    pages_.TakeBack(id, [this](const Entry& entry) { return space_.Withdraw(entry); });
  }
  void EndTakeBack() {
    pages_.TakeBackNodes([this](const Entry& entry) { return space_.Withdraw(entry); });
  }

  // Whether the device has become full. The reserve may then be used, until it is complete again.
  bool is_short() const { return file_.is_short(); }
  // OK, or FailedPrecondition after a failed write or sync, after which no checkpoint can be
  // committed. A write that finds the device full is not such a failure.
  Status Health() const { return file_.Health(); }
  void Poison(const Status& why) { file_.Poison(why); }

  // Begins a round of moving images to the front of the file, so that the file can be truncated.
  StatusOr<ImageMover<FileT>> BeginMoving() { return ImageMover<FileT>::Begin(pages_, space_, file_); }
  // Truncates the file after the units that the last checkpoint needs.
  // REQUIRES: no Put since (unchecked: its units count as used until the next checkpoint, so they stay)
  Status CutFile() {
    if (!space_is_known_ || space_.is_pinned()) return absl::OkStatus();
    const std::uint64_t end = std::max(space_.map().UsedEnd(), std::uint64_t{super_.end}), size = end * format::kTreeUnit;
    space_.map().Shrink(end);
    NoteFree(size, space_.used_bytes());  // before the file shrinks, so free_bytes never exceeds file_bytes
    return pages_.Cut(size);
  }

  // The last checkpoint, which stays readable from Pin until Unpin. Between the two, any thread may
  // call Copy to write it to another file.
  struct Pinned {
    Super super;
    std::vector<FreeSpaceMap::Run> runs;
  };
  // Pins the last checkpoint. A copy of it will name this log.
  StatusOr<Pinned> Pin(const log::NamedLog& log = {}) {
    HAKO_RETURN_IF_ERROR(Begin([](std::uint32_t, std::uint32_t) {}));
    Pinned pinned{super_, {}};
    pinned.super.log_id = log.id;
    pinned.super.log_lsn = log.IsNone() ? 0 : log.from.lsn;
    pinned.super.log_sequence = log.IsNone() ? 0 : log.from.sequence;
    pinned.super.check = format::CheckOf(pinned.super);
    space_.map().ForEachUsedRun([&](std::uint64_t place, std::uint64_t units) { pinned.runs.push_back({place, units}); });
    space_.Pin();
    return pinned;
  }

  // Pins only the space of the last checkpoint, for a reader that has taken its entries from
  // pages().
  void PinSpace() { space_.Pin(); }
  bool space_is_pinned() const { return space_.is_pinned(); }
  void Unpin() { space_.Unpin(); }
  template <File OtherFile>
  Status Copy(const Pinned& pinned, OtherFile& out) const {
    static constexpr std::uint64_t kPart = FileSpace<FileT>::kRunUnits;
    HAKO_RETURN_IF_ERROR(out.Resize(pinned.super.end * format::kTreeUnit));
    const AlignedBuffer bytes = MakeAlignedBuffer(std::min<std::uint64_t>(kPart, pinned.super.end) * format::kTreeUnit);
    for (const FreeSpaceMap::Run& run : pinned.runs) {
      for (std::uint64_t at = 0; at < run.units && run.place + at < pinned.super.end; at += kPart) {
        const std::uint64_t units = std::min({kPart, run.units - at, pinned.super.end - run.place - at});
        const std::span<std::byte> part(bytes.get(), units * format::kTreeUnit);
        HAKO_RETURN_IF_ERROR(file_.ReadAt((run.place + at) * format::kTreeUnit, part));
        HAKO_RETURN_IF_ERROR(out.WriteAt((run.place + at) * format::kTreeUnit, part));
      }
    }
    HAKO_RETURN_IF_ERROR(CheckReader());
    HAKO_RETURN_IF_ERROR(out.Sync());
    Super super = pinned.super;
    super.file_id = RandomSeed();
    super.check = format::CheckOf(super);
    HAKO_RETURN_IF_ERROR(out.WriteAt(super.sequence % 2 * storage::kSlotDistance, std::as_bytes(std::span(&super, 1))));
    return out.Sync();
  }

 private:
  PageStore(FileT file, const Super& super, PageMap map, const storage::FileKind& kind)
      : kind_(kind), file_(std::move(file)), super_(super), pages_(file_, std::move(map), super.secret), first_sequence_(super.sequence) {
    NoteSuper();
  }

  // Writes the first superblock of an empty file.
  static StatusOr<Super> Create(FileT& file, std::string_view comparator, std::string_view codec, std::uint32_t page_size,
                                const storage::FileKind& kind, std::uint64_t clock) {
    Super super{};
    super.magic = kind.magic;
    super.version = VersionOf(kind, clock);
    super.clock = clock;
    super.page_size = page_size;
    comparator.copy(super.comparator.data(), super.comparator.size());
    codec.copy(super.codec.data(), super.codec.size());
    super.secret = RandomSeed();
    super.file_id = RandomSeed();
    super.end = format::kTreeFirstUnit;
    super.sequence = 1;
    super.check = format::CheckOf(super);
    HAKO_RETURN_IF_ERROR(file.Resize(format::kTreeFirstUnit * format::kTreeUnit));
    HAKO_RETURN_IF_ERROR(file.WriteAt(super.sequence % 2 * storage::kSlotDistance, std::as_bytes(std::span(&super, 1))));
    // Write the superblock first, because otherwise pages could reach a file without a valid one.
    HAKO_RETURN_IF_ERROR(file.Sync());
    return super;
  }

  static std::uint32_t VersionOf(const storage::FileKind& kind, std::uint64_t clock) {
    return kind.magic == kKind.magic && clock == 0 ? format::kTreeFilePlainVersion : kind.newest;
  }
  static Status Validate(const Super& super, std::uint64_t size, std::string_view comparator, std::string_view codec) {
    const auto bad = [](const char* what, std::size_t field) {
      return DataLossError(absl::StrCat("bad superblock: ", what).c_str(), field);
    };
    HAKO_RETURN_IF_ERROR(CheckNames(super, comparator, codec));
    const bool is_tree = super.magic == kKind.magic;
    if (is_tree && (super.page_size < 128 || super.page_size > 8192)) return bad("page size", offsetof(Super, page_size));
    if (super.end < format::kTreeFirstUnit) return bad("end", offsetof(Super, end));
    if (super.end > size / format::kTreeUnit) return DataLossError("the file is truncated: its pages extend beyond its end", size);
    if (super.id_end > format::kTreeIdsMax) return bad("number of ids", offsetof(Super, id_end));
    if (super.root >= super.id_end && super.root != 0) return bad("root", offsetof(Super, root));
    return absl::OkStatus();
  }

  // Stores `super` as the newer superblock. REQUIRES: everything that `super` names is durable
  // (unchecked: the device does not tell), and so is the present newer superblock
  Status StoreSuper(Super super) {
    HAKO_DCHECK(super_is_durable_);
    if (super.clock != 0) super.clock = std::max<std::uint64_t>(super.clock, clock_.load(std::memory_order_relaxed));
    super.first_expiry = first_expiry_;
    super.version = VersionOf(kind_, super.clock);
    super.sequence = super.sequence + 1;
    super.check = format::CheckOf(super);
    HAKO_RETURN_IF_ERROR(file_.WriteAt(super.sequence % 2 * storage::kSlotDistance, std::as_bytes(std::span(&super, 1))));
    HAKO_RETURN_IF_ERROR(file_.Sync());
    super_ = super;
    NoteSuper();
    return absl::OkStatus();
  }

  template <class F>
  Status FindFreeSpace(F& is_free) {
    FreeSpaceMap& map = space_.map();
    map.Reset(format::kTreeFirstUnit, super_.end);
    // Half-open ranges [first, second)
    std::vector<std::pair<std::uint64_t, std::uint64_t>> free_ids;
    std::uint64_t next_id = 0;
    HAKO_RETURN_IF_ERROR(pages_.ForEach([&](int level, std::uint64_t number, const Entry& entry) -> Status {
      if (!map.MarkUsed(entry.place(), entry.units()))
        return DataLossError("an image overlaps another, or lies outside the file,", entry.place() * format::kTreeUnit);
      if (level >= 0) return absl::OkStatus();
      if (number >= super_.id_end)
        return absl::DataLossError(absl::StrCat("the page map has an image for id ", number, ", which is not in use"));
      if (number > next_id) free_ids.emplace_back(next_id, number);
      next_id = number + 1;
      return absl::OkStatus();
    }));
    if (next_id < super_.id_end) free_ids.emplace_back(next_id, super_.id_end);
    const std::uint64_t size = super_.end * format::kTreeUnit;
    const bool is_writable = file_.device().IsWritable(), is_held = is_writable && LookAtReaders().oldest < first_sequence_;
    if (is_held) {
      map.Grow(std::max<std::uint64_t>(file_.size() / format::kTreeUnit, super_.end));
      space_.HoldFree(first_sequence_);
      NoteReaders();
    }
    space_is_known_ = true;
    NoteFree(file_.size(), space_.used_bytes());
    for (const auto& [first, end] : free_ids) is_free(static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(end));
    if (!is_writable || is_held || file_.size() <= size) return absl::OkStatus();
    NoteFree(size, space_.used_bytes());
    return file_.Resize(size);  // drops the space that a failed checkpoint has appended
  }

  ReadersFile::Pins LookAtReaders() {
    const ReadersFile::Pins pins = readers_ != nullptr ? readers_->Look(super_.sequence) : ReadersFile::Pins{};
    readers_status_.Assign(pins.status);
    num_readers_.store(pins.num_readers, std::memory_order_relaxed);
    oldest_reader_.store(pins.num_readers != 0 ? pins.oldest : 0, std::memory_order_relaxed);
    return pins;
  }
  // Returns the oldest checkpoint that a reader needs. Cuts off those that keep too much space, or are too old.
  // REQUIRES: the superblock of the last checkpoint can be read in the file (unchecked: the device does not tell)
  std::uint64_t OldestNeeded() {
    const ReadersFile::Pins pins = LookAtReaders();
    if (pins.oldest == ReadersFile::kNone) return pins.oldest;
    const std::uint64_t least = reader_limits_.bytes != 0 ? space_.OldestWithin(reader_limits_.bytes) : 0;
    const std::uint64_t now = reader_limits_.clock != nullptr ? reader_limits_.clock() : SteadyMilliseconds();
    const std::uint64_t since = reader_limits_.age != 0 ? now - std::min(now, reader_limits_.age) : 0;
    if (pins.oldest >= least && pins.since >= since) return pins.oldest;
    readers_->CutOffBelow(least, super_.sequence, since);
    return LookAtReaders().oldest;
  }
  void NoteReaders() { reader_bytes_.store(space_.released_bytes(), std::memory_order_relaxed); }

  Status WriteMap() {
    const auto write = [this](unsigned level, std::uint64_t node, std::span<const std::byte> bytes) {
      return writer_.Write(bytes, pages_.SeedOf(level, node), bytes.size());
    };
    HAKO_RETURN_IF_ERROR(
        pages_.WriteOut([this] { space_.MakeRoomToRetire(); }, write, [this](const Entry& before) { space_.Retire(before); }));
    return writer_.Flush();
  }

  // `file_bytes` is the size that the file has or will get.
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
  const std::uint64_t first_sequence_;    // of the superblock that Open has read
  std::unique_ptr<ReadersFile> readers_;  // of a writer
  ReaderLimits reader_limits_;
  std::unique_ptr<ReaderSlot> reader_;  // of a reader
  sync::StickyStatus readers_status_;
  std::atomic<std::uint64_t> num_readers_{0}, oldest_reader_{0}, reader_bytes_{0};
  bool is_written_ = false;
  std::atomic<std::uint64_t> free_bytes_{0}, num_commits_{0}, synced_at_{0};
};

}  // namespace hako::tree
