// A warm database makes no allocation and no system call for a Get, a Set of a value of the same
// size, or a Remove. This file replaces operator new of the whole test program by one that counts.
// Under a sanitizer, which has its own operator new, the count is that of the sanitizer's malloc
// hook.
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

namespace hako {
namespace {

constexpr int kRecords = 20'000;

// A database with kRecords records of 8 + 8 bytes, and its keys in shuffled order.
template <class Surroundings>
class AllocationTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(db, surroundings.Open());
    for (std::uint64_t i = 0; i < kRecords; ++i) keys.push_back(NumberedKey(i * 7919 % kRecords));
    Warm();
  }

  // Runs every path once, so that writer states, free lists and pages exist.
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

TEST(TinyDBM, AppendCopiesTheValueOnlyWhenItOutgrowsItsBlock) {
  ASSERT_OK_AND_ASSIGN(auto tiny, TinyDBM<>::Open());
  AnyDBM db(std::move(tiny));
  constexpr int kAppends = 100'000;
  bool fine = true;
  const std::uint64_t before = AllocationCounter::count();
  for (int i = 0; i < kAppends; ++i) fine = db.Append("key", "0123456", ",").ok() && fine;
  EXPECT_TRUE(fine);
  EXPECT_LE(AllocationCounter::count() - before, 200u) << "each copy is built in separate memory";
  ASSERT_OK_AND_ASSIGN(const std::string value, db.Get("key"));
  ASSERT_EQ(value.size(), 8u * kAppends - 1);
  for (std::size_t i = 0; i + 1 < value.size(); i += 8) ASSERT_EQ(value.substr(i, 8), i + 7 == value.size() ? "0123456" : "0123456,");
  EXPECT_THAT(db.Verify(), IsOk());
}

TYPED_TEST(AllocationTest, OperationsMakeNoSystemCalls) {
  // In a child process, which opens a database of its own if `opens`: it cannot use that of its parent.
  const auto calls_of = [&](auto operations, bool opens = false) {
    return CountSystemCalls([&](auto mark) {
      const auto own = std::make_unique<TypeParam>();
      if (opens) {
        (void)this->db.release();
        auto opened = own->Open();
        if (!opened.ok()) _exit(1);
        this->db = *std::move(opened);
        this->Warm();
      }
      mark();
      const bool fine = operations();
      mark();
      if (opens) this->db.reset();
      if (!fine) _exit(1);
    });
  };
  const auto none = calls_of([] { return true; });
  if (!none) GTEST_SKIP() << "this process may not trace another";
  ASSERT_EQ(none, 0u);
  ASSERT_EQ(calls_of([] { return getpid() > 0 && getuid() + 1 > 0; }), 2u) << "the counter counts";
  constexpr std::uint64_t kMost = kRecords / 1000;
  EXPECT_LT(calls_of([&] { return this->GetAll(); }, true).value_or(kRecords), kMost) << "Get";
  EXPECT_LT(calls_of([&] { return this->SetAll(); }, true).value_or(kRecords), kMost) << "Set";
  EXPECT_LT(calls_of([&] { return this->RemoveAll(); }, true).value_or(kRecords), kMost) << "Remove";
}

}  // namespace
}  // namespace hako
