// Counts the allocations of this process through operator new, and lets chosen ones fail.
// allocation_hooks_test.cc replaces the operators in the program that it is part of.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hako {

struct AllocationCounter {
  static std::uint64_t count();  // by the calling thread, since it began
  static std::size_t largest();  // bytes of the largest, by the calling thread, since ForgetLargest
  static void ForgetLargest();
  static std::uint64_t bytes();       // allocated now, by all threads
  static std::uint64_t peak_bytes();  // the most since ForgetPeak
  static void ForgetPeak();
};

// While it exists, the n-th allocation fails, counted from 1; with kFromThenOn also all later ones. With
// kKills it kills the process.
// One object at a time.
class FailingAllocation {
 public:
  enum class Which { kOnce, kFromThenOn, kKills };
  enum class Whose { kThisThread, kAllThreads };
  FailingAllocation(std::uint64_t n, Which which, Whose whose);
  FailingAllocation(const FailingAllocation&) = delete;
  ~FailingAllocation();
  // Whether an allocation has failed.
  bool HasFailed() const;
};

}  // namespace hako
