// The operators new and delete of this program: see support/allocation_counter.h.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "gtest/gtest.h"
#include "support/allocation_counter.h"
#include "support/sanitizers.h"

namespace {

thread_local constinit std::uint64_t allocation_count = 0;
thread_local constinit std::size_t largest_allocation = 0;
thread_local constinit bool is_failing_thread = false;
constinit std::atomic<std::uint64_t> allocated_bytes{0}, most_bytes{0};
constinit std::atomic<bool> fails_in_all_threads{false}, fails_from_then_on{false}, kills{false}, has_failed{false};
constinit std::atomic<std::int64_t> left_to_fail{0};  // the allocation that makes it 0 fails

}  // namespace

#ifndef HAKO_TSAN  // ThreadSanitizer replaces these operators itself; no test counts or fails allocations there
namespace {

bool Fails() {
  if (!is_failing_thread && !fails_in_all_threads.load(std::memory_order_relaxed)) return false;
  const std::int64_t left = left_to_fail.fetch_sub(1, std::memory_order_relaxed) - 1;
  const bool fails = left == 0 || (left < 0 && fails_from_then_on.load(std::memory_order_relaxed));
  if (fails && kills.load(std::memory_order_relaxed)) (void)kill(getpid(), SIGKILL);
  if (fails) has_failed.store(true, std::memory_order_relaxed);
  return fails;
}

// Not inlined: g++ would see malloc behind new, and warn of the delete.
[[gnu::noinline]] void* Allocate(std::size_t size, std::size_t alignment = 0) {
  ++allocation_count;
  if (size > largest_allocation) largest_allocation = size;
  if (Fails()) return nullptr;
  if (size == 0) size = 1;
  void* const memory = alignment == 0 ? std::malloc(size) : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  const std::uint64_t usable = malloc_usable_size(memory);
  const std::uint64_t now = allocated_bytes.fetch_add(usable, std::memory_order_relaxed) + usable;
  for (std::uint64_t most = most_bytes.load(std::memory_order_relaxed); now > most && !most_bytes.compare_exchange_weak(most, now);) {
  }
  return memory;
}
// Not inlined, or the compiler warns of free() where it sees operator new.
[[gnu::noinline]] void Free(void* memory) {
  allocated_bytes.fetch_sub(malloc_usable_size(memory), std::memory_order_relaxed);
  std::free(memory);
}
[[gnu::noinline]] void* AllocateOrThrow(std::size_t size, std::size_t alignment = 0) {
  void* const memory = Allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return AllocateOrThrow(size); }
void* operator new[](std::size_t size) { return AllocateOrThrow(size); }
void* operator new(std::size_t size, std::align_val_t alignment) { return AllocateOrThrow(size, static_cast<std::size_t>(alignment)); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return AllocateOrThrow(size, static_cast<std::size_t>(alignment)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return Allocate(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return Allocate(size); }
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { Free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { Free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { Free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { Free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { Free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { Free(memory); }
#endif

namespace hako {

std::uint64_t AllocationCounter::count() { return allocation_count; }
std::size_t AllocationCounter::largest() { return largest_allocation; }
void AllocationCounter::ForgetLargest() { largest_allocation = 0; }
std::uint64_t AllocationCounter::bytes() { return allocated_bytes; }
std::uint64_t AllocationCounter::peak_bytes() { return most_bytes; }
void AllocationCounter::ForgetPeak() { most_bytes = allocated_bytes.load(); }

FailingAllocation::FailingAllocation(std::uint64_t n, Which which, Whose whose) {
  has_failed = false;
  left_to_fail = static_cast<std::int64_t>(n);
  fails_from_then_on = which == Which::kFromThenOn;
  kills = which == Which::kKills;
  fails_in_all_threads = whose == Whose::kAllThreads;
  is_failing_thread = true;
}
FailingAllocation::~FailingAllocation() {
  is_failing_thread = false;
  fails_in_all_threads = false;
}
bool FailingAllocation::HasFailed() const { return has_failed; }

namespace {

TEST(AllocationCounter, Counts) {
  const std::uint64_t before = AllocationCounter::count();
  AllocationCounter::ForgetLargest();
  std::make_unique<std::vector<char>>(1000).reset();
  EXPECT_EQ(AllocationCounter::count() - before, 2u);
  EXPECT_EQ(AllocationCounter::largest(), 1000u);
}

TEST(FailingAllocation, FailsOnceOrFromThenOn) {
  using Failing = FailingAllocation;
  for (const auto which : {Failing::Which::kOnce, Failing::Which::kFromThenOn}) {
    const Failing failing(2, which, Failing::Whose::kThisThread);
    EXPECT_NE(std::unique_ptr<int>(new (std::nothrow) int), nullptr);
    EXPECT_FALSE(failing.HasFailed());
    EXPECT_EQ(std::unique_ptr<int>(new (std::nothrow) int), nullptr);
    EXPECT_TRUE(failing.HasFailed());
    EXPECT_EQ(std::unique_ptr<int>(new (std::nothrow) int) != nullptr, which == Failing::Which::kOnce);
  }
}

}  // namespace
}  // namespace hako
