// Millions of random operations on BabyDBM and TreeDBM beside a std::map, with keys of every shape
// and with pages so small that splits and merges are constant. The number of records rises and
// falls, down to zero and back. TreeDBM's cache is smaller than the tree, and the database is
// reopened now and then.
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/comparator.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

// An order without prefixes and heads, and one with heads only.
struct BackwardComparator {
  [[maybe_unused]] static constexpr std::string_view kName = "backward";
  static int Compare(std::string_view a, std::string_view b) { return b.compare(a); }
};
struct SizeComparator {
  [[maybe_unused]] static constexpr std::string_view kName = "size";
  static int Compare(std::string_view a, std::string_view b) {
    return a.size() != b.size() ? (a.size() < b.size() ? -1 : 1) : a.compare(b);
  }
  static std::uint32_t Head(std::string_view key) { return static_cast<std::uint32_t>(key.size()); }
};

template <class Compare>
struct Less {
  using is_transparent = void;
  bool operator()(std::string_view a, std::string_view b) const { return Compare::Compare(a, b) < 0; }
};

// Keys by number.
struct Shape {
  const char* name;
  std::uint64_t numbers;  // that are in use at a time
  bool moves;             // whether they rise with time
  std::string (*key)(std::uint64_t number);
};

std::string RandomKey(std::uint64_t number, std::size_t size) { return Random(number * 0x9E3779B97F4A7C15).Bytes(size); }
constexpr Shape kDigits = {"digits", 4000, false, [](std::uint64_t n) { return NumberedKey(n); }};
constexpr Shape kAscending = {"ascending", 2000, true, [](std::uint64_t n) { return NumberedKey(n); }};
constexpr Shape kDescending = {"descending", 2000, true, [](std::uint64_t n) { return NumberedKey(99'999'999 - n); }};
constexpr Shape kBinary = {"binary", 3000, false, [](std::uint64_t n) { return RandomKey(n, n % 12); }};
constexpr Shape kFewBytes = {"few bytes", 3000, false, [](std::uint64_t n) {  // many ties, many prefixes of each other
                               std::string key;
                               for (std::uint64_t rest = n; rest != 0; rest /= 3) key += "\0a\xff"[rest % 3];
                               return key;
                             }};
constexpr Shape kShared = {"shared prefixes", 2000, false, [](std::uint64_t n) {
                             static constexpr std::size_t kSizes[] = {0, 3, 20, 40, 100, 300, 1000, 1001};
                             return std::string(kSizes[n % 8], static_cast<char>('a' + n / 8 % 3)) + NumberedKey(n / 8);
                           }};
constexpr Shape kAnySize = {"any size", 600, false, [](std::uint64_t n) {
                              const std::size_t size = n % 3 == 0 ? 4096 - n / 3 % 8 : Random(n).Below(4097);
                              return n % 2 == 0 ? RandomKey(n, size) : std::string(size, 'x');
                            }};

// Where a database is opened.
template <class Compare>
struct InMemory {
  using Database = BabyDBM<MemoryMapParallelFile, Compare>;
  auto Open(unsigned page_size) { return Database::Open({.page_size = page_size}); }
};
template <class Compare>
struct InFile {
  using Database = TreeDBM<MemoryFile, Compare>;
  auto Open(unsigned page_size) { return Database::Open(file.Share(), {.page_size = page_size, .cache_bytes = 1 << 20}); }
  MemoryFile file{std::uint64_t{1} << 30};
};

template <class Compare = BytewiseComparator, template <class> class Place = InMemory>
class ModelRun {
  using Database = typename Place<Compare>::Database;
  using Model = std::map<std::string, std::string, Less<Compare>>;

 public:
  ModelRun(const Shape& shape, unsigned page_size) : shape_(shape), page_size_(page_size), random_(TestSeed()) { Open(); }

  void Run(int operations) {
    operations /= kSlowdown;
    SCOPED_TRACE(testing::Message() << shape_.name << ", HAKO_TEST_SEED=" << TestSeed());
    auto it = db_->MakeIterator();
    for (int i = 0; i < operations; ++i) {
      if (i % (operations / 8) == 0) more_ = !more_;
      Change();
      if (i % 2 == 0) Look();
      if (i % 8 == 0) Scan(it);
      if (failed_ || testing::Test::HasFatalFailure()) FAIL() << "operation " << i;
      if (i % (operations / 32) != 0) continue;
      ASSERT_NO_FATAL_FAILURE(ExpectSame()) << "after operation " << i;
      if constexpr (requires { db_->Rebuild(); }) {
        if (random_.OneIn(3)) {
          ASSERT_THAT(db_->Rebuild(), IsOk());
        }
        if (random_.OneIn(2)) {
          ASSERT_THAT(db_->Close(), IsOk());
          db_.reset();
          ASSERT_NO_FATAL_FAILURE(Open());
          it = db_->MakeIterator();
          ASSERT_NO_FATAL_FAILURE(ExpectSame()) << "opened again after operation " << i;
        }
      }
    }
    while (!model_.empty()) {  // from one end or the other, or from the middle
      auto victim = random_.OneIn(2) ? model_.begin() : std::prev(model_.end());
      if (random_.OneIn(3)) victim = model_.lower_bound(Key());
      if (victim == model_.end()) continue;
      ASSERT_THAT(db_->Remove(victim->first), IsOk());
      model_.erase(victim);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSame());
  }

 private:
  void Open() {
    auto opened = place_.Open(page_size_);
    ASSERT_THAT(opened.status(), IsOk());
    db_ = *std::move(opened);
  }
  std::string Key() {
    if (shape_.moves) time_ += random_.Below(2);
    return shape_.key(random_.Below(shape_.numbers) + time_);
  }
  std::string Value() {
    const std::size_t size = random_.OneIn(300) ? random_.Below(20'000) : random_.OneIn(8) ? random_.SkewedSize(9) : random_.Below(20);
    return std::string(size, static_cast<char>(random_.Below(256)));
  }

  // Sets, removes or appends. Records the first failure, at which the caller stops.
  void Change() {
    const std::string key = Key();
    const auto found = model_.find(key);
    Status status, expected;
    if (shape_.moves && random_.OneIn(2) && !model_.empty()) {  // the oldest goes
      status = db_->Remove(model_.begin()->first);
      model_.erase(model_.begin());
    } else if (random_.Below(10) < (more_ ? 7u : 3u)) {
      std::string value = Value();
      if (random_.OneIn(8)) {
        status = db_->Append(key, value.substr(0, 30));
        model_[key] += value.substr(0, 30);
      } else {
        status = db_->Set(key, value);
        model_[key] = std::move(value);
      }
    } else {
      status = db_->Remove(key);
      if (found == model_.end())
        expected = AbsentError();
      else
        model_.erase(found);
    }
    failed_ = failed_ || status.code() != expected.code();
  }

  void Look() {
    const std::string key = Key();
    const auto found = model_.find(key);
    const Status status = db_->Get(key, &value_);
    failed_ = failed_ || (found == model_.end() ? !absl::IsNotFound(status) : !status.ok() || value_ != found->second);
  }

  // Moves to a neighbour of any key, and some steps both ways.
  template <class Iterator>
  void Scan(Iterator& it) {
    const std::string key = Key();
    typename Model::const_iterator expected;
    const bool inclusive = random_.OneIn(2);
    if (random_.OneIn(2)) {
      it.JumpUpper(key, inclusive);
      expected = inclusive ? model_.lower_bound(key) : model_.upper_bound(key);
    } else {
      it.JumpLower(key, inclusive);
      expected = Before(inclusive ? model_.upper_bound(key) : model_.lower_bound(key));
    }
    for (std::uint64_t steps = random_.Below(6);; --steps) {
      ASSERT_EQ(it.Valid(), expected != model_.end());
      if (!it.Valid()) return;
      ASSERT_TRUE(it.key() == expected->first && it.value() == expected->second);
      if (steps == 0) return;
      if (random_.OneIn(2)) {
        it.Next();
        ++expected;
      } else {
        it.Previous();
        expected = Before(expected);
      }
    }
  }
  typename Model::const_iterator Before(typename Model::const_iterator place) const {
    return place == model_.begin() ? model_.end() : std::prev(place);
  }

  void ExpectSame() {
    ASSERT_THAT(db_->Verify(), IsOk());
    ASSERT_EQ(db_->Count(), model_.size());
    auto it = db_->MakeIterator();
    it.First();
    for (const auto& [key, value] : model_) {
      ASSERT_TRUE(it.Valid() && it.key() == key && it.value() == value);
      it.Next();
    }
    ASSERT_FALSE(it.Valid());
    it.Last();
    for (auto record = model_.rbegin(); record != model_.rend(); ++record) {
      ASSERT_TRUE(it.Valid() && it.key() == record->first && it.value() == record->second);
      it.Previous();
    }
    ASSERT_FALSE(it.Valid());
  }

  const Shape& shape_;
  const unsigned page_size_;
  Random random_;
  Place<Compare> place_;
  std::unique_ptr<Database> db_;
  Model model_;
  std::uint64_t time_ = 0;
  bool more_ = false;
  bool failed_ = false;
  std::string value_;
};

constexpr int kOperations = 120'000;

TEST(BabyModel, HoldsDigits) {
  for (const unsigned page_size : {128u, 256u, 1000u, 8192u}) ModelRun<>(kDigits, page_size).Run(kOperations);
}
TEST(BabyModel, HoldsAscendingKeys) {
  for (const unsigned page_size : {128u, 256u, 8192u}) ModelRun<>(kAscending, page_size).Run(kOperations);
}
TEST(BabyModel, HoldsDescendingKeys) {
  for (const unsigned page_size : {128u, 256u, 8192u}) ModelRun<>(kDescending, page_size).Run(kOperations);
}
TEST(BabyModel, HoldsBinaryKeys) {
  for (const unsigned page_size : {128u, 256u, 8192u}) ModelRun<>(kBinary, page_size).Run(kOperations);
}
TEST(BabyModel, HoldsKeysOfFewBytes) {
  for (const unsigned page_size : {128u, 256u, 8192u}) ModelRun<>(kFewBytes, page_size).Run(kOperations);
}
TEST(BabyModel, HoldsKeysOfSharedPrefixes) {
  for (const unsigned page_size : {128u, 256u, 1000u, 8192u}) ModelRun<>(kShared, page_size).Run(kOperations);
}
TEST(BabyModel, HoldsKeysOfAnySize) {
  for (const unsigned page_size : {128u, 256u, 8192u}) ModelRun<>(kAnySize, page_size).Run(kOperations / 3);
}
#ifndef HAKO_TEST_SMALL  // each order is one more database to compile; key_spelling_test has some
TEST(BabyModel, HoldsKeysInAnotherOrder) {
  for (const unsigned page_size : {128u, 8192u}) {
    ModelRun<BackwardComparator>(kShared, page_size).Run(kOperations / 4);
    ModelRun<BackwardComparator>(kFewBytes, page_size).Run(kOperations / 4);
    ModelRun<SizeComparator>(kBinary, page_size).Run(kOperations / 4);
    ModelRun<SizeComparator>(kAnySize, page_size).Run(kOperations / 8);
  }
}
#endif

template <class Compare = BytewiseComparator>
using FileRun = ModelRun<Compare, InFile>;

TEST(TreeModel, HoldsKeysOfEveryShape) {
  for (const Shape* shape : {&kDigits, &kAscending, &kDescending, &kBinary, &kFewBytes, &kShared, &kAnySize}) {
    for (const unsigned page_size : {256u, 8192u}) FileRun<>(*shape, page_size).Run(kOperations / 24);
  }
}
#ifndef HAKO_TEST_SMALL
TEST(TreeModel, HoldsKeysInAnotherOrder) {
  for (const unsigned page_size : {512u, 8192u}) {
    FileRun<BackwardComparator>(kShared, page_size).Run(kOperations / 48);
    FileRun<SizeComparator>(kBinary, page_size).Run(kOperations / 48);
  }
}
#endif

}  // namespace
}  // namespace hako
