// The memory of magazines, which are short lists of free blocks that threads and FreeBlockPool
// exchange. A magazine has a number; 0 = none.
//
// Not thread-safe; a magazine itself belongs to the thread, or to the pool, that has its number.
#pragma once

#include <cstdint>
#include <utility>

#include "hako/base/status.h"
#include "hako/storage/arena.h"

namespace hako::hash {

struct Magazine {
  static constexpr std::uint32_t kSize = 60;  // blocks

  std::uint16_t count;
  std::uint16_t limit;
  std::uint32_t next;      // in a chain
  std::uint64_t renewals;  // of all regions, when it came to the pool
  std::uint32_t handles[kSize];
};
static_assert(sizeof(Magazine) == 256);

class Magazines {
 public:
  static StatusOr<Magazines> Create() {
    HAKO_ASSIGN_OR_RETURN(storage::ReservedMemory memory, storage::ReservedMemory::ReserveUpTo(kReserveBytes, 1 << 20));
    return Magazines(std::move(memory));
  }

  // The address that magazine 0 would have.
  Magazine* all() const { return reinterpret_cast<Magazine*>(memory_.base()); }
  // Returns an empty magazine; 0 if memory runs out.
  std::uint32_t New(std::uint16_t limit) {
    std::uint32_t number = unused_;
    if (number != 0) {
      unused_ = At(number).next;
    } else if ((next_ + 1) * sizeof(Magazine) <= memory_.size()) {
      number = static_cast<std::uint32_t>(next_++);
    } else {
      return 0;
    }
    At(number).count = 0;
    At(number).limit = limit;
    return number;
  }
  std::uint64_t bytes() const { return next_ * sizeof(Magazine); }
  void Recycle(std::uint32_t number) {
    At(number).count = 0;
    At(number).next = std::exchange(unused_, number);
  }

 private:
  Magazine& At(std::uint32_t number) const { return all()[number]; }
  // Address space for 2 billion free blocks.
  static constexpr std::uint64_t kReserveBytes = std::uint64_t{8} << 30;

  explicit Magazines(storage::ReservedMemory memory) : memory_(std::move(memory)) {}

  storage::ReservedMemory memory_;
  std::uint32_t unused_ = 0;  // a chain of empty magazines
  std::uint64_t next_ = 1;    // the first number that was never used
};

}  // namespace hako::hash
