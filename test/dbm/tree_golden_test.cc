// Golden files of TreeDBM: see golden_file.h.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "dbm/golden_file.h"
#include "dbm/shared_databases.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/superblock_slots.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

// A file of two checkpoints.
Image MakeTreeFile(bool has_times) {
  MemoryFile file;
  auto db = TreeDBM<MemoryFile>::Open(file.Share(), {.page_size = 1024, .expiry = has_times}).value();
  EXPECT_THAT(db->SetType(7), IsOk());
  FillGolden(*db);
  if (has_times) GiveTimes(*db);
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  FillGoldenMore(*db);
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  Image image = GoldenFiles::BytesOf(file);
  EXPECT_THAT(db->Close(), IsOk());
  return image;
}

// As a crash within the second checkpoint leaves it: its superblock slot is torn.
Image TearNewerSlot(Image image) {
  format::TreeSuperBlock slots[2];
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}})
    std::memcpy(&slots[i], image.data() + i * storage::kSlotDistance, sizeof(slots[i]));
  const std::size_t newer = slots[1].sequence > slots[0].sequence ? 1 : 0;
  return DamageAt(std::move(image), newer * storage::kSlotDistance + 200);
}

// A version that is no longer current stays in this list as long as it is read.
class GoldenTreeFileTest : public testing::TestWithParam<std::uint32_t> {
 protected:
  bool HasTimes() const { return GetParam() >= 3; }
  template <class F>
  void Expect(const std::string& kind, F&& make) {
    const std::string name = "tree_" + std::to_string(GetParam()) + "_" + kind;
    const Image image = GoldenFiles::Get(name, make);
    GoldenFiles::Expect(name, OutcomeOf(TreeDBM<MemoryFile>::Open(MemoryFile::Of(image))));
  }
};
INSTANTIATE_TEST_SUITE_P(Versions, GoldenTreeFileTest, testing::Values(1u, format::kTreeFilePlainVersion, format::kTreeFileVersion));

TEST_P(GoldenTreeFileTest, OpensACleanFile) {
  Expect("clean", [this] { return MakeTreeFile(HasTimes()); });
}
TEST_P(GoldenTreeFileTest, OpensTheLastCheckpointOfACrashedFile) {
  Expect("crashed", [this] { return TearNewerSlot(MakeTreeFile(HasTimes())); });
}
TEST_P(GoldenTreeFileTest, NamesTheDamage) {
  Expect("damaged", [this] { return DamageAt(TearNewerSlot(MakeTreeFile(HasTimes())), "value-17;"); });
}
TEST_P(GoldenTreeFileTest, RefusesAFileWithoutASuperblock) {
  Expect("headless", [this] { return DamageAt(DamageAt(MakeTreeFile(HasTimes()), 200), storage::kSlotDistance + 200); });
}

}  // namespace
}  // namespace hako
