// The page map of an open tree file (tree/file/page_map.h), shared by threads, and the images and long
// values that are found by it.
//
// A reader takes an entry under mutex_ and reads the file without it. Before it releases mutex_, it
// locks cut_mutex_ shared, so that CutFile waits for its read. An image that moved meanwhile fails
// its check, and is looked up again.
//
// Thread-safe: Read, ReadMulti, ReadLong, EntryOf, bytes. Only one thread at a time calls the other
// functions, which also change entries.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "hako/base/aligned_buffer.h"
#include "hako/base/hash.h"
#include "hako/base/hash_stream.h"
#include "hako/base/scratch_buffer.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/tree_file_format.h"
#include "hako/sync/mutex.h"
#include "hako/tree/file/page_map.h"
#include "hako/tree/file/tree_file.h"
#include "hako/tree/lock_order.h"

namespace hako::tree {

template <File FileT>
class SharedPageMap {
 public:
  using Entry = format::PageEntry;

  // `secret` seeds the checks of images and nodes.
  SharedPageMap(TreeFile<FileT>& file, PageMap map, std::uint64_t secret)
      : file_(file), secret_(secret), id_capacity_(map.id_capacity()), map_(std::move(map)) {}
  SharedPageMap(const SharedPageMap&) = delete;
  SharedPageMap& operator=(const SharedPageMap&) = delete;

  // See PageMap.
  std::uint64_t id_capacity() const { return id_capacity_; }
  // Memory of the nodes that are loaded.
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  const std::atomic<std::uint64_t>& byte_counter() const { return bytes_; }
  std::uint64_t SeedOf(std::uint32_t id) const { return MixBits(secret_ ^ id); }
  std::uint64_t SeedOf(unsigned level, std::uint64_t node) const { return MixBits(secret_ ^ ((level + 1ull) << 32 | node)); }

  // ---- reading ----

  // Returns the present entry of an id.
  StatusOr<Entry> EntryOf(std::uint32_t id) {
    sync::MutexLock lock(mutex_);
    HAKO_ASSIGN_OR_RETURN(const Entry* at, map_.At(id, NodeReader()));
    NoteBytes();
    return *at;
  }
  // Reads the image of a page, zero-padded to whole units, and returns its size. REQUIRES: `out`
  // has format::kPageImageMax bytes
  StatusOr<std::size_t> Read(std::uint32_t id, std::span<std::byte> out) {
    HAKO_DCHECK(out.size() >= format::kPageImageMax);
    StatusOr<std::size_t> size = ReadImage(id, out);
    if (size.ok()) [[likely]]
      return size;
    return file_.Explain(size.status());
  }

  struct ImageRequest {
    std::uint32_t id;
    // Empty if the image could not be read; Read may still succeed, or returns the error.
    std::span<const std::byte> image = {};
  };
  // Reads several images by concurrent requests. They stay valid until this thread calls ReadMulti
  // again. Reads images in the order of the file, and neighbours as one run of whole blocks.
  void ReadMulti(std::span<ImageRequest> images) requires BatchFile<FileT> {
    ScratchBuffer& buffer = ThreadScratch<SharedPageMap>::Get();
    buffer.Trim();
    absl::InlinedVector<Found, 32> found;
    found.reserve(images.size());
    {
      sync::MutexLock lock(mutex_);
      // At may release the lock.
      for (const ImageRequest& image : images) (void)map_.At(image.id, NodeReader());
      for (ImageRequest& image : images) {
        const Entry* const at = map_.Find(image.id);
        if (at != nullptr && !at->IsNone() && file_.Has(*at) && at->units() * format::kTreeUnit <= format::kPageImageMax)
          found.push_back({&image, *at});
      }
      NoteBytes();
      cut_mutex_.LockShared();
    }
    const sync::SharedLock not_cut(cut_mutex_, std::adopt_lock);
    std::ranges::sort(found, {}, [](const Found& one) { return one.entry.place(); });
    ReadRuns(found, buffer);
  }

  // Reads the long value that `entry` names, in parts, so that Cut, and threads that need the map,
  // wait only for a part. May also return DataLoss if the id has another entry now, because the
  // value was moved, or freed and the id reused.
  Status ReadLong(std::uint32_t id, const Entry& entry, std::span<char> out) {
    Status status = ReadParts(id, entry, out.size(), [out](std::size_t at, std::size_t size) { return out.subspan(at, size); });
    return status.ok() ? status : file_.Explain(std::move(status));
  }
  // Checks a long value of `size` bytes like ReadLong, with memory for one part only.
  Status CheckLong(std::uint32_t id, const Entry& entry, std::size_t size) {
    const AlignedBuffer buffer = MakeAlignedBuffer(std::min(kLongPart, size));
    char* const bytes = reinterpret_cast<char*>(buffer.get());
    Status status = ReadParts(id, entry, size, [bytes](std::size_t, std::size_t part) { return std::span(bytes, part); });
    return status.ok() ? status : file_.Explain(std::move(status));
  }

  // ---- changes ----

  // Sets the entry of an id and returns the previous one.
  StatusOr<Entry> Exchange(std::uint32_t id, const Entry& entry) {
    sync::MutexLock lock(mutex_);
    HAKO_ASSIGN_OR_RETURN(const Entry before, map_.Exchange(id, entry, NodeReader()));
    NoteBytes();
    return before;
  }
  // Visits every entry: see PageMap::ForEach. The visitor may call MarkChanged.
  template <class F>
  Status ForEach(F&& visit) {
    const auto load = [this](unsigned level, std::uint64_t node) -> StatusOr<bool> {
      sync::MutexLock lock(mutex_);
      return map_.Load(level, node, NodeReader());
    };
    return UnlockedMap().ForEach(load, visit);
  }
  // As ForEach, from the id `first` on. Calls damaged(entry, status) with the entry that names an
  // unreadable node, and leaves out the entries below that node.
  template <class F, class Damaged>
  Status ForEachReadable(std::uint64_t first, F&& visit, Damaged&& damaged) {
    const auto load = [&](unsigned level, std::uint64_t node) -> StatusOr<bool> {
      sync::MutexLock lock(mutex_);
      StatusOr<bool> is_there = map_.Load(level, node, NodeReader());
      if (is_there.ok() || absl::IsResourceExhausted(is_there.status())) return is_there;
      damaged(map_.NameOf(level, node), is_there.status());
      return false;
    };
    return UnlockedMap().ForEach(load, visit, first);
  }
  // Makes the next WriteOut write a node again.
  void MarkChanged(unsigned level, std::uint64_t node) {
    sync::MutexLock lock(mutex_);
    map_.MarkChanged(level, node);
  }
  // Writes the changed nodes: write(level, number of the node, its bytes) returns the new entry.
  // prepare() comes before each change of an entry, retire(the previous entry) after it.
  template <class Prepare, class Write, class Retire>
  Status WriteOut(Prepare&& prepare, Write&& write, Retire&& retire) {
    UnlockedMap().SortChanged();
    sync::MutexLock lock(mutex_);
    const auto write_node = [&](unsigned level, std::uint64_t node, std::span<const std::byte> bytes,
                                const Entry& before) -> StatusOr<Entry> {
      mutex_.AssertHeld();
      prepare();
      StatusOr<Entry> entry = Unlocked([&] { return write(level, node, bytes); });
      if (entry.ok()) retire(before);
      return entry;
    };
    return map_.WriteOut(NodeReader(), prepare, write_node, retire);
  }
  // Call this once the nodes that WriteOut has written are in the file.
  void MarkWritten() {
    sync::MutexLock lock(mutex_);
    map_.MarkWritten();
    NoteBytes();
  }
  // Clears the entry of an id if withdraw(entry) returns true. Its node is already marked as
  // changed.
  template <class Withdraw>
  void TakeBack(std::uint32_t id, Withdraw&& withdraw) {
    sync::MutexLock lock(mutex_);
    if (Entry* const at = map_.Find(id); at != nullptr && withdraw(*at)) *at = Entry{};
  }
  // As TakeBack, for the entries that name changed nodes.
  template <class Withdraw>
  void TakeBackNodes(Withdraw&& withdraw) {
    sync::MutexLock lock(mutex_);
    map_.TakeBack(withdraw);
  }
  const std::array<Entry, format::kMapRoots>& roots() { return UnlockedMap().roots(); }

  // Makes the file shorter. Keeps new readers out meanwhile, because otherwise a stream of readers
  // could hold cut_mutex_ forever.
  Status Cut(std::uint64_t size) {
    sync::MutexLock map_lock(mutex_);
    sync::MutexLock cut_lock(cut_mutex_);
    return file_.Resize(size);
  }

 private:
  // For the thread that changes entries: see tree/file/page_map.h.
  PageMap& UnlockedMap() ABSL_NO_THREAD_SAFETY_ANALYSIS { return map_; }
  void NoteBytes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { bytes_.store(map_.bytes(), std::memory_order_relaxed); }
  // Runs `body` with the map unlocked.
  template <class F>
  auto Unlocked(F&& body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    sync::MutexUnlock unlocked(mutex_);
    return body();
  }
  // The `read` argument of the map's functions. The file is not cut while it reads.
  auto NodeReader() {
    return [this](const Entry& entry, unsigned level, std::uint64_t node, std::span<std::byte> out) {
      mutex_.AssertHeld();
      return ReadNode(entry, level, node, out);
    };
  }
  StatusOr<std::size_t> ReadImage(std::uint32_t id, std::span<std::byte> out) {
    for (Entry tried{};;) {
      Entry entry;
      {
        sync::MutexLock lock(mutex_);
        HAKO_ASSIGN_OR_RETURN(const Entry* at, map_.At(id, NodeReader()));
        entry = *at;
        NoteBytes();
        cut_mutex_.LockShared();
      }
      const sync::SharedLock not_cut(cut_mutex_, std::adopt_lock);
      if (!file_.Has(entry)) return DataLossError(absl::StrCat("page ", id, " lies outside the file"), entry.place() * format::kTreeUnit);
      const std::uint64_t size = entry.units() * format::kTreeUnit;
      if (entry.IsNone() || size > out.size())
        return absl::DataLossError(absl::StrCat("page ", id, " is not in the page map, or too large"));
      HAKO_RETURN_IF_ERROR(file_.Read(entry, out.first(size)));
      if (Hash64(out.data(), size, SeedOf(id)) == entry.check) return size;
      // Otherwise the image may have been moved.
      if (std::memcmp(&entry, &tried, sizeof(entry)) == 0)
        return DataLossError(absl::StrCat("page ", id, " fails its checksum"), entry.place() * format::kTreeUnit);
      tried = entry;
    }
  }

  Status ReadNode(const Entry& entry, unsigned level, std::uint64_t node, std::span<std::byte> out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Status status = ReadStoredNode(entry, level, node, out);
    return status.ok() ? status : file_.Explain(std::move(status));
  }
  Status ReadStoredNode(const Entry& entry, unsigned level, std::uint64_t node, std::span<std::byte> out)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    cut_mutex_.LockShared();
    sync::MutexUnlock unlocked(mutex_);
    const sync::SharedLock not_cut(cut_mutex_, std::adopt_lock);
    if (!file_.Has(entry) || entry.units() * format::kTreeUnit != out.size())
      return absl::DataLossError(absl::StrCat("page map node ", node, " has a wrong size or place"));
    HAKO_RETURN_IF_ERROR(file_.Read(entry, out));
    if (Hash64(out.data(), out.size(), SeedOf(level, node)) == entry.check) return absl::OkStatus();
    return DataLossError("a page map node fails its checksum", entry.place() * format::kTreeUnit);
  }
  static constexpr std::size_t kLongPart = 1 << 20;  // of a long value, read at once
  // Reads the bytes from `at` on to out(at, size).
  template <class Out>
  Status ReadParts(std::uint32_t id, const Entry& entry, std::size_t size, Out&& out) {
    if (entry.IsNone() || entry.units() != format::TreeUnitsFor(size))
      return absl::DataLossError(absl::StrCat("long value ", id, " is not in the page map"));
    file_.CountReads(1, size);
    HashStream hash(SeedOf(id));
    for (std::size_t at = 0; at < size; at += kLongPart) {
      {
        sync::MutexLock lock(mutex_);  // Cut holds this mutex to keep new readers out
        cut_mutex_.LockShared();
      }
      const sync::SharedLock not_cut(cut_mutex_, std::adopt_lock);
      if (!file_.Has(entry))
        return DataLossError(absl::StrCat("long value ", id, " lies outside the file"), entry.place() * format::kTreeUnit);
      const std::span<std::byte> part = std::as_writable_bytes(out(at, std::min(kLongPart, size - at)));
      HAKO_RETURN_IF_ERROR(file_.ReadAt(entry.place() * format::kTreeUnit + at, part));
      hash.Add(part.data(), part.size());
    }
    if (hash.Get() == entry.check) return absl::OkStatus();
    return DataLossError(absl::StrCat("long value ", id, " fails its checksum"), entry.place() * format::kTreeUnit);
  }

  // An image and where it is to go.
  struct Found {
    ImageRequest* image;
    Entry entry;
    std::size_t begin = 0;  // where its bytes begin in the buffer
  };
  // Reads images in the order of the file.
  void ReadRuns(std::span<Found> found, ScratchBuffer& buffer) requires BatchFile<FileT> {
    // Reading the gap takes no longer than another read.
    static constexpr std::size_t kRoomAlignment = 4096, kGapMax = 16 << 10;
    std::uint64_t block = 1, end = 0;  // end: end of the last run in the file
    if constexpr (requires { file_.device().block_size(); }) block = file_.device().block_size();
    struct Piece {
      std::uint64_t offset;
      std::size_t begin, size;  // in the buffer
    };
    absl::InlinedVector<Piece, 32> runs;
    std::size_t room_end = 0;
    for (Found& one : found) {
      const std::uint64_t from = one.entry.place() * format::kTreeUnit, first = from & ~(block - 1);
      if (runs.empty() || first > end + kGapMax) runs.push_back({first, room_end, 0});
      Piece& run = runs.back();
      const std::uint64_t to = (from + one.entry.units() * format::kTreeUnit + block - 1) & ~(block - 1);
      // A damaged map may name a place within another image.
      end = std::max(end, std::min(to, file_.size()));
      one.begin = run.begin + (from - run.offset);
      run.size = end - run.offset;
      // 8: see PageImage.
      room_end = (run.begin + run.size + 8 + kRoomAlignment - 1) / kRoomAlignment * kRoomAlignment;
    }
    auto* const room = reinterpret_cast<std::byte*>(buffer.Take(room_end));
    if (room == nullptr || runs.empty()) return;
    absl::InlinedVector<ReadRequest, 32> reads;
    for (const Piece& run : runs) reads.push_back({run.offset, {room + run.begin, run.size}});
    if (!file_.ReadMulti(reads).ok()) return;
    for (const Found& one : found) {
      const std::span<const std::byte> image(room + one.begin, one.entry.units() * format::kTreeUnit);
      if (Hash64(image.data(), image.size(), SeedOf(one.image->id)) == one.entry.check) one.image->image = image;
    }
  }

  TreeFile<FileT>& file_;
  const std::uint64_t secret_, id_capacity_;
  std::atomic<std::uint64_t> bytes_{0};
  // Not held during I/O, except by Cut.
  sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kPoolLocks);
  sync::SharedMutex cut_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  PageMap map_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hako::tree
