// A warm database does its work without the system: no allocation and no system call for a Get, a Set of a value of the same size, or a
// Remove. This file replaces operator new of the whole test program by one that counts; under a sanitizer, which has its own and sees more
// by it, the count is that of the sanitizer's hook in malloc.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "dbm/listing.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "support/allocation_counter.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/system_call_counter.h"
#include "support/temp_dir.h"

namespace {

thread_local constinit std::uint64_t allocation_count = 0;
thread_local constinit std::size_t largest_allocation = 0;

void NoteAllocation(std::size_t size) {
  ++allocation_count;
  if (size > largest_allocation) largest_allocation = size;
}

}  // namespace

#if defined(HAKO_ASAN) || defined(HAKO_TSAN)

extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, std::size_t), void (*)(const volatile void*));

namespace {

[[maybe_unused]] const int hooks = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t size) { NoteAllocation(size); }, [](const volatile void*) {});

}  // namespace

#else

namespace {

// Not inlined: g++ would see malloc behind new, and warn of the delete.
[[gnu::noinline]] void* CountedAllocate(std::size_t size, std::size_t alignment = 0) {
  NoteAllocation(size);
  if (size == 0) size = 1;
  return alignment == 0 ? std::malloc(size) : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
[[gnu::noinline]] void* CountedAllocateOrThrow(std::size_t size, std::size_t alignment = 0) {
  void* const memory = CountedAllocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return CountedAllocateOrThrow(size); }
void* operator new[](std::size_t size) { return CountedAllocateOrThrow(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return CountedAllocateOrThrow(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return CountedAllocateOrThrow(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return CountedAllocate(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return CountedAllocate(size); }
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return CountedAllocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return CountedAllocate(size, static_cast<std::size_t>(alignment));
}
// not inlined, or the compiler warns of free() where it sees operator new
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#endif

namespace hako {

std::uint64_t AllocationCounter::count() { return allocation_count; }
std::size_t AllocationCounter::largest() { return largest_allocation; }
void AllocationCounter::ForgetLargest() { largest_allocation = 0; }

namespace {

constexpr int kRecords = 20'000;

// A database with kRecords records of 8 + 8 bytes, and the keys in an order that is not theirs.
template <class Surroundings>
class AllocationTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(db, surroundings.Open());
    for (std::uint64_t i = 0; i < kRecords; ++i) keys.push_back(NumberedKey(i * 7919 % kRecords));
    Warm();
  }

  // Every path is walked once, so that thread slots, free lists and pages are there.
  void Warm() {
    for (const std::string& key : keys) ASSERT_THAT(db->Set(key, key), IsOk());
    for (const std::string& key : keys) ASSERT_THAT(db->Set(key, key), IsOk());
    for (const std::string& key : keys) ASSERT_THAT(db->Get(key, &value), IsOk());
    EXPECT_FALSE(db->Get("absent", &value).ok());
    for (const std::string& key : keys) ASSERT_THAT(db->Remove(key), IsOk());
    for (const std::string& key : keys) ASSERT_THAT(db->Set(key, key), IsOk());
  }

  bool GetAll() {
    bool fine = true;
    char span[16];
    for (const std::string& key : keys) {
      fine = fine && db->Get(key, &value).ok() && db->Get(key, std::span<char>(span)).ok() && value == key;
      fine = fine && db->Get(key, [&key, &fine](std::string_view shown) { fine = fine && shown == key; }).ok();
      fine = fine && absl::IsNotFound(db->Get("absent", &value));
    }
    return fine;
  }
  bool SetAll() {
    bool fine = true;
    for (const std::string& key : keys) fine = db->Set(key, key).ok() && fine;
    return fine;
  }
  // Sixteen keys at a time.
  bool ProcessAllInGroups() {
    bool fine = true;
    for (std::size_t i = 0; i + 16 <= keys.size(); i += 16) {
      std::array<std::string_view, 16> group;
      for (std::size_t k = 0; k < 16; ++k) group[k] = keys[i + k];
      std::size_t found = 0;
      fine =
          fine && db->GetMulti(group, [&](std::size_t, std::optional<std::string_view> shown) -> void { found += shown.has_value(); }).ok();
      fine = fine && db->ProcessMulti(group, [&](std::size_t k, std::optional<std::string_view> shown) {
                         found += shown.has_value();
                         return Action::Set(group[k]);
                       }).ok();
      fine = fine && found == 32 && db->Rekey(group[0], group[0], {.copying = true}).ok();
    }
    return fine;
  }
  bool RemoveAll() {
    bool fine = true;
    for (const std::string& key : keys) fine = db->Remove(key).ok() && fine;
    for (const std::string& key : keys) fine = absl::IsNotFound(db->Remove(key)) && fine;
    return fine;
  }

  Surroundings surroundings;
  std::unique_ptr<typename Surroundings::Database> db;
  std::vector<std::string> keys;
  std::string value;
};

// The same behind the virtual interface.
struct AnyHashSurroundings {
  using Database = AnyDBM;
  StatusOr<std::unique_ptr<AnyDBM>> Open() { return AnyDBM::Open(directory.File("casket.hkh")); }
  TempDir directory;
};

using Warmed = testing::Types<HashSurroundings<MemoryMapParallelFile>, TinySurroundings<MemoryMapParallelFile>,
                              BabySurroundings<MemoryMapParallelFile>, TreeSurroundings<MemoryMapParallelFile>, AnyHashSurroundings>;
TYPED_TEST_SUITE(AllocationTest, Warmed);

TYPED_TEST(AllocationTest, OperationsAllocateNothing) {
  std::uint64_t before = AllocationCounter::count();
  EXPECT_TRUE(this->GetAll());
  EXPECT_EQ(AllocationCounter::count() - before, 0u) << "Get";
  before = AllocationCounter::count();
  EXPECT_TRUE(this->SetAll());
  EXPECT_EQ(AllocationCounter::count() - before, 0u) << "Set";
  EXPECT_TRUE(this->ProcessAllInGroups());
  before = AllocationCounter::count();
  EXPECT_TRUE(this->ProcessAllInGroups());
  EXPECT_EQ(AllocationCounter::count() - before, 0u) << "GetMulti, ProcessMulti";
  before = AllocationCounter::count();
  EXPECT_TRUE(this->RemoveAll());
  if constexpr (requires { this->db->MakeIterator().Last(); } && !std::is_same_v<TypeParam, AnyHashSurroundings>) {
    EXPECT_LT(AllocationCounter::count() - before, kRecords / 100) << "Remove: only where pages are joined";
  } else {
    EXPECT_EQ(AllocationCounter::count() - before, 0u) << "Remove";
  }
}

TEST(TinyDBM, AppendOfSmallPiecesCopiesTheValueOnlyAsItOutgrowsItsBlock) {
  ASSERT_OK_AND_ASSIGN(auto tiny, TinyDBM<>::Open());
  AnyDBM db(std::move(tiny));
  constexpr int kAppends = 100'000;
  bool fine = true;
  const std::uint64_t before = AllocationCounter::count();
  for (int i = 0; i < kAppends; ++i) fine = db.Append("key", "0123456", ",").ok() && fine;
  EXPECT_TRUE(fine);
  EXPECT_LE(AllocationCounter::count() - before, 200u) << "each copy is put together in memory of its own";
  ASSERT_OK_AND_ASSIGN(const std::string value, db.Get("key"));
  ASSERT_EQ(value.size(), 8u * kAppends - 1);
  for (std::size_t i = 0; i + 1 < value.size(); i += 8) ASSERT_EQ(value.substr(i, 8), i + 7 == value.size() ? "0123456" : "0123456,");
  EXPECT_THAT(db.Verify(), IsOk());
}

TYPED_TEST(AllocationTest, OperationsMakeNoSystemCalls) {
  const auto calls_of = [&](auto operations) {
    return CountSystemCalls([&](auto mark) {
      mark();
      const bool fine = operations();
      mark();
      if (!fine) _exit(1);
    });
  };
  const auto none = calls_of([] { return true; });
  if (!none) GTEST_SKIP() << "this process may not trace another";
  ASSERT_EQ(none, 0u);
  ASSERT_EQ(calls_of([] { return getpid() > 0 && getuid() + 1 > 0; }), 2u) << "the counter counts";
  constexpr std::uint64_t kMost = kRecords / 1000;
  EXPECT_LT(calls_of([&] { return this->GetAll(); }).value_or(kRecords), kMost) << "Get";
  EXPECT_LT(calls_of([&] { return this->SetAll(); }).value_or(kRecords), kMost) << "Set";
  EXPECT_LT(calls_of([&] { return this->RemoveAll(); }).value_or(kRecords), kMost) << "Remove";
}

TEST(AllocationCounter, Counts) {
  const std::uint64_t before = AllocationCounter::count();
  AllocationCounter::ForgetLargest();
  std::make_unique<std::vector<char>>(1000).reset();
  EXPECT_EQ(AllocationCounter::count() - before, 2u);
  EXPECT_EQ(AllocationCounter::largest(), 1000u);
}

}  // namespace
}  // namespace hako
