// The applied index of a HashDBM: a word of the application that a ProcessMulti changes together
// with records.
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "support/archetypes.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/test_types.h"

namespace hako {
namespace {

constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();

// Sets `key` together with the applied index.
template <class Db>
Status SetWith(Db& db, std::string_view key, std::uint64_t applied_index) {
  const auto visit = [](std::size_t, std::optional<std::string_view>) { return std::optional(Action::Set("value")); };
  return db.ProcessMulti(Batch<Action>{.keys = std::span(&key, 1), .visit = visit, .applied_index = applied_index});
}
template <class Db>
Status SetAlone(Db& db, std::uint64_t applied_index) {
  const auto visit = [](std::size_t, std::optional<std::string_view>) -> std::optional<Action> { return std::nullopt; };
  return db.ProcessMulti(Batch<Action>{.keys = {}, .visit = visit, .applied_index = applied_index});
}

template <class FileT>
class AppliedIndexTest : public testing::Test {
 protected:
  using Db = HashDBM<FileT>;
  static FileT NewFile() {
    if constexpr (std::is_same_v<FileT, ArchetypeFile>) {
      return ArchetypeFile::Make();
    } else {
      return FileT();
    }
  }
  std::unique_ptr<Db> Open() { return Db::Open(file_.Share(), {.durability = durability_}).value(); }

  FileT file_ = NewFile();
  Durability durability_ = Durability::kNone;
};
using Files = TestTypes<testing::Types<MemoryFile>, ArchetypeFile>;
TYPED_TEST_SUITE(AppliedIndexTest, Files);

TYPED_TEST(AppliedIndexTest, IsStoredWithRecordsAndAlone) {
  auto db = this->Open();
  EXPECT_EQ(db->AppliedIndex(), 0u);
  EXPECT_THAT(SetWith(*db, "key", 7), IsOk());
  EXPECT_EQ(db->AppliedIndex(), 7u);
  EXPECT_THAT(SetAlone(*db, 8), IsOk());
  EXPECT_EQ(db->AppliedIndex(), 8u);
  EXPECT_THAT(SetWith(*db, "another", kLargest), IsOk());
  EXPECT_EQ(db->AppliedIndex(), kLargest);
  EXPECT_THAT(db->Rekey("key", "new key"), IsOk());
  EXPECT_EQ(db->AppliedIndex(), kLargest) << "a call without one leaves it";
  EXPECT_THAT(SetWith(*db, "another", 3), IsOk()) << "a smaller one";
  EXPECT_EQ(db->AppliedIndex(), 3u);
  EXPECT_THAT(db->Clear(), IsOk());
  EXPECT_EQ(db->AppliedIndex(), 3u);
  EXPECT_THAT(db->Verify(), IsOk());
}

TYPED_TEST(AppliedIndexTest, StaysIfTheCallFails) {
  auto db = this->Open();
  EXPECT_THAT(SetWith(*db, "key", 7), IsOk());
  const std::string_view keys[] = {"key", "other"};
  const auto abort = [](std::size_t i, std::optional<std::string_view>) {
    return i == 0 ? std::optional(Action::Set("new")) : std::nullopt;
  };
  EXPECT_THAT(db->ProcessMulti(Batch<Action>{.keys = keys, .visit = abort, .applied_index = 9}), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(db->AppliedIndex(), 7u);
}

TYPED_TEST(AppliedIndexTest, IsRestoredByOpen) {
  std::uint64_t last = 0;
  for (const Durability durability : {Durability::kNone, Durability::kPower}) {
    this->durability_ = durability;
    for (std::uint64_t index = 1; index < 6; ++index) {
      auto db = this->Open();
      EXPECT_EQ(db->AppliedIndex(), last);
      last = index * 10;
      EXPECT_THAT(index % 2 == 0 ? SetWith(*db, "key", index * 10) : SetAlone(*db, index * 10), IsOk());
      if (index == 3) {
        EXPECT_THAT(db->Rebuild(), IsOk());
      }
      EXPECT_THAT(db->Close(), IsOk());
      EXPECT_EQ(db->AppliedIndex(), 0u) << "closed";
    }
  }
}

TYPED_TEST(AppliedIndexTest, IsCopied) {
  auto db = this->Open();
  EXPECT_THAT(SetWith(*db, "key", 7), IsOk());
  TypeParam copy = this->NewFile();
  EXPECT_THAT(db->CopyTo(copy.Share()), IsOk());
  EXPECT_EQ(HashDBM<TypeParam>::Open(copy.Share()).value()->AppliedIndex(), 7u);
}

// More threads than intent words. Each batch has many keys, so it holds its word for a while.
TYPED_TEST(AppliedIndexTest, ConcurrentBatchesEachKeepItWithTheirRecords) {
  constexpr std::uint64_t kThreads = format::kIntentWords + 8, kKeys = 40;
  auto db = this->Open();
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Random random(TestSeed() + t);
      for (std::uint64_t n = 1; n <= 60 / kSlowdown + 1; ++n) {
        std::vector<std::string> keys;
        for (std::uint64_t k = 0; k < kKeys; ++k) keys.push_back(std::to_string(random.Below(400)));
        std::optional<std::uint64_t> applied_index;
        if (random.OneIn(2)) {  // this record has the applied index as its value
          keys.push_back("last");
          applied_index = n * kThreads + t;
        }
        const std::vector<std::string_view> views(keys.begin(), keys.end());
        const std::string value = std::to_string(n * kThreads + t);
        const auto visit = [&](std::size_t i, std::optional<std::string_view>) -> std::optional<Action> {
          return i % 5 == 1 ? Action::Remove() : Action::Set(value);
        };
        if (!db->ProcessMulti(Batch<Action>{.keys = views, .visit = visit, .applied_index = applied_index}).ok()) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(std::to_string(db->AppliedIndex()), db->Get("last").value());
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST(AppliedIndexOfOtherDatabasesTest, IsKeptToo) {
  auto tiny = TinyDBM<>::Open().value();
  EXPECT_THAT(SetWith(*tiny, "key", 7), IsOk());
  EXPECT_EQ(tiny->AppliedIndex(), 7u);
  auto tree = TreeDBM<MemoryFile>::Open(MemoryFile()).value();
  EXPECT_THAT(SetWith(*tree, "key", 7), IsOk());
  EXPECT_EQ(tree->AppliedIndex(), 7u);
}

}  // namespace
}  // namespace hako
