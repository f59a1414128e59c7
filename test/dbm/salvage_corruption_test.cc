// Damages small files everywhere, a bit of each byte and each sector, and salvages them: it ends
// with a clear error or with records that the database had, never with a crash, an endless loop, a
// huge allocation or a wrong value; and if records are missing, the report says so.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "dbm/damage.h"
#include "dbm/salvage_files.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/file/memory_file.h"
#include "support/allocation_counter.h"
#include "support/booted_memory_file.h"
#include "support/cpu_time.h"
#include "support/hash_forgery.h"
#include "support/sanitizers.h"
#include "support/test_file.h"

namespace hako {
namespace {

struct Images {
  Records records;                                     // of both
  std::set<std::pair<std::string, std::string>> ever;  // records that were there at any time
  Image closed, open;
};

template <class D>
Images MakeImages() {
  Images images;
  MemoryFile device;
  const auto open = [&] {
    if constexpr (kIsTree<D>)
      return TreeDBM<MappedTestFile>::Open(BootedMemoryFile(device.Share(), 1), {.page_size = 512}).value();
    else
      return HashDBM<MappedTestFile>::Open(BootedMemoryFile(device.Share(), 1), {.seed = 7}).value();
  };
  auto db = open();
  const auto set = [&](std::uint64_t number, std::size_t size, std::uint64_t salt) {
    const std::string key = NumberedKey(number);
    images.records[key] = CheckedValue(key, size, salt);
    images.ever.emplace(key, images.records[key]);
    EXPECT_THAT(db->Set(key, images.records[key]), IsOk());
  };
  for (std::uint64_t i = 0; i < 60; ++i) set(i, 8 + i, 1);
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  for (std::uint64_t i = 0; i < 60; i += 3) set(i, 8 + 2 * i, 2);
  for (std::uint64_t i = 1; i < 40; i += 5) {
    if (images.records.erase(NumberedKey(i)) != 0) {
      EXPECT_THAT(db->Remove(NumberedKey(i)), IsOk());
    }
  }
  set(1000, 3000, 1);
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  images.open = ImageOf(device);
  EXPECT_THAT(db->Close(), IsOk());
  images.closed = ImageOf(device);
  return images;
}

// Without the note that each file has that was mapped and not closed, if it is salvaged elsewhere.
bool HasNotes(const SalvageReport& report) {
  return std::ranges::any_of(report.notes, [](const std::string& note) { return note.find("are left out") == note.npos; });
}

template <class D, class From>
void CheckSalvage(const From& from, const Images& images, bool tells_old_from_new) {
  MemoryFile to;
  AllocationCounter::ForgetLargest();
  const auto report = SalvageInto<D>(from, LogPlace<From>(), to.Share());
  ASSERT_LE(AllocationCounter::largest(), std::size_t{16} << 20);
  if (!report.ok()) {
    ASSERT_TRUE(IsClearRefusal(report.status())) << report.status();
    return;
  }
  auto db = D::Open(to.Share());
  ASSERT_THAT(db.status(), IsOk());
  const Records found = ListByProcessEach(**db).records;
  ASSERT_THAT((*db)->Close(), IsOk());
  for (const auto& [key, value] : found) {
    ASSERT_TRUE(images.ever.contains({key, value})) << "a wrong value of " << key;
    // One that may be older is noted.
    if (!tells_old_from_new || HasNotes(*report)) continue;
    const auto it = images.records.find(key);
    ASSERT_TRUE(it != images.records.end() && it->second == value) << "a stale record of " << key;
  }
  if (found != images.records && !HasNotes(*report)) {
    ASSERT_FALSE(report->IsComplete());
    ASSERT_EQ(report->num_lost, std::optional<std::uint64_t>(images.records.size() - found.size()));
  }
}

template <class D>
class SalvageCorruptionTest : public testing::Test {
 protected:
  // As Close left the file: the index tells which records there are.
  Check CheckClosed() {
    return [this](const Image& damaged, const std::string& what, Damage damage) {
      SCOPED_TRACE(what);
      if (damage == Damage::kRandom) CheckSalvage<D>(MemoryFile::Of(damaged), images, true);
    };
  }
  // As a power cut, or a killed process, left it: only stamps tell, which have no check.
  Check CheckOpen() {
    return [this](const Image& damaged, const std::string& what, Damage damage) {
      SCOPED_TRACE(what);
      if (damage != Damage::kRandom) return;
      CheckSalvage<D>(MemoryFile::Of(damaged), images, kIsTree<D>);
      CheckSalvage<D>(BootedMemoryFile(MemoryFile::Of(damaged), 1), images, kIsTree<D>);
    };
  }
  const Images images = MakeImages<D>();
};

// A salvage takes ten times as long as an opening.
constexpr int kOneByteIn = kSlowdown > 1 ? 9 : 3;

using Databases = testing::Types<HashDBM<MemoryFile>, TreeDBM<MemoryFile>>;
TYPED_TEST_SUITE(SalvageCorruptionTest, Databases);

TYPED_TEST(SalvageCorruptionTest, UndamagedImagesPass) {
  for (const Image* image : {&this->images.closed, &this->images.open}) {
    MemoryFile to;
    const MemoryFile from = MemoryFile::Of(*image);
    ASSERT_OK_AND_ASSIGN(const SalvageReport report, (SalvageInto<TypeParam>(from, LogPlace<MemoryFile>(), to.Share())));
    EXPECT_EQ(report.num_records, this->images.records.size());
    EXPECT_EQ(report.num_places, 0u);
    EXPECT_EQ(report.num_lost, std::optional<std::uint64_t>(0));
    EXPECT_FALSE(HasNotes(report));
    EXPECT_EQ(report.IsComplete(), kIsTree<TypeParam> || image == &this->images.closed);
  }
}

TYPED_TEST(SalvageCorruptionTest, BitsFlippedInBytesOfAClosedFile) {
  SCOPED_TRACE(TestSeed());
  FlipBits(this->images.closed, false, this->CheckClosed(), kOneByteIn);
}

TYPED_TEST(SalvageCorruptionTest, BitsFlippedInBytesOfAnOpenFile) {
  SCOPED_TRACE(TestSeed());
  FlipBits(this->images.open, false, this->CheckOpen(), kOneByteIn);
}

TYPED_TEST(SalvageCorruptionTest, DamagedSectors) {
  SCOPED_TRACE(TestSeed());
  DamageSectors(this->images.closed, {}, this->CheckClosed());
  DamageSectors(this->images.open, {}, this->CheckOpen());
}

TYPED_TEST(SalvageCorruptionTest, Truncation) {
  SCOPED_TRACE(TestSeed());
  Truncate(this->images.closed, [this, n = 0](const Image& image, const std::string& what, Damage damage) mutable {
    if (++n % 20 == 0) this->CheckClosed()(image, what, damage);
  });
}

// A superblock may name an end of the records far behind that of the file.
TEST(SalvageOfForgedFiles, ReadsNoMoreThanTheFileHas) {
  MemoryFile made;
  {
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<MemoryFile>::Open(made.Share()));
    for (std::uint64_t i = 0; i < 100; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "value"), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
  }
  HashForgery forgery(ImageOf(made));
  forgery.super.clean = 0;
  forgery.super.num_records = 101;  // so that it looks for more
  forgery.super.tail = std::uint64_t{16} << 30;
  const MemoryFile forged = MemoryFile::Of(forgery.Finish());
  MemoryFile rescued;
  const std::uint64_t before = CpuNanoseconds();
  ASSERT_OK_AND_ASSIGN(const SalvageReport report, (SalvageInto<HashDBM<MemoryFile>>(forged, LogPlace<MemoryFile>(), rescued.Share())));
  EXPECT_LT(CpuNanoseconds() - before, 2'000'000'000u * kSlowdown);
  EXPECT_EQ(report.num_records, 100u);
}

}  // namespace
}  // namespace hako
