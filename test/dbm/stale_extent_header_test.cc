// An extent can be allocated where another one began. The zeros that the new one begins with may not
// reach the device before a power cut, though its own header does: then the old header lies inside
// the new extent. Nothing may take it for an extent.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/format/hash_file_format.h"
#include "support/checked_value.h"
#include "support/crash_memory.h"
#include "support/free_space_check.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

using Image = CrashMemory::Image;
constexpr std::uint8_t kBoot = 1, kNextBoot = 2;

template <class FileT>
class StaleExtentHeaderTest : public testing::Test {
 protected:
  using Database = HashDBM<Erased<FileT>>;

  void Set(Database& db, std::uint64_t i, std::size_t size) {
    const std::string key = NumberedKey(i);
    ASSERT_THAT(db.Set(key, records_[key] = CheckedValue(key, size, random_.Next())), IsOk());
  }
  // A size whose blocks often end where a unit of extents begins.
  std::size_t SomeSize() { return random_.OneIn(3) ? random_.Below(100) : random_.Below(random_.OneIn(4) ? 200'000 : 40'000); }

  // A synchronized database, as the device has it after a power cut.
  void Create(std::uint64_t seed) {
    random_ = Random(seed);
    const auto memory = std::make_shared<CrashMemory>(Image{}, kBoot);
    ASSERT_OK_AND_ASSIGN(auto db, Database::Open(FileT(memory), {.seed = seed}));
    for (std::uint64_t i = 0; i < 60; ++i) ASSERT_NO_FATAL_FAILURE(Set(*db, i, SomeSize()));
    for (std::uint64_t i = 0; i < 20; ++i) {
      ASSERT_THAT(db->Remove(NumberedKey(3 * i)), IsOk());
      records_.erase(NumberedKey(3 * i));
    }
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    image_ = memory->Live();
  }

  // Writes headers into unused space within extents.
  int AddHeaders() {
    format::HashSuperBlock super;
    std::memcpy(&super, image_.data(), sizeof(super));
    int added = 0;
    for (std::uint64_t at = format::kFirstExtent, bytes; at < super.tail; at += bytes) {
      const format::HeapExtentHeader& header = *reinterpret_cast<const format::HeapExtentHeader*>(&image_[at]);
      const bool is_heap = header.magic == format::kHeapExtentMagic && header.check == header.CheckAt(at, super.secret);
      bytes = is_heap ? header.bytes.get() : format::kExtentUnit;
      for (std::uint64_t inner = at + format::kExtentUnit; inner < at + bytes; inner += format::kExtentUnit) {
        const auto unused =
            std::ranges::all_of(image_.begin() + static_cast<std::ptrdiff_t>(inner),
                                image_.begin() + static_cast<std::ptrdiff_t>(inner + 256), [](std::byte b) { return b == std::byte{0}; });
        if (!unused) continue;
        format::HeapExtentHeader stale{};
        stale.magic = format::kHeapExtentMagic;
        stale.bytes = at + bytes - inner;
        stale.check = stale.CheckAt(inner, super.secret);
        std::memcpy(&image_[inner], &stale, sizeof(stale));
        ++added;
      }
    }
    return added;
  }

  void Operate(Database& db) {
    for (int i = 0; i < 150; ++i) {
      const std::uint64_t number = random_.Below(60);
      if (random_.OneIn(3)) {
        const Status removed = db.Remove(NumberedKey(number));
        ASSERT_EQ(removed.ok(), records_.erase(NumberedKey(number)) != 0) << removed;
      } else {
        ASSERT_NO_FATAL_FAILURE(Set(db, number, SomeSize()));
      }
      if (random_.OneIn(10)) {
        ASSERT_THAT(db.Synchronize(SyncMode::kSoft), IsOk());
      }
      if (random_.OneIn(30)) {
        ASSERT_THAT(db.Rebuild(), IsOk());
      }
    }
  }

  Random random_{0};
  Records records_;
  Image image_;
};
using Files = testing::Types<MappedCrashFile, PositionalCrashFile>;
TYPED_TEST_SUITE(StaleExtentHeaderTest, Files);

TYPED_TEST(StaleExtentHeaderTest, IsNoExtent) {
  SCOPED_TRACE(TestSeed());
  int added = 0;
  for (std::uint64_t round = 0; round < 30 / kSlowdown; ++round) {
    SCOPED_TRACE(round);
    this->records_.clear();
    ASSERT_NO_FATAL_FAILURE(this->Create(Random::Mix(TestSeed()) + round));
    added += this->AddHeaders();
    const auto memory = std::make_shared<CrashMemory>(this->image_, kNextBoot);
    for (int opening = 0; opening < 4; ++opening) {
      ASSERT_OK_AND_ASSIGN(auto db, HashDBM<Erased<TypeParam>>::Open(TypeParam(memory)));
      ASSERT_EQ(Difference(this->records_, ListByIterator(*db).records), "none");
      ASSERT_THAT(db->Verify(), IsOk());
      if (opening > 0) {
        ASSERT_NO_FATAL_FAILURE(this->Operate(*db));
      }
      ASSERT_THAT(db->Close(), IsOk());
      ASSERT_EQ(FreeSpaceCheck::Of(memory->Live()), "") << "opening " << opening;
    }
  }
  EXPECT_GT(added, 0);
}

}  // namespace
}  // namespace hako
