// After a process with a mapped file was killed, the next one finds the free space extent by
// extent.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dbm/damage.h"
#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/positional_hash_dbm.h"
#include "hako/file/memory_file.h"
#include "hako/format/bucket_format.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/record_format.h"
#include "hako/format/stamp.h"
#include "hako/sync/version_lock.h"
#include "support/booted_memory_file.h"
#include "support/checked_value.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "support/test_file.h"

namespace hako {
namespace {

using DB = HashDBM<MappedTestFile>;

StatusOr<std::unique_ptr<DB>> Open(const MemoryFile& memory) { return DB::Open(BootedMemoryFile(memory.Share(), 1), {.seed = 11}); }

std::size_t PlaceOf(std::string_view text, const MemoryFile& file) {
  const Image image = ImageOf(file);
  return std::string_view(reinterpret_cast<const char*>(image.data()), image.size()).find(text);
}

// The file of a process that was killed after `work`.
template <class F>
MemoryFile FileOfTheDead(F&& work) {
  MemoryFile memory;
  auto db = Open(memory);
  EXPECT_THAT(db, IsOk());
  work(**db);
  return MemoryFile::Of(ImageOf(memory));
}

std::string ValueNamed(const std::string& name, std::size_t size) {
  std::string value(size, '\0');
  std::memcpy(value.data(), name.data(), name.size());
  return value;
}

void SynchronizeOften(DB& db) {
  for (int i = 0; i < 600; ++i) ASSERT_THAT(db.Synchronize(SyncMode::kHard), IsOk());
}

// Space freed in an extent that is not yet harvested would be found twice.
TEST(HarvestTest, WritesToNoExtentBeforeItIsHarvested) {
  const MemoryFile memory = FileOfTheDead([](DB& db) {
    for (std::uint64_t i = 0; i < 60; ++i) ASSERT_THAT(db.Set(NumberedKey(i), ValueNamed("first" + NumberedKey(i), 200'000)), IsOk());
    ASSERT_THAT(db.Synchronize(SyncMode::kHard), IsOk());
  });
  const std::size_t place = PlaceOf("first00000059", memory);
  ASSERT_OK_AND_ASSIGN(auto db, Open(memory));
  for (const std::string name : {"second", "third", "fourth"}) {
    ASSERT_THAT(db->Set(NumberedKey(59), ValueNamed(name, 200'000)), IsOk());
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    EXPECT_NE(PlaceOf(name, memory), place) << "the space of the last record, in the last extent, was handed out";
  }
  ASSERT_NO_FATAL_FAILURE(SynchronizeOften(*db));
  const std::uint64_t total = db->GetStats().total_bytes;
  ASSERT_THAT(db->Set("another", ValueNamed("another", 200'000)), IsOk());
  EXPECT_EQ(db->GetStats().total_bytes, total) << "once it was harvested the space is used again";
  EXPECT_THAT(db->Verify(), IsOk());
}

// Makes the records of a killed process look as if it had died while it set each of them: its
// bucket locked, an entry naming it, and its stamp not yet one of a live record.
void MakeUncommitted(MemoryFile memory, std::span<const std::uint64_t> records) {
  const Image image = ImageOf(memory);
  const auto store = [&](std::uint64_t offset, auto bits) {
    ASSERT_THAT(memory.WriteAt(offset, std::as_bytes(std::span(&bits, 1))), IsOk());
  };
  for (const std::uint64_t record : records) store(record + 4, format::Stamp::Of(format::BlockState::kUnborn, 2).bits());
  std::uint32_t word;
  std::memcpy(&word, &image[format::kIndexExtentsOffset], sizeof(word));
  const auto index = format::IndexExtentEntry::Unpack(word);
  for (std::uint64_t line = index.offset; line < index.offset + index.bytes; line += sizeof(format::BucketLine)) {
    format::BucketLine bucket;
    std::memcpy(&bucket, &image[line], sizeof(bucket));
    if (bucket.header != 0) store(line + offsetof(format::BucketLine, header), bucket.header | sync::VersionLock::kLocked);
  }
}

TEST(HarvestTest, FindsABlockOnceWhoseRecordWasNotCommitted) {
  constexpr std::uint64_t kRecords = 20'000, kUncommitted = 60;
  const MemoryFile memory = FileOfTheDead([](DB& db) {
    for (std::uint64_t i = kRecords; i-- != 0;) ASSERT_THAT(db.Set(NumberedKey(i), ValueNamed("first" + NumberedKey(i), 100)), IsOk());
  });
  std::vector<std::uint64_t> records;
  for (std::uint64_t i = 0; i < kUncommitted; ++i) {
    records.push_back(PlaceOf("first" + NumberedKey(i), memory) - NumberedKey(i).size() - format::kShortHead);
  }
  ASSERT_NO_FATAL_FAILURE(MakeUncommitted(memory.Share(), records));
  ASSERT_OK_AND_ASSIGN(auto db, Open(memory));
  const auto value_of = [](std::uint64_t i) { return CheckedValue(NumberedKey(i), i < 2 * kRecords ? 300 : 100); };
  const auto set = [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i) ASSERT_THAT(db->Set(NumberedKey(i), value_of(i)), IsOk());
  };
  ASSERT_NO_FATAL_FAILURE(set(0, kUncommitted));             // their old blocks are free now, or will be
  ASSERT_NO_FATAL_FAILURE(set(kRecords, 2 * kRecords));      // harvests all extents
  ASSERT_NO_FATAL_FAILURE(set(2 * kRecords, 3 * kRecords));  // uses the free blocks
  EXPECT_THAT(db->Verify(), IsOk());
  EXPECT_EQ(db->Count(), 3 * kRecords);
}

TEST(HarvestTest, FirstSetHarvestsFewExtents) {
  const MemoryFile memory = FileOfTheDead([](DB& db) {
    for (std::uint64_t i = 0; i < 40'000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), std::string(90, 'v')), IsOk());
    for (std::uint64_t i = 0; i < 40'000; ++i) {
      if (i % 10 == 0) continue;
      ASSERT_THAT(db.Remove(NumberedKey(i)), IsOk());
    }
  });
  ASSERT_OK_AND_ASSIGN(auto db, Open(memory));
  ASSERT_THAT(db->Set("new", std::string(3000, 'v')), IsOk());
  EXPECT_LT(db->GetStats().free_bytes, std::uint64_t{400'000}) << "of four megabytes";
  ASSERT_NO_FATAL_FAILURE(SynchronizeOften(*db));
  EXPECT_GT(db->GetStats().free_bytes, std::uint64_t{3'000'000});
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST(HarvestTest, FindsExtentsEmptiedByARebuild) {
  std::uint64_t records_before = 0;
  const MemoryFile memory = FileOfTheDead([&](DB& db) {
    for (std::uint64_t i = 0; i < 40'000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), std::string(90, 'v')), IsOk());
    for (std::uint64_t i = 0; i < 40'000; ++i) {
      if (i % 10 == 0) continue;
      ASSERT_THAT(db.Remove(NumberedKey(i)), IsOk());
    }
    ASSERT_THAT(db.Rebuild(), IsOk());
    records_before = db.GetStats().record_bytes;
  });
  ASSERT_OK_AND_ASSIGN(auto db, Open(memory));
  ASSERT_NO_FATAL_FAILURE(SynchronizeOften(*db));
  EXPECT_LE(db->GetStats().record_bytes, records_before + (64 << 10));
  const std::uint64_t total = db->GetStats().total_bytes;
  for (std::uint64_t i = 0; i < 20'000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(90, 'w')), IsOk());
  EXPECT_LE(db->GetStats().total_bytes, total) << "the free extents are used again";
  EXPECT_THAT(db->Verify(), IsOk());
}

// Values with long runs of zeros, which a harvest of partly written records would take for free
// space.
TEST(HarvestTest, WritersDuringTheHarvestLoseNothing) {
  constexpr std::uint64_t kKeys = 240, kWriters = 3;
  const auto size_of = [](std::uint64_t salt) { return std::size_t{1000} + salt % 3 * 30'000; };
  const MemoryFile memory = FileOfTheDead([&](DB& db) {
    for (std::uint64_t i = 0; i < kKeys; ++i) ASSERT_THAT(db.Set(NumberedKey(i), ValueNamed("first", size_of(i))), IsOk());
    ASSERT_THAT(db.Synchronize(SyncMode::kHard), IsOk());
    for (std::uint64_t i = 0; i < kKeys; i += 3) ASSERT_THAT(db.Remove(NumberedKey(i)), IsOk());
  });
  ASSERT_OK_AND_ASSIGN(auto db, Open(memory));
  std::vector<std::thread> threads;
  for (std::uint64_t writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      for (std::uint64_t i = 0; i < 400; ++i) {
        const std::uint64_t key = (i * 7 % (kKeys / kWriters)) * kWriters + writer;
        EXPECT_THAT(db->Set(NumberedKey(key), ValueNamed(NumberedKey(key), size_of(i + key))), IsOk());
        if (i % 8 == 0) {
          EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(db->Verify(), IsOk());
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    const auto value = db->Get(NumberedKey(i));
    ASSERT_THAT(value, IsOk());
    EXPECT_TRUE(value->starts_with(NumberedKey(i)));
  }
}

// A damaged live record cannot be distinguished from free space, so such space stays unused.
TEST(HarvestTest, DoesNotReuseTheSpaceOfADamagedRecord) {
  MemoryFile memory = FileOfTheDead([](DB& db) {
    for (std::uint64_t i = 0; i < 2000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), 90)), IsOk());
  });
  const std::size_t place = PlaceOf(NumberedKey(1000) + CheckedValue(NumberedKey(1000), 90), memory);
  memory.MutableView(place, 1)[0] ^= std::byte{1};  // in the key
  ASSERT_OK_AND_ASSIGN(auto db, Open(memory));
  ASSERT_NO_FATAL_FAILURE(SynchronizeOften(*db));
  for (std::uint64_t i = 2000; i < 4000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), CheckedValue(NumberedKey(i), 90)), IsOk());
  EXPECT_THAT(db->Get(NumberedKey(1000)), StatusIs(absl::StatusCode::kDataLoss));
  for (std::uint64_t i = 0; i < 4000; ++i) {
    if (i == 1000) continue;
    EXPECT_THAT(db->Get(NumberedKey(i)), IsOkAndHolds(CheckedValue(NumberedKey(i), 90)));
  }
}

std::uint64_t HeaderBefore(std::string_view text, const MemoryFile& memory) {
  const Image image = ImageOf(memory);
  const std::string_view file(reinterpret_cast<const char*>(image.data()), image.size());
  const std::string_view magic(format::kHeapExtentMagic.data(), format::kHeapExtentMagic.size());
  return file.rfind(magic, file.find(text));
}

// The file of a process that set records 0 to 1,999 and was killed, with one damaged bit in the
// header of the extent that holds record 1,000.
class DamagedHeaderHarvestTest : public testing::Test {
 protected:
  static std::string ValueOf(std::uint64_t i) { return CheckedValue(NumberedKey(i), i >= 10'000 ? 100'000 : 90); }
  template <class D>
  static void Set(D& db, std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i) ASSERT_THAT(db.Set(NumberedKey(i), ValueOf(i)), IsOk());
  }
  template <class D>
  static void Check(D& db, std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i) ASSERT_THAT(db.Get(NumberedKey(i)), IsOkAndHolds(ValueOf(i))) << i;
  }

  void WriteTo(const std::string& path) const {
    const Image image = ImageOf(memory_);
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(image.data()), static_cast<std::streamsize>(image.size()));
    ASSERT_TRUE(file.flush().good());
  }

  MemoryFile memory_ = FileOfTheDead([](DB& db) { Set(db, 0, 2000); });
  const std::uint64_t header_ = HeaderBefore(ValueOf(1000), memory_);

  void SetUp() override { memory_.MutableView(header_, 1)[0] ^= std::byte{1}; }
};

TEST_F(DamagedHeaderHarvestTest, DoesNotReuseTheExtent) {
  ASSERT_OK_AND_ASSIGN(auto db, Open(memory_));
  ASSERT_NO_FATAL_FAILURE(SynchronizeOften(*db));
  ASSERT_NO_FATAL_FAILURE(Set(*db, 2000, 4000));
  ASSERT_NO_FATAL_FAILURE(Check(*db, 0, 4000));
  EXPECT_THAT(db->Verify(), StatusIs(absl::StatusCode::kDataLoss));
  ASSERT_OK_AND_ASSIGN(const ScrubProgress scrub, db->Scrub({}));
  ASSERT_THAT(scrub.damage, testing::SizeIs(1));
  EXPECT_EQ(scrub.damage[0].offset, header_);
}

TEST_F(DamagedHeaderHarvestTest, DoesNotReuseTheSpaceOfLongRecords) {
  memory_ = FileOfTheDead([](DB& db) { Set(db, 10'000, 10'020); });
  memory_.MutableView(HeaderBefore(ValueOf(10'009), memory_), 1)[0] ^= std::byte{1};
  ASSERT_OK_AND_ASSIGN(auto db, Open(memory_));
  ASSERT_NO_FATAL_FAILURE(SynchronizeOften(*db));
  ASSERT_NO_FATAL_FAILURE(Set(*db, 10'020, 10'040));
  ASSERT_NO_FATAL_FAILURE(Set(*db, 0, 2000));
  ASSERT_NO_FATAL_FAILURE(Check(*db, 10'000, 10'040));
}

// New records in the extent would not be found after a crash.
TEST_F(DamagedHeaderHarvestTest, DoesNotReuseTheExtentOnceItsRecordsAreRemoved) {
  ASSERT_OK_AND_ASSIGN(auto db, Open(memory_));
  ASSERT_THAT(db->Remove(NumberedKey(0)), IsOk());
  ASSERT_NO_FATAL_FAILURE(SynchronizeOften(*db));
  ASSERT_THAT(db->Clear(), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  ASSERT_NO_FATAL_FAILURE(Set(*db, 0, 4000));
  EXPECT_THAT(db->Verify(), IsOk());
  ASSERT_THAT(db->Clear(), IsOk());
  ASSERT_NO_FATAL_FAILURE(Set(*db, 4000, 6000));
  EXPECT_THAT(db->Verify(), IsOk()) << "the state that Verify pins has blocks in the extent";
}

TEST_F(DamagedHeaderHarvestTest, DoesNotReuseTheExtentAfterAClose) {
  for (const bool ends_harvest : {true, false}) {
    const MemoryFile memory = MemoryFile::Of(ImageOf(memory_));
    ASSERT_OK_AND_ASSIGN(auto db, Open(memory));
    if (ends_harvest) {
      ASSERT_NO_FATAL_FAILURE(SynchronizeOften(*db));
    }
    ASSERT_THAT(db->Remove(NumberedKey(1999)), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    ASSERT_OK_AND_ASSIGN(db, Open(memory));
    ASSERT_NO_FATAL_FAILURE(SynchronizeOften(*db));
    ASSERT_NO_FATAL_FAILURE(Set(*db, 2000, 4000));
    ASSERT_NO_FATAL_FAILURE(Check(*db, 0, 1999));
    ASSERT_NO_FATAL_FAILURE(Check(*db, 2000, 4000));
  }
}

// A recovery by scan finds the records of the synchronized state only through the headers.
TEST_F(DamagedHeaderHarvestTest, RecoveryByScanRefusesTheFileAndLeavesItToSalvage) {
  memory_.MutableView(header_, 1)[0] ^= std::byte{1};
  {
    ASSERT_OK_AND_ASSIGN(auto db, Open(memory_));
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    ASSERT_NO_FATAL_FAILURE(Set(*db, 2000, 2001));
    memory_ = MemoryFile::Of(ImageOf(memory_));
  }
  memory_.MutableView(header_, 1)[0] ^= std::byte{1};
  const TempDir dir;
  ASSERT_NO_FATAL_FAILURE(WriteTo(dir.File("db")));
  EXPECT_THAT(HashDBM<PositionalParallelFile>::Open(dir.File("db")), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(HashDBM<>::Open(dir.File("db")), StatusIs(absl::StatusCode::kDataLoss));
  ASSERT_OK_AND_ASSIGN(const SalvageReport report, AnyDBM::Salvage(dir.File("db"), dir.File("salvaged")));
  EXPECT_EQ(report.num_records, 2000u);
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(dir.File("salvaged")));
  ASSERT_NO_FATAL_FAILURE(Check(*db, 0, 2000));
}

TEST_F(DamagedHeaderHarvestTest, ReusesTheExtentAfterClearAndClose) {
  ASSERT_OK_AND_ASSIGN(auto db, Open(memory_));
  ASSERT_NO_FATAL_FAILURE(SynchronizeOften(*db));
  ASSERT_THAT(db->Clear(), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, Open(memory_));
  ASSERT_NO_FATAL_FAILURE(SynchronizeOften(*db));
  const std::uint64_t total = db->GetStats().total_bytes;
  ASSERT_NO_FATAL_FAILURE(Set(*db, 0, 2000));
  EXPECT_LE(db->GetStats().total_bytes, total);
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST_F(DamagedHeaderHarvestTest, CanBeRebuiltAndClosed) {
  ASSERT_OK_AND_ASSIGN(auto db, Open(memory_));
  ASSERT_THAT(db->Rebuild(), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, Open(memory_));
  ASSERT_NO_FATAL_FAILURE(Check(*db, 0, 2000));
}

}  // namespace
}  // namespace hako
