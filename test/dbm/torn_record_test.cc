// A record of megabytes is torn by a power cut after some of its pages were written, or by a kill
// of the writing process. The database opens in bounded time with exactly the last synchronized
// state, or with every acknowledged update, and every operation on the whole file works.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dbm/damage.h"
#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/any_file.h"
#include "hako/file/memory_file.h"
#include "support/booted_memory_file.h"
#include "support/checked_value.h"
#include "support/crash_states.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint8_t kBoot = 1, kNextBoot = 2;

using Mapped = HashDBM<MappedTestFile>;

// A value that is cheap to hash and to scan: zeros except for a few bytes in each page.
std::string SparseValue(std::size_t size, std::uint64_t salt) {
  std::string value(size, '\0');
  for (std::size_t at = salt % 64; at + sizeof(salt) <= size; at += kPage / 2) std::memcpy(value.data() + at, &salt, sizeof(salt));
  return value;
}

// A database whose last operation is an unsynchronized Set of one large record.
struct LargeSet {
  Records synced;
  Image before, after;                    // the file around the Set
  std::uint64_t begin = 0, end = 0;       // where the record lies
  std::vector<std::uint64_t> torn_pages;  // those of the file that the Set changed, except for the superblocks' and the live state's

  // With `reuse` the record is stored in the space of a removed one, between other records.
  static LargeSet Make(const std::string& value, bool reuse) {
    LargeSet made;
    MemoryFile memory;
    auto db = Mapped::Open(BootedMemoryFile(memory.Share(), kBoot), {.seed = 11});
    EXPECT_THAT(db, IsOk());
    const auto set = [&](const std::string& key, const std::string& of_key) { EXPECT_THAT((*db)->Set(key, of_key), IsOk()); };
    for (std::uint64_t i = 0; i < 20; ++i) set(NumberedKey(i), made.synced[NumberedKey(i)] = CheckedValue(NumberedKey(i), 50 * i));
    if (reuse) {
      set("large", SparseValue(value.size(), 3));
      EXPECT_THAT((*db)->Synchronize(SyncMode::kHard), IsOk());
      EXPECT_THAT((*db)->Remove("large"), IsOk());
    }
    for (std::uint64_t i = 20; i < 40; ++i) set(NumberedKey(i), made.synced[NumberedKey(i)] = CheckedValue(NumberedKey(i), 50 * i));
    EXPECT_THAT((*db)->Synchronize(SyncMode::kHard), IsOk());
    made.before = ImageOf(memory);
    set("large", value);
    made.after = ImageOf(memory);
    made.Locate(value);
    return made;
  }

  // The device has page i of those that the Set changed if `holds_page(i)`.
  template <class F>
  Image PowerCut(F&& holds_page) const {
    Image image = before;
    image.resize(after.size());
    for (std::size_t i = 0; i < torn_pages.size(); ++i) {
      if (!holds_page(i)) continue;
      const std::uint64_t at = torn_pages[i];
      std::copy_n(after.begin() + static_cast<std::ptrdiff_t>(at), kPage, image.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return image;
  }

  // The process was killed after it had written this many bytes of the record, before its entry.
  Image Death(std::uint64_t written) const {
    Image image = before;
    image.resize(after.size());
    const std::uint64_t extent = begin / format::kExtentUnit * format::kExtentUnit;  // of which the header is there already, if it is new
    const auto copy = [&](std::uint64_t from, std::uint64_t to) {
      std::copy(after.begin() + static_cast<std::ptrdiff_t>(from), after.begin() + static_cast<std::ptrdiff_t>(to),
                image.begin() + static_cast<std::ptrdiff_t>(from));
    };
    if (before.size() <= extent) copy(extent, extent + sizeof(format::HeapExtentHeader));
    copy(begin, std::min(begin + std::max<std::uint64_t>(written, 8), end));
    const std::uint16_t unborn = format::Stamp::Of(format::BlockState::kUnborn, 5).bits();
    std::memcpy(image.data() + begin + 4, &unborn, sizeof(unborn));
    const std::uint64_t tail = image.size() / format::kExtentUnit * format::kExtentUnit;
    std::memcpy(image.data() + format::kLiveStateOffset + offsetof(format::LiveState, tail), &tail, sizeof(tail));
    return image;
  }

 private:
  void Locate(const std::string& value) {
    const std::string_view bytes(reinterpret_cast<const char*>(after.data()), after.size());
    const std::size_t at = bytes.find("large" + value.substr(0, 2 * kPage));
    ASSERT_NE(at, std::string_view::npos);
    begin = at - format::RecordHeadSize(format::LengthsSize(5, value.size()));
    end = at + 5 + value.size();
    for (std::uint64_t page = format::kFirstExtent; page < after.size(); page += kPage) {
      const bool is_new = page >= before.size();
      if (is_new || std::memcmp(before.data() + page, after.data() + page, kPage) != 0) torn_pages.push_back(page);
    }
  }
};

template <class D>
void ExpectHoldsAndWorks(D& db, const Records& expected) {
  ASSERT_THAT(db.Verify(), IsOk());
  ASSERT_EQ(Difference(expected, ListByProcessEach(db).records), "none");
  ASSERT_THAT(db.Set("works", "again"), IsOk());
}

// Opens the file after a power cut. Sometimes the power fails again in the next process.
template <class FileT>
void ExpectRecovers(const Image& image, const Records& expected, bool crash_again) {
  MemoryFile memory = MemoryFile::Of(image);
  const auto open = [&](std::uint8_t boot) {
    if constexpr (MappedFile<FileT>) {
      return HashDBM<Erased<FileT>>::Open(FileT(memory.Share(), boot), {.seed = 11});
    } else {
      return HashDBM<Erased<FileT>>::Open(FileT(memory.Share()), {.seed = 11});
    }
  };
  Image again;
  {
    auto db = open(kNextBoot);
    ASSERT_THAT(db, IsOk());
    ASSERT_NO_FATAL_FAILURE(ExpectHoldsAndWorks(**db, expected));
    if (crash_again) again = ImageOf(memory);
  }
  if (!crash_again) return;
  memory = MemoryFile::Of(again);
  auto db = open(kNextBoot + 1);
  ASSERT_THAT(db, IsOk());
  ASSERT_NO_FATAL_FAILURE(ExpectHoldsAndWorks(**db, expected));
}

template <class FileT>
void CutPowerIn(const LargeSet& set, std::uint64_t states) {
  Random random(TestSeed());
  const std::uint64_t pages = set.torn_pages.size();
  for (std::uint64_t state = 0; state < states; ++state) {
    SCOPED_TRACE(state);
    const std::uint64_t cut = state * (pages + 1) / states;  // with enough states: at every page
    const std::uint64_t style = random.Below(4);
    const Image image = set.PowerCut([&](std::size_t i) {
      switch (style) {
        case 0:
          return i < cut;
        case 1:
          return i != cut;
        case 2:
          return i >= cut;
        default:
          return random.OneIn(2);
      }
    });
    ASSERT_NO_FATAL_FAILURE(ExpectRecovers<FileT>(image, set.synced, state % 16 == 0));
  }
}

TEST(TornRecordTest, PowerCutInALargeSetLeavesTheSynchronizedState) {
  SCOPED_TRACE(TestSeed());
  const std::uint64_t states = CrashStates(400);
  for (const bool reuse : {false, true}) {
    const auto set = LargeSet::Make(SparseValue(std::size_t{2} << 20, 5), reuse);
    ASSERT_NO_FATAL_FAILURE(CutPowerIn<BootedMemoryFile>(set, states / 4));
    ASSERT_NO_FATAL_FAILURE(CutPowerIn<AnyFile>(set, states / 4));
  }
  ReportCrashStates(states / 4 * 4);
}

// Bytes in which every few words look like the head of a record that is megabytes long.
TEST(TornRecordTest, PowerCutInASetOfRandomBytesIsRecoveredInBoundedTime) {
  SCOPED_TRACE(TestSeed());
  std::uint64_t compared = 0;
  for (const std::size_t mib : {2, 8}) {
    const auto set = LargeSet::Make(Random(TestSeed()).Bytes(mib << 20), mib == 2);
    const std::uint64_t states = CrashStates(40) / mib + 1;
    ASSERT_NO_FATAL_FAILURE(CutPowerIn<BootedMemoryFile>(set, states));
    compared += states;
  }
  ReportCrashStates(compared);
}

TEST(TornRecordTest, PowerCutInASetOf64MiBLeavesTheSynchronizedState) {
  SCOPED_TRACE(TestSeed());
  const auto set = LargeSet::Make(SparseValue(std::size_t{64} << 20, 5), true);
  const std::uint64_t states = CrashStates(32) / 32 + 1;
  ASSERT_NO_FATAL_FAILURE(CutPowerIn<BootedMemoryFile>(set, states));
  ReportCrashStates(states);
}

// Every operation on the whole file works beside a partly written record, and so does the next
// life.
TEST(TornRecordTest, KillInALargeSetLosesNothing) {
  SCOPED_TRACE(TestSeed());
  for (const bool reuse : {false, true}) {
    const auto set = LargeSet::Make(Random(TestSeed()).Bytes(std::size_t{3} << 20), reuse);
    for (int part = 0; part < 3; ++part) {
      SCOPED_TRACE(part);
      MemoryFile memory = MemoryFile::Of(set.Death((set.end - set.begin) / 4 * static_cast<std::uint64_t>(part + 1) / kPage * kPage));
      const auto open = [&] { return Mapped::Open(BootedMemoryFile(memory.Share(), kBoot)); };
      {
        ASSERT_OK_AND_ASSIGN(auto db, open());
        ASSERT_NO_FATAL_FAILURE(ExpectHoldsAndWorks(*db, set.synced));
        MemoryFile copied;
        ASSERT_THAT(db->CopyTo(BootedMemoryFile(copied.Share(), kBoot)), IsOk());
        ASSERT_THAT(db->Rebuild(), IsOk());
        ASSERT_THAT(db->Verify(), IsOk());
        ASSERT_THAT(db->Close(), IsOk());
      }
      ASSERT_OK_AND_ASSIGN(auto db, open());
      EXPECT_THAT(db->Verify(), IsOk());
      EXPECT_EQ(db->Count(), set.synced.size() + 1);
    }
  }
}

}  // namespace
}  // namespace hako
