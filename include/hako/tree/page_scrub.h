// Checks the file of an open tree a part at a time: every page, long value and node of the page map
// of the last checkpoint, and the superblock, as the device has them.
//
// An image is checked by the entry that names it, without its page or the leaf that names a value:
// the check of a long value covers its bytes, and its size is one of the 512 that fill as many
// units. So no page is loaded into the buffer pool, and a damaged leaf does not hide its values.
//
// Choose takes entries from the page map in the order of ids; Check then reads them in the order of
// the file. Between the two, and until Check has returned, the space of the checkpoint is pinned:
// so an image that fails its check is damaged, and not replaced.
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
#include "hako/tree/page_store.h"

namespace hako::tree {

template <File FileT>
class PageScrub {
  using Entry = format::PageEntry;
  using Kind = SalvageReport::Kind;

 public:
  // The store must outlive the object.
  explicit PageScrub(PageStore<FileT>& store) : store_(store) {}

  // Chooses what Check will read: `max_bytes`, or one image more. Checks the superblock first where
  // a pass begins.
  // REQUIRES: no checkpoint runs (unchecked: the store does not know them; Scrub holds the maintenance mutex)
  Status Choose(std::uint64_t max_bytes, ScrubProgress* progress);
  // Reads the chosen images. Only a lack of memory is an error: the next Choose chooses it again.
  // REQUIRES: the space of the last checkpoint is pinned since Choose
  Status Check(ScrubProgress* progress);

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

  void CheckSuperBlock(ScrubProgress* progress);
  void CheckRun(std::span<const Piece> run, ScrubProgress* progress);
  void CheckLong(const Piece& piece, ScrubProgress* progress);
  void CheckBytes(const Piece& piece, std::span<const std::byte> bytes, ScrubProgress* progress) const;
  // Whether one of the prefixes of the last unit completes a long value.
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
  void AddDamage(const Piece& piece, bool is_page, ScrubProgress* progress) const;

  PageStore<FileT>& store_;
  std::uint64_t next_ = 0;   // the first id that this pass has not checked
  std::uint64_t after_ = 0;  // the same once the chosen images are checked; 0: the pass is complete
  std::vector<Piece> chosen_;
  AlignedBuffer buffer_;  // of kRunMax bytes, while Check runs
};

}  // namespace hako::tree

#include "hako/tree/page_scrub-inl.h"
