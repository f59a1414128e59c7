// Checks the file of an open tree a part at a time: every page, long value and node of the page map
// of the last checkpoint, and the superblock, as the device has them.
//
// An image is checked against the entry that names it, without its parent page or the leaf that
// names a long value. The size of a long value is in its leaf only, so each of the 512 sizes that
// fill the same number of units is tried. So no page is loaded into the buffer pool, and a damaged
// leaf does not hide its long values.
//
// Choose takes entries from the page map in the order of ids; Check then reads them in the order of
// the file. The space of the checkpoint is pinned from Choose until Check has returned. So an image
// that fails its check is damaged, and was not merely replaced.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/base/aligned_buffer.h"
#include "hako/base/hash.h"
#include "hako/base/hash_stream.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/scrub_progress.h"
#include "hako/storage/superblock_slots.h"
#include "hako/tree/file/page_store.h"

namespace hako::tree {

template <File FileT>
class PageScrub {
  using Entry = format::PageEntry;
  using Kind = SalvageReport::Kind;

 public:
  // The store must outlive the object.
  explicit PageScrub(PageStore<FileT>& store) : store_(store) {}

  // Chooses what Check will read: up to `max_bytes` and one image more. At the beginning of a pass,
  // checks the superblock first.
  // REQUIRES: no checkpoint runs (unchecked: the store does not know them; Scrub holds the maintenance mutex)
  Status Choose(std::uint64_t max_bytes, ScrubProgress* progress) {
    chosen_.clear();
    after_ = 0;
    if (next_ == 0) CheckSuperBlock(progress);
    std::uint64_t bytes = 0, num_images = 0;
    const auto visit = [&](int level, std::uint64_t number, const Entry& entry) {
      if (level < 0 && num_images++ != 0 && bytes >= max_bytes) {
        after_ = number;
        return absl::CancelledError();
      }
      chosen_.push_back({level, number, entry});
      bytes += chosen_.back().size();
      return absl::OkStatus();
    };
    const auto damaged = [&](const Entry& entry, const Status& status) {
      const Kind kind = absl::IsDataLoss(status) ? Kind::kPageMap : Kind::kUnreadable;
      progress->Add(kind, entry.place() * format::kTreeUnit, kNodeBytes, status);
    };
    const Status status = store_.pages().ForEachReadable(next_, visit, damaged);
    progress->end = std::max<std::uint64_t>(store_.super().id_end, next_);  // a Clear may have lowered it
    return absl::IsCancelled(status) ? absl::OkStatus() : status;
  }

  // Reads the chosen images. Only a lack of memory is an error; the next Choose then chooses the
  // same images again.
  // REQUIRES: the space of the last checkpoint is pinned since Choose
  Status Check(ScrubProgress* progress) {
    HAKO_DCHECK(store_.space_is_pinned());
    buffer_ = MakeAlignedBuffer(kRunMax, HugePagesFor(store_.file().Size(), kRunMax));
    std::ranges::sort(chosen_, {}, [](const Piece& piece) { return piece.entry.place(); });
    for (std::size_t begin = 0, end; begin < chosen_.size(); begin = end) {
      const Piece& first = chosen_[begin];
      end = begin + 1;
      if (!IsInside(first)) {
        AddDamage(first, false, progress);
      } else if (first.size() > kRunMax) {
        CheckLong(first, progress);
      } else {
        const auto follows = [&](const Piece& next) {
          return IsInside(next) && next.offset() <= chosen_[end - 1].end() + kGapMax && next.end() - first.offset() <= kRunMax;
        };
        while (end < chosen_.size() && follows(chosen_[end])) ++end;
        CheckRun(std::span(chosen_).subspan(begin, end - begin), progress);
      }
    }
    buffer_.reset();
    next_ = after_;
    progress->is_complete = next_ == 0;
    progress->position = progress->is_complete ? progress->end : next_;
    return absl::OkStatus();
  }

 private:
  // An image of an id, or a node of the page map.
  struct Piece {
    int level;  // -1: an image
    std::uint64_t number;
    Entry entry;

    std::uint64_t offset() const { return entry.place() * format::kTreeUnit; }
    std::uint64_t size() const { return entry.units() * format::kTreeUnit; }
    std::uint64_t end() const { return offset() + size(); }
  };
  static constexpr std::uint64_t kRunMax = 1 << 20;   // bytes read together
  static constexpr std::uint64_t kGapMax = 16 << 10;  // reading it takes no longer than another read
  static constexpr std::uint64_t kNodeBytes = format::kMapFanout * sizeof(Entry);

  // Checks only the newer slot: a crash may have left the other one half-written. Beside a writer a later
  // superblock may be in either slot, and the writer may write it now: then the other slot is whole, or the next
  // look finds both whole.
  void CheckSuperBlock(ScrubProgress* progress) {
    static constexpr int kLooks = 4;
    const std::uint64_t mine = store_.super().sequence;
    const auto is_whole = [&](std::uint64_t sequence, Status* read) {
      format::TreeSuperBlock block{};
      *read = Read(sequence % 2 * storage::kSlotDistance, std::as_writable_bytes(std::span(&block, 1)), progress);
      return read->ok() && block.magic == store_.kind().magic && block.check == format::CheckOf(block) &&
             (store_.has_reader() ? block.sequence >= mine : block.sequence == mine);
    };
    const std::uint64_t offset = mine % 2 * storage::kSlotDistance;
    Status read, read_other;
    for (int looks = 0; looks < (store_.has_reader() ? kLooks : 1); ++looks) {
      if (is_whole(mine, &read) || (store_.has_reader() && is_whole(mine + 1, &read_other))) return;
    }
    if (!read.ok()) return progress->Add(Kind::kUnreadable, offset, sizeof(format::TreeSuperBlock), read);
    progress->Add(Kind::kSuperBlock, offset, sizeof(format::TreeSuperBlock), DataLossError("the superblock is damaged", offset));
  }

  void CheckRun(std::span<const Piece> run, ScrubProgress* progress) {
    const std::uint64_t begin = run.front().offset();
    std::uint64_t end = 0;  // a damaged map may name a place within another
    for (const Piece& piece : run) end = std::max(end, piece.end());
    const bool is_read = Read(begin, {buffer_.get(), end - begin}, progress).ok();
    for (const Piece& piece : run) {
      const std::span<std::byte> bytes(buffer_.get() + (piece.offset() - begin), piece.size());
      const Status status = is_read ? absl::OkStatus() : Read(piece.offset(), bytes, progress);
      if (status.ok()) {
        CheckBytes(piece, bytes, progress);
      } else {
        AddUnreadable(piece, status, progress);
      }
    }
  }

  void CheckLong(const Piece& piece, ScrubProgress* progress) {
    HashStream hash(SeedOf(piece));
    for (std::uint64_t at = 0, size; at < piece.size(); at += size) {
      size = std::min(kRunMax, piece.size() - at);
      const std::span<std::byte> part(buffer_.get(), size);
      if (const Status status = Read(piece.offset() + at, part, progress); !status.ok()) return AddUnreadable(piece, status, progress);
      const bool is_last = at + size == piece.size();
      const std::size_t sure = size - (is_last ? format::kTreeUnit : 0);
      hash.Add(part.data(), sure);
      if (is_last && EndsValue(hash, part.subspan(sure), piece.entry.check)) return;
    }
    AddDamage(piece, false, progress);
  }

  void CheckBytes(const Piece& piece, std::span<const std::byte> bytes, ScrubProgress* progress) const {
    const bool is_node = piece.level >= 0;
    const std::uint64_t seed = SeedOf(piece);
    const bool is_whole = Hash64(bytes.data(), bytes.size(), seed) == piece.entry.check;
    if (is_node ? is_whole && bytes.size() == kNodeBytes : is_whole) return;
    if (!is_node) {
      HashStream before(seed);
      const std::size_t rest = bytes.size() - format::kTreeUnit;
      before.Add(bytes.data(), rest);
      if (EndsValue(before, bytes.subspan(rest), piece.entry.check)) return;
    }
    format::PageImageHeader header{};  // if a page is damaged after its head, the head still tells that it is a page
    std::memcpy(static_cast<void*>(&header), bytes.data(), sizeof(header));
    AddDamage(piece, bytes.size() <= format::kPageImageMax && header.id == piece.number, progress);
  }

  // Whether the bytes in `before`, followed by some prefix of the last unit, are a long value with
  // this check.
  static bool EndsValue(HashStream& before, std::span<const std::byte> unit, std::uint64_t check) {
    for (const std::byte& byte : unit) {
      before.Add(&byte, 1);
      if (before.Get() == check) return true;
    }
    return false;
  }
  std::uint64_t SeedOf(const Piece& piece) const {
    if (piece.level < 0) return store_.pages().SeedOf(static_cast<std::uint32_t>(piece.number));
    return store_.pages().SeedOf(static_cast<unsigned>(piece.level), piece.number);
  }
  bool IsInside(const Piece& piece) const {
    const std::uint64_t units = store_.file().Size() / format::kTreeUnit, place = piece.entry.place();
    return place >= format::kTreeFirstUnit && place <= units && piece.entry.units() <= units - place && piece.entry.units() != 0;
  }
  Status Read(std::uint64_t offset, std::span<std::byte> out, ScrubProgress* progress) const {
    progress->read_bytes += out.size();
    Status status = ReadFromDevice(store_.file(), offset, out);
    if (absl::IsResourceExhausted(status)) ThrowNoMemory();  // no damage: the call is to be repeated
    return status;
  }
  static void AddUnreadable(const Piece& piece, const Status& status, ScrubProgress* progress) {
    progress->Add(Kind::kUnreadable, piece.offset(), piece.size(), status);
  }
  void AddDamage(const Piece& piece, bool is_page, ScrubProgress* progress) const {
    const Kind kind = piece.level >= 0 ? Kind::kPageMap : is_page ? Kind::kPage : Kind::kLongValue;
    const std::string what = piece.level >= 0 ? absl::StrCat("a node of the page map, ", piece.number, " of level ", piece.level, ",")
                                              : absl::StrCat(is_page ? "page " : "long value ", piece.number);
    const char* const how = IsInside(piece) ? " fails its checksum" : " lies outside the file";
    progress->Add(kind, piece.offset(), piece.size(), DataLossError(absl::StrCat(what, how), piece.offset()));
  }

  PageStore<FileT>& store_;
  std::uint64_t next_ = 0;   // the first id that this pass has not checked
  std::uint64_t after_ = 0;  // value of next_ once the chosen images are checked; 0: the pass is complete
  std::vector<Piece> chosen_;
  AlignedBuffer buffer_;  // of kRunMax bytes, while Check runs
};

}  // namespace hako::tree
