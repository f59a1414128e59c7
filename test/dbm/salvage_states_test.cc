// Which state a salvage finds: after a crash, with a log, of a killed process, with one superblock;
// and damage to what decides which records belong to it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dbm/salvage_files.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/file/memory_file.h"
#include "support/child_process.h"
#include "support/temp_dir.h"
#include "support/test_types.h"

namespace hako {
namespace {

using Kind = SalvageReport::Kind;

template <class D>
auto OptionsFor(Durability durability) {
  if constexpr (kIsTree<D>)
    return TreeOptions{.page_size = 512, .durability = durability};
  else
    return HashOptions{.durability = durability};
}

// ---- both kinds ----

template <class D>
class SalvageStatesTest : public testing::Test {
 protected:
  // Copies the files of an open database, as a power cut may leave them.
  void CopyFiles() {
    for (const std::string suffix : {"", "-log"}) {
      if (std::filesystem::exists(live_ + suffix)) WriteWhole(from_ + suffix, ReadWhole(live_ + suffix));
    }
  }
  Salvaged<D> Run() {
    std::filesystem::remove(to_);
    return Salvaged<D>(from_, to_);
  }
  // A database with a log, whose files are copied: some updates are in the log only.
  void MakeWithLog() {
    ASSERT_OK_AND_ASSIGN(auto db, D::Open(live_, OptionsFor<D>(Durability::kPower)));
    synced_ = Fill(*db, 300, 20'000);
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    records_ = synced_;
    const auto set = [&](const std::string& key, std::size_t size) {
      records_[key] = CheckedValue(key, size, 3);
      ASSERT_THAT(db->Set(key, records_[key]), IsOk());
    };
    for (std::size_t i = 0; i < 100; ++i) set(NumberedKey(i * 2), i * 40);
    for (auto it = records_.begin(); it != records_.end();) {
      if (it->first.back() != '3') {
        ++it;
        continue;
      }
      ASSERT_THAT(db->Remove(it->first), IsOk());
      it = records_.erase(it);
    }
    WriteBatch batch;
    if constexpr (kIsTree<D>) {
      batch.RemoveRange(NumberedKey(100), NumberedKey(120));
      records_.erase(records_.lower_bound(NumberedKey(100)), records_.lower_bound(NumberedKey(120)));
    }
    batch.Set("batch", "value");
    batch.SetAppliedIndex(99);
    ASSERT_THAT(db->Write(batch), IsOk());
    records_["batch"] = "value";
    CopyFiles();
    ASSERT_THAT(db->Close(), IsOk());
    ASSERT_TRUE(std::filesystem::exists(from_ + "-log"));
  }

  TempDir dir_;
  const std::string suffix_ = kIsTree<D> ? ".hkt" : ".hkh";
  const std::string live_ = dir_.File("live" + suffix_), from_ = dir_.File("from" + suffix_), to_ = dir_.File("to" + suffix_);
  Records synced_, records_;
  Random random_{TestSeed()};
};

using Databases = TestTypes<testing::Types<HashDBM<>, TreeDBM<PositionalParallelFile>>, HashDBM<PositionalParallelFile>, TreeDBM<>>;
TYPED_TEST_SUITE(SalvageStatesTest, Databases);

TYPED_TEST(SalvageStatesTest, UpdatesOfTheLogAreApplied) {
  ASSERT_NO_FATAL_FAILURE(this->MakeWithLog());
  const auto salvaged = this->Run();
  ASSERT_THAT(salvaged.status, IsOk());
  EXPECT_EQ(Difference(this->records_, salvaged.records), "none");
  EXPECT_TRUE(salvaged.report.IsComplete()) << testing::PrintToString(salvaged.report.notes);
  EXPECT_GT(salvaged.report.num_updates, 100u);
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->to_));
  EXPECT_EQ(db->AppliedIndex(), 99u);
}

TYPED_TEST(SalvageStatesTest, LogRestoresALostRecordThatItSets) {
  ASSERT_NO_FATAL_FAILURE(this->MakeWithLog());
  std::string image = ReadWhole(this->from_);
  const std::string key = NumberedKey(10), value = this->synced_.contains(key) ? this->synced_[key] : "";
  if (value.empty()) GTEST_SKIP() << "the record had been removed";
  for (std::size_t at = image.find(value); at != image.npos; at = image.find(value, at + 1)) image[at + value.size() / 2] ^= 1;
  WriteWhole(this->from_, image);
  const auto salvaged = this->Run();
  ASSERT_THAT(salvaged.status, IsOk());
  EXPECT_GE(salvaged.report.num_lost.value(), 1u);
  EXPECT_EQ(salvaged.records.at(key), this->records_.at(key));
}

TYPED_TEST(SalvageStatesTest, DamagedLogIsAppliedUpToTheDamage) {
  ASSERT_NO_FATAL_FAILURE(this->MakeWithLog());
  std::string log = ReadWhole(this->from_ + "-log");
  const std::string value = CheckedValue(NumberedKey(120), 60 * 40, 3);  // the 61st update
  const std::size_t at = log.find(value.substr(0, 100));
  ASSERT_NE(at, log.npos);
  log[at + 50] ^= 1;
  WriteWhole(this->from_ + "-log", log);
  const auto salvaged = this->Run();
  ASSERT_THAT(salvaged.status, IsOk());
  EXPECT_EQ(salvaged.report.num_updates, 60u);
  EXPECT_FALSE(salvaged.report.IsComplete());
  EXPECT_THAT(salvaged.report.notes, testing::ElementsAre(testing::HasSubstr("the log was applied up to its update 60 only")));
  for (const auto& [key, value_found] : salvaged.records) EXPECT_TRUE(SaltOf(key, value_found).has_value()) << key;
}

TYPED_TEST(SalvageStatesTest, MissingLogIsNoted) {
  ASSERT_NO_FATAL_FAILURE(this->MakeWithLog());
  std::filesystem::remove(this->from_ + "-log");
  const auto salvaged = this->Run();
  ASSERT_THAT(salvaged.status, IsOk());
  EXPECT_EQ(Difference(this->synced_, salvaged.records), "none");
  EXPECT_FALSE(salvaged.report.IsComplete());
  EXPECT_THAT(salvaged.report.notes, testing::ElementsAre(testing::HasSubstr("the log is missing")));
}

TYPED_TEST(SalvageStatesTest, WithOneSuperBlockTheOtherCounts) {
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->from_, OptionsFor<TypeParam>(Durability::kNone)));
  this->synced_ = Fill(*db, 300, 20'000);
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  this->records_ = this->synced_;
  for (std::size_t i = 0; i < 20; ++i) {
    this->records_[NumberedKey(i)] = "new";
    ASSERT_THAT(db->Set(NumberedKey(i), "new"), IsOk());
  }
  ASSERT_THAT(db->Close(), IsOk());
  const std::string image = ReadWhole(this->from_);
  int num_newer = 0;
  for (const std::size_t slot : {std::size_t{0}, std::size_t{4096}}) {
    std::string damaged = image;
    damaged.replace(slot, 512, this->random_.Bytes(512));
    WriteWhole(this->from_, damaged);
    const auto salvaged = this->Run();
    ASSERT_THAT(salvaged.status, IsOk());
    EXPECT_EQ(salvaged.OffsetsOf(Kind::kSuperBlock), std::multiset<std::uint64_t>{slot});
    for (const auto& [key, value] : salvaged.records) EXPECT_TRUE(value == this->synced_[key] || value == this->records_[key]) << key;
    num_newer += salvaged.records == this->records_;
    if (kIsTree<TypeParam>) {
      EXPECT_THAT(salvaged.report.notes, testing::ElementsAre(testing::HasSubstr("may have named a later checkpoint")));
    } else {
      EXPECT_TRUE(salvaged.report.IsComplete()) << "both have the state of the close";
    }
  }
  EXPECT_EQ(num_newer, kIsTree<TypeParam> ? 1 : 2);
}

// A file of which some blocks cannot be read.
class BadSectors : public MemoryFile {
 public:
  BadSectors(MemoryFile file, std::set<std::uint64_t> blocks) : MemoryFile(std::move(file)), blocks_(std::move(blocks)) {}
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
    const auto bad = blocks_.lower_bound(offset / 4096);
    if (!out.empty() && bad != blocks_.end() && *bad * 4096 < offset + out.size()) return absl::UnknownError("the device failed");
    return MemoryFile::ReadAt(offset, out);
  }

 private:
  std::set<std::uint64_t> blocks_;
};

TYPED_TEST(SalvageStatesTest, UnreadableBlocksCostTheirRecordsOnly) {
  using To = typename internal::SalvageSource<TypeParam, BadSectors>::Target;
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->from_, OptionsFor<TypeParam>(Durability::kNone)));
  this->records_ = Fill(*db, 2000, 20'000);
  ASSERT_THAT(db->Close(), IsOk());
  const std::string image = ReadWhole(this->from_);
  const std::uint64_t num_blocks = image.size() / 4096;
  const std::set<std::uint64_t> bad = {1, num_blocks / 3, num_blocks / 3 + 1, num_blocks / 2};
  const BadSectors source(MemoryFile::Of(std::as_bytes(std::span(image))), bad);
  ASSERT_OK_AND_ASSIGN(To file, To::Open(this->to_, {}));
  ASSERT_OK_AND_ASSIGN(const SalvageReport report, (SalvageInto<TypeParam>(source, LogPlace<BadSectors>(), std::move(file))));
  std::set<std::uint64_t> unreadable;
  for (const SalvageReport::Place& place : report.places) {
    if (place.kind != Kind::kUnreadable) continue;
    EXPECT_TRUE(unreadable.insert(place.offset / 4096).second) << "listed twice";
  }
  EXPECT_EQ(unreadable, bad);
  ASSERT_OK_AND_ASSIGN(db, TypeParam::Open(this->to_));
  const Records found = ListByProcessEach(*db).records;
  for (const auto& [key, value] : found) ASSERT_EQ(value, this->records_.at(key));
  EXPECT_GT(found.size(), this->records_.size() * 8 / 10);
  EXPECT_LT(found.size(), this->records_.size());
  EXPECT_EQ(report.num_lost, std::optional<std::uint64_t>(this->records_.size() - found.size()));
}

// ---- hash tables ----

class SalvageHashTest : public SalvageStatesTest<HashDBM<PositionalParallelFile>> {
 protected:
  using Database = HashDBM<PositionalParallelFile>;
  // As a power cut leaves the file: with no index.
  void MakeCrashed(int num_records, std::size_t longest = 20'000) {
    ASSERT_OK_AND_ASSIGN(auto db, Database::Open(live_, {.durability = Durability::kNone}));
    records_ = Fill(*db, num_records, longest);
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    for (std::size_t i = 0; i < 20; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "not synchronized"), IsOk());
    CopyFiles();
    image_ = ReadWhole(from_);
  }
  Salvaged<Database> SalvageImage(const std::string& image) {
    WriteWhole(from_, image);
    return Run();
  }
  std::vector<std::uint64_t> HeapExtents() const {
    std::vector<std::uint64_t> found;
    for (std::size_t at = format::kFirstExtent; at + 8 <= image_.size(); at += format::kExtentUnit) {
      if (std::memcmp(&image_[at], format::kHeapExtentMagic.data(), 8) == 0) found.push_back(at);
    }
    return found;
  }

  std::string image_;
};

TEST_F(SalvageHashTest, AfterACrashTheLastSynchronizedStateIsFound) {
  ASSERT_NO_FATAL_FAILURE(MakeCrashed(1000, 2 << 20));
  const auto salvaged = Run();
  ASSERT_THAT(salvaged.status, IsOk());
  EXPECT_EQ(Difference(records_, salvaged.records), "none");
  EXPECT_TRUE(salvaged.report.IsComplete());
  EXPECT_EQ(salvaged.report.num_places, 0u);
}

TEST_F(SalvageHashTest, DamagedLongRecordCostsNoOther) {
  ASSERT_NO_FATAL_FAILURE(MakeCrashed(600, 2 << 20));
  ASSERT_OK_AND_ASSIGN(auto db, Database::Open(live_ + "-closed"));
  for (const auto& [key, value] : records_) ASSERT_THAT(db->Set(key, value), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  for (std::string image : {image_, ReadWhole(live_ + "-closed")}) {  // without and with an index
    Records expected = records_;
    std::multiset<std::uint64_t> offsets;
    for (const Piece& piece : RecordsIn(image, records_)) {
      if (piece.size < (1 << 20) || offsets.size() == 2) continue;
      image[piece.offset + (offsets.empty() ? piece.size - 1 : piece.size / 2)] ^= 1;
      offsets.insert(piece.offset);
      expected.erase(*piece.keys.begin());
    }
    ASSERT_EQ(offsets.size(), 2u);
    const auto salvaged = SalvageImage(image);
    ASSERT_THAT(salvaged.status, IsOk());
    EXPECT_EQ(Difference(expected, salvaged.records), "none");
    EXPECT_EQ(salvaged.OffsetsOf(Kind::kRecord), offsets);
    for (const SalvageReport::Place& place : salvaged.report.places) EXPECT_EQ(expected.count(place.key) + records_.count(place.key), 1u);
  }
}

TEST_F(SalvageHashTest, AfterACrashDamagedRecordsAreFoundByTheirHeads) {
  SCOPED_TRACE(TestSeed());
  ASSERT_NO_FATAL_FAILURE(MakeCrashed(2000));
  std::string damaged = image_;
  Records expected = records_;
  std::multiset<std::uint64_t> offsets;
  for (const Piece& piece : RecordsIn(image_, records_)) {
    const std::string key = *piece.keys.begin();
    const std::size_t value_size = records_[key].size();
    if (value_size == 0 || !random_.OneIn(100)) continue;
    damaged[piece.offset + piece.size - 1 - random_.Below(value_size)] ^= 4;
    offsets.insert(piece.offset);
    expected.erase(key);
  }
  const auto salvaged = SalvageImage(damaged);
  ASSERT_THAT(salvaged.status, IsOk());
  EXPECT_EQ(Difference(expected, salvaged.records), "none");
  EXPECT_EQ(salvaged.report.num_lost, std::optional<std::uint64_t>(offsets.size()));
  const auto listed = salvaged.OffsetsOf(Kind::kRecord);
  EXPECT_TRUE(std::ranges::includes(listed, offsets)) << "each head is intact";
}

TEST_F(SalvageHashTest, RecordsOfAnExtentWithADamagedHeaderAreFound) {
  ASSERT_NO_FATAL_FAILURE(MakeCrashed(1000));
  const std::vector<std::uint64_t> extents = HeapExtents();
  ASSERT_GT(extents.size(), 3u);
  for (const std::uint64_t extent : extents) {
    std::string damaged = image_;
    damaged.replace(extent, 64, std::string(64, '\0'));
    const auto salvaged = SalvageImage(damaged);
    ASSERT_THAT(salvaged.status, IsOk());
    EXPECT_EQ(Difference(records_, salvaged.records), "none") << extent;
    EXPECT_TRUE(salvaged.report.IsComplete());
    EXPECT_LE(salvaged.OffsetsOf(Kind::kExtentHeader).size(), 1u);
  }
}

// A forged superblock that names more records, and a later end, than the file has bytes for.
TEST_F(SalvageHashTest, IndexIsNoLargerThanTheBytesOfTheFileNeed) {
  ASSERT_NO_FATAL_FAILURE(MakeCrashed(100));
  for (std::size_t slot = 0; slot < 2; ++slot) {
    format::HashSuperBlock block;
    char* const at = &image_[slot * storage::kSlotDistance];
    std::memcpy(&block, at, sizeof(block));
    block.num_records = std::uint64_t{1} << 26;
    block.tail = std::uint64_t{1} << 30;
    block.check = format::CheckOf(block);
    std::memcpy(at, &block, sizeof(block));
  }
  ASSERT_THAT(SalvageImage(image_).status, IsOk());
  ASSERT_OK_AND_ASSIGN(auto db, Database::Open(to_));
  EXPECT_EQ(db->Count(), records_.size());
  EXPECT_LE(db->GetStats().index_bytes, 4 * image_.size());
}

TEST_F(SalvageHashTest, DamagedStampsCostNothingWhileTheIndexIsSound) {
  ASSERT_OK_AND_ASSIGN(auto db, Database::Open(from_));
  records_ = Fill(*db, 500, 20'000);
  ASSERT_THAT(db->Close(), IsOk());
  std::string image = ReadWhole(from_);
  for (const Piece& piece : RecordsIn(image, records_)) {
    image[piece.offset + 4] ^= 0x11;
    image[piece.offset + 5] ^= 0x22;
  }
  const auto salvaged = SalvageImage(image);
  ASSERT_THAT(salvaged.status, IsOk());
  EXPECT_EQ(Difference(records_, salvaged.records), "none");
  EXPECT_TRUE(salvaged.report.IsComplete());
}

// A stamp has no check: one flipped bit makes a replaced record live again.
TEST_F(SalvageHashTest, StaleRecordDoesNotReplaceADamagedOne) {
  // With another seed a key may have its home in the last line, which is damaged below.
  ASSERT_OK_AND_ASSIGN(auto db, Database::Open(from_, {.seed = 1}));
  records_ = Fill(*db, 500, 1000);
  const std::string key = "replaced", old_value = CheckedValue(key, 90, 1), value = CheckedValue(key, 95, 2);
  ASSERT_THAT(db->Set(key, old_value), IsOk());
  ASSERT_THAT(db->Set("removed", old_value), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  ASSERT_THAT(db->Set(key, value), IsOk());
  ASSERT_THAT(db->Remove("removed"), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  const std::string clean = ReadWhole(from_);
  const auto live_again = [&](std::string* image, const std::string& record) {
    const std::size_t at = image->find(record);
    ASSERT_NE(at, image->npos);
    (*image)[at - 4] = 1, (*image)[at - 3] = 0;  // as an ancient record
  };
  for (const bool is_live_damaged : {false, true}) {
    std::string image = clean;
    ASSERT_NO_FATAL_FAILURE(live_again(&image, key + old_value));
    ASSERT_NO_FATAL_FAILURE(live_again(&image, "removed" + old_value));
    if (is_live_damaged) image[image.find(key + value) + 50] ^= 1;
    image[image.size() - 1] ^= 1;  // the index, in its last line
    const auto salvaged = SalvageImage(image);
    ASSERT_THAT(salvaged.status, IsOk());
    Records expected = records_;
    if (!is_live_damaged) expected[key] = value;
    EXPECT_EQ(Difference(expected, salvaged.records), "none");
    EXPECT_FALSE(salvaged.OffsetsOf(Kind::kIndex).empty());
    EXPECT_EQ(salvaged.report.IsComplete(), !is_live_damaged);
  }
}

TEST_F(SalvageHashTest, WithoutAnIndexAKeyWithTwoLiveRecordsIsLeftOut) {
  ASSERT_OK_AND_ASSIGN(auto db, Database::Open(live_, {.durability = Durability::kNone}));
  ASSERT_THAT(db->Set("key", "old value"), IsOk());
  ASSERT_THAT(db->Set("other", "value"), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  ASSERT_THAT(db->Set("key", "a new value"), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  CopyFiles();
  std::string image = ReadWhole(from_);
  const std::size_t at = image.find("keyold value");
  ASSERT_NE(at, image.npos);
  image[at - 4] = 1, image[at - 3] = 0;
  const auto salvaged = SalvageImage(image);
  ASSERT_THAT(salvaged.status, IsOk());
  EXPECT_EQ(salvaged.records, (Records{{"other", "value"}}));
  EXPECT_FALSE(salvaged.report.IsComplete());
  ASSERT_EQ(salvaged.report.places.size(), 1u);
  EXPECT_EQ(salvaged.report.places[0].key, "key");
}

TEST(SalvageKilledTest, UpdatesOfAKilledProcessAreFoundInItsFileOnly) {
  const TempDir dir;
  const std::string from = dir.File("from.hkh"), copy = dir.File("copy.hkh");
  Records records;
  for (std::size_t i = 0; i < 200; ++i) records[NumberedKey(i)] = CheckedValue(NumberedKey(i), i, 1);
  ChildProcess child([&](ChildProcess& parent) {
    auto db = HashDBM<>::Open(from);
    bool ok = db.ok() && (*db)->Set("synchronized", "1").ok() && (*db)->Synchronize(SyncMode::kHard).ok();
    for (const auto& [key, value] : records) ok = ok && (*db)->Set(key, value).ok();
    if (ok) parent.Tell();
    parent.Wait();
    return 0;
  });
  child.Wait();
  child.Kill();
  records["synchronized"] = "1";
  WriteWhole(copy, ReadWhole(from));
  const Salvaged<HashDBM<>> killed(from, dir.File("a.hkh"));
  ASSERT_THAT(killed.status, IsOk());
  EXPECT_EQ(Difference(records, killed.records), "none");
  EXPECT_EQ(killed.report.num_lost, std::nullopt);
  EXPECT_THAT(killed.report.notes, testing::ElementsAre(testing::HasSubstr("a killed process had the file mapped")));
  const Salvaged<HashDBM<>> copied(copy, dir.File("b.hkh"));
  ASSERT_THAT(copied.status, IsOk());
  EXPECT_EQ(copied.records, (Records{{"synchronized", "1"}}));
  EXPECT_THAT(copied.report.notes, testing::ElementsAre(testing::HasSubstr("its updates after the last synchronization are left out")));
}

// ---- trees ----

using SalvageTreeTest = SalvageStatesTest<TreeDBM<>>;

TEST_F(SalvageTreeTest, LostRangesHaveTheKeysOfDamagedLeaves) {
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<>::Open(from_, OptionsFor<TreeDBM<>>(Durability::kNone)));
  records_ = Fill(*db, 1000, 100);
  ASSERT_THAT(db->Close(), IsOk());
  std::string image = ReadWhole(from_);
  const TreePieces tree(image);
  for (const std::size_t i : {std::size_t{0}, tree.leaves.size() / 2, tree.leaves.size() - 1}) {
    const Piece& leaf = tree.leaves[i];
    std::string damaged = image;
    damaged.replace(leaf.offset + 100, 20, random_.Bytes(20));
    WriteWhole(from_, damaged);
    const auto salvaged = Run();
    ASSERT_THAT(salvaged.status, IsOk());
    ASSERT_EQ(salvaged.report.lost_ranges.size(), 1u);
    const auto& [from, to] = salvaged.report.lost_ranges[0];
    for (const auto& [key, value] : records_) {
      const bool is_inside = key >= from && (!to || key < *to);
      EXPECT_EQ(is_inside, leaf.keys.contains(key)) << key;
      EXPECT_EQ(is_inside, !salvaged.records.contains(key)) << key;
    }
  }
}

TEST_F(SalvageTreeTest, DamagedPageMapIsReported) {
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<>::Open(from_, OptionsFor<TreeDBM<>>(Durability::kNone)));
  records_ = Fill(*db, 3000, 3000);
  ASSERT_THAT(db->Close(), IsOk());
  const std::string image = ReadWhole(from_);
  const TreePieces tree(image);
  ASSERT_GE(tree.nodes.size(), 5u) << "two of the lowest level";
  for (const Piece& node : tree.nodes) {
    std::string damaged = image;
    damaged[node.offset + random_.Below(node.size)] ^= 1;
    WriteWhole(from_, damaged);
    const auto salvaged = Run();
    ASSERT_THAT(salvaged.status, IsOk());
    EXPECT_EQ(salvaged.OffsetsOf(Kind::kPageMap), std::multiset<std::uint64_t>{node.offset});
    for (const auto& [key, value] : salvaged.records) ASSERT_EQ(value, records_.at(key));
    EXPECT_EQ(salvaged.report.num_lost, std::optional<std::uint64_t>(records_.size() - salvaged.records.size()));
    EXPECT_LT(salvaged.records.size(), records_.size());
    EXPECT_FALSE(salvaged.report.lost_ranges.empty());
  }
}

TEST_F(SalvageTreeTest, LongValueThatLooksLikeAPageIsNotTakenForOne) {
  // A value that is the image of the leaf of another tree, with the id that it gets.
  std::string leaf_image;
  {
    ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<>::Open(live_, TreeOptions{.page_size = 8192}));
    for (int i = 0; i < 60; ++i) ASSERT_THAT(db->Set("forged" + NumberedKey(i), std::string(100, 'f')), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    const std::string image = ReadWhole(live_);
    const TreePieces tree(image);
    ASSERT_EQ(tree.leaves.size(), 1u);
    leaf_image = image.substr(tree.leaves[0].offset, tree.leaves[0].size);
  }
  for (const bool has_its_id : {false, true}) {
    std::filesystem::remove(from_);
    ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<>::Open(from_, TreeOptions{.page_size = 8192}));
    ASSERT_THAT(db->Set("key", leaf_image), IsOk());
    ASSERT_THAT(db->Set("other", "value"), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    const std::string image = ReadWhole(from_);
    const TreePieces tree(image);
    ASSERT_EQ(tree.leaves.size(), has_its_id ? 2u : 1u);
    const auto salvaged = Run();
    ASSERT_THAT(salvaged.status, IsOk());
    EXPECT_EQ(salvaged.records, (Records{{"key", leaf_image}, {"other", "value"}}));
    EXPECT_TRUE(salvaged.report.IsComplete());
    if (has_its_id) break;
    const Le<std::uint32_t> id = tree.long_values.at(0).id;
    std::memcpy(leaf_image.data(), &id, sizeof(id));
  }
}

}  // namespace
}  // namespace hako
