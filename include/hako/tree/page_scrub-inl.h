// Definitions of tree/page_scrub.h.
#pragma once

#include "hako/tree/page_scrub.h"

namespace hako::tree {

template <File FileT>
Status PageScrub<FileT>::Choose(std::uint64_t max_bytes, ScrubProgress* progress) {
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

// Only the newer slot counts: a crash may have torn the other one.
template <File FileT>
void PageScrub<FileT>::CheckSuperBlock(ScrubProgress* progress) {
  const std::uint64_t offset = store_.super().sequence % 2 * storage::kSlotDistance;
  format::TreeSuperBlock block{};
  const Status read = Read(offset, std::as_writable_bytes(std::span(&block, 1)), progress);
  if (!read.ok()) return progress->Add(Kind::kUnreadable, offset, sizeof(block), read);
  if (block.magic == store_.kind().magic && block.check == format::CheckOf(block) && block.sequence == store_.super().sequence) return;
  progress->Add(Kind::kSuperBlock, offset, sizeof(block), DataLossError("the superblock is damaged", offset));
}

template <File FileT>
Status PageScrub<FileT>::Check(ScrubProgress* progress) {
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

template <File FileT>
void PageScrub<FileT>::CheckRun(std::span<const Piece> run, ScrubProgress* progress) {
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

template <File FileT>
void PageScrub<FileT>::CheckBytes(const Piece& piece, std::span<const std::byte> bytes, ScrubProgress* progress) const {
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
  format::PageImageHeader header{};  // the head of a page that is damaged elsewhere tells that it is one
  std::memcpy(static_cast<void*>(&header), bytes.data(), sizeof(header));
  AddDamage(piece, bytes.size() <= format::kPageImageMax && header.id == piece.number, progress);
}

template <File FileT>
void PageScrub<FileT>::CheckLong(const Piece& piece, ScrubProgress* progress) {
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

template <File FileT>
void PageScrub<FileT>::AddDamage(const Piece& piece, bool is_page, ScrubProgress* progress) const {
  const Kind kind = piece.level >= 0 ? Kind::kPageMap : is_page ? Kind::kPage : Kind::kLongValue;
  const std::string what = piece.level >= 0 ? absl::StrCat("a node of the page map, ", piece.number, " of level ", piece.level, ",")
                                            : absl::StrCat(is_page ? "page " : "long value ", piece.number);
  const char* const how = IsInside(piece) ? " fails its checksum" : " lies outside the file";
  progress->Add(kind, piece.offset(), piece.size(), DataLossError(absl::StrCat(what, how), piece.offset()));
}

}  // namespace hako::tree
