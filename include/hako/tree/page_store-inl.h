// Definitions of tree/page_store.h: opening a file, and commits.
#pragma once

#include "hako/tree/page_store.h"

namespace hako::tree {

template <File FileT>
StatusOr<std::unique_ptr<PageStore<FileT>>> PageStore<FileT>::Open(FileT file, std::string_view comparator, std::string_view codec,
                                                                   std::uint32_t page_size, const storage::FileKind& kind,
                                                                   std::uint64_t clock) {
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

// Writes the first superblock of an empty file.
template <File FileT>
auto PageStore<FileT>::Create(FileT& file, std::string_view comparator, std::string_view codec, std::uint32_t page_size,
                              const storage::FileKind& kind, std::uint64_t clock) -> StatusOr<Super> {
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
  // First, or pages could reach a file without a valid superblock.
  HAKO_RETURN_IF_ERROR(file.Sync());
  return super;
}

template <File FileT>
Status PageStore<FileT>::CheckNames(const Super& super, std::string_view comparator, std::string_view codec) {
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

template <File FileT>
Status PageStore<FileT>::Validate(const Super& super, std::uint64_t size, std::string_view comparator, std::string_view codec) {
  const auto bad = [](const char* what, std::size_t field) { return DataLossError(absl::StrCat("bad superblock: ", what).c_str(), field); };
  HAKO_RETURN_IF_ERROR(CheckNames(super, comparator, codec));
  const bool is_tree = super.magic == kKind.magic;
  if (is_tree && (super.page_size < 128 || super.page_size > 8192)) return bad("page size", offsetof(Super, page_size));
  if (super.end < format::kTreeFirstUnit) return bad("end", offsetof(Super, end));
  if (super.end > size / format::kTreeUnit) return DataLossError("the file is truncated: its pages extend beyond its end", size);
  if (super.id_end > format::kTreeIdsMax) return bad("number of ids", offsetof(Super, id_end));
  if (super.root >= super.id_end && super.root != 0) return bad("root", offsetof(Super, root));
  return absl::OkStatus();
}

template <File FileT>
Status PageStore<FileT>::CountFree() {
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

// The process that wrote the newer superblock may have died, or its sync may have failed: then that
// superblock is in the kernel's page cache only, and the device still has the older one, whose
// space must not be reused yet. After a failed sync, another sync alone is not enough, as the
// kernel may take unwritten pages for clean. So the block is dirtied again by a change of one byte,
// which no kill of the process can leave half done.
//
// The images that the superblock names were synced before it was written. But a file that was closed
// may have been copied since, by a program that did not sync it: then all of it is synced, which
// takes long only if it has to.
template <File FileT>
Status PageStore<FileT>::MakeSuperDurable() {
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

template <File FileT>
Status PageStore<FileT>::SetLog(const log::DatabaseId& id, log::Position position) {
  HAKO_RETURN_IF_ERROR(Health());
  HAKO_RETURN_IF_ERROR(MakeSuperDurable());
  Super super = super_;
  super.log_id = id;
  super.log_lsn = position.lsn;
  super.log_sequence = position.sequence;
  return StoreSuper(super);
}

// Stores `super` as the newer superblock. REQUIRES: all that it names is durable, and so is the
// superblock that is the newer one now (of the former the device does not tell)
template <File FileT>
Status PageStore<FileT>::StoreSuper(Super super) {
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

template <File FileT>
template <class F>
Status PageStore<FileT>::FindFreeSpace(F& is_free) {
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
  space_is_known_ = true;
  NoteFree(file_.size(), space_.used_bytes());
  for (const auto& [first, end] : free_ids) is_free(static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(end));
  const std::uint64_t size = super_.end * format::kTreeUnit;
  if (!file_.device().IsWritable() || file_.size() <= size) return absl::OkStatus();
  NoteFree(size, space_.used_bytes());
  return file_.Resize(size);  // drops the space that a failed checkpoint has appended
}

template <File FileT>
template <class F>
Status PageStore<FileT>::Commit(F&& change) {
  HAKO_RETURN_IF_ERROR(WriteMap());
  // Before the point of no return, as it may fail.
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
  space_.Commit();
  NoteFree(file_.size(), space_.used_bytes());
  return absl::OkStatus();
}

template <File FileT>
Status PageStore<FileT>::WriteMap() {
  const auto write = [this](unsigned level, std::uint64_t node, std::span<const std::byte> bytes) {
    return writer_.Write(bytes, pages_.SeedOf(level, node), bytes.size());
  };
  HAKO_RETURN_IF_ERROR(
      pages_.WriteOut([this] { space_.MakeRoomToRetire(); }, write, [this](const Entry& before) { space_.Retire(before); }));
  return writer_.Flush();
}

template <File FileT>
Status PageStore<FileT>::CutFile() {
  if (!space_is_known_ || space_.is_pinned()) return absl::OkStatus();
  const std::uint64_t end = std::max(space_.map().UsedEnd(), std::uint64_t{super_.end}), size = end * format::kTreeUnit;
  space_.map().Shrink(end);
  NoteFree(size, space_.used_bytes());  // before the file shrinks, so free_bytes never exceeds file_bytes
  return pages_.Cut(size);
}

template <File FileT>
auto PageStore<FileT>::Pin(const log::NamedLog& log) -> StatusOr<Pinned> {
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

template <File FileT>
template <File OtherFile>
Status PageStore<FileT>::Copy(const Pinned& pinned, OtherFile& out) const {
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
  HAKO_RETURN_IF_ERROR(out.Sync());
  Super super = pinned.super;
  super.file_id = RandomSeed();
  super.check = format::CheckOf(super);
  HAKO_RETURN_IF_ERROR(out.WriteAt(super.sequence % 2 * storage::kSlotDistance, std::as_bytes(std::span(&super, 1))));
  return out.Sync();
}

}  // namespace hako::tree
