// Counts the allocations of this process through operator new (under a sanitizer, through malloc), as allocation_test.cc arranges in the
// program that it is part of.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hako {

struct AllocationCounter {
  static std::uint64_t count();  // by the calling thread, since it began
  static std::size_t largest();  // bytes of the largest, by the calling thread, since ForgetLargest
  static void ForgetLargest();
};

}  // namespace hako
