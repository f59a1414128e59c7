// Damages small files of each kind everywhere: a bit of each byte, each length, each sector.
// Opening, reading, verifying and updating a damaged file ends with a clear error or with the right
// data, never with a crash, an endless loop, a huge allocation or a wrong value.
//
// A key that is no longer found is not a wrong value if Verify reports damage: only a check of the
// whole structure can distinguish a damaged index entry from an absent one.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/damage.h"
#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/hash.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/file/any_file.h"
#include "hako/file/memory_file.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/snapshot_format.h"
#include "support/allocation_counter.h"
#include "support/booted_memory_file.h"
#include "support/checked_value.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

// ---- HashDBM ----

// Files of one small database: as Close left it, as a killed process left it, and earlier versions
// of both.
struct HashImages {
  Records records;                                                  // of all but the earlier ones
  std::set<std::pair<std::string, std::string>, std::less<>> ever;  // records that were there at any time
  Image closed, closed_earlier;
  Image killed, killed_earlier;
};

HashImages MakeHashImages() {
  HashImages images;
  MemoryFile device;
  const auto open = [&] { return HashDBM<MappedTestFile>::Open(BootedMemoryFile(device.Share(), 1), {.seed = 7}).value(); };
  const auto set = [&](HashDBM<MappedTestFile>& db, std::uint64_t number, std::size_t size, std::uint64_t salt) {
    const std::string key = NumberedKey(number);
    images.records[key] = CheckedValue(key, size, salt);
    images.ever.emplace(key, images.records[key]);
    EXPECT_THAT(db.Set(key, images.records[key]), IsOk());
  };
  auto db = open();
  for (std::uint64_t i = 0; i < 40; ++i) set(*db, i, i, 1);
  EXPECT_THAT(db->Close(), IsOk());
  images.closed_earlier = ImageOf(device);
  db = open();
  for (std::uint64_t i = 0; i < 50; i += 3) set(*db, i, 2 * i, 2);
  for (std::uint64_t i = 1; i < 30; i += 5) {
    if (images.records.erase(NumberedKey(i)) != 0) {
      EXPECT_THAT(db->Remove(NumberedKey(i)), IsOk());
    }
  }
  images.killed_earlier = ImageOf(device);
  set(*db, 1000, 1500, 1);
  set(*db, 3, 9, 3);
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  images.killed = ImageOf(device);
  EXPECT_THAT(db->Close(), IsOk());
  images.closed = ImageOf(device);
  return images;
}

template <class FileT>
void CheckHashFile(FileT file, const HashImages& images, Damage damage) {
  const Records& records = images.records;
  // Records store no time: an old version of a whole sector may hold an old version of a record,
  // which cannot be detected.
  const auto is_record = [&](const std::string& key, const std::string& value) {
    if (damage == Damage::kLostWrite) return images.ever.count({key, value}) != 0;
    const auto it = records.find(key);
    return it != records.end() && it->second == value;
  };
  AllocationCounter::ForgetLargest();
  auto opened = HashDBM<Erased<FileT>>::Open(std::move(file));
  if (!opened.ok()) {
    ASSERT_TRUE(IsClearRefusal(opened.status())) << opened.status();
    ASSERT_LE(AllocationCounter::largest(), std::size_t{16} << 20);
    return;
  }
  auto& db = **opened;
  bool right = db.Count() == records.size();
  std::string value;
  for (const auto& [key, expected] : records) {
    const Status status = db.Get(key, &value);
    ASSERT_TRUE(status.ok() || absl::IsNotFound(status) || absl::IsDataLoss(status)) << status;
    if (status.ok()) {
      ASSERT_TRUE(is_record(key, value)) << "a wrong value of " << key;
    }
    right = right && status.ok() && value == expected;
  }
  for (std::uint64_t i = 500; i < 510; ++i) ASSERT_FALSE(db.Get(NumberedKey(i), &value).ok());
  Records listed;
  const Status status = db.ProcessEach([&](std::string_view key, std::string_view shown) {
    EXPECT_TRUE(is_record(std::string(key), std::string(shown))) << "a wrong record is listed: " << key;
    listed.emplace(key, shown);
  });
  ASSERT_TRUE(status.ok() || IsClearRefusal(status)) << status;
  right = right && status.ok() && listed == records;
  const Status verified = db.Verify();
  ASSERT_TRUE(verified.ok() || IsClearRefusal(verified)) << verified;
  if (verified.ok() && damage == Damage::kRandom) {
    ASSERT_TRUE(right) << "Verify finds nothing";
  }
  for (std::uint64_t i = 0; i < 12; ++i) {  // accepted updates take effect
    const std::string key = NumberedKey(i * 5);
    if (i % 4 == 3) {
      (void)db.Remove(key);
      continue;
    }
    const std::string fresh = CheckedValue(key, i * 9, 77);
    if (!db.Set(key, fresh).ok()) continue;
    const Status got = db.Get(key, &value);
    if (got.ok()) {
      ASSERT_TRUE(value == fresh);
    }
    if (verified.ok()) {
      ASSERT_THAT(got, IsOk());
    }
  }
  if (verified.ok()) {
    ASSERT_THAT(db.Verify(), IsOk());
  }
  (void)db.Close();
  ASSERT_LE(AllocationCounter::largest(), std::size_t{16} << 20);
}

// How the database opens a damaged image.
struct MappedClean {
  static constexpr std::uint64_t kOneByteIn = kSlowdown > 1 ? 2 : 1;  // of how many one is damaged
  static const Image& Of(const HashImages& images) { return images.closed; }
  static const Image& Earlier(const HashImages& images) { return images.closed_earlier; }
  static BootedMemoryFile Open(const Image& image) { return BootedMemoryFile(MemoryFile::Of(image), 1); }
};
struct MappedAfterKill : MappedClean {
  static const Image& Of(const HashImages& images) { return images.killed; }
  static const Image& Earlier(const HashImages& images) { return images.killed_earlier; }
};
struct MappedAfterPowerCut : MappedAfterKill {
  static BootedMemoryFile Open(const Image& image) { return BootedMemoryFile(MemoryFile::Of(image), 2); }
};
struct PositionalClean : MappedClean {  // the same bytes and checks, read positionally
  static constexpr std::uint64_t kOneByteIn = kSlowdown > 1 ? 10 : 5;
  static AnyFile Open(const Image& image) { return AnyFile(MemoryFile::Of(image)); }
};
struct PositionalAfterPowerCut : MappedAfterKill {
  static constexpr std::uint64_t kOneByteIn = kSlowdown > 1 ? 10 : 5;
  static AnyFile Open(const Image& image) { return AnyFile(MemoryFile::Of(image)); }
};

template <class How>
class HashCorruptionTest : public testing::Test {
 protected:
  Check MakeCheck() {
    return [this](const Image& damaged, const std::string& what, Damage damage) {
      SCOPED_TRACE(what);
      CheckHashFile(How::Open(damaged), images, damage);
    };
  }
  const HashImages images = MakeHashImages();
  const Image& image = How::Of(images);
};

using Ways = testing::Types<MappedClean, MappedAfterKill, MappedAfterPowerCut, PositionalClean, PositionalAfterPowerCut>;
TYPED_TEST_SUITE(HashCorruptionTest, Ways);

TYPED_TEST(HashCorruptionTest, UndamagedFilePasses) {
  auto opened = HashDBM<decltype(TypeParam::Open(this->image))>::Open(TypeParam::Open(this->image));
  ASSERT_THAT(opened, IsOk());
  EXPECT_THAT((*opened)->Verify(), IsOk());
  EXPECT_EQ(Difference(this->images.records, ListByIterator(**opened).records), "none");
}

TYPED_TEST(HashCorruptionTest, SurvivesABitFlippedInEveryByte) {
  SCOPED_TRACE(TestSeed());
  FlipBits(this->image, false, this->MakeCheck(), TypeParam::kOneByteIn);
}

TYPED_TEST(HashCorruptionTest, DISABLED_SurvivesEveryBitFlipped) { FlipBits(this->image, true, this->MakeCheck()); }

TYPED_TEST(HashCorruptionTest, SurvivesTruncationAtEveryLength) {
  SCOPED_TRACE(TestSeed());
  Truncate(this->image, this->MakeCheck());
}

TYPED_TEST(HashCorruptionTest, SurvivesDamagedSectors) {
  SCOPED_TRACE(TestSeed());
  DamageSectors(this->image, TypeParam::Earlier(this->images), this->MakeCheck());
}

TEST(HashCorruption, RefusesUnsupportedFormatVersions) {
  Image image = MakeHashImages().closed;
  for (const std::uint32_t version : {format::kHashFileVersion + 1, format::kHashFileOldest - 1, 0u}) {
    SCOPED_TRACE(version);
    for (const std::uint64_t offset : {std::uint64_t{0}, storage::kSlotDistance}) {
      format::HashSuperBlock super;
      std::memcpy(&super, image.data() + offset, sizeof(super));
      super.version = version;
      super.check = format::CheckOf(super);
      std::memcpy(image.data() + offset, &super, sizeof(super));
    }
    MemoryFile file = MemoryFile::Of(image);
    const std::uint32_t known = version > format::kHashFileVersion ? format::kHashFileVersion : format::kHashFileOldest;
    EXPECT_THAT(HashDBM<MemoryFile>::Open(file.Share()),
                StatusIs(absl::StatusCode::kUnimplemented, testing::AllOf(testing::HasSubstr(absl::StrCat("format ", version)),
                                                                          testing::EndsWith(absl::StrCat(", ", known)))));
    EXPECT_TRUE(ImageOf(file) == image) << "a refused file is left alone";
  }
}

// ---- snapshots of TinyDBM ----

struct Snapshot {
  Records records;
  Image image;
};

Snapshot MakeSnapshot(std::uint64_t salt) {
  Snapshot snapshot;
  auto db = TinyDBM<MemoryFile>::Open().value();
  for (std::uint64_t i = 0; i < 60; ++i) {
    const std::string key = NumberedKey(i);
    snapshot.records[key] = CheckedValue(key, i * 3, salt);
    EXPECT_THAT(db->Set(key, snapshot.records[key]), IsOk());
  }
  MemoryFile file;
  EXPECT_THAT(db->Save(file), IsOk());
  snapshot.image = ImageOf(file);
  return snapshot;
}

void CheckSnapshot(const Image& image, const Records& records, absl::StatusCode expected = absl::StatusCode::kOk) {
  auto db = TinyDBM<MemoryFile>::Open().value();
  ASSERT_THAT(db->Set("kept", "if the load fails"), IsOk());
  MemoryFile file = MemoryFile::Of(image);
  AllocationCounter::ForgetLargest();
  const Status status = db->Load(file);
  ASSERT_LE(AllocationCounter::largest(), std::size_t{16} << 20);
  if (status.ok()) {
    ASSERT_EQ(Difference(records, ListByIterator(*db).records), "none");
  } else {
    ASSERT_TRUE(IsClearRefusal(status)) << status;
    ASSERT_EQ(Difference({{"kept", "if the load fails"}}, ListByIterator(*db).records), "none");
  }
  if (expected != absl::StatusCode::kOk) {
    ASSERT_THAT(status, StatusIs(expected));
  }
  ASSERT_THAT(db->Verify(), IsOk());
}

class TinyCorruptionTest : public testing::Test {
 protected:
  Check MakeCheck() {
    return [this](const Image& image, const std::string& what, Damage) {
      SCOPED_TRACE(what);
      CheckSnapshot(image, snapshot.records);
    };
  }
  const Snapshot snapshot = MakeSnapshot(1);
};

TEST_F(TinyCorruptionTest, SurvivesABitFlippedInEveryByte) {
  SCOPED_TRACE(TestSeed());
  FlipBits(snapshot.image, false, MakeCheck(), kSlowdown > 1 ? 2 : 1);
}

TEST_F(TinyCorruptionTest, DISABLED_SurvivesEveryBitFlipped) { FlipBits(snapshot.image, true, MakeCheck()); }

TEST_F(TinyCorruptionTest, RefusesEveryTruncation) {
  for (std::size_t length = 0; length < snapshot.image.size(); length += kSlowdown) {
    SCOPED_TRACE(length);
    CheckSnapshot(Image(snapshot.image.begin(), snapshot.image.begin() + static_cast<std::ptrdiff_t>(length)), {},
                  absl::StatusCode::kDataLoss);
    if (HasFatalFailure()) return;
  }
}

TEST_F(TinyCorruptionTest, SurvivesDamagedSectors) { DamageSectors(snapshot.image, MakeSnapshot(2).image, MakeCheck()); }

TEST_F(TinyCorruptionTest, RefusesAForeignFile) {
  const std::string text(10'000, 't');
  const auto bytes = std::as_bytes(std::span(text));
  CheckSnapshot(Image(bytes.begin(), bytes.end()), {}, absl::StatusCode::kInvalidArgument);
}

TEST_F(TinyCorruptionTest, RefusesANewerFormat) {
  Image image = snapshot.image;
  format::SnapshotHeader header;
  std::memcpy(&header, image.data(), sizeof(header));
  header.version = format::kSnapshotVersion + 1;
  header.check = Hash64(&header, offsetof(format::SnapshotHeader, check), 0);
  std::memcpy(image.data(), &header, sizeof(header));
  CheckSnapshot(image, {}, absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace hako
