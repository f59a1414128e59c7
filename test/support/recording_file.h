// A file in memory that records every change, so that a test can build the states of the device
// after a power cut at any moment.
//
// The device writes 512-byte sectors whole, and unsynced changes at any time in any order. After a
// crash each sector therefore has its content at the last sync, or after any later write; so does
// the file's size. CrashImage() builds such a state from given choices; SyncedImage() and Image()
// are the two extremes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/file/bounds.h"
#include "hako/file/file.h"

namespace hako {

struct FileEvent {
  enum class Kind { kWrite, kResize, kSync };
  Kind kind;
  std::uint64_t offset = 0;           // of a write
  std::vector<std::byte> bytes = {};  // of a write
  std::uint64_t size = 0;             // of a resize: the new size
};

// The events of one file, in order, from a durable initial content. Any thread may record; the
// other functions are called afterwards.
class FileHistory {
 public:
  using Image = std::vector<std::byte>;
  static constexpr std::uint64_t kSectorSize = 512;
  static constexpr std::uint64_t kSizeChoice = ~std::uint64_t{0};  // in place of a sector's index: the choice of the file's size

  explicit FileHistory(Image start) : start_(start), now_(std::move(start)) {}

  const std::vector<FileEvent>& events() const { return events_; }

  // The file after the first `event_count` events, all of which reached the device.
  Image ImageAt(std::size_t event_count) const {
    Image image = start_;
    for (std::size_t i = 0; i < event_count; ++i) Apply(events_[i], image);
    return image;
  }

  // The file if the power failed after `event_count` events and no unsynced change reached the
  // device.
  Image SyncedImageAt(std::size_t event_count) const { return ImageAt(EventsSynced(event_count)); }

  // The file if the power failed after `event_count` events. For each sector changed since the last
  // sync, and for the size if it changed, `choose(sector index or kSizeChoice, n)` selects one of n
  // versions: 0 the synced one, n - 1 the latest.
  template <class Choose>
  Image CrashImageAt(std::size_t event_count, Choose&& choose) const {
    const std::size_t synced_count = EventsSynced(event_count);
    const Image synced = ImageAt(synced_count);
    std::map<std::uint64_t, std::vector<Sector>> versions;
    std::vector<std::uint64_t> sizes = {synced.size()};
    Image image = synced;
    for (std::size_t i = synced_count; i < event_count; ++i) {
      const FileEvent& event = events_[i];
      std::uint64_t begin = event.offset;
      std::uint64_t end = event.offset + event.bytes.size();
      if (event.kind == FileEvent::Kind::kResize) {  // truncated bytes become zero
        begin = std::min<std::uint64_t>(event.size, image.size());
        end = image.size();
        sizes.push_back(event.size);
      }
      Apply(event, image);
      for (std::uint64_t sector = begin / kSectorSize; sector * kSectorSize < end; ++sector) {
        std::vector<Sector>& of_sector = versions[sector];
        if (of_sector.empty()) of_sector.push_back(SectorOf(synced, sector));
        of_sector.push_back(SectorOf(image, sector));
      }
    }
    Image crashed = synced;
    crashed.resize(sizes.size() == 1 ? sizes[0] : sizes.at(choose(kSizeChoice, sizes.size())));
    for (const auto& [sector, of_sector] : versions) {
      const Sector& chosen = of_sector.at(choose(sector, of_sector.size()));
      const std::uint64_t begin = sector * kSectorSize;
      if (begin >= crashed.size()) continue;
      std::copy_n(chosen.begin(), std::min<std::uint64_t>(kSectorSize, crashed.size() - begin),
                  crashed.begin() + static_cast<std::ptrdiff_t>(begin));
    }
    return crashed;
  }

 private:
  friend class RecordingFile;
  using Sector = std::array<std::byte, kSectorSize>;

  static void Apply(const FileEvent& event, Image& image) {
    if (event.kind == FileEvent::Kind::kResize) image.resize(event.size);
    if (event.kind == FileEvent::Kind::kWrite) std::ranges::copy(event.bytes, image.begin() + static_cast<std::ptrdiff_t>(event.offset));
  }

  static Sector SectorOf(const Image& image, std::uint64_t sector) {
    Sector bytes{};
    const std::uint64_t begin = std::min<std::uint64_t>(sector * kSectorSize, image.size());
    std::ranges::copy(std::span(image).subspan(begin, std::min<std::uint64_t>(kSectorSize, image.size() - begin)), bytes.begin());
    return bytes;
  }

  // The number of events made durable by the last sync among the first `event_count`.
  std::size_t EventsSynced(std::size_t event_count) const {
    while (event_count > 0 && events_[event_count - 1].kind != FileEvent::Kind::kSync) --event_count;
    return event_count;
  }

  void Record(FileEvent event) {
    Apply(event, now_);
    events_.push_back(std::move(event));
  }

  mutable std::mutex mutex_;
  const Image start_;
  Image now_;
  std::vector<FileEvent> events_;
};

class RecordingFile {
 public:
  // `start` has the present contents of the device.
  explicit RecordingFile(FileHistory::Image start = {}) : history_(std::make_shared<FileHistory>(std::move(start))) {}

  // Kept by the test; it outlives the file.
  std::shared_ptr<const FileHistory> history() const { return history_; }

  std::uint64_t Size() const {
    const std::lock_guard lock(history_->mutex_);
    return history_->now_.size();
  }
  bool IsWritable() const { return true; }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
    const std::lock_guard lock(history_->mutex_);
    HAKO_RETURN_IF_ERROR(CheckInside(offset, out.size(), history_->now_.size()));
    std::ranges::copy(std::span(history_->now_).subspan(offset, out.size()), out.begin());
    return absl::OkStatus();
  }
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) {
    const std::lock_guard lock(history_->mutex_);
    HAKO_RETURN_IF_ERROR(CheckInside(offset, in.size(), history_->now_.size()));
    history_->Record({.kind = FileEvent::Kind::kWrite, .offset = offset, .bytes = {in.begin(), in.end()}});
    return absl::OkStatus();
  }
  Status Resize(std::uint64_t size) {
    const std::lock_guard lock(history_->mutex_);
    history_->Record({.kind = FileEvent::Kind::kResize, .size = size});
    return absl::OkStatus();
  }
  Status Sync() {
    const std::lock_guard lock(history_->mutex_);
    history_->Record({.kind = FileEvent::Kind::kSync});
    return absl::OkStatus();
  }
  Status Close() { return absl::OkStatus(); }

 private:
  std::shared_ptr<FileHistory> history_;
};

static_assert(File<RecordingFile> && !MappedFile<RecordingFile>);

}  // namespace hako
