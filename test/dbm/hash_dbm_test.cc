// HashDBM on every kind of file, and its own tests.
#include "hako/dbm/hash_dbm.h"

#include <sys/syscall.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/durable_dbm_conformance.h"
#include "dbm/listing.h"
#include "dbm/multi_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
#include "hako/base/hash.h"
#include "hako/dbm/any_dbm.h"
#include "hako/format/hash_file_format.h"
#include "support/archetypes.h"
#include "support/checked_value.h"
#include "support/fault_file.h"
#include "support/status_matchers.h"
#include "support/system_call_fault.h"
#include "support/temp_dir.h"
#include "support/test_file.h"
#include "support/test_types.h"

namespace hako {
namespace {

using Mapped = HashSurroundings<MemoryMapParallelFile>;
using Positional = HashSurroundings<PositionalParallelFile>;
using InMemory = HashSurroundings<MemoryFile>;
using Erased = HashSurroundings<AnyFile>;

using Some = TestTypes<testing::Types<Mapped>, Positional>;  // the others: repeats/hash_conformance_test.cc
INSTANTIATE_TYPED_TEST_SUITE_P(Hash, DBMConformance, Some);
INSTANTIATE_TYPED_TEST_SUITE_P(Hash, DurableDBMConformance, Some);
INSTANTIATE_TYPED_TEST_SUITE_P(Hash, ConcurrentDBMConformance, Some);
INSTANTIATE_TYPED_TEST_SUITE_P(Hash, MultiDBMConformance, Some);

static_assert(DBM<HashDBM<>> && DBM<HashDBM<PositionalParallelFile>> && DBM<HashDBM<MemoryFile>> && DBM<HashDBM<AnyFile>> &&
              DBM<HashDBM<ArchetypeFile>>);

// Tests that depend on the file type, run with each of them.
template <class Surroundings>
class HashOptionsTest : public testing::Test {
 protected:
  Surroundings surroundings_;
};
using All = testing::Types<Mapped, Positional, InMemory, Erased>;
TYPED_TEST_SUITE(HashOptionsTest, All);

TYPED_TEST(HashOptionsTest, KeepsTheOptionsSetAtCreation) {
  auto created = this->surroundings_.OpenWith({.num_records = 1000, .align_pow = 6, .seed = 1234});
  ASSERT_THAT(created, IsOk());
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_THAT((*created)->Set(NumberedKey(i), "x"), IsOk());
  EXPECT_GE((*created)->GetStats().record_bytes, 100u * 64);
  ASSERT_THAT((*created)->Close(), IsOk());
  auto opened = this->surroundings_.OpenWith({.align_pow = 3, .seed = 99}, OpenMode::kReadWrite);
  ASSERT_THAT(opened, IsOk());
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_THAT((*opened)->Get(NumberedKey(i)), IsOkAndHolds("x"));
  for (std::uint64_t i = 100; i < 200; ++i) ASSERT_THAT((*opened)->Set(NumberedKey(i), "x"), IsOk());
  EXPECT_GE((*opened)->GetStats().record_bytes, 200u * 64);
  EXPECT_THAT((*opened)->Verify(), IsOk());
  EXPECT_THAT((*opened)->Close(), IsOk());
}

TYPED_TEST(HashOptionsTest, RefusesInvalidOptions) {
  for (const int align_pow : {-1, 0, 2, 13, 100})
    EXPECT_THAT(this->surroundings_.OpenWith({.align_pow = align_pow}), StatusIs(absl::StatusCode::kInvalidArgument)) << align_pow;
  ASSERT_OK_AND_ASSIGN(auto file, this->surroundings_.files.Open("db"));
  EXPECT_EQ(file.Size(), 0u) << "a refused option leaves nothing behind";
  ASSERT_THAT(file.Close(), IsOk());
  auto opened = this->surroundings_.OpenWith({});
  ASSERT_THAT(opened, IsOk());
  EXPECT_THAT((*opened)->Close(), IsOk());
}

// Changes both superblocks of a file that is closed.
template <class F>
void ChangeSuperBlocks(MemoryFile& file, F change) {
  for (const std::uint64_t offset : {std::uint64_t{0}, storage::kSlotDistance}) {
    format::HashSuperBlock super;
    const std::span bytes(reinterpret_cast<std::byte*>(&super), sizeof(super));
    ASSERT_THAT(file.ReadAt(offset, bytes), IsOk());
    change(super);
    super.check = format::CheckOf(super);
    ASSERT_THAT(file.WriteAt(offset, bytes), IsOk());
  }
}

TEST(HashDBM, OpensByPath) {
  TempDir directory;
  const std::string path = directory.File("casket.hkh");
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(path));
  EXPECT_THAT(db->Set("key", "value"), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, HashDBM<>::Open(path, {}, {.mode = OpenMode::kReadOnly}));
  EXPECT_THAT(db->Get("key"), IsOkAndHolds("value"));
  EXPECT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, HashDBM<>::Open(path, {}, {.mode = OpenMode::kTruncate}));
  EXPECT_EQ(db->Count(), 0u);
  EXPECT_THAT(db->Close(), IsOk());
  EXPECT_THAT(HashDBM<>::Open(directory.path() + "/no/such/directory"), testing::Not(IsOk()));
}

TEST(HashDBM, OpenReportsAFailedBackgroundStart) {
  TempDir directory;
  const std::string path = directory.File("casket.hkh");
  bool is_possible = true;
  std::thread([&] {
    is_possible = FailSystemCallsOfThisThread({SYS_clone, SYS_clone3}, EAGAIN);
    if (!is_possible) return;
    const HashOptions options{.sync_interval = std::chrono::milliseconds(1)};
    EXPECT_THAT(HashDBM<>::Open(path, options), StatusIs(absl::StatusCode::kResourceExhausted));
  }).join();
  if (!is_possible) GTEST_SKIP() << "cannot make system calls fail";
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(path));
  EXPECT_THAT(db->Set("key", "value"), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
}

// A file written through one type of file is opened through another, after a clean close and after
// a crash.
template <class From, class To>
void ExpectOpensFrom() {
  TempDir directory;
  const std::string path = directory.File("casket.hkh"), crashed = directory.File("crashed.hkh");
  Records records;
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<From>::Open(path));
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const std::string key = NumberedKey(i);
    records[key] = CheckedValue(key, i % 100);
    ASSERT_THAT(db->Set(key, records[key]), IsOk());
    if (i % 3 == 0 && i > 1000) {
      ASSERT_THAT(db->Remove(NumberedKey(i - 500)), IsOk());
      records.erase(NumberedKey(i - 500));
    }
  }
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  std::filesystem::copy_file(path, crashed);
  if (const std::string log = path + "-log"; std::filesystem::exists(log)) std::filesystem::copy_file(log, crashed + "-log");
  ASSERT_THAT(db->Close(), IsOk());
  for (const std::string& there : {path, crashed}) {
    SCOPED_TRACE(there);
    for (int again = 0; again < 2; ++again) {
      HashOptions options;
      if (there == crashed && again == 0) options.unproven_updates = UnprovenUpdates::kDrop;
      ASSERT_OK_AND_ASSIGN(auto opened, HashDBM<To>::Open(there, options));
      EXPECT_THAT(opened->Verify(), IsOk());
      EXPECT_EQ(Difference(records, ListByIterator(*opened).records), "none");
      records["again" + std::to_string(again)] = "value";
      EXPECT_THAT(opened->Set("again" + std::to_string(again), "value"), IsOk());
      EXPECT_THAT(opened->Close(), IsOk());
    }
    records.erase("again0");
    records.erase("again1");
  }
}
TEST(HashDBM, OpensAPositionalFileMapped) { ExpectOpensFrom<PositionalParallelFile, MemoryMapParallelFile>(); }
TEST(HashDBM, OpensAMappedFilePositional) { ExpectOpensFrom<MemoryMapParallelFile, PositionalParallelFile>(); }

TEST(HashDBM, WorksOnAnArchetypeFile) {
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<ArchetypeFile>::Open(ArchetypeFile::Make()));
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "value"), IsOk());
  EXPECT_EQ(ListByProcessEach(*db).records.size(), 1000u);
  EXPECT_THAT(db->Rebuild(), IsOk());
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_THAT(db->Verify(), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
}

// Reaches the maximum size quickly: moves the note of the last Close, and so the end of the file,
// to just below it.
TEST(HashDBM, RefusesToGrowBeyondItsOffsets) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 35;
  MemoryFile device(kLimit + (1 << 20));
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<MemoryFile>::Open(device.Share()));
  ASSERT_THAT(db->Set("below", "value"), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  std::uint64_t tail = 0;
  ChangeSuperBlocks(device, [&tail](format::HashSuperBlock& super) {
    tail = super.tail;
    super.tail = kLimit - 4 * format::kExtentAlignment;
  });
  std::vector<std::byte> note(device.Size() - tail);
  ASSERT_THAT(device.ReadAt(tail, note), IsOk());
  ASSERT_THAT(device.Resize(kLimit - 4 * format::kExtentAlignment + note.size()), IsOk());
  ASSERT_THAT(device.WriteAt(tail, std::vector<std::byte>(note.size())), IsOk());
  ASSERT_THAT(device.WriteAt(kLimit - 4 * format::kExtentAlignment, note), IsOk());

  ASSERT_OK_AND_ASSIGN(db, HashDBM<MemoryFile>::Open(device.Share()));
  EXPECT_EQ(db->Count(), 1u);
  const std::string value(3000, 'v');
  std::uint64_t count = 0;
  Status status;
  for (; status.ok() && count < 1000; ++count) status = db->Set(NumberedKey(count), value);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, testing::HasSubstr("has reached its limit of 34359738368 bytes")));
  EXPECT_EQ(db->Count(), count) << "one from before, and all but the last";
  EXPECT_GT(count, 2u);
  for (std::uint64_t i = 0; i + 1 < count; ++i) EXPECT_THAT(db->Get(NumberedKey(i)), IsOkAndHolds(value));
  EXPECT_THAT(db->Get("below"), IsOkAndHolds("value"));
  EXPECT_THAT(db->Remove(NumberedKey(0)), IsOk());
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_THAT(db->Set(NumberedKey(0), value), IsOk()) << "there is space again";
  EXPECT_THAT(db->Close(), IsOk());
}

// On an unmapped file a record of common size takes one read, whether its value is read or not, and
// an absent key none.
TEST(HashDBM, GetTakesOneRead) {
  const auto plan = std::make_shared<FaultPlan>();
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<TestFile>::Open(FaultFile(AnyFile(MemoryFile()), plan)));
  constexpr std::uint64_t kRecords = 2000;
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db->Set(NumberedKey(i), CheckedValue(NumberedKey(i), i % 200)), IsOk());
  std::string value;
  const auto reads_of = [&](auto operation) {
    const std::uint64_t before = plan->call_count(FaultKind::kRead);
    for (std::uint64_t i = 0; i < kRecords; ++i) EXPECT_THAT(operation(i), IsOk());
    return plan->call_count(FaultKind::kRead) - before;
  };
  constexpr std::uint64_t kOnce = kRecords + kRecords / 100;  // tags coincide now and then
  EXPECT_LE(reads_of([&](std::uint64_t i) { return db->Get(NumberedKey(i), &value); }), kOnce);
  EXPECT_LE(reads_of([&](std::uint64_t i) { return db->GetSize(NumberedKey(i)).status(); }), kOnce);
  EXPECT_LE(reads_of([&](std::uint64_t i) { return db->Contains(NumberedKey(kRecords + i)).status(); }), kRecords / 100);
}

// A hash table does not order keys: ordered operations do not compile.
template <class I>
concept Orders = requires(I& it) {
  it.Last();
}
|| requires(I& it) { it.Previous(); }
|| requires(I& it) { it.JumpLower("", true); };
static_assert(!Orders<HashDBM<>::Iterator>);

TEST(HashDBM, TakesAtMost34BytesForA16ByteRecord) {
  constexpr std::uint64_t kRecords = 1'000'000;
  Mapped surroundings;
  ASSERT_OK_AND_ASSIGN(auto db, surroundings.Open());
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    const std::string key = NumberedKey(i);
    ASSERT_THAT(db->Set(key, key), IsOk());
  }
  ASSERT_EQ(db->Count(), kRecords);
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(auto file, surroundings.files.Open("db"));
  EXPECT_LE(file.Size(), 34 * kRecords);
  RecordProperty("bytes_per_record", std::to_string(static_cast<double>(file.Size()) / kRecords));
}

// Keys of one home bucket, in which insertions move entries and need space for overflow lines. The
// device grows from attempt to attempt: first it lacks space for the records, then for the lines,
// then it has enough.
TEST(HashDBM, ProcessMultiChangesNothingOnAFullDevice) {
  constexpr std::uint64_t kSeed = 7;
  std::vector<std::string> names;
  for (std::uint64_t i = 0; names.size() < 40; ++i) {
    if (std::string key = NumberedKey(i); Hash64(key, kSeed) % 65'536 == 0) names.push_back(std::move(key));
  }
  const std::vector<std::string_view> keys(names.begin(), names.end());
  const std::string value(100, 'v');
  int short_of_lines = 0;
  for (std::uint64_t capacity = 64 << 10;; capacity += 32 << 10) {
    ASSERT_LE(capacity, 2u << 20);
    auto opened = HashDBM<MemoryFile>::Open(MemoryFile(capacity), {.seed = kSeed});
    if (!opened.ok()) continue;
    auto& db = **opened;
    Records records;
    for (int i = 0; i < 10; ++i) {
      if (db.Set(names[i], "old").ok()) records[names[i]] = "old";
    }
    const auto change = [&](std::size_t i, std::optional<std::string_view>) {
      return i < 10 && i % 2 == 1 ? Action::Remove() : Action::Set(value);
    };
    const Status status = db.ProcessMulti(keys, change);
    if (status.ok()) {
      for (std::size_t i = 0; i < names.size(); ++i) records[names[i]] = value;
      for (std::size_t i = 1; i < 10; i += 2) records.erase(names[i]);
    } else {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
    }
    EXPECT_EQ(Difference(records, ListByIterator(db).records), "none") << capacity;
    EXPECT_EQ(db.Count(), records.size());
    EXPECT_THAT(db.Verify(), IsOk());
    if (status.ok()) break;
    short_of_lines += records.size() == 10 && db.ProcessMulti(std::span(keys).first(10), change).ok();
    EXPECT_THAT(db.Verify(), IsOk());
  }
  EXPECT_GT(short_of_lines, 0);
}

TEST(HashDBM, RefusesUpdatesButReadsOnAFullDevice) {
  MemoryFile device(std::uint64_t{2} << 20);
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<MemoryFile>::Open(device.Share()));
  Records records;
  Status status;
  for (std::uint64_t i = 0; status.ok(); ++i) {
    ASSERT_LT(i, 100'000u) << "two megabytes hold a hundred";
    const std::string key = NumberedKey(i);
    std::string value = CheckedValue(key, i % 300, 1);
    status = db->Set(key, value);
    if (status.ok()) records[key] = std::move(value);
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_GE(records.size(), 3000u);
  EXPECT_THAT(db->Set(NumberedKey(0), std::string(1 << 20, 'x')), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(db->Count(), records.size());
  EXPECT_TRUE(ListByIterator(*db).records == records) << "a refused update changes nothing";
  EXPECT_THAT(db->Verify(), IsOk());
  for (std::uint64_t i = 0; i < 2000; ++i) {  // removals need no space and free some
    ASSERT_THAT(db->Remove(NumberedKey(i)), IsOk());
    records.erase(NumberedKey(i));
  }
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  for (std::uint64_t i = 0; i < 1000; ++i) {
    records[NumberedKey(i)] = CheckedValue(NumberedKey(i), i % 300, 2);
    ASSERT_THAT(db->Set(NumberedKey(i), records[NumberedKey(i)]), IsOk());
  }
  EXPECT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, HashDBM<MemoryFile>::Open(device.Share()));
  EXPECT_TRUE(ListByProcessEach(*db).records == records);
  EXPECT_THAT(db->Verify(), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
}

}  // namespace
}  // namespace hako
