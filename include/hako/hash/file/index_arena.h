// An index in memory, for a file that is not mapped, or that has no room for the index. If the file
// is not mapped, a clean close saves the index after everything else in the file, so that the next
// Open reads it instead of all records.
//
// The image: 8-byte numbers: the number of extents, then {bytes, 1 if of overflow buckets} for
// each; zeros up to a multiple of 4 KiB; then the extents' bytes. Extents are allocated in the same
// order again, so they get the same offsets.
//
// Allocate and extents are thread-safe. The other functions require that no other thread uses the
// arena.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/hash.h"
#include "hako/base/status.h"
#include "hako/format/hash_file_format.h"
#include "hako/hash/file/extent_file.h"
#include "hako/hash/lock_order.h"
#include "hako/hash/record_view.h"
#include "hako/storage/arena.h"
#include "hako/sync/mutex.h"

namespace hako::hash {

class IndexArena {
 public:
  static StatusOr<std::unique_ptr<IndexArena>> Create() {
    HAKO_ASSIGN_OR_RETURN(auto arena, storage::Arena::Create(kBytesMax));
    return std::unique_ptr<IndexArena>(new IndexArena(std::move(arena)));
  }

  std::byte* base() const { return arena_->base(); }
  std::uint64_t end() const { return arena_->end(); }
  std::vector<format::IndexExtentEntry> extents() const {
    sync::MutexLock lock(mutex_);
    return extents_;
  }

  StatusOr<std::uint64_t> Allocate(std::uint64_t bytes, IndexExtent kind) {
    sync::MutexLock lock(mutex_);
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t offset, arena_->Allocate(bytes));
    extents_.push_back({offset, bytes, kind == IndexExtent::kOverflowLines});
    return offset;
  }

  // Writes the image after `end`, and resizes the file to end with it. Returns the check for Load,
  // or 0 if there is no room.
  template <File FileT>
  StatusOr<std::uint64_t> Save(ExtentFile<FileT>& file, std::uint64_t end, std::uint64_t secret) const {
    const std::uint64_t offset = RoundUp(end);
    std::string head;
    const auto put = [&head](std::uint64_t number) { head.append(reinterpret_cast<const char*>(&number), sizeof(number)); };
    put(extents_.size());
    std::uint64_t size = 0;
    for (const format::IndexExtentEntry& extent : extents_) {
      put(extent.bytes);
      put(extent.overflow ? 1 : 0);
      size += extent.bytes;
    }
    head.resize(RoundUp(head.size()));
    Status resized = file.file().Resize(offset + head.size() + size);
    if (absl::IsResourceExhausted(resized)) return 0;
    HAKO_RETURN_IF_ERROR(resized);
    HAKO_RETURN_IF_ERROR(file.Write(offset, head));
    std::uint64_t check = Hash64(head, secret), at = offset + head.size();
    for (const format::IndexExtentEntry& extent : extents_) {
      const std::string_view bytes = BytesOf(extent);
      check = Hash64(bytes, check);
      HAKO_RETURN_IF_ERROR(file.Write(at, bytes));
      at += extent.bytes;
    }
    return check | 1;
  }

  // Reads the image that Save wrote. Returns false if it is incomplete or does not match `check`.
  // REQUIRES: nothing was allocated
  template <File FileT>
  StatusOr<bool> Load(ExtentFile<FileT>& file, std::uint64_t end, std::uint64_t secret, std::uint64_t check) {
    HAKO_DCHECK(extents_.empty());
    const std::uint64_t offset = RoundUp(end);
    const auto has = [&](std::uint64_t at, std::uint64_t size) { return at <= file.file().Size() && size <= file.file().Size() - at; };
    std::uint64_t count = 0;
    if (!has(offset, sizeof(count))) return false;
    HAKO_RETURN_IF_ERROR(file.Read(offset, reinterpret_cast<char*>(&count), sizeof(count)));
    if (count > kBytesMax / storage::Arena::kExtentAlignment) return false;
    std::string head(RoundUp((1 + 2 * count) * sizeof(count)), '\0');
    if (!has(offset, head.size())) return false;
    HAKO_RETURN_IF_ERROR(file.Read(offset, head.data(), head.size()));
    std::uint64_t found = Hash64(head, secret), at = offset + head.size();
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t numbers[2];
      std::memcpy(numbers, head.data() + (1 + 2 * i) * sizeof(count), sizeof(numbers));
      if (numbers[0] % format::kSmallIndexExtent != 0 || !has(at, numbers[0])) return false;
      HAKO_RETURN_IF_ERROR(Allocate(numbers[0], numbers[1] != 0 ? IndexExtent::kOverflowLines : IndexExtent::kHomeLines).status());
      const std::string_view bytes = BytesOf(extents_.back());
      HAKO_RETURN_IF_ERROR(file.Read(at, const_cast<char*>(bytes.data()), bytes.size()));
      found = Hash64(bytes, found);
      at += numbers[0];
    }
    return (found | 1) == check;
  }

 private:
  static constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 36, kPage = 4096;
  static constexpr std::uint64_t RoundUp(std::uint64_t size) { return (size + kPage - 1) / kPage * kPage; }

  explicit IndexArena(std::unique_ptr<storage::Arena> arena) : arena_(std::move(arena)) {}
  std::string_view BytesOf(const format::IndexExtentEntry& extent) const {
    return {reinterpret_cast<const char*>(base()) + extent.offset, static_cast<std::size_t>(extent.bytes)};
  }

  std::unique_ptr<storage::Arena> arena_;
  mutable sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kIndexLocks) ABSL_ACQUIRED_BEFORE(kPoolLocks);
  std::vector<format::IndexExtentEntry> extents_;  // changed with mutex_ held; Save and Load run alone
};

}  // namespace hako::hash
