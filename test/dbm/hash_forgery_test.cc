// Files of HashDBM whose checks hold although fields of the superblock, the closing note, the
// index, heap extents or records are wrong. Every operation ends with an error or with a value that
// was stored under its key, stays within its memory, and makes no huge allocation.
#include "support/hash_forgery.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/memory_file.h"
#include "hako/file/positional_parallel_file.h"
#include "support/allocation_counter.h"
#include "support/archetypes.h"
#include "support/booted_memory_file.h"
#include "support/checked_value.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "support/test_file.h"

namespace hako {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kRecords = 6000, kExtent = format::kExtentUnit;
// The odd ones are in the file.
std::string KeyOf(std::uint64_t number) { return NumberedKey(number) + std::string(number % 600 == 1 ? 300 : number % 3, '/'); }
std::size_t SizeOf(std::uint64_t number) { return number % 500 == 1 ? 5000 : number % 50 == 1 ? 400 : number % 30; }

template <class FileT>
HashForgery::Image MakeImage() {
  TempDir directory;
  const std::string path = directory.File("db");
  auto db = HashDBM<FileT>::Open(path, {.seed = 7}).value();
  for (std::uint64_t i = 1; i < 2 * kRecords; i += 2) EXPECT_THAT(db->Set(KeyOf(i), CheckedValue(KeyOf(i), SizeOf(i))), IsOk());
  for (std::uint64_t i = 1; i < 2 * kRecords; i += 10) {  // free blocks of many sizes
    EXPECT_THAT(db->Set(KeyOf(i), CheckedValue(KeyOf(i), 4 * SizeOf(i), 1)), IsOk());
  }
  EXPECT_THAT(db->Set("gone", std::string(256 << 10, 'g')), IsOk());  // and free extents
  EXPECT_THAT(db->Set("last", CheckedValue("last", 100 << 10)), IsOk());
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_THAT(db->Remove("gone"), IsOk());
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
  auto file = PositionalParallelFile::Open(path, {.mode = OpenMode::kReadOnly}).value();
  HashForgery::Image image(file.Size());
  EXPECT_THAT(file.ReadAt(0, image), IsOk());
  return image;
}
const HashForgery::Image& ImageOf(bool mapped) {
  static const HashForgery::Image images[] = {MakeImage<PositionalParallelFile>(), MakeImage<MemoryMapParallelFile>()};
  return images[mapped];
}

// Checks that each record has a value that was stored under its key.
void ExpectRight(std::string_view key, std::string_view value) {
  EXPECT_TRUE(SaltOf(key, value).has_value()) << key << " has a value of " << value.size() << " bytes of another";
}

template <class Db>
void UseEverything(Db& db, Random& random) {
  const auto any_key = [&random] { return KeyOf(random.Below(2 * kRecords)); };
  std::string value;
  const auto get = [&](const std::string& key) {
    if (db.Get(key, &value).ok()) ExpectRight(key, value);
  };
  for (std::uint64_t i = 0; i < 2 * kRecords; i += 61) get(KeyOf(i));
  get("last");
  std::vector<std::string> keys;
  for (std::uint64_t i = 0; i < 16; ++i) keys.push_back(any_key());
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  std::vector<std::optional<std::string>> values(keys.size());
  if (db.GetMulti(views, values).ok()) {
    for (std::size_t i = 0; i < keys.size(); ++i) ExpectRight(keys[i], values[i].value_or(CheckedValue(keys[i], 0)));
  }
  std::uint64_t listed = 0;
  auto it = db.MakeIterator();
  for (it.First(); it.Valid(); it.Next()) ASSERT_LE(++listed, 4 * kRecords) << "no end";
  (void)db.ProcessEach([&](std::string_view, std::string_view) { ++listed; });
  ASSERT_LE(listed, 8 * kRecords);
  (void)db.Verify();
  (void)db.GetStats();
  for (std::uint64_t i = 0; i < 60; ++i) {
    const std::string key = any_key();
    switch (random.Below(6)) {
      case 0:
        (void)db.Remove(key);
        break;
      case 1: {
        const std::string added = CheckedValue(key, 50);
        (void)db.CompareExchange(key, Expect::Absent(), Action::Set(added));
        break;
      }
      case 2: {
        const std::string other = any_key(), first = CheckedValue(key, 30), second = CheckedValue(other, 40);
        const std::string_view both[] = {key, other};
        (void)db.ProcessMulti(both, [&](std::size_t n, std::optional<std::string_view>) -> std::optional<Action> {
          return Action::Set(n == 0 ? first : second);
        });
        break;
      }
      default:
        (void)db.Set(key, CheckedValue(key, random.OneIn(20) ? random.Below(100 << 10) : random.Below(40), i));
    }
    if (i % 10 == 0) get(key);
    if (i % 20 == 0) (void)db.Synchronize(SyncMode::kHard);
  }
  (void)db.SetType(7);
  if (random.OneIn(2)) (void)db.Rebuild();
  for (std::uint64_t i = 0; i < 2 * kRecords; i += 131) get(KeyOf(i));
  if (random.OneIn(4)) (void)db.Clear();
  (void)db.Verify();
  (void)db.Close();
}

enum class Kind { kMapped, kNotMapped, kKilled };

template <class FileT>
void CheckForgedFile(FileT file, Random& random) {
  AllocationCounter::ForgetLargest();
  if (auto opened = HashDBM<FileT>::Open(std::move(file)); opened.ok()) UseEverything(**opened, random);
  ASSERT_LE(AllocationCounter::largest(), std::size_t{64} << 20);
}
ArchetypeFile NotMapped(const HashForgery::Image& image) {
  ArchetypeFile file = ArchetypeFile::Make();
  EXPECT_THAT(file.Resize(image.size()), IsOk());
  EXPECT_THAT(file.WriteAt(0, image), IsOk());
  return file;
}

constexpr std::size_t kFirstIntent = format::kIntentsOffset - format::kLiveStateOffset;  // in the live state

class HashForgedFieldsTest : public testing::TestWithParam<Kind> {
 protected:
  // Applies `forge` to a copy of the file, and opens that.
  template <class F>
  void Repeat(int times, F&& forge) {
    SCOPED_TRACE(TestSeed());
    Random random(TestSeed());
    for (int i = 0; i < times / std::min(kSlowdown, 6) && !HasFailure(); ++i) {
      HashForgery forgery(ImageOf(GetParam() != Kind::kNotMapped));
      if (GetParam() == Kind::kKilled) Kill(forgery);
      SCOPED_TRACE(forge(forgery, random));
      Use(forgery.Finish(), random);
    }
  }
  static void Use(const HashForgery::Image& image, Random& random) {
    if (GetParam() == Kind::kMapped) CheckForgedFile(MemoryFile::Of(image), random);
    if (GetParam() == Kind::kNotMapped) CheckForgedFile(NotMapped(image), random);
    if (GetParam() == Kind::kKilled) CheckForgedFile(MappedTestFile(BootedMemoryFile(MemoryFile::Of(image), 1)), random);
  }
  // The file as a killed process left it.
  static void Kill(HashForgery& forgery) {
    forgery.super.clean = 0;
    const FileIdentity identity = IdentityOfBoot(1);
    format::LiveState state = {};
    state.in_use = 1;
    state.boot_id = identity.boot_id;
    state.device = identity.device;
    state.inode = identity.inode;
    state.epoch = forgery.super.epoch + 1;
    state.tail = forgery.super.tail;
    state.num_lines = forgery.super.num_lines;
    state.index_extents = forgery.super.index_extents;
    state.oldest_retired_epoch = forgery.super.epoch;
    std::memcpy(forgery.Live().data(), &state, sizeof(state));
  }
};
std::string NameOf(const testing::TestParamInfo<Kind>& info) {
  static constexpr const char* kNames[] = {"Mapped", "NotMapped", "Killed"};
  return kNames[static_cast<std::size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(, HashForgedFieldsTest, testing::Values(Kind::kMapped, Kind::kNotMapped, Kind::kKilled), NameOf);

TEST_P(HashForgedFieldsTest, OpensUnforgedFiles) {
  Random random(1);
  HashForgery forgery(ImageOf(GetParam() != Kind::kNotMapped));
  EXPECT_GT(forgery.Chained().size(), 10u);
  EXPECT_GT(forgery.note.size(), 100u);
  EXPECT_TRUE(forgery.Finish() == ImageOf(GetParam() != Kind::kNotMapped) || GetParam() == Kind::kKilled);
  const auto check = [](auto file) {
    auto db = HashDBM<decltype(file)>::Open(std::move(file));
    ASSERT_THAT(db, IsOk());
    EXPECT_EQ((*db)->Count(), kRecords + 1);
    EXPECT_THAT((*db)->Verify(), IsOk());
  };
  if (GetParam() == Kind::kKilled) Kill(forgery);
  if (GetParam() == Kind::kMapped) check(MemoryFile::Of(forgery.Finish()));
  if (GetParam() == Kind::kNotMapped) check(NotMapped(forgery.Finish()));
  if (GetParam() == Kind::kKilled) check(MappedTestFile(BootedMemoryFile(MemoryFile::Of(forgery.Finish()), 1)));
}

TEST_P(HashForgedFieldsTest, SurvivesForgedSuperblocks) {
  using Super = format::HashSuperBlock;
  const std::vector<ForgedField> fields = {
      {offsetof(Super, align_pow), 4},     {offsetof(Super, sequence), 8},  {offsetof(Super, epoch), 8},
      {offsetof(Super, tail), 8},          {offsetof(Super, tail) + 2, 2},  {offsetof(Super, num_records), 8},
      {offsetof(Super, clean), 1},         {offsetof(Super, num_lines), 8}, {offsetof(Super, num_lines), 2},
      {offsetof(Super, index_extents), 8}, {offsetof(Super, note_size), 8}, {offsetof(Super, note_size), 2},
      {offsetof(Super, hash_seed), 8}};
  Repeat(20, [&](HashForgery& forgery, Random& random) { return ForgeFields(forgery.Super(), fields, random); });
}

TEST_P(HashForgedFieldsTest, SurvivesForgedPlacesOfTheSweep) {
  using Super = format::HashSuperBlock;
  const std::vector<ForgedField> fields = {
      {offsetof(Super, sweep_extent), 8}, {offsetof(Super, sweep_to), 8}, {offsetof(Super, sweep_end), 8}, {offsetof(Super, sweep_to), 3}};
  Repeat(20, [&](HashForgery& forgery, Random& random) {
    forgery.super.epoch = random.Between(20'000, 40'000);  // so that there is one
    forgery.super.sweep_extent = forgery.super.sweep_to = format::kFirstExtent;
    forgery.super.sweep_end = forgery.super.tail;
    return ForgeFields(forgery.Super(), fields, random);
  });
}

TEST_P(HashForgedFieldsTest, SurvivesForgedClosingNotes) {
  std::vector<ForgedField> fields;
  Repeat(20, [&](HashForgery& forgery, Random& random) {
    fields.clear();
    const std::size_t begin = random.OneIn(2) ? 0 : random.Below(forgery.note.size() / 8) * 8;
    for (std::size_t at = begin; at + 8 <= forgery.note.size() && at < begin + 64; at += 8) {
      fields.push_back({at, 8});
      fields.push_back({at, 4});
    }
    return ForgeFields(forgery.note, fields, random);
  });
}

TEST_P(HashForgedFieldsTest, SurvivesForgedBucketLines) {
  const std::vector<ForgedField> fields = HashForgery::FieldsOfLine();
  Repeat(20, [&](HashForgery& forgery, Random& random) {
    const std::vector<std::uint64_t> chained = forgery.Chained();
    const std::uint64_t index = random.OneIn(2) ? chained[random.Below(chained.size())] : random.Below(forgery.num_homes());
    HashForgery::Line& home = forgery.Home(index);
    HashForgery::Line& line = HashForgery::HasLink(home) && random.OneIn(2) ? forgery.Overflow(HashForgery::LinkOf(home)) : home;
    return absl::StrCat("line ", index, ": ", ForgeFields(HashForgery::BytesOf(line), fields, random));
  });
}

TEST_P(HashForgedFieldsTest, SurvivesLinksToAnyLine) {
  Repeat(20, [&](HashForgery& forgery, Random& random) {
    const std::vector<std::uint64_t> chained = forgery.Chained();
    HashForgery::Line& home = forgery.Home(chained[random.Below(chained.size())]);
    HashForgery::Line& other = forgery.Home(chained[random.Below(chained.size())]);
    const std::uint32_t before = HashForgery::LinkOf(home);
    std::uint32_t link = HashForgery::LinkOf(other) + static_cast<std::uint32_t>(random.Below(3)) - 1;
    if (random.OneIn(2)) link = static_cast<std::uint32_t>(random.Between(1, forgery.super.tail / sizeof(HashForgery::Line) + 2));
    home.slots[format::kLinkEntry] = link;
    return absl::StrCat("a link to ", before, " -> ", link);
  });
}

TEST_P(HashForgedFieldsTest, SurvivesForgedTablesOfIndexExtents) {
  if (GetParam() == Kind::kNotMapped) GTEST_SKIP() << "there is none";
  Repeat(20, [&](HashForgery& forgery, Random& random) {
    std::vector<ForgedField> fields;
    for (std::uint64_t i = 0; i <= forgery.super.index_extents; ++i) {
      fields.push_back({4 * i, 4});
      fields.push_back({4 * i, 1});
    }
    return ForgeFields(forgery.Table(), fields, random);
  });
}

TEST_P(HashForgedFieldsTest, SurvivesForgedRecords) {
  Repeat(20, [&](HashForgery& forgery, Random& random) {
    const std::vector<std::uint64_t> records = forgery.Records();
    std::string done;
    for (std::uint64_t n = random.Between(1, 20); n > 0; --n) {
      const std::uint64_t offset = records[random.Below(records.size())];
      const auto size = [&](std::uint64_t most) { return random.OneIn(3) ? most - random.Below(3) : random.Below(2 * kExtent); };
      const std::uint64_t key_size = random.OneIn(2) ? 8 : size(0xffffffff), value_size = size(0xffffffff);
      if (random.OneIn(3)) {
        forgery.SetStamp(offset, static_cast<std::uint16_t>(random.Next()));
      } else {
        forgery.SetLengths(offset, key_size, value_size);
      }
      absl::StrAppend(&done, done.empty() ? "" : ", ", "record at ", offset, ": ", key_size, " + ", value_size);
    }
    if (random.OneIn(3)) forgery.super.clean = 0;
    return done;
  });
}

TEST_P(HashForgedFieldsTest, SurvivesForgedHeapExtents) {
  Repeat(20, [&](HashForgery& forgery, Random& random) {
    const std::uint64_t extent = forgery.heap_extents[random.Below(forgery.heap_extents.size())];
    auto& bytes = forgery.HeapHeaderAt(extent).bytes;
    const std::uint64_t before = bytes;
    bytes = random.OneIn(3) ? random.Next() : random.Below(forgery.super.tail / kExtent + 2) * kExtent;
    if (random.OneIn(2)) forgery.super.clean = 0;
    return absl::StrCat("extent ", extent, ": ", before, " -> ", bytes.get());
  });
}

TEST_P(HashForgedFieldsTest, SurvivesForgedLiveStates) {
  if (GetParam() != Kind::kKilled) GTEST_SKIP() << "it is not looked at";
  using State = format::LiveState;
  const std::vector<ForgedField> fields = {{offsetof(State, epoch), 8},
                                           {offsetof(State, tail), 8},
                                           {offsetof(State, tail), 3},
                                           {offsetof(State, num_lines), 8},
                                           {offsetof(State, num_lines), 2},
                                           {offsetof(State, index_extents), 8},
                                           {offsetof(State, index_extents), 1},
                                           {offsetof(State, oldest_retired_epoch), 8},
                                           {kFirstIntent, 8},
                                           {kFirstIntent, 3}};
  Repeat(20, [&](HashForgery& forgery, Random& random) { return ForgeFields(forgery.Live(), fields, random); });
}

// Published intents with right checks, whose entries name anything.
TEST_P(HashForgedFieldsTest, SurvivesForgedIntents) {
  if (GetParam() != Kind::kKilled) GTEST_SKIP() << "they are not looked at";
  Repeat(60, [&](HashForgery& forgery, Random& random) {
    const std::vector<std::uint64_t> records = forgery.Records();
    const auto any_handle = [&] {
      if (random.OneIn(3)) return std::uint32_t{0};
      if (random.OneIn(6)) return static_cast<std::uint32_t>(random.Next());
      return static_cast<std::uint32_t>(records[random.Below(records.size())] >> forgery.super.align_pow);
    };
    const std::uint64_t intent = records[random.Below(records.size() / 2)];
    std::string text = absl::StrCat("an intent at ", intent);
    std::vector<format::IntentEntry> entries(random.Between(1, 3));
    for (format::IntentEntry& entry : entries) {
      entry = {random.OneIn(2) ? random.Next() : random.Below(64), any_handle(), any_handle()};
      absl::StrAppend(&text, ", ", entry.key_hash, ": ", entry.handle, " -> ", entry.fresh);
    }
    const auto bytes = std::as_bytes(std::span(entries));
    std::ranges::copy(bytes, forgery.Bytes(intent + format::kShortHead, bytes.size()).begin());
    forgery.SetLengths(intent, 0, bytes.size());
    forgery.SetStamp(intent, format::Stamp::Of(format::BlockState::kUnborn, forgery.super.epoch + 1).bits());
    const std::uint64_t handle = intent >> forgery.super.align_pow;
    const std::size_t word = kFirstIntent + random.Below(format::kIntentWords) * format::kIntentDistance;
    std::memcpy(forgery.Live().subspan(word).data(), &handle, sizeof(handle));
    return text;
  });
}

// ---- one forgery each ----

StatusOr<std::unique_ptr<HashDBM<MemoryFile>>> OpenMapped(const HashForgery::Image& image) {
  return HashDBM<MemoryFile>::Open(MemoryFile::Of(image));
}

TEST(HashForgedFileTest, RefusesATailBeyondTheLastHandle) {
  HashForgery forgery(ImageOf(true));
  forgery.super.tail = (std::uint64_t{1} << (32 + forgery.super.align_pow)) + kExtent;
  forgery.super.note_size = 0;
  const HashForgery::Image image = forgery.Finish();
  MemoryFile file = MemoryFile::Of(image);
  ASSERT_THAT(file.Resize(forgery.super.tail), IsOk());
  EXPECT_THAT(HashDBM<MemoryFile>::Open(std::move(file)), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bad superblock: tail")));
}

TEST(HashForgedFileTest, RefusesEpochsThatOverflow) {
  HashForgery forgery(ImageOf(true));
  forgery.super.epoch = ~std::uint64_t{0} - 5;
  EXPECT_THAT(OpenMapped(forgery.Finish()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bad superblock: epoch")));
}

TEST(HashForgedFileTest, RefusesADuplicateIndexExtent) {
  HashForgery forgery(ImageOf(true));
  ASSERT_GE(forgery.super.index_extents, 2u);
  const auto first = forgery.Table().first(4), second = forgery.Table().subspan(4, 4);
  std::ranges::copy(first, second.begin());
  EXPECT_THAT(OpenMapped(forgery.Finish()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("index extents")));
}

TEST(HashForgedFileTest, RefusesOverflowLinesInACircle) {
  for (const bool mapped : {true, false}) {
    HashForgery forgery(ImageOf(mapped));
    HashForgery::Line& home = forgery.Home(forgery.Chained()[0]);
    HashForgery::Line& last = forgery.Overflow(HashForgery::LinkOf(home));
    last.slots[format::kLinkEntry] = HashForgery::LinkOf(home);
    last.header = home.header;
    const HashForgery::Image image = forgery.Finish();
    const Status status = mapped ? OpenMapped(image).status() : HashDBM<ArchetypeFile>::Open(NotMapped(image)).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST(HashForgedFileTest, RefusesABucketChainedToAnotherBucket) {
  HashForgery forgery(ImageOf(true));
  const std::uint32_t home =
      format::IndexExtentEntry::Unpack(LoadLe<std::uint32_t>(forgery.Table().data())).offset / sizeof(HashForgery::Line);
  forgery.Home(forgery.Chained()[0]).slots[format::kLinkEntry] = home;
  EXPECT_THAT(OpenMapped(forgery.Finish()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("overflow bucket outside the index")));
}

// The note's numbers: 1, {offset, bytes} of a free extent; 0; n, {begin, end} of runs.
class HashForgedNoteTest : public testing::Test {
 protected:
  static HashForgery::Image Note(const std::vector<std::uint64_t>& numbers) {
    HashForgery::Image note(numbers.size() * 8);
    std::memcpy(note.data(), numbers.data(), note.size());
    return note;
  }
  void ExpectRefused(const std::vector<std::uint64_t>& numbers) {
    HashForgery forgery(ImageOf(true));
    forgery.note = Note(numbers);
    forgery.super.note_size = forgery.note.size();
    EXPECT_THAT(OpenMapped(forgery.Finish()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bad closing note")));
  }
  static std::uint64_t IndexExtent() {
    HashForgery forgery(ImageOf(true));
    return format::IndexExtentEntry::Unpack(LoadLe<std::uint32_t>(forgery.Table().data())).offset;
  }
};

TEST_F(HashForgedNoteTest, RefusesFreeExtentsOfTheIndex) { ExpectRefused({1, IndexExtent(), kExtent, 0, 0}); }
TEST_F(HashForgedNoteTest, RefusesFreeRunsOfTheIndex) { ExpectRefused({0, 0, 1, IndexExtent() + 4096, IndexExtent() + 8192}); }
TEST_F(HashForgedNoteTest, RefusesEmptyListsOfFreeBlocks) { ExpectRefused({0, 0, 0, 3, 0}); }
TEST_F(HashForgedNoteTest, RefusesFreeBlocksOfTheIndex) {
  ExpectRefused({0, 0, 0, 3, 2, (IndexExtent() + 4096) / 8 << 32 | (IndexExtent() + 8192) / 8});
}
TEST_F(HashForgedNoteTest, RefusesOverlappingFreeExtents) {
  HashForgery forgery(ImageOf(true));
  const auto is_large = [&](std::uint64_t extent) { return forgery.HeapHeaderAt(extent).bytes >= 2 * kExtent; };
  const auto extent = std::ranges::find_if(forgery.heap_extents, is_large);
  ASSERT_NE(extent, forgery.heap_extents.end());
  ExpectRefused({2, *extent, 2 * kExtent, *extent + kExtent, kExtent, 0, 0});
}
TEST_F(HashForgedNoteTest, RefusesUnalignedFreeExtents) {
  const std::uint64_t extent = HashForgery(ImageOf(true)).heap_extents.back();
  ExpectRefused({1, extent + 8, kExtent, 0, 0});
}
TEST_F(HashForgedNoteTest, RefusesOverlappingFreeRuns) {
  const std::uint64_t extent = HashForgery(ImageOf(true)).heap_extents.back();
  ExpectRefused({0, 0, 2, extent + 1024, extent + 4096, extent + 2048, extent + 8192});
}
TEST_F(HashForgedNoteTest, RefusesFreeRunsInFreeExtents) {
  const std::uint64_t extent = HashForgery(ImageOf(true)).heap_extents.back();
  ExpectRefused({1, extent, kExtent, 0, 1, extent + 1024, extent + 4096});
}

// Rebuild would move the records out of the extent, and then reuse the index's space.
TEST(HashForgedFileTest, RebuildDoesNotTouchAnIndexUnderAHeapExtent) {
  HashForgery forgery(ImageOf(true));
  std::uint64_t reaches = 0;
  for (std::uint64_t i = 0; i < forgery.super.index_extents; ++i) {
    const auto index = format::IndexExtentEntry::Unpack(LoadLe<std::uint32_t>(&forgery.Table()[4 * i]));
    for (const std::uint64_t extent : forgery.heap_extents) {
      auto& bytes = forgery.HeapHeaderAt(extent).bytes;
      if (extent < index.offset && extent + bytes >= index.offset) bytes = index.offset + index.bytes - extent, ++reaches;
    }
  }
  ASSERT_NE(reaches, 0u);
  ASSERT_OK_AND_ASSIGN(auto db, OpenMapped(forgery.Finish()));
  for (std::uint64_t i = 1; i < 2 * kRecords; i += 2) {
    if (i % 9 != 0) (void)db->Remove(KeyOf(i));
  }
  (void)db->Rebuild();
  for (int i = 0; i < 40; ++i) EXPECT_THAT(db->Set("fresh" + std::to_string(i), std::string(60 << 10, 'f')), IsOk());
  for (std::uint64_t i = 9; i < 2 * kRecords; i += 18) {
    ASSERT_OK_AND_ASSIGN(const std::string value, db->Get(KeyOf(i)));
    ExpectRight(KeyOf(i), value);
  }
}

TEST(HashForgedFileTest, SweepsFromTheFrontIfItsPositionIsInvalid) {
  for (const bool mapped : {true, false}) {
    for (const std::uint64_t place : {kExtent, std::uint64_t{1} << 40, ~std::uint64_t{0} - 15}) {
      HashForgery forgery(ImageOf(mapped));
      forgery.super.epoch = 20'000;
      forgery.super.sweep_extent = forgery.super.sweep_to = place == kExtent ? forgery.super.tail + kExtent : place;
      forgery.super.sweep_end = ~std::uint64_t{0};
      const auto check = [](auto file) {
        auto db = HashDBM<decltype(file)>::Open(std::move(file));
        ASSERT_THAT(db, IsOk());
        EXPECT_THAT((*db)->Synchronize(SyncMode::kHard), IsOk());
        EXPECT_THAT((*db)->Close(), IsOk());
      };
      if (mapped) check(MemoryFile::Of(forgery.Finish()));
      if (!mapped) check(NotMapped(forgery.Finish()));
    }
  }
}

}  // namespace
}  // namespace hako
