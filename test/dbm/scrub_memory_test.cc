// Scrub where memory runs out at each allocation: the call fails, and no damage is lost by that.
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "dbm/salvage_files.h"
#include "dbm/shared_databases.h"
#include "gtest/gtest.h"
#include "support/allocation_counter.h"
#include "support/sanitizers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

template <class D>
class ScrubMemoryTest : public testing::Test {};
using ScrubMemoryDatabases = testing::Types<HashDBM<>, HashDBM<PositionalParallelFile>, TreeDBM<>>;
TYPED_TEST_SUITE(ScrubMemoryTest, ScrubMemoryDatabases);

TYPED_TEST(ScrubMemoryTest, ReportsAllDamageThoughCallsFail) {
  using Database = TypeParam;
  TempDir dir;
  const std::string path = dir.File("casket");
  Records records;
  {
    ASSERT_OK_AND_ASSIGN(auto db, Database::Open(path));
    records = Fill(*db, 300, 9000);
    ASSERT_THAT(db->Close(), IsOk());
  }
  std::string image = ReadWhole(path);
  std::set<std::uint64_t> damaged;
  const auto damage = [&](const Piece& piece) {
    image[piece.offset + piece.size - 1] ^= 1;
    damaged.insert(piece.offset);
  };
  if constexpr (kIsTree<Database>) {
    const TreePieces pieces(ReadWhole(path));
    damage(pieces.leaves[1]);
    damage(pieces.long_values[0]);
  } else {
    const std::vector<Piece> pieces = RecordsIn(ReadWhole(path), records);
    damage(pieces[5]);
    damage(pieces[pieces.size() - 5]);
  }
  WriteWhole(path, image);
  ASSERT_OK_AND_ASSIGN(auto db, Database::Open(path));
  ASSERT_THAT(db->CheckIdle(), IsOk());  // makes the state of this thread
  bool has_failed = true;
  for (std::uint64_t call = 1; has_failed; ++call) {
    std::set<std::uint64_t> found;
    has_failed = false;
    for (bool is_complete = false; !is_complete;) {
      StatusOr<ScrubProgress> progress = absl::UnknownError("");
      {
        const FailingAllocation failing(has_failed ? ~std::uint64_t{0} : call, FailingAllocation::Which::kOnce,
                                        FailingAllocation::Whose::kThisThread);
        progress = db->Scrub();
        has_failed = has_failed || failing.HasFailed();
      }
      if (!progress.ok()) {
        ASSERT_THAT(progress, StatusIs(absl::StatusCode::kResourceExhausted));
        continue;
      }
      for (const auto& place : progress->damage) found.insert(place.offset);
      is_complete = progress->is_complete;
    }
    ASSERT_EQ(found, damaged) << call;
  }
}

}  // namespace
}  // namespace hako
