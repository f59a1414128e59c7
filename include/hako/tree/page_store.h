// The file of a TreeDBM: images of pages and long values by id, and checkpoints
// (format/tree_file_format.h).
//
// A checkpoint is Begin, then Put, PutLong and Forget for the changes, then Commit. Put collects
// images in a buffer of one mebibyte, for which it takes runs of free units, so the device gets few
// and long writes, in the order in which the images come. A larger value is written directly.
//
// A failed checkpoint is taken back (TakeBack): its images are dropped and their space is free at
// once, so the file does not grow with each attempt. Some space is kept in reserve, so that a
// checkpoint still succeeds on a device that has become full, and removals can make room.
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
// Thread-safe: Read, ReadMulti, EntryOf, ReadLong, Copy, Health and the counters. One thread at a
// time may call the rest.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hako/base/aligned_buffer.h"
#include "hako/base/hash.h"
#include "hako/base/no_memory.h"
#include "hako/base/random_seed.h"
#include "hako/base/scratch_buffer.h"
#include "hako/base/status.h"
#include "hako/base/wall_clock.h"
#include "hako/file/file.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/superblock_slots.h"
#include "hako/sync/sticky_status.h"
#include "hako/tree/free_space_map.h"
#include "hako/tree/page_map.h"

namespace hako::tree {

template <File FileT>
class PageStore {
 public:
  using Super = format::TreeSuperBlock;
  using Entry = format::PageEntry;

  static StatusOr<std::unique_ptr<PageStore>> Open(FileT file, std::string_view comparator, std::string_view codec, std::uint32_t page_size,
                                                   std::uint64_t min_read_size = 0) {
    HAKO_ASSIGN_OR_RETURN(const bool blank, storage::IsBlankFile(file, kKind));
    Super super{};
    if (blank) {
      super.magic = kKind.magic;
      super.version = kKind.newest;
      super.page_size = page_size;
      comparator.copy(super.comparator.data(), super.comparator.size());
      codec.copy(super.codec.data(), super.codec.size());
      super.secret = RandomSeed();
      super.end = format::kTreeFirstUnit;
      super.sequence = 1;
      super.check = format::CheckOf(super);
      HAKO_RETURN_IF_ERROR(file.Resize(format::kTreeFirstUnit * format::kTreeUnit));
      HAKO_RETURN_IF_ERROR(file.WriteAt(super.sequence % 2 * storage::kSlotDistance, std::as_bytes(std::span(&super, 1))));
      // First, or pages could reach a file without a valid superblock.
      HAKO_RETURN_IF_ERROR(file.Sync());
    } else {
      HAKO_ASSIGN_OR_RETURN(super, storage::ReadNewerSlot<Super>(file, kKind, format::kTreeFirstUnit * format::kTreeUnit));
      HAKO_RETURN_IF_ERROR(Validate(super, file.Size(), comparator, codec));
    }
    HAKO_ASSIGN_OR_RETURN(PageMap map, PageMap::Create(super.map));
    return std::unique_ptr<PageStore>(new PageStore(std::move(file), super, std::move(map), min_read_size));
  }
  // Reads the file as of a checkpoint that is pinned there.
  static StatusOr<std::unique_ptr<PageStore>> OpenAt(FileT file, const Super& super) {
    HAKO_ASSIGN_OR_RETURN(PageMap map, PageMap::Create(super.map));
    return std::unique_ptr<PageStore>(new PageStore(std::move(file), super, std::move(map), 0));
  }
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  // The superblock of the last checkpoint; its root is 0 if there was none yet.
  const Super& super() const { return super_; }
  FileT& file() { return file_; }
  FileCounters counters() const {
    return {reads_.load(std::memory_order_relaxed), read_bytes_.load(std::memory_order_relaxed), writes_.load(std::memory_order_relaxed),
            written_bytes_.load(std::memory_order_relaxed)};
  }
  // Images whose first read was too short (TreeOptions::min_read_size).
  std::uint64_t second_reads() const { return second_reads_.load(std::memory_order_relaxed); }
  std::uint64_t map_bytes() const { return map_bytes_.load(std::memory_order_relaxed); }
  // The size of the file, and how much of it is free. The latter is known after the first Commit,
  // or after CountFree, which then reads the whole page map.
  std::uint64_t file_bytes() const { return file_.Size(); }
  std::uint64_t free_bytes() const { return free_bytes_.load(std::memory_order_relaxed); }
  Status CountFree() {
    if (space_is_known_) return absl::OkStatus();
    std::uint64_t used = format::kTreeFirstUnit;
    HAKO_RETURN_IF_ERROR(map_.ForEach(NodeLoader(), [&](int, std::uint64_t, const Entry& entry) -> Status {
      used += entry.units();
      return used <= super_.end ? absl::OkStatus()
                                : DataLossError("the images in the page map exceed the file, which ends", super_.end * format::kTreeUnit);
    }));
    const std::uint64_t size = file_.Size(), used_bytes = used * format::kTreeUnit;
    free_bytes_.store(size > used_bytes ? size - used_bytes : 0, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  std::uint64_t num_commits() const { return num_commits_.load(std::memory_order_relaxed); }
  std::uint64_t synced_at() const { return synced_at_.load(std::memory_order_relaxed); }

  // Reads the image of a page, zero-padded to whole units, and returns its size. REQUIRES: `out`
  // has format::kPageImageMax bytes
  StatusOr<std::size_t> Read(std::uint32_t id, std::span<std::byte> out) {
    return ReadChecked(id, [&](const Entry& entry) -> StatusOr<std::span<std::byte>> {
      const std::uint64_t size = entry.units() * format::kTreeUnit;
      if (entry.IsNone() || size > out.size())
        return absl::DataLossError(absl::StrCat("page ", id, " is not in the page map, or too large"));
      return out.first(size);
    });
  }
  struct ImageRequest {
    std::uint32_t id;
    // Empty: it could not be read this way; Read may still succeed, or gives the error.
    std::span<const std::byte> image = {};
  };
  // Reads several images with requests that are in flight together. They stay valid until this
  // thread calls ReadMulti again.
  void ReadMulti(std::span<ImageRequest> images) requires BatchFile<FileT>;
  // Where the image of an id lies now.
  StatusOr<Entry> EntryOf(std::uint32_t id) {
    std::unique_lock lock(map_mutex_);
    HAKO_ASSIGN_OR_RETURN(const Entry* at, map_.At(id, NodeReader(lock)));
    map_bytes_.store(map_.bytes(), std::memory_order_relaxed);
    return *at;
  }
  // Reads the long value that `entry` names, in parts, so that CutFile, and threads that need the
  // map, need not wait for the whole. May also return DataLoss if the id has another entry by now:
  // the value may have been moved, or freed and the id reused.
  Status ReadLong(std::uint32_t id, const Entry& entry, std::span<char> out);

  // Begins a checkpoint. The first call finds the free space, and calls is_free(first, end) for ids
  // without an image.
  template <class F>
  Status Begin(F&& is_free) {
    HAKO_RETURN_IF_ERROR(Health());
    if (!space_is_known_) {
      if (file_.IsWritable()) HAKO_RETURN_IF_ERROR(MakeSuperDurable());
      HAKO_RETURN_IF_ERROR(FindFreeSpace(is_free));
    }
    space_.Rewind();
    no_run_of_ = ~std::uint64_t{0};
    is_written_ = false;
    if (buffer_ == nullptr) buffer_ = MakeAlignedBuffer(kRunUnits * format::kTreeUnit);
    return absl::OkStatus();
  }
  Status Put(std::uint32_t id, std::span<const std::byte> image) {
    HAKO_ASSIGN_OR_RETURN(const Entry entry, Write(image, SeedOf(id), UnitsFor(image.size()) * format::kTreeUnit));
    return Exchange(id, entry);
  }
  Status PutLong(std::uint32_t id, std::string_view value) {
    HAKO_ASSIGN_OR_RETURN(const Entry entry, Write(std::as_bytes(std::span(value)), SeedOf(id), value.size()));
    return Exchange(id, entry);
  }
  Status Forget(std::uint32_t id) { return Exchange(id, Entry{}); }
  // When a Put changes this number, all images that were put before it can be read from the file.
  std::uint64_t num_flushes() const { return num_flushes_; }

  // Makes all that was put durable. change(superblock) sets the caller's fields.
  template <class F>
  Status Commit(F&& change) {
    HAKO_RETURN_IF_ERROR(WriteMap());
    // Before the point of no return, as it may fail.
    released_.reserve(released_.size() + retired_.size());
    HAKO_RETURN_IF_ERROR(Sync());
    {
      std::lock_guard lock(map_mutex_);
      map_.MarkWritten();
      map_bytes_.store(map_.bytes(), std::memory_order_relaxed);
    }
    space_.ForgetYoung();  // even if WriteSuper fails, the superblock may be in the file
    is_written_ = true;
    Super super = super_;
    change(super);
    super.map = map_.roots();
    super.end = EndWithoutRetired();
    super.sequence = super.sequence + 1;
    super.synced_at = WallClock();
    super.check = format::CheckOf(super);
    HAKO_RETURN_IF_ERROR(WriteSuper(super));
    super_ = super;
    released_.insert(released_.end(), retired_.begin(), retired_.end());
    retired_.clear();
    if (num_pins_ == 0) FreeReleased();
    is_moving_ = false;
    if (is_short_ && KeepReserve(0).ok()) is_short_ = false;
    NoteCommit();
    return absl::OkStatus();
  }
  // Whether all that was put is in the file, although no superblock may name it yet.
  bool is_written() const { return is_written_; }

  // After a Put or a Commit that failed, unless is_written(): BeginTakeBack drops the images that
  // were not flushed, TakeBack(id) drops an image that will be put again, and EndTakeBack drops the
  // nodes of the map that were written. They free the space and need no memory.
  void BeginTakeBack() {
    const FreeSpaceMap::Run run = std::exchange(run_, {});
    const std::uint64_t filled = std::exchange(filled_, 0);
    if (filled < run.units) space_.Free(run.place + filled, run.units - filled);
    used_ = 0;
    runs_.clear();
  }
  void TakeBack(std::uint32_t id) {
    std::lock_guard lock(map_mutex_);
    // Its node is marked changed already.
    if (Entry* const at = map_.Find(id); at != nullptr && Withdraw(*at)) *at = Entry{};
  }
  void EndTakeBack() {
    std::lock_guard lock(map_mutex_);
    map_.TakeBack([this](const Entry& entry) { return Withdraw(entry); });
  }

  // Whether the device has become full. From then on the reserve may be used, until it is complete
  // again.
  bool is_short() const { return is_short_; }

  // OK, or FailedPrecondition after a failed write or sync: no checkpoint can be committed any
  // more. A write that finds the device full is not such a failure.
  Status Health() const { return failure_.Get(); }

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
  // Truncates the file behind the units that the last checkpoint needs. REQUIRES: no Put since
  Status CutFile() {
    if (!space_is_known_ || num_pins_ != 0) return absl::OkStatus();
    const std::uint64_t end = std::max(space_.UsedEnd(), std::uint64_t{super_.end});
    space_.Shrink(end);
    NoteCommit();  // before the file shrinks, so free_bytes never exceeds file_bytes
    // Keeps new readers out, which could otherwise hold cut_mutex_ without end.
    std::lock_guard map_lock(map_mutex_);
    std::lock_guard cut_lock(cut_mutex_);
    return file_.Resize(end * format::kTreeUnit);
  }

  // The last checkpoint, readable until Unpin. Between the two, Copy may write it to another file,
  // from any thread.
  struct Pinned {
    Super super;
    std::vector<FreeSpaceMap::Run> runs;
  };
  StatusOr<Pinned> Pin() {
    HAKO_RETURN_IF_ERROR(Begin([](std::uint32_t, std::uint32_t) {}));
    Pinned pinned{super_, {}};
    space_.ForEachUsedRun([&](std::uint64_t place, std::uint64_t units) { pinned.runs.push_back({place, units}); });
    ++num_pins_;
    return pinned;
  }
  void Unpin() {
    if (--num_pins_ == 0) FreeReleased();
  }
  template <File OtherFile>
  Status Copy(const Pinned& pinned, OtherFile& out) const;

 private:
  static constexpr storage::FileKind kKind{"tree", format::kTreeFileMagic, 1, format::kTreeFileVersion};
  static constexpr std::uint64_t kIdsMax = std::uint64_t{format::kMapRoots} * format::kMapFanout * format::kMapFanout * format::kMapFanout;
  static constexpr std::uint64_t kRunUnits = (1 << 20) / format::kTreeUnit;
  static constexpr std::uint64_t kReserveMin = (256 << 10) / format::kTreeUnit;
  // Shorter ones are taken only before the file must grow.
  static constexpr std::uint64_t kGoodRun = (64 << 10) / format::kTreeUnit;

  PageStore(FileT file, const Super& super, PageMap map, std::uint64_t min_read_size)
      : file_(std::move(file)), super_(super), secret_(super.secret), min_read_size_(min_read_size), map_(std::move(map)) {
    NoteCommit();
  }

  void NoteCommit() {
    free_bytes_.store(space_.free_units() * format::kTreeUnit, std::memory_order_relaxed);
    num_commits_.store(super_.sequence, std::memory_order_relaxed);
    synced_at_.store(super_.synced_at, std::memory_order_relaxed);
  }

  static std::uint64_t UnitsFor(std::uint64_t bytes) { return (bytes + format::kTreeUnit - 1) / format::kTreeUnit; }
  std::uint64_t SeedOf(std::uint32_t id) const { return MixBits(secret_ ^ id); }
  std::uint64_t SeedOf(unsigned level, std::uint64_t node) const { return MixBits(secret_ ^ ((level + 1ull) << 32 | node)); }

  static Status Validate(const Super& super, std::uint64_t size, std::string_view comparator, std::string_view codec) {
    const auto bad = [](const char* what, std::size_t field) {
      return DataLossError(absl::StrCat("bad superblock: ", what).c_str(), field);
    };
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
    if (super.page_size < 128 || super.page_size > 8192) return bad("page size", offsetof(Super, page_size));
    if (super.end < format::kTreeFirstUnit) return bad("end", offsetof(Super, end));
    if (super.end > size / format::kTreeUnit) return DataLossError("the file is truncated: its pages extend beyond its end", size);
    if (super.id_end > kIdsMax) return bad("number of ids", offsetof(Super, id_end));
    if (super.root >= super.id_end && super.root != 0) return bad("root", offsetof(Super, root));
    return absl::OkStatus();
  }

  // Reads the image that the map names. If it does not match its check, tries again when the map
  // names another place: the image may have been moved meanwhile.
  template <class F>
  StatusOr<std::size_t> ReadChecked(std::uint32_t id, F&& place_for) {
    for (Entry tried{};;) {
      Entry entry;
      std::shared_lock<std::shared_mutex> not_cut;
      {
        std::unique_lock lock(map_mutex_);
        HAKO_ASSIGN_OR_RETURN(const Entry* at, map_.At(id, NodeReader(lock)));
        entry = *at;
        not_cut = std::shared_lock(cut_mutex_);
        map_bytes_.store(map_.bytes(), std::memory_order_relaxed);
      }
      if (!IsInFile(entry)) return DataLossError(absl::StrCat("page ", id, " lies outside the file"), entry.place() * format::kTreeUnit);
      HAKO_ASSIGN_OR_RETURN(const std::span<std::byte> out, place_for(entry));
      HAKO_RETURN_IF_ERROR(ReadAt(entry, out));
      if (Hash64(out.data(), out.size(), SeedOf(id)) == entry.check) return out.size();
      if (std::memcmp(&entry, &tried, sizeof(entry)) == 0) {
        return DataLossError(absl::StrCat("page ", id, " fails its checksum"), entry.place() * format::kTreeUnit);
      }
      tried = entry;
    }
  }
  bool IsInFile(const Entry& entry) const { return entry.place() + entry.units() <= file_.Size() / format::kTreeUnit; }
  Status ReadAt(const Entry& entry, std::span<std::byte> out) const {
    reads_.fetch_add(1, std::memory_order_relaxed);
    read_bytes_.fetch_add(out.size(), std::memory_order_relaxed);
    const std::uint64_t first = min_read_size_ != 0 ? std::min<std::uint64_t>(min_read_size_, out.size()) : out.size();
    HAKO_RETURN_IF_ERROR(file_.ReadAt(entry.place() * format::kTreeUnit, out.first(first)));
    if (first == out.size()) return absl::OkStatus();
    second_reads_.fetch_add(1, std::memory_order_relaxed);
    return file_.ReadAt(entry.place() * format::kTreeUnit + first, out.subspan(first));
  }
  // The `read` argument of the map's functions. Releases `lock` while it reads; the file is not cut
  // in that time.
  auto NodeReader(std::unique_lock<std::mutex>& lock) {
    return [this, &lock](const Entry& entry, unsigned level, std::uint64_t node, std::span<std::byte> out) -> Status {
      std::shared_lock not_cut(cut_mutex_);
      lock.unlock();
      const Status status = ReadNode(entry, level, node, out);
      not_cut.unlock();  // before map_mutex_ is locked again: cut_mutex_ comes after it
      lock.lock();
      return status;
    };
  }
  auto NodeLoader() {
    return [this](unsigned level, std::uint64_t node) -> StatusOr<bool> {
      std::unique_lock lock(map_mutex_);
      return map_.Load(level, node, NodeReader(lock));
    };
  }
  Status ReadNode(const Entry& entry, unsigned level, std::uint64_t node, std::span<std::byte> out) const {
    if (!IsInFile(entry) || entry.units() * format::kTreeUnit != out.size())
      return absl::DataLossError(absl::StrCat("page map node ", node, " has a wrong size or place"));
    HAKO_RETURN_IF_ERROR(ReadAt(entry, out));
    if (Hash64(out.data(), out.size(), SeedOf(level, node)) == entry.check) return absl::OkStatus();
    return DataLossError("a page map node fails its checksum", entry.place() * format::kTreeUnit);
  }

  // The process that wrote the newer superblock may have died, or its sync may have failed: then
  // that superblock is in the kernel's page cache only, and the device still has the older one,
  // whose space must not be reused yet. After a failed sync, another sync alone is not enough, as
  // the kernel may take unwritten pages for clean. So the block is dirtied again by a change of one
  // byte, which no kill of the process can leave half done.
  Status MakeSuperDurable() {
    ++reinterpret_cast<unsigned char&>(super_.touched[0]);
    HAKO_RETURN_IF_ERROR(WriteAt(super_.sequence % 2 * storage::kSlotDistance + offsetof(Super, touched),
                                 std::as_bytes(std::span(super_.touched).first(1))));
    return Sync();
  }
  Status WriteSuper(const Super& super) {
    HAKO_RETURN_IF_ERROR(WriteAt(super.sequence % 2 * storage::kSlotDistance, std::as_bytes(std::span(&super, 1))));
    return Sync();
  }

  template <class F>
  Status FindFreeSpace(F& is_free) {
    space_.Reset(format::kTreeFirstUnit, super_.end);
    // Half-open ranges [first, second)
    std::vector<std::pair<std::uint64_t, std::uint64_t>> free_ids;
    std::uint64_t next_id = 0;
    HAKO_RETURN_IF_ERROR(map_.ForEach(NodeLoader(), [&](int level, std::uint64_t number, const Entry& entry) -> Status {
      if (!space_.MarkUsed(entry.place(), entry.units()))
        return DataLossError("an image overlaps another, or lies outside the file,", entry.place() * format::kTreeUnit);
      if (level >= 0) return absl::OkStatus();
      if (number >= super_.id_end)
        return absl::DataLossError(absl::StrCat("the page map has an image for id ", number, ", which is not in use"));
      if (number > next_id) free_ids.emplace_back(next_id, number);
      next_id = number + 1;
      return absl::OkStatus();
    }));
    if (next_id < super_.id_end) free_ids.emplace_back(next_id, super_.id_end);
    space_is_known_ = true;
    for (const auto& [first, end] : free_ids) {
      is_free(static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(end));
    }
    if (file_.IsWritable() && file_.Size() > super_.end * format::kTreeUnit)
      // Drops the space that a failed checkpoint has appended.
      return file_.Resize(super_.end * format::kTreeUnit);
    return absl::OkStatus();
  }

  // A run of at least `least` units.
  StatusOr<FreeSpaceMap::Run> TakeRun(std::uint64_t least, std::uint64_t most) {
    if (!is_short_) HAKO_RETURN_IF_ERROR(KeepReserve(least));
    const std::uint64_t good = is_moving_ ? least : std::min(most, std::max(least, kGoodRun));
    for (const std::uint64_t want : {good, least}) {
      if (want >= no_run_of_) continue;  // otherwise each image would search the whole space again
      if (const FreeSpaceMap::Run run = space_.Take(want, most); run.units != 0) return run;
      no_run_of_ = want;
    }
    HAKO_RETURN_IF_ERROR(GrowBy(std::max({most, kRunUnits, space_.end() / 16}), least));
    return space_.Take(least, most);
  }
  // Grows the file by `good` units, ahead of the demand, or by `least` if the device is nearly
  // full.
  Status GrowBy(std::uint64_t good, std::uint64_t least) {
    Status status;
    for (const std::uint64_t more : {good, least}) {
      const std::uint64_t end = space_.end() + more;
      status = file_.Resize(end * format::kTreeUnit);
      if (status.ok()) {
        space_.Grow(end);
        no_run_of_ = ~std::uint64_t{0};
        return status;
      }
      if (!absl::IsResourceExhausted(status)) return status;
    }
    is_short_ = true;
    return status;
  }
  // Grows the file unless the reserve and `units` are free.
  Status KeepReserve(std::uint64_t units) {
    const std::uint64_t wanted = units + std::max(kReserveMin, space_.end() / 64), free = space_.free_units();
    if (free >= wanted) return absl::OkStatus();
    return GrowBy(std::max({kRunUnits, space_.end() / 16, wanted - free}), wanted - free);
  }

  // Copies an image to the buffer and returns its entry, whose check covers `checked`
  // bytes; those beyond the image are zero.
  StatusOr<Entry> Write(std::span<const std::byte> image, std::uint64_t seed, std::uint64_t checked) {
    const std::uint64_t units = UnitsFor(image.size());
    if (units > kRunUnits) return WriteLong(image, seed);
    if (units > run_.units - filled_) {
      EndRun();
      if (units > kRunUnits - used_) HAKO_RETURN_IF_ERROR(Flush());
      HAKO_ASSIGN_OR_RETURN(run_, TakeRun(units, kRunUnits - used_));
    }
    std::byte* const to = buffer_.get() + (used_ + filled_) * format::kTreeUnit;
    std::memcpy(to, image.data(), image.size());
    std::memset(to + image.size(), 0, units * format::kTreeUnit - image.size());
    const Entry entry = Entry::For(run_.place + filled_, units, Hash64(to, checked, seed));
    filled_ += units;
    return entry;
  }
  StatusOr<Entry> WriteLong(std::span<const std::byte> value, std::uint64_t seed) {
    const std::uint64_t units = UnitsFor(value.size()), whole = value.size() / format::kTreeUnit * format::kTreeUnit;
    HAKO_ASSIGN_OR_RETURN(const FreeSpaceMap::Run run, TakeRun(units, units));
    Status status = WriteAt(run.place * format::kTreeUnit, value.first(whole));
    if (status.ok() && whole < value.size()) {
      std::array<std::byte, format::kTreeUnit> last{};
      std::ranges::copy(value.subspan(whole), last.begin());
      status = WriteAt(run.place * format::kTreeUnit + whole, last);
    }
    if (!status.ok()) {
      space_.Free(run.place, run.units);
      return status;
    }
    return Entry::For(run.place, units, Hash64(value.data(), value.size(), seed));
  }
  // Free space may be many short runs: the buffer is filled for several, which are written
  // together.
  void EndRun() {
    const FreeSpaceMap::Run run = std::exchange(run_, {});
    const std::uint64_t filled = std::exchange(filled_, 0);
    if (filled < run.units) space_.Free(run.place + filled, run.units - filled);
    if (filled == 0) return;
    runs_.push_back({run.place * format::kTreeUnit, {buffer_.get() + used_ * format::kTreeUnit, filled * format::kTreeUnit}});
    used_ += filled;
  }
  Status Flush() {
    EndRun();
    used_ = 0;
    const std::vector<WriteRequest> runs = std::exchange(runs_, {});
    if (runs.empty()) return absl::OkStatus();
    Status status;
    if constexpr (BatchFile<FileT>) {
      for (const WriteRequest& run : runs) CountWrite(run.in.size());
      status = NoteFailure(file_.WriteMulti(runs));
    } else {
      for (const WriteRequest& run : runs) HAKO_RETURN_IF_ERROR(WriteAt(run.offset, run.in));
    }
    HAKO_RETURN_IF_ERROR(status);
    ++num_flushes_;
    return absl::OkStatus();
  }
  void CountWrite(std::size_t size) {
    writes_.fetch_add(1, std::memory_order_relaxed);
    written_bytes_.fetch_add(size, std::memory_order_relaxed);
  }
  Status NoteFailure(Status status) {
    if (absl::IsResourceExhausted(status))
      is_short_ = true;
    else if (!status.ok())
      Poison(status);
    return status;
  }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> bytes) {
    CountWrite(bytes.size());
    return NoteFailure(file_.WriteAt(offset, bytes));
  }
  Status Sync() {
    Status status = file_.Sync();
    if (!status.ok()) Poison(status);
    return status;
  }
  void Poison(const Status& why) { failure_.Set(NoMoreWritesError(why)); }

  // Frees the space of the entry if it fails.
  Status Exchange(std::uint32_t id, const Entry& entry) {
    const StatusOr<Entry> before = CatchNoMemory([&]() -> StatusOr<Entry> {
      MakeRoomToRetire();
      std::unique_lock lock(map_mutex_);
      return map_.Exchange(id, entry, NodeReader(lock));
    });
    if (!before.ok() && !entry.IsNone()) space_.Free(entry.place(), entry.units());
    HAKO_RETURN_IF_ERROR(before.status());
    Retire(*before);
    std::lock_guard lock(map_mutex_);
    map_bytes_.store(map_.bytes(), std::memory_order_relaxed);
    return absl::OkStatus();
  }
  Status WriteMap() {
    map_.SortChanged();
    std::unique_lock lock(map_mutex_);
    const auto write = [&](unsigned level, std::uint64_t node, std::span<const std::byte> bytes, const Entry& before) -> StatusOr<Entry> {
      MakeRoomToRetire();
      lock.unlock();
      const StatusOr<Entry> entry = Write(bytes, SeedOf(level, node), bytes.size());
      lock.lock();
      if (entry.ok()) Retire(before);
      return entry;
    };
    HAKO_RETURN_IF_ERROR(map_.WriteOut(
        NodeReader(lock), [this] { MakeRoomToRetire(); }, write, [this](const Entry& before) { Retire(before); }));
    lock.unlock();
    return Flush();
  }
  // For the next Retire, which must not fail.
  void MakeRoomToRetire() {
    if (retired_.size() == retired_.capacity()) retired_.reserve(2 * retired_.size() + 16);
  }
  bool Withdraw(const Entry& entry) {
    if (entry.IsNone() || !space_.IsYoung(entry.place())) return false;
    space_.Free(entry.place(), entry.units());
    return true;
  }
  // Space that no checkpoint has committed is free at once.
  void Retire(const Entry& entry) {
    if (entry.IsNone()) return;
    if (space_.IsYoung(entry.place()))
      space_.Free(entry.place(), entry.units());
    else
      retired_.push_back({entry.place(), entry.units()});
  }
  // The end of the state that is about to be committed.
  std::uint64_t EndWithoutRetired() {
    const std::initializer_list<const std::vector<FreeSpaceMap::Run>*> both = {&retired_, &released_};
    for (const auto* runs : both) {
      for (const FreeSpaceMap::Run& run : *runs) space_.Free(run.place, run.units);
    }
    const std::uint64_t end = space_.UsedEnd();
    for (const auto* runs : both) {
      for (const FreeSpaceMap::Run& run : *runs) space_.MarkUsed(run.place, run.units);
    }
    return end;
  }
  void FreeReleased() {
    for (const FreeSpaceMap::Run& run : released_) space_.Free(run.place, run.units);
    released_.clear();
  }

  FileT file_;
  Super super_;
  const std::uint64_t secret_;  // for readers, which must not read super_ while it changes
  const std::uint64_t min_read_size_;
  std::mutex map_mutex_;  // not held during I/O, except by CutFile
  // Held shared while a place that the map has named is read; locked after map_mutex_.
  std::shared_mutex cut_mutex_;
  PageMap map_;
  FreeSpaceMap space_;
  bool space_is_known_ = false;
  std::vector<FreeSpaceMap::Run> retired_;   // freed since the last checkpoint, which may need them
  std::vector<FreeSpaceMap::Run> released_;  // freed before it; a pinned checkpoint may need them
  unsigned num_pins_ = 0;
  bool is_written_ = false, is_short_ = false;
  bool is_moving_ = false;  // until the next Commit, each image goes as far to the front as it can
  AlignedBuffer buffer_;
  std::uint64_t used_ = 0;          // units of the buffer that runs_ fill
  std::vector<WriteRequest> runs_;  // complete ones
  FreeSpaceMap::Run run_;           // the run being filled
  std::uint64_t filled_ = 0;        // units of it
  // Units: this checkpoint has no free run of this length.
  std::uint64_t no_run_of_ = ~std::uint64_t{0};
  std::uint64_t num_flushes_ = 0;
  sync::StickyStatus failure_;
  std::atomic<std::uint64_t> map_bytes_{0}, free_bytes_{0}, num_commits_{0}, synced_at_{0};
  mutable std::atomic<std::uint64_t> reads_{0}, read_bytes_{0}, second_reads_{0};
  std::atomic<std::uint64_t> writes_{0}, written_bytes_{0};
};

}  // namespace hako::tree

#include "hako/tree/page_store-inl.h"
