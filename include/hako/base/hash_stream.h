// Hash64 (base/hash.h) of bytes that come in pieces.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hako/base/hash.h"

namespace hako {

// The result is Hash64 of all pieces in one, whatever their lengths.
class HashStream {
 public:
  explicit HashStream(std::uint64_t seed);
  void Add(const void* data, std::size_t size);
  std::uint64_t Get() const;

 private:
  XXH3_state_t state_;
};

}  // namespace hako
