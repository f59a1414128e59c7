// Writes images to free space of a tree file. It collects them in a buffer, for which it takes runs
// of free units, so the device gets few long writes, in the order of the images. The buffer is as
// large as checkpoints need, up to a mebibyte. A larger value is written directly.
//
// One thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "hako/base/aligned_buffer.h"
#include "hako/base/hash.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/tree_file_format.h"
#include "hako/tree/file/file_space.h"
#include "hako/tree/file/tree_file.h"

namespace hako::tree {

template <File FileT>
class ImageWriter {
 public:
  using Entry = format::PageEntry;

  ImageWriter(TreeFile<FileT>& file, FileSpace<FileT>& space) : file_(file), space_(space) {}
  ImageWriter(const ImageWriter&) = delete;
  ImageWriter& operator=(const ImageWriter&) = delete;

  // Allocates the buffer, before the first Write, for images of about that many bytes.
  void Begin(std::uint64_t expected) {
    const std::uint64_t wanted = std::clamp(std::bit_ceil(expected / format::kTreeUnit), kRoomFirst, kRunUnits);
    if (buffer_ != nullptr && wanted <= room_) return;
    buffer_ = MakeAlignedBuffer(wanted * format::kTreeUnit);
    room_ = wanted;
  }
  // Copies an image to the buffer, with zeros after it, and returns its entry, whose check covers
  // `checked` bytes.
  StatusOr<Entry> Write(std::span<const std::byte> image, std::uint64_t seed, std::uint64_t checked) {
    const std::uint64_t units = format::TreeUnitsFor(image.size());
    if (units > kRunUnits) return WriteLong(image, seed);
    if (units > run_.units - filled_) {
      EndRun();
      if (units > room_ - used_) HAKO_RETURN_IF_ERROR(FlushAndGrow(units));
      HAKO_ASSIGN_OR_RETURN(run_, space_.Take(units, room_ - used_));
    }
    std::byte* const to = buffer_.get() + (used_ + filled_) * format::kTreeUnit;
    std::memcpy(to, image.data(), image.size());
    std::memset(to + image.size(), 0, units * format::kTreeUnit - image.size());
    const Entry entry = Entry::For(run_.place + filled_, units, Hash64(to, checked, seed));
    filled_ += units;
    return entry;
  }
  Status Flush() {
    EndRun();
    used_ = 0;
    const std::vector<WriteRequest> runs = std::exchange(runs_, {});
    if (runs.empty()) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(file_.WriteMulti(runs));
    ++num_flushes_;
    return absl::OkStatus();
  }
  // Once a Write changes this number, all images written before that Write can be read from the
  // file.
  std::uint64_t num_flushes() const { return num_flushes_; }
  // Drops the images in the buffer.
  void Drop() {
    space_.Free(std::exchange(run_, {}), std::exchange(filled_, 0));
    used_ = 0;
    runs_.clear();
  }

 private:
  static constexpr std::uint64_t kRunUnits = FileSpace<FileT>::kRunUnits;
  static constexpr std::uint64_t kRoomFirst = (64 << 10) / format::kTreeUnit, kGrowth = 4;
  static_assert(kRoomFirst * format::kTreeUnit >= format::kPageImageMax);

  // Writes the buffer, then makes it larger if possible; at least large enough for `units`.
  Status FlushAndGrow(std::uint64_t units) {
    HAKO_RETURN_IF_ERROR(Flush());
    if (room_ == kRunUnits) return absl::OkStatus();
    const std::uint64_t room = std::min(kRunUnits, std::max(kGrowth * room_, std::bit_ceil(units)));
    std::size_t bytes = room * format::kTreeUnit;
    AlignedBuffer larger = TryMakeAlignedBuffer(&bytes);
    if (larger == nullptr) return units > room_ ? NoMemoryError() : absl::OkStatus();
    buffer_ = std::move(larger);
    room_ = room;
    return absl::OkStatus();
  }
  StatusOr<Entry> WriteLong(std::span<const std::byte> value, std::uint64_t seed) {
    const std::uint64_t units = format::TreeUnitsFor(value.size()), whole = value.size() / format::kTreeUnit * format::kTreeUnit;
    HAKO_ASSIGN_OR_RETURN(const FreeSpaceMap::Run run, space_.Take(units, units));
    Status status = file_.WriteAt(run.place * format::kTreeUnit, value.first(whole));
    if (status.ok() && whole < value.size()) {
      std::array<std::byte, format::kTreeUnit> last{};
      std::ranges::copy(value.subspan(whole), last.begin());
      status = file_.WriteAt(run.place * format::kTreeUnit + whole, last);
    }
    if (!status.ok()) {
      space_.Free(run);
      return status;
    }
    return Entry::For(run.place, units, Hash64(value.data(), value.size(), seed));
  }
  // Free space may consist of many short runs. The buffer collects the images of several runs,
  // which are written together.
  void EndRun() {
    const FreeSpaceMap::Run run = std::exchange(run_, {});
    const std::uint64_t filled = std::exchange(filled_, 0);
    space_.Free(run, filled);
    if (filled == 0) return;
    runs_.push_back({run.place * format::kTreeUnit, {buffer_.get() + used_ * format::kTreeUnit, filled * format::kTreeUnit}});
    used_ += filled;
  }

  TreeFile<FileT>& file_;
  FileSpace<FileT>& space_;
  AlignedBuffer buffer_;
  std::uint64_t room_ = 0;          // units of the buffer
  std::uint64_t used_ = 0;          // units of the buffer that runs_ fill
  std::vector<WriteRequest> runs_;  // complete ones
  FreeSpaceMap::Run run_;           // the run being filled
  std::uint64_t filled_ = 0;        // units of run_ that are filled
  std::uint64_t num_flushes_ = 0;
};

}  // namespace hako::tree
