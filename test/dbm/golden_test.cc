// Golden files of HashDBM, and golden snapshots of TinyDBM and BabyDBM: see golden_file.h.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dbm/golden_file.h"
#include "dbm/shared_databases.h"
#include "gtest/gtest.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "support/archetypes.h"
#include "support/booted_memory_file.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

constexpr std::uint8_t kBoot = 7, kNextBoot = 8;
constexpr std::uint64_t kAppliedIndex = 11;

ArchetypeFile PositionalFileOf(const Image& image) {
  ArchetypeFile file = ArchetypeFile::Make();
  EXPECT_THAT(file.Resize(image.size()), IsOk());
  EXPECT_THAT(file.WriteAt(0, image), IsOk());
  return file;
}
StatusOr<std::unique_ptr<HashDBM<MappedTestFile>>> OpenMapped(const Image& image, std::uint8_t boot) {
  return HashDBM<MappedTestFile>::Open(BootedMemoryFile(MemoryFile::Of(image), boot));
}

// The file while it is open, after updates that were not synchronized; or once it was closed.
Image MakeHashFile(bool is_closed, bool has_times) {
  MemoryFile file;
  auto db = HashDBM<MappedTestFile>::Open(BootedMemoryFile(file.Share(), kBoot), {.seed = 1, .expiry = has_times}).value();
  EXPECT_THAT(db->SetType(7), IsOk());
  FillGolden(*db);
  if (has_times) GiveTimes(*db);
  const auto keep = [](std::size_t, std::optional<std::string_view>) { return std::optional(Action::Keep()); };
  EXPECT_THAT(db->ProcessMulti(Batch<Action>{.keys = {}, .visit = keep, .applied_index = kAppliedIndex}), IsOk());
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  FillGoldenMore(*db);
  EXPECT_THAT(db->ProcessMulti(Batch<Action>{.keys = {}, .visit = keep, .applied_index = kAppliedIndex + 1}), IsOk());
  Image image = GoldenFiles::BytesOf(file);
  EXPECT_THAT(db->Close(), IsOk());
  return is_closed ? GoldenFiles::BytesOf(file) : image;
}

// A version that is no longer current stays in this list as long as it is read.
class GoldenHashFileTest : public testing::TestWithParam<std::uint32_t> {
 protected:
  // Of a file that has version 7 or later; earlier ones have none.
  std::uint64_t IfStored(std::uint64_t applied_index) const { return GetParam() < 7 ? 0 : applied_index; }
  bool HasTimes() const { return GetParam() >= 8; }
  std::string NameOfFile(const std::string& kind) const { return "hash_" + std::to_string(GetParam()) + "_" + kind; }
};
INSTANTIATE_TEST_SUITE_P(Versions, GoldenHashFileTest, testing::Values(6u, format::kHashFilePlainVersion, format::kHashFileVersion));

TEST_P(GoldenHashFileTest, OpensACleanFile) {
  const std::string name = NameOfFile("clean");
  const Image image = GoldenFiles::Get(name, [this] { return MakeHashFile(true, HasTimes()); });
  GoldenFiles::Expect(name + " mapped", OutcomeOf(OpenMapped(image, kNextBoot)));
  GoldenFiles::Expect(name + " positional", OutcomeOf(HashDBM<ArchetypeFile>::Open(PositionalFileOf(image))));
  EXPECT_EQ(OpenMapped(image, kNextBoot).value()->AppliedIndex(), IfStored(kAppliedIndex + 1));
  EXPECT_EQ(HashDBM<ArchetypeFile>::Open(PositionalFileOf(image)).value()->AppliedIndex(), IfStored(kAppliedIndex + 1));
}

// Closed without a map, the file ends with an image of its index.
TEST_P(GoldenHashFileTest, OpensACleanPositionalFile) {
  const std::string name = NameOfFile("positional");
  const Image image = GoldenFiles::Get(name, [this] {
    const ArchetypeFile file = ArchetypeFile::Make();
    auto db = HashDBM<ArchetypeFile>::Open(file.Share(), {.seed = 1, .expiry = HasTimes()}).value();
    FillGolden(*db);
    if (HasTimes()) GiveTimes(*db);
    EXPECT_THAT(db->Close(), IsOk());
    Image bytes(file.Size());
    EXPECT_THAT(file.ReadAt(0, bytes), IsOk());
    return bytes;
  });
  GoldenFiles::Expect(name + " mapped", OutcomeOf(OpenMapped(image, kNextBoot)));
  GoldenFiles::Expect(name + " positional", OutcomeOf(HashDBM<ArchetypeFile>::Open(PositionalFileOf(image))));
}

TEST_P(GoldenHashFileTest, RecoversACrashedFile) {
  const std::string name = NameOfFile("crashed");
  const Image image = GoldenFiles::Get(name, [this] { return MakeHashFile(false, HasTimes()); });
  GoldenFiles::Expect(name + " after a kill", OutcomeOf(OpenMapped(image, kBoot)));
  GoldenFiles::Expect(name + " after a power cut", OutcomeOf(OpenMapped(image, kNextBoot)));
  GoldenFiles::Expect(name + " positional", OutcomeOf(HashDBM<ArchetypeFile>::Open(PositionalFileOf(image))));
  EXPECT_EQ(OpenMapped(image, kBoot).value()->AppliedIndex(), IfStored(kAppliedIndex + 1));
  EXPECT_EQ(OpenMapped(image, kNextBoot).value()->AppliedIndex(), IfStored(kAppliedIndex));
  EXPECT_EQ(HashDBM<ArchetypeFile>::Open(PositionalFileOf(image)).value()->AppliedIndex(), IfStored(kAppliedIndex));
}

TEST_P(GoldenHashFileTest, NamesTheDamage) {
  const std::string name = NameOfFile("damaged");
  const Image image = GoldenFiles::Get(name, [this] { return DamageAt(MakeHashFile(true, HasTimes()), "value-17;"); });
  GoldenFiles::Expect(name, OutcomeOf(OpenMapped(image, kNextBoot)));
  GoldenFiles::Expect(name + " positional", OutcomeOf(HashDBM<ArchetypeFile>::Open(PositionalFileOf(image))));
}

TEST_P(GoldenHashFileTest, RefusesAFileWithoutASuperblock) {
  const std::string name = NameOfFile("headless");
  const Image image = GoldenFiles::Get(name, [this] { return DamageAt(DamageAt(MakeHashFile(true, HasTimes()), 40), 4096 + 40); });
  GoldenFiles::Expect(name, OutcomeOf(OpenMapped(image, kNextBoot)));
}

template <class Db>
Image MakeSnapshot(bool has_times) {
  auto db = Db::Open({.expiry = has_times}).value();
  FillGolden(*db);
  if (has_times) GiveTimes(*db);
  MemoryFile file;
  EXPECT_THAT(db->Save(file), IsOk());
  return GoldenFiles::BytesOf(file);
}

template <class Db>
std::string OutcomeOfLoad(const Image& image, bool has_times) {
  auto db = Db::Open({.expiry = has_times}).value();
  MemoryFile file = MemoryFile::Of(image);
  const Status loaded = db->Load(file);
  return "load " + NameOf(loaded) + ", " + OutcomeOf(*db);
}

// Snapshots of both databases in memory, loaded into both.
template <class Db>
void ExpectGoldenSnapshots(std::uint32_t version, const std::string& writer) {
  const std::string name = "snapshot_" + std::to_string(version) + "_" + writer + "_";
  const bool has_times = version >= 3;
  const auto expect = [&name, has_times](const std::string& kind, auto&& make) {
    const Image image = GoldenFiles::Get(name + kind, make);
    GoldenFiles::Expect(name + kind + " into TinyDBM", OutcomeOfLoad<TinyDBM<MemoryFile>>(image, has_times));
    GoldenFiles::Expect(name + kind + " into BabyDBM", OutcomeOfLoad<BabyDBM<MemoryFile>>(image, has_times));
  };
  expect("clean", [=] { return MakeSnapshot<Db>(has_times); });
  expect("crashed", [=] {
    Image image = MakeSnapshot<Db>(has_times);
    image.resize(image.size() - 20);  // without the end
    return image;
  });
  expect("damaged", [=] { return DamageAt(MakeSnapshot<Db>(has_times), "value-17;"); });
}

TEST(GoldenSnapshotTest, LoadsOrRefusesSnapshotsOfTinyDBM) {
  for (std::uint32_t version = 1; version <= format::kSnapshotVersion; ++version)
    ExpectGoldenSnapshots<TinyDBM<MemoryFile>>(version, "tiny");
}
TEST(GoldenSnapshotTest, LoadsOrRefusesSnapshotsOfBabyDBM) {
  for (std::uint32_t version = 1; version <= format::kSnapshotVersion; ++version)
    ExpectGoldenSnapshots<BabyDBM<MemoryFile>>(version, "baby");
}

}  // namespace
}  // namespace hako
