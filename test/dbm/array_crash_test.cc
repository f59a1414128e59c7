// The file of an ArrayDBM: power cuts and kills at any moment with and without a log (crashed_lives.h), damage
// everywhere, and golden files. All on one type of file, as each is compiled for it. A batch is there as a
// whole or not at all, with its applied index.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/crashed_lives.h"
#include "dbm/damage.h"
#include "dbm/golden_file.h"
#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/array_dbm.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/superblock_slots.h"
#include "support/crash_memory.h"
#include "support/crash_states.h"
#include "support/fault_file.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

using CrashFile = FaultFile<PositionalCrashFile>;
using Database = ArrayDBM<CrashFile>;
CrashFile FileOf(const std::shared_ptr<CrashMemory>& memory, std::shared_ptr<FaultPlan> plan = std::make_shared<FaultPlan>()) {
  return CrashFile(PositionalCrashFile(memory), std::move(plan));
}
std::shared_ptr<CrashMemory> MemoryOf(const Image& image) { return std::make_shared<CrashMemory>(image, 1); }

// Opens the files that a crash left, and works with them.
StatusOr<Records> RecoverArray(const CrashMemories& files, Durability durability) {
  const ArrayOptions options = {.width = files.database->live().Size() == 0 ? 8u : 0u, .cache_bytes = 4 << 20, .durability = durability};
  auto opened = Database::Open(FileOf(files.database), FileOf(files.log), options);
  if (absl::IsInvalidArgument(opened.status())) {  // a blank file, of a crash within its creation
    ArrayOptions created = options;
    created.width = 8;
    opened = Database::Open(FileOf(files.database), FileOf(files.log), created);
  }
  HAKO_RETURN_IF_ERROR(opened.status());
  Database& db = **opened;
  HAKO_ASSIGN_OR_RETURN(Records found, RecordsAndIndexOf(db));
  HAKO_RETURN_IF_ERROR(db.Set(std::uint64_t{1'000'000}, "again"));
  HAKO_RETURN_IF_ERROR(db.Verify());
  HAKO_RETURN_IF_ERROR(db.Close());
  return found;
}

class Machine : public CrashedLives<Machine, Database> {
  using Lives = CrashedLives<Machine, Database>;
  friend Lives;

 public:
  using Lives::Lives;

 private:
  static constexpr unsigned kWidth = 50;  // 130 records a page

  StatusOr<std::unique_ptr<Database>> Open(const std::shared_ptr<FaultPlan>& plan, Durability durability) {
    return Database::Open(FileOf(files_.database, plan), FileOf(files_.log, plan),
                          {.width = kWidth, .cache_bytes = 64 << 20, .durability = durability, .log_bytes = std::uint64_t{1} << 40});
  }
  static StatusOr<Records> Recover(const CrashMemories& files, Durability durability) { return RecoverArray(files, durability); }
  Status UpdateBeside(Database& db) { return SetOne(db); }

  // Of few pages, some of them far away.
  std::uint64_t SomeId() { return random_.OneIn(10) ? kRecordIdMax - random_.Below(3) * 1'000'000'000 : random_.Below(400); }
  std::string SomeValue() {
    std::string value = random_.Bytes(random_.Below(kWidth + 1));
    value.resize(kWidth);
    return value;
  }

  Status SetOne(Database& db) {
    Records after = states_.back();
    const std::uint64_t id = SomeId();
    const std::string value = SomeValue();
    after[std::to_string(id)] = value;
    states_.push_back(after);
    return db.Set(id, value);
  }
  Status Update(Database& db) {
    if (random_.OneIn(150)) {
      std::erase_if(states_.emplace_back(states_.back()), [](const auto& record) { return record.first != kAppliedIndexKey; });
      return db.Clear();
    }
    if (random_.OneIn(30)) return RemoveSome(db);
    if (random_.OneIn(8)) return WriteMany(db);
    if (!random_.OneIn(3)) return SetOne(db);
    const std::uint64_t id = SomeId();
    Records after = states_.back();
    const bool is_there = after.erase(std::to_string(id)) != 0;
    states_.push_back(after);
    const Status status = db.Remove(id);
    return absl::IsNotFound(status) && !is_there ? absl::OkStatus() : status;
  }
  // Page by page, in ascending order: each prefix of the range may be all that is removed.
  Status RemoveSome(Database& db) {
    const std::uint64_t from = SomeId(), to = from + random_.Below(300);
    for (std::uint64_t id = from; id < std::min(to, kRecordIdMax + 1); ++id) {
      Records after = states_.back();
      if (after.erase(std::to_string(id)) != 0) states_.push_back(after);
    }
    states_.push_back(states_.back());
    return db.RemoveRange(from, to).status();
  }
  Status WriteMany(Database& db) {
    Records after = states_.back();
    WriteBatch batch;
    for (std::uint64_t n = random_.Below(20); n > 0; --n) {
      const std::uint64_t id = SomeId();
      const std::string key = std::to_string(id);
      if (random_.OneIn(10)) {
        const std::uint64_t to = id + random_.Below(random_.OneIn(4) ? kRecordIdMax : 200);
        batch.RemoveRange(key, to > kRecordIdMax ? std::nullopt : std::optional(std::to_string(to)));
        std::erase_if(after, [&](const auto& record) {
          return record.first != kAppliedIndexKey && std::stoull(record.first) >= id && std::stoull(record.first) < to;
        });
      } else if (random_.OneIn(3)) {
        batch.Remove(key);
        after.erase(key);
      } else {
        batch.Set(key, after[key] = SomeValue());
      }
    }
    if (!random_.OneIn(4)) {
      const std::uint64_t index = random_.Next() | 1;
      batch.SetAppliedIndex(index);
      after[kAppliedIndexKey] = std::to_string(index);
    }
    states_.push_back(after);
    return db.Write(batch);
  }
};

TEST(ArrayCrashTest, LosesNothingBelowItsDurability) { CheckCrashedLives<Machine>(CrashStates(2000)); }

// Records of several pages, far apart. Some are removed again, others replaced.
Records FillArray(Database& db) {
  Records records;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint64_t id = i < 150 ? i : i * 5'000'000'000;
    std::string value = (std::to_string(i * 7 % 200) + "-value").substr(0, db.width());
    EXPECT_THAT(db.Set(id, value), IsOk());
    value.resize(db.width());
    records[std::to_string(id)] = value;
  }
  for (std::uint64_t id = 0; id < 150; id += 7) {
    EXPECT_THAT(db.Remove(id), IsOk());
    records.erase(std::to_string(id));
  }
  return records;
}
Image ImageOfArray(unsigned width, Records* records = nullptr) {
  const auto memory = MemoryOf({});
  auto db = Database::Open(FileOf(memory), {.width = width, .durability = Durability::kNone}).value();
  EXPECT_THAT(db->SetType(7), IsOk());
  const Records filled = FillArray(*db);
  if (records != nullptr) *records = filled;
  EXPECT_THAT(db->Close(), IsOk());
  return memory->Live();
}

// Whatever is damaged, a record that is read is right, and the database can be used as far as it opens.
void CheckDamaged(const Image& image, const Records& records) {
  auto opened = Database::Open(FileOf(MemoryOf(image)), {.cache_bytes = 1 << 20, .durability = Durability::kNone});
  if (!opened.ok()) {
    ASSERT_TRUE(IsClearRefusal(opened.status())) << opened.status();
    return;
  }
  Database& db = **opened;
  // The damage may have hit the newer superblock; the older ones are of an array that is still empty.
  if (db.Count() == 0) return;
  bool right = db.Count() == records.size();
  for (const auto& [key, expected] : records) {
    const StatusOr<std::string> value = db.Get(key);
    ASSERT_TRUE(value.ok() || absl::IsDataLoss(value.status())) << key << ": " << value.status();
    if (value.ok()) {
      ASSERT_EQ(*value, expected) << key;
    }
    right = right && value.ok();
  }
  Records listed;
  auto it = db.MakeIterator();
  for (it.First(); it.Valid() || it.PassDamage([](const Status&) {}); it.Next()) {
    ASSERT_TRUE(records.count(it.key()) != 0 && records.at(std::string(it.key())) == it.value()) << it.key();
    ASSERT_TRUE(listed.emplace(it.key(), it.value()).second) << "the scan has no end";
  }
  ASSERT_TRUE(it.status().ok() || IsClearRefusal(it.status())) << it.status();
  const Status verified = db.Verify();
  ASSERT_TRUE(verified.ok() || IsClearRefusal(verified)) << verified;
  if (verified.ok()) {
    ASSERT_TRUE(right && listed == records) << "Verify finds nothing";
  }
  for (std::uint64_t id = 0; id < 150; id += 20) {
    if (db.Set(id, "fresh").ok()) {
      ASSERT_THAT(db.Contains(id), IsOkAndHolds(true));
    }
  }
  (void)db.Synchronize(SyncMode::kHard);
  (void)db.Clear();
  if (verified.ok()) {
    ASSERT_THAT(db.Verify(), IsOk());
  }
  (void)db.Close();
}

TEST(ArrayCorruptionTest, DamagedBitsGiveDataLossOrTheRightRecord) {
  SCOPED_TRACE(TestSeed());
  for (const unsigned width : {1u, 9u}) {  // presence bits in the page, and in its line
    Records records;
    const Image image = ImageOfArray(width, &records);
    ASSERT_NO_FATAL_FAILURE(CheckDamaged(image, records));
    std::uint64_t number = 0;
    FlipBits(
        image, false,
        [&](const Image& damaged, const std::string& what, Damage) {
          SCOPED_TRACE(what);
          if (number++ % (kSlowdown > 1 ? 64 : 16) == 0) CheckDamaged(damaged, records);
        },
        1);
    Truncate(image, [&](const Image& damaged, const std::string& what, Damage) {
      SCOPED_TRACE(what);
      if (number++ % 128 == 0) CheckDamaged(damaged, records);
    });
  }
}

// A file of two checkpoints, as a crash within the second one leaves it: its superblock slot is torn.
Image CrashedImage() {
  const auto memory = MemoryOf({});
  auto db = Database::Open(FileOf(memory), {.width = 12, .durability = Durability::kNone}).value();
  FillArray(*db);
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  for (std::uint64_t id = 0; id < 200; id += 3) EXPECT_THAT(db->Set(id, "later"), IsOk());
  EXPECT_THAT(db->RemoveRange(20, 40), IsOk());
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  Image image = memory->Live();
  format::TreeSuperBlock slots[2];
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}})
    std::memcpy(&slots[i], image.data() + i * storage::kSlotDistance, sizeof(slots[i]));
  return DamageAt(std::move(image), (slots[1].sequence > slots[0].sequence ? storage::kSlotDistance : 0) + 200);
}

// See golden_file.h.
void ExpectGolden(const std::string& name, const Image& image) {
  GoldenFiles::Expect(name, OutcomeOf(Database::Open(FileOf(MemoryOf(image)), {.durability = Durability::kNone})));
}
TEST(GoldenArrayFileTest, OpensFilesOfEachVersion) {
  for (const unsigned width : {1u, 12u, 4096u}) {
    const std::string name = "array_1_width_" + std::to_string(width);
    const Image image = GoldenFiles::Get(name, [width] { return ImageOfArray(width); });
    ExpectGolden(name, image);
    ExpectGolden(name + "_headless", DamageAt(DamageAt(image, 200), storage::kSlotDistance + 200));
  }
}
TEST(GoldenArrayFileTest, OpensTheLastCheckpointOfACrashedFile) {
  ExpectGolden("array_1_crashed", GoldenFiles::Get("array_1_crashed", CrashedImage));
}
TEST(GoldenArrayFileTest, NamesTheDamage) {
  ExpectGolden("array_1_damaged", GoldenFiles::Get("array_1_damaged", [] { return DamageAt(CrashedImage(), "35-value"); }));
}

}  // namespace
}  // namespace hako
