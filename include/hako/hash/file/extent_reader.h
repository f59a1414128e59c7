// Reads the heap extents of a file that is not mapped, or of a device, in ascending order, in windows of whole
// extents that take one or two long reads each. A background thread reads the next windows while
// the caller uses one. If no thread can be started, or there is only one window, Next reads. For a
// huge extent, which has one record, a window has only the place: the caller reads the record in
// pieces.
//
// If writers run at the same time, the bytes of a window were read at different moments between the
// construction of the reader and the return of Next. Only extents that exist during that whole time
// are sure to be found.
//
// Not thread-safe. The file must outlive the reader.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "hako/base/aligned_buffer.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/hash_file_format.h"
#include "hako/hash/file/extent_file.h"
#include "hako/sync/mutex.h"
#include "hako/sync/start_thread.h"

namespace hako::hash {

template <File FileT>
class ExtentReader {
 public:
  struct Window {
    std::uint64_t offset = 0, bytes = 0;
    std::vector<Extent> extents;
    Extent huge{};  // after `extents`, and not read; 0 bytes = none
    const char* At(const Extent& extent) const { return reinterpret_cast<const char*>(buffer.get()) + (extent.offset - offset); }

    AlignedBuffer buffer;
    std::uint64_t room = 0;
    Status status;
  };

  // Reads the extents that begin in [from, to), multiples of the extent unit.
  ExtentReader(const ExtentFile<FileT>& file, std::uint64_t from, std::uint64_t to, ReadsFrom reads_from = ReadsFrom::kMemory)
      : file_(file), reads_from_(reads_from), next_(from), to_(to) {
    if (to_ <= next_ + kWindowBytes) return;
    auto thread = sync::StartThread([this](std::stop_token stop) { ReadAhead(std::move(stop)); });
    if (thread.ok()) thread_ = *std::move(thread);  // else Next reads
  }

  // The next window, valid until the next call; nullptr at the end.
  StatusOr<const Window*> Next() {
    Window* window = &windows_[0];
    if (thread_.joinable()) {
      sync::MutexLock lock(mutex_);
      window = &windows_[taken_ % kWindows];
      given_back_ = taken_;
      changed_.NotifyAll();
      changed_.Wait(mutex_, {}, [this] {
        mutex_.AssertHeld();
        return read_ > taken_ || is_over_;
      });
      if (read_ == taken_) return nullptr;
      ++taken_;
    } else {
      if (next_ >= to_) return nullptr;
      window->status = CatchNoMemory([&] { return Fill(window); });
    }
    HAKO_RETURN_IF_ERROR(window->status);
    return window;
  }

 private:
  static constexpr std::uint64_t kWindowBytes = 1 << 20;
  static constexpr std::uint64_t kHuge = 9 << 20;  // an extent with several records is shorter than this
  static constexpr std::uint64_t kWindows = 3;

  void ReadAhead(std::stop_token stop) {
    // While a long window is read, no window except the one in use is in memory.
    const auto has_room = [this] {
      mutex_.AssertHeld();
      std::uint64_t ahead = 0;
      for (std::uint64_t i = taken_; i < read_; ++i) ahead += windows_[i % kWindows].bytes - windows_[i % kWindows].huge.bytes;
      return read_ - given_back_ < kWindows && ahead < kWindows * kWindowBytes;
    };
    sync::MutexLock lock(mutex_);
    for (bool failed = false; next_ < to_ && !failed;) {
      if (!changed_.Wait(mutex_, stop, has_room)) return;
      Window& window = windows_[read_ % kWindows];
      {
        sync::MutexUnlock unlocked(mutex_);
        window.status = CatchNoMemory([&] { return Fill(&window); });
        failed = !window.status.ok();
      }
      ++read_;
      changed_.NotifyAll();
    }
    is_over_ = true;
    changed_.NotifyAll();
  }

  Status Fill(Window* window) {
    window->offset = next_;
    window->bytes = 0;
    window->extents.clear();
    window->huge = {};
    HAKO_RETURN_IF_ERROR(Read(window, std::min(kWindowBytes, to_ - next_)));
    while (next_ < window->offset + window->bytes) {
      format::HeapExtentHeader header;
      std::memcpy(&header, window->At({next_, 0}), sizeof(header));
      const std::uint64_t bytes = file_.HeapExtentBytes(next_, header);
      if (bytes > kHuge) {
        window->huge = {next_, bytes};
        window->bytes = next_ - window->offset + bytes;
      } else if (bytes != 0) {
        const std::uint64_t end = next_ + bytes - window->offset;
        if (end > window->bytes) HAKO_RETURN_IF_ERROR(Read(window, end));
        window->extents.push_back({next_, bytes});
      }
      next_ += std::max(bytes, format::kExtentUnit);
    }
    return absl::OkStatus();
  }

  // Extends the window's bytes up to `end`.
  Status Read(Window* window, std::uint64_t end) {
    if (end > window->room || window->room > 4 * kWindowBytes) {
      const std::uint64_t room = std::max(end, std::min(2 * kWindowBytes, to_ - window->offset));
      AlignedBuffer buffer = MakeAlignedBuffer(room);
      if (window->bytes != 0) std::memcpy(buffer.get(), window->buffer.get(), window->bytes);
      window->buffer = std::move(buffer);
      window->room = room;
    }
    char* const out = reinterpret_cast<char*>(window->buffer.get()) + window->bytes;
    const std::uint64_t from = window->offset + window->bytes, size = end - window->bytes;
    HAKO_RETURN_IF_ERROR(reads_from_ == ReadsFrom::kDevice ? file_.ReadDevice(from, out, size) : file_.Read(from, out, size));
    window->bytes = end;
    return absl::OkStatus();
  }

  const ExtentFile<FileT>& file_;
  const ReadsFrom reads_from_;
  std::uint64_t next_;  // to be read
  const std::uint64_t to_;
  std::array<Window, kWindows> windows_;
  sync::Mutex mutex_;
  sync::StoppableCondition changed_;
  std::uint64_t read_ ABSL_GUARDED_BY(mutex_) = 0;  // number of windows read so far
  std::uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t given_back_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // stops before the members above are destroyed
};

}  // namespace hako::hash
