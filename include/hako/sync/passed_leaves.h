// Which leaves of a tree were passed to all captures (sync/captured_ranges.h), so that a writer that changes a leaf again
// does not pass it to them again. For each leaf it has the number of captures that had begun when the leaf was passed to
// them. A smaller number is no harm: the leaf is passed once more.
//
// The number stays true while the leaf's range of keys does not grow. So a thread that joins two leaves gives the result
// the smaller of their numbers, and one that moves the content of a leaf moves its number.
//
// Thread-safe for different ids. For the same id, the caller has locked the page.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "hako/base/language.h"

namespace hako::sync {

class PassedLeaves {
 public:
  PassedLeaves() = default;
  PassedLeaves(const PassedLeaves&) = delete;
  ~PassedLeaves() {
    if (chunks_ == nullptr) return;
    for (const std::atomic<Chunk*>& chunk : *chunks_) delete chunk.load(std::memory_order_relaxed);
  }

  // Call before the first capture. REQUIRES: no writers (checked in LeafCaptures::Begin)
  void Prepare() noexcept {
    if (chunks_ == nullptr) chunks_.reset(new (std::nothrow) Chunks{});
  }
  std::uint32_t Of(std::uint32_t id) const {
    const Chunk* const chunk = ChunkOf(id);
    return chunk == nullptr ? 0 : (*chunk)[id % kOfChunk].load(std::memory_order_relaxed);
  }
  void Set(std::uint32_t id, std::uint32_t num_begun) noexcept {
    if (chunks_ == nullptr || id >= kOfChunk * kChunks) return;
    std::atomic<Chunk*>& place = (*chunks_)[id / kOfChunk];
    Chunk* chunk = place.load(std::memory_order_acquire);
    if (chunk == nullptr) {
      if (num_begun == 0) return;
      auto made = std::unique_ptr<Chunk>(new (std::nothrow) Chunk{});
      if (made == nullptr) return;
      if (place.compare_exchange_strong(chunk, made.get(), std::memory_order_acq_rel)) chunk = made.release();
    }
    (*chunk)[id % kOfChunk].store(num_begun, std::memory_order_relaxed);
  }
  // The content of the page `from` is now, or will be, that of `to`, too.
  void Copy(std::uint32_t from, std::uint32_t to) noexcept {
    if (chunks_ != nullptr) [[unlikely]]
      Set(to, Of(from));
  }
  // The content of the page `from` is added to that of `to`.
  void Join(std::uint32_t from, std::uint32_t to) noexcept {
    if (chunks_ != nullptr) [[unlikely]]
      Set(to, std::min(Of(from), Of(to)));
  }

 private:
  static constexpr std::uint32_t kOfChunk = 1 << 12, kChunks = 1 << 14;
  using Chunk = std::array<std::atomic<std::uint32_t>, kOfChunk>;
  using Chunks = std::array<std::atomic<Chunk*>, kChunks>;

  const Chunk* ChunkOf(std::uint32_t id) const {
    return chunks_ == nullptr || id >= kOfChunk * kChunks ? nullptr : (*chunks_)[id / kOfChunk].load(std::memory_order_acquire);
  }

  std::unique_ptr<Chunks> chunks_;
};

}  // namespace hako::sync
