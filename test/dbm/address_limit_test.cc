// Databases in a process with little address space (ulimit -v): they open, and where one cannot
// grow, an error says so and nothing is lost.
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dbm/kinds.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/child_process.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

// Limits the address space of this process.
bool LimitAddressSpace(std::uint64_t bytes) {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0) return false;
  limit.rlim_cur = bytes;
  return setrlimit(RLIMIT_AS, &limit) == 0;
}
bool LiftLimit() { return LimitAddressSpace(RLIM_INFINITY); }
std::uint64_t AddressSpaceInUse() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

// Numbered records. Making them takes no memory.
class Numbered {
 public:
  explicit Numbered(std::uint64_t number, std::size_t size) {
    (void)std::snprintf(text_.data(), text_.size(), "%020llu", static_cast<unsigned long long>(number * 0x9e3779b97f4a7c15u));
    size_ = size;
  }
  std::string_view key() const { return {text_.data(), 20}; }
  std::string_view value() const { return {text_.data(), size_}; }

 private:
  std::array<char, 4096> text_{};
  std::size_t size_;
};

// Sets records from `first` on until one is refused, or up to `end`; returns how many there are
// then.
template <class DB>
std::uint64_t Fill(DB& db, std::uint64_t first, std::uint64_t end, std::size_t size, Status* error) {
  for (; first < end; ++first) {
    const Numbered record(first, size);
    if (*error = db.Set(record.key(), record.value()); !error->ok()) break;
  }
  return first;
}

// The result of a child process that has met an error.
int Report(int result, const Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return result;
}

// Whether exactly the records in [begin, end) exist.
template <class DB>
bool HasExactly(DB& db, std::uint64_t begin, std::uint64_t end, std::size_t size) {
  for (std::uint64_t i = begin; i < end; ++i) {
    const Numbered record(i, size);
    if (db.Get(record.key()).value_or("") != record.value()) return false;
  }
  return db.Count() == end - begin;
}

template <class Kind>
class AddressLimitTest : public testing::Test {
 protected:
  void SetUp() override {
#if defined(HAKO_ASAN) || defined(HAKO_TSAN)
    GTEST_SKIP() << "a sanitizer takes all address space for itself";
#endif
  }
  // All records are there after the process that set them.
  void ExpectInFile(std::uint64_t begin, std::uint64_t end, std::size_t size) {
    if constexpr (Kind::kInFile) {
      ASSERT_OK_AND_ASSIGN(auto db, Kind::Open(path_));
      EXPECT_TRUE(HasExactly(*db, begin, end, size));
      EXPECT_THAT(db->Verify(), IsOk());
    }
  }

  TempDir dir_{TempDir::MemoryParent()};
  const std::string path_ = dir_.File("db");
};
TYPED_TEST_SUITE(AddressLimitTest, kinds::Default);

TYPED_TEST(AddressLimitTest, SeveralOpenInTwoGigabytes) {
  constexpr std::uint64_t kLimit = 2'000'000 * std::uint64_t{1024}, kRecords = 20'000;
  ChildProcess child([&](ChildProcess&) {
    if (!LimitAddressSpace(kLimit)) return 1;
    std::vector<std::unique_ptr<typename TypeParam::DB>> all;
    for (int i = 0; i < 8; ++i) {
      auto db = TypeParam::Open(this->path_ + std::to_string(i));
      if (!db.ok()) return Report(2, db.status());
      all.push_back(*std::move(db));
    }
    for (auto& db : all) {
      Status error;
      if (Fill(*db, 0, kRecords, 100, &error) != kRecords) return Report(3, error);
    }
    for (auto& db : all) {
      if (!HasExactly(*db, 0, kRecords, 100) || !db->Verify().ok() || !db->Close().ok()) return 4;
    }
    return 0;
  });
  EXPECT_EQ(child.Result(), 0);
}

TYPED_TEST(AddressLimitTest, TheEndOfGrowthIsAnErrorThatLosesNothing) {
  constexpr std::uint64_t kRoom = 192 << 20, kMost = 60'000;
  constexpr std::size_t kSize = 1000;
  constexpr int kAsOfACheckpoint = 100;
  std::uint64_t count = 0;
  ChildProcess child([&](ChildProcess&) {
    if (!LimitAddressSpace(AddressSpaceInUse() + kRoom)) return 1;
    auto opened = TypeParam::Open(this->path_);
    if (!opened.ok()) return Report(2, opened.status());
    auto& db = **opened;
    Status error;
    const std::uint64_t end = Fill(db, 0, kMost, kSize, &error);
    if (error.ok() ? TypeParam::kIsReserved : !absl::IsResourceExhausted(error)) return 3;
    if (end < 5000) return 4;
    (void)LiftLimit();
    if (!HasExactly(db, 0, end, kSize)) return 5;
    if (std::is_same_v<typename TypeParam::DB, TreeDBM<>>) {  // changed pages do not fit in the file any more
      return absl::IsResourceExhausted(db.Synchronize(SyncMode::kHard)) && absl::IsResourceExhausted(db.Close()) ? kAsOfACheckpoint : 11;
    }
    for (std::uint64_t i = 0; i < end / 2; ++i) {
      if (const Status status = db.Remove(Numbered(i, kSize).key()); !status.ok()) return Report(6, status);
    }
    if (!db.Synchronize(SyncMode::kHard).ok()) return 7;
    if (!HasExactly(db, end / 2, end, kSize) || !db.Verify().ok()) return 8;
    if (!db.Set(Numbered(0, kSize).key(), "").ok() || !db.Remove(Numbered(0, kSize).key()).ok()) return 9;
    if (!db.Close().ok()) return 10;
    std::ofstream(this->dir_.File("count")) << end;
    return 0;
  });
  const int result = child.Result();
  if (result == kAsOfACheckpoint) {
    ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->path_));
    EXPECT_GT(db->Count(), 0u);
    EXPECT_THAT(db->Verify(), IsOk());
    return;
  }
  ASSERT_EQ(result, 0);
  std::ifstream(this->dir_.File("count")) >> count;
  this->ExpectInFile(count / 2, count, kSize);
}

TYPED_TEST(AddressLimitTest, RefusedMemoryWhileGrowingLosesNothing) {
  constexpr std::uint64_t kFirst = 1000, kMost = 100'000;
  constexpr std::size_t kSize = 500;
  ChildProcess child([&](ChildProcess&) {
    auto opened = TypeParam::Open(this->path_);
    if (!opened.ok()) return 2;
    auto& db = **opened;
    Status error;
    std::uint64_t end = Fill(db, 0, kFirst, kSize, &error);
    if (end != kFirst) return 3;
    if (!LimitAddressSpace(AddressSpaceInUse())) return 4;  // from now on every mapping is refused
    end = Fill(db, end, kMost, kSize, &error);
    (void)LiftLimit();
    if (!error.ok() && !absl::IsResourceExhausted(error)) return 5;
    if (!HasExactly(db, 0, end, kSize)) return 6;
    if (Fill(db, end, kMost, kSize, &error) != kMost) return 7;
    if (!HasExactly(db, 0, kMost, kSize) || !db.Verify().ok()) return 8;
    return db.Close().ok() ? 0 : 9;
  });
  ASSERT_EQ(child.Result(), 0);
  this->ExpectInFile(0, kMost, kSize);
}

}  // namespace
}  // namespace hako
