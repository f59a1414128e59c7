// A record whose block begins in the last unit of a dead one. The dead record's check holds as long
// as the shared bytes did not change, which for one byte has a chance of 1 in 256. Every scan of
// the file must find the live record nevertheless.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
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
#include "hako/file/any_file.h"
#include "hako/file/memory_file.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/record_format.h"
#include "hako/format/stamp.h"
#include "hako/storage/superblock_slots.h"
#include "support/booted_memory_file.h"
#include "support/checked_value.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

template <class FileT>
class OverlappedRecordTest : public testing::Test {
 protected:
  using DB = HashDBM<Erased<FileT>>;

  static FileT FileOf(const MemoryFile& memory, std::uint8_t boot = 1) {
    if constexpr (MappedFile<FileT>) {
      return FileT(memory.Share(), boot);
    } else {
      return FileT(memory.Share());
    }
  }
  static StatusOr<std::unique_ptr<DB>> Open(const MemoryFile& memory, std::uint8_t boot = 1) {
    return DB::Open(FileOf(memory, boot), {.seed = 11});
  }
  static MemoryFile CopyOf(const MemoryFile& memory) {
    std::vector<std::byte> image(memory.Size());
    EXPECT_THAT(memory.ReadAt(0, image), IsOk());
    return MemoryFile::Of(image);
  }

  // A synchronized file with a dead record before the record "live", which contains its last
  // `common` bytes.
  void Make(std::uint64_t common, format::BlockState state = format::BlockState::kFree) {
    memory_ = MemoryFile();
    ASSERT_OK_AND_ASSIGN(db_, Open(memory_));
    for (const std::string key : {"dead", "live", "next"}) ASSERT_THAT(db_->Set(key, CheckedValue(key, 60)), IsOk());
    const std::uint64_t dead = OffsetOf("dead");
    live_ = OffsetOf("live");
    ASSERT_LT(dead, live_);
    ASSERT_THAT(db_->Remove("dead"), IsOk());
    for (int i = 0; i < 2; ++i) ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
    format::HashSuperBlock super;
    Read(0, &super, sizeof(super));
    std::string record(live_ + common - dead, 'x');
    std::memcpy(record.data() + format::kShortHead, "dead", 4);
    Read(live_, record.data() + record.size() - common, common);
    const std::string_view value = std::string_view(record).substr(format::kShortHead + 4);
    const std::uint32_t check = format::RecordCheck(value, Hash64(std::string_view("dead"), super.hash_seed), dead, super.secret);
    std::memcpy(record.data(), &check, sizeof(check));
    ASSERT_EQ(format::EncodeLengths(record.data() + 6, 4, value.size()), 2u);
    ASSERT_THAT(memory_.WriteAt(dead, std::as_bytes(std::span(record))), IsOk());
    SetStamp(dead, format::Stamp::Of(state, super.epoch));
    dead_ = dead;
  }
  void SetStamp(std::uint64_t offset, format::Stamp stamp) {
    const std::uint16_t bits = stamp.bits();
    ASSERT_THAT(memory_.WriteAt(offset + 4, std::as_bytes(std::span(&bits, 1))), IsOk());
  }
  std::uint64_t OffsetOf(const std::string& key, std::size_t value_size = 60) {
    std::string bytes(memory_.Size(), '\0');
    Read(0, bytes.data(), bytes.size());
    const std::size_t at = bytes.find(key + CheckedValue(key, value_size));
    EXPECT_NE(at, std::string::npos);
    return at - format::kShortHead;
  }
  void Read(std::uint64_t offset, void* out, std::size_t size) {
    ASSERT_THAT(memory_.ReadAt(offset, {static_cast<std::byte*>(out), size}), IsOk());
  }
  static void ExpectBoth(DB& db) {
    ASSERT_THAT(db.Verify(), IsOk());
    std::string value;
    for (const std::string key : {"live", "next"}) {
      ASSERT_THAT(db.Get(key, &value), IsOk()) << key;
      ASSERT_EQ(value, CheckedValue(key, 60)) << key;
    }
  }

  MemoryFile memory_;
  std::unique_ptr<DB> db_;
  std::uint64_t dead_ = 0, live_ = 0;  // where the two begin
};
using Files = testing::Types<BootedMemoryFile, AnyFile>;
TYPED_TEST_SUITE(OverlappedRecordTest, Files);

TYPED_TEST(OverlappedRecordTest, IsRecoveredAfterAPowerCut) {
  for (const auto state : {format::BlockState::kFree, format::BlockState::kUnborn}) {
    for (std::uint64_t common = 1; common <= 8; ++common) {
      SCOPED_TRACE(common);
      ASSERT_NO_FATAL_FAILURE(this->Make(common, state));
      ASSERT_OK_AND_ASSIGN(auto recovered, this->Open(this->CopyOf(this->memory_), 2));
      ASSERT_NO_FATAL_FAILURE(this->ExpectBoth(*recovered));
    }
  }
}

// The power cut lost the dead record's stamp *free*, and the other record is of the lost epoch.
TYPED_TEST(OverlappedRecordTest, IsDroppedIfLaterThanTheRecoveredState) {
  ASSERT_NO_FATAL_FAILURE(this->Make(1));
  format::HashSuperBlock super;
  this->Read(0, &super, sizeof(super));
  for (const std::uint64_t offset : {this->dead_, this->live_}) {
    this->SetStamp(offset, format::Stamp::Of(format::BlockState::kLive, super.epoch + 1));
  }
  super.num_records = 1;
  super.check = format::CheckOf(super);
  for (const std::uint64_t offset : {std::uint64_t{0}, storage::kSlotDistance}) {
    ASSERT_THAT(this->memory_.WriteAt(offset, std::as_bytes(std::span(&super, 1))), IsOk());
  }
  MemoryFile memory = this->CopyOf(this->memory_);
  for (std::uint8_t boot = 2; boot != 5; ++boot) {  // each time the power fails, and the file is opened again
    SCOPED_TRACE(boot);
    memory = this->CopyOf(memory);
    ASSERT_OK_AND_ASSIGN(auto recovered, this->Open(memory, boot));
    ASSERT_THAT(recovered->Verify(), IsOk());
    ASSERT_EQ(recovered->Count(), 1u);
    ASSERT_THAT(recovered->Synchronize(SyncMode::kHard), IsOk());
    memory = this->CopyOf(memory);
  }
}

TYPED_TEST(OverlappedRecordTest, IsNotOverwrittenAfterAProcessKill) {
  for (const auto state : {format::BlockState::kFree, format::BlockState::kUnborn}) {
    ASSERT_NO_FATAL_FAILURE(this->Make(1, state));
    ASSERT_OK_AND_ASSIGN(auto recovered, this->Open(this->CopyOf(this->memory_)));
    for (std::uint64_t i = 0; i < 2000; ++i) ASSERT_THAT(recovered->Set(NumberedKey(i), CheckedValue(NumberedKey(i), i % 120)), IsOk());
    ASSERT_NO_FATAL_FAILURE(this->ExpectBoth(*recovered));
    EXPECT_EQ(recovered->Count(), 2002u);
  }
}

// The last bytes of a live record end where the stamp of a dead long record was, whose lengths and
// head check are still there and reach over other live records.
TYPED_TEST(OverlappedRecordTest, IsNotPassedOverForALongRecordWhoseStampWasOverwritten) {
  ASSERT_OK_AND_ASSIGN(this->db_, this->Open(this->memory_));
  std::string value = CheckedValue("front", 57);
  for (std::uint64_t salt = 1; !format::Stamp(static_cast<std::uint16_t>(value[55])).IsLive(); ++salt)
    value = CheckedValue("front", 57, salt);
  ASSERT_THAT(this->db_->Set("front", value), IsOk());
  ASSERT_THAT(this->db_->Set("gap", CheckedValue("gap", 60)), IsOk());
  ASSERT_THAT(this->db_->Set("passed", CheckedValue("passed", 100)), IsOk());
  const std::uint64_t gap = this->OffsetOf("gap"), old = gap - 8;
  ASSERT_EQ(this->OffsetOf("passed", 100), gap + 72);
  ASSERT_THAT(this->db_->Remove("gap"), IsOk());
  format::HashSuperBlock super;
  this->Read(0, &super, sizeof(super));
  char head[format::kRecordHeadMax];
  const unsigned lengths = format::EncodeLengths(head, 4, 128);
  const std::uint32_t head_check = format::RecordHeadCheck(0x12345678, 4, 128, old, super.secret);
  std::memcpy(head + lengths, &head_check, sizeof(head_check));
  ASSERT_THAT(this->memory_.WriteAt(old + 6, std::as_bytes(std::span(head, lengths + sizeof(head_check)))), IsOk());
  ASSERT_OK_AND_ASSIGN(auto recovered, this->Open(this->CopyOf(this->memory_)));
  for (std::uint64_t i = 0; i < 2000; ++i) ASSERT_THAT(recovered->Set(NumberedKey(i), CheckedValue(NumberedKey(i), i % 120)), IsOk());
  ASSERT_THAT(recovered->Verify(), IsOk());
  if (!MappedFile<TypeParam>) return;  // the last synchronized state was empty
  std::string found;
  ASSERT_THAT(recovered->Get("front", &found), IsOk());
  EXPECT_EQ(found, value);
  ASSERT_THAT(recovered->Get("passed", &found), IsOk());
  EXPECT_EQ(found, CheckedValue("passed", 100));
  EXPECT_EQ(recovered->Count(), 2002u);
}

TYPED_TEST(OverlappedRecordTest, IsVerifiedListedAndCopied) {
  ASSERT_NO_FATAL_FAILURE(this->Make(1));
  ASSERT_NO_FATAL_FAILURE(this->ExpectBoth(*this->db_));
  EXPECT_EQ(ListByIterator(*this->db_).records.size(), 2u);
  std::uint64_t listed = 0;
  ASSERT_THAT(this->db_->ProcessEach([&](std::string_view, std::string_view) { ++listed; }), IsOk());
  EXPECT_EQ(listed, 2u);
  const MemoryFile to;
  ASSERT_THAT(this->db_->CopyTo(this->FileOf(to)), IsOk());
  ASSERT_OK_AND_ASSIGN(auto copy, this->Open(to));
  ASSERT_NO_FATAL_FAILURE(this->ExpectBoth(*copy));
}

TYPED_TEST(OverlappedRecordTest, SurvivesARebuildAndAClose) {
  ASSERT_NO_FATAL_FAILURE(this->Make(1));
  for (std::uint64_t i = 0; i < 3000; ++i) ASSERT_THAT(this->db_->Set(NumberedKey(i), CheckedValue(NumberedKey(i), 200)), IsOk());
  for (std::uint64_t i = 0; i < 3000; ++i) ASSERT_THAT(this->db_->Remove(NumberedKey(i)), IsOk());
  ASSERT_THAT(this->db_->Rebuild(), IsOk());
  ASSERT_NO_FATAL_FAILURE(this->ExpectBoth(*this->db_));
  ASSERT_THAT(this->db_->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(auto reopened, this->Open(this->memory_));
  ASSERT_NO_FATAL_FAILURE(this->ExpectBoth(*reopened));
}

TYPED_TEST(OverlappedRecordTest, StampBecomesAncientInTime) {
  ASSERT_NO_FATAL_FAILURE(this->Make(1));
  for (std::uint64_t i = 0; i < format::kLiveAgeMax; ++i) {
    ASSERT_THAT(this->db_->Set("key", CheckedValue("key", 200, i)), IsOk());  // longer than the free space in front of the record
    ASSERT_THAT(this->db_->Synchronize(SyncMode::kHard), IsOk());
  }
  std::uint16_t bits = 0;
  this->Read(this->live_ + 4, &bits, sizeof(bits));
  EXPECT_TRUE(format::Stamp(bits).IsAncient());
}

}  // namespace
}  // namespace hako
