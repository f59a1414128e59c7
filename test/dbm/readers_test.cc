// Trees and arrays that are read in other processes while one process writes them (file/readers_file.h).
//
// HAKO_KILLS=1000 has the test of killed processes kill that many.
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/array_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/positional_tree_dbm.h"
#include "hako/dbm/restore.h"
#include "hako/dbm/transaction.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/readers_file.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/superblock_slots.h"
#include "support/child_process.h"
#include "support/crash_child.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

constexpr std::uint64_t kNumKeys = 600;
constexpr std::uint64_t kTotal = 1'000'000;
const FileOptions kReading = {.mode = OpenMode::kReadOnly};

std::string KeyOf(std::uint64_t i) { return absl::StrCat("key", absl::Dec(i, absl::kZeroPad6)); }

// A generation of all records: the values of one generation add up to kTotal, and each names the generation.
template <class D>
Status WriteGeneration(D& db, std::uint64_t generation, Random& random) {
  std::uint64_t rest = kTotal;
  WriteBatch batch;
  for (std::uint64_t i = 0; i < kNumKeys; ++i) {
    const std::uint64_t part = i + 1 == kNumKeys ? rest : random.Below(rest / 8 + 1);
    rest -= part;
    // Some values are stored out of line.
    batch.Set(KeyOf(i), absl::StrCat(generation, " ", part, " ", std::string(i % 100 == 0 ? 5000 : 20, 'x')));
  }
  return db.Write(batch);
}

// Returns the generation that all records have; an error if they do not agree, or do not add up.
template <class D>
StatusOr<std::uint64_t> GenerationOf(D& db) {
  std::uint64_t count = 0, total = 0;
  std::optional<std::uint64_t> generation;
  std::string mistake;
  HAKO_RETURN_IF_ERROR(db.ProcessEach([&](std::string_view key, std::string_view value) {
    const std::string text(value);
    char* at = nullptr;
    const std::uint64_t of = std::strtoull(text.c_str(), &at, 10), part = std::strtoull(at, nullptr, 10);
    if (!generation) generation = of;
    if (*generation != of) mistake = absl::StrCat(std::string(key), " is of generation ", of, ", not ", *generation);
    if (key != KeyOf(count)) mistake = absl::StrCat(std::string(key), " is number ", count);
    ++count;
    total += part;
  }));
  if (!mistake.empty()) return absl::InternalError(mistake);
  if (count != kNumKeys || total != kTotal) return absl::InternalError(absl::StrCat(count, " records with a total of ", total));
  return *generation;
}

// Moves a reader to the newest checkpoint.
template <class D>
Status Move(std::unique_ptr<D>* db) {
  HAKO_ASSIGN_OR_RETURN(auto newer, (*db)->Refresh());
  if (newer != nullptr) *db = std::move(newer);
  return absl::OkStatus();
}

TreeOptions SmallTree(Durability durability = Durability::kNone) {
  return {.page_size = 512, .cache_bytes = 1 << 20, .durability = durability};
}

template <class FileT>
class ReadersTest : public testing::Test {
 protected:
  using Tree = TreeDBM<FileT>;
  const TempDir dir_{TempDir::MemoryParent()};
  const std::string path_ = dir_.File("db.hkt"), readers_ = path_ + "-readers";
  Random random_{20261128};

  std::unique_ptr<Tree> Writer(const TreeOptions& options = SmallTree()) const {
    auto db = Tree::Open(path_, options);
    EXPECT_THAT(db, IsOk());
    return db.ok() ? *std::move(db) : nullptr;
  }
  std::unique_ptr<Tree> Reader() const {
    auto db = Tree::Open(path_, SmallTree(), kReading);
    EXPECT_THAT(db, IsOk());
    return db.ok() ? *std::move(db) : nullptr;
  }
  void Write(Tree& db, std::uint64_t generation) {
    ASSERT_THAT(WriteGeneration(db, generation, random_), IsOk());
    ASSERT_THAT(db.Synchronize(SyncMode::kHard), IsOk());
  }
};
using FileTypes = testing::Types<MemoryMapParallelFile, PositionalParallelFile>;
TYPED_TEST_SUITE(ReadersTest, FileTypes);

TYPED_TEST(ReadersTest, ShowsOneCheckpointUntilRefresh) {
  const auto writer = this->Writer(SmallTree(Durability::kProcess));
  this->Write(*writer, 1);
  auto reader = this->Reader(), second = this->Reader();
  EXPECT_FALSE(reader->IsWritable());
  EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(1u));
  ASSERT_THAT(WriteGeneration(*writer, 2, this->random_), IsOk());
  EXPECT_THAT(reader->Refresh(), IsOkAndHolds(testing::IsNull()));  // there is no checkpoint yet
  for (std::uint64_t generation = 3; generation < 10; ++generation) {
    this->Write(*writer, generation);
    EXPECT_THAT(GenerationOf(*second), IsOkAndHolds(1u));
    EXPECT_THAT(second->Verify(), IsOk());
    ASSERT_THAT(Move(&reader), IsOk());
    EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(generation));
  }
  EXPECT_EQ(writer->GetStats().num_readers, 2u);
  EXPECT_LT(writer->GetStats().oldest_reader, reader->GetStats().epoch);
  EXPECT_GT(writer->GetStats().reader_bytes, 0u);
  EXPECT_THAT(writer->Verify(), IsOk());
  EXPECT_THAT(reader->Set("a", "b"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(writer->Refresh(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TYPED_TEST(ReadersTest, AWriterCanOpenBesideReaders) {
  this->Write(*this->Writer(), 1);
  auto reader = this->Reader();
  for (std::uint64_t generation = 2; generation < 6; ++generation) {
    const auto writer = this->Writer(SmallTree(generation % 2 == 0 ? Durability::kNone : Durability::kProcess));
    this->Write(*writer, generation);
    this->Write(*writer, generation);
    EXPECT_THAT(writer->Rebuild(), IsOk());
    EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(1u));
    ASSERT_THAT(writer->Close(), IsOk());
    EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(1u));
  }
  ASSERT_THAT(Move(&reader), IsOk());
  EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(5u));
}

// The writer overwrites the superblock of the checkpoint that a reader shows.
TYPED_TEST(ReadersTest, ScrubFindsNoDamageBesideAWriter) {
  const auto writer = this->Writer();
  this->Write(*writer, 1);
  const auto reader = this->Reader();
  for (std::uint64_t generation = 2; generation < 7; ++generation) {
    this->Write(*writer, generation);
    ASSERT_OK_AND_ASSIGN(const ScrubProgress progress, reader->Scrub({.max_bytes = 64 << 20}));
    EXPECT_TRUE(progress.is_complete);
    EXPECT_EQ(progress.damage.size(), 0u) << generation;
  }
  // Damage of the newest superblock is found, as far as nobody writes.
  ASSERT_THAT(writer->Close(), IsOk());
  const auto newest = this->Reader();
  ASSERT_OK_AND_ASSIGN(const ScrubProgress before, newest->Scrub({.max_bytes = 64 << 20}));
  EXPECT_EQ(before.damage.size(), 0u);
  std::FILE* const damaged = std::fopen(this->path_.c_str(), "r+");
  std::fseek(damaged, static_cast<long>(newest->GetStats().epoch % 2 * 4096 + 100), SEEK_SET);
  std::fputs("damage", damaged);
  std::fclose(damaged);
  ASSERT_OK_AND_ASSIGN(const ScrubProgress after, newest->Scrub({.max_bytes = 64 << 20}));
  EXPECT_EQ(after.damage.size(), 1u);
}

// A reader does not keep pages in its cache: its records are read from the file after the writer has replaced them.
TYPED_TEST(ReadersTest, ClearRebuildAndRemovalsLeaveACheckpoint) {
  const auto writer = this->Writer();
  this->Write(*writer, 1);
  const auto reader = this->Reader();
  ASSERT_THAT(writer->Clear(), IsOk());
  ASSERT_THAT(writer->Synchronize(SyncMode::kHard), IsOk());
  ASSERT_THAT(writer->Rebuild(), IsOk());
  for (int i = 0; i < 3; ++i) this->Write(*writer, 2);
  ASSERT_THAT(writer->RemoveRange("key", std::nullopt), IsOk());
  ASSERT_THAT(writer->Rebuild(), IsOk());
  ASSERT_THAT(writer->Close(), IsOk());
  EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(1u));
  EXPECT_THAT(reader->Verify(), IsOk());
  EXPECT_THAT(reader->CopyTo(this->dir_.File("copy.hkt")), IsOk());
  const auto copy = TestFixture::Tree::Open(this->dir_.File("copy.hkt"), SmallTree());
  ASSERT_THAT(copy, IsOk());
  EXPECT_THAT(GenerationOf(**copy), IsOkAndHolds(1u));
}

// What a reader has kept is reused once it is closed, so the file does not grow.
TYPED_TEST(ReadersTest, SpaceIsReusedWhenReadersHaveGone) {
  const auto writer = this->Writer();
  for (std::uint64_t i = 0; i < 4; ++i) this->Write(*writer, i);
  const std::uint64_t alone = writer->GetStats().total_bytes;
  std::uint64_t beside = 0;
  for (int round = 0; round < 5; ++round) {
    const auto reader = this->Reader();
    for (std::uint64_t i = 0; i < 8; ++i) this->Write(*writer, i);
    EXPECT_GT(writer->GetStats().reader_bytes, 0u);
    if (round == 1) beside = writer->GetStats().total_bytes;  // the reader of the round before kept some, too
    if (round > 1) EXPECT_LE(writer->GetStats().total_bytes, beside);
  }
  EXPECT_GT(beside, alone);
  for (std::uint64_t i = 0; i < 3; ++i) this->Write(*writer, i);
  EXPECT_EQ(writer->GetStats().num_readers, 0u);
  EXPECT_EQ(writer->GetStats().reader_bytes, 0u);
  ASSERT_THAT(writer->Rebuild(), IsOk());
  EXPECT_LE(writer->GetStats().total_bytes, alone * 5 / 4);
  EXPECT_FALSE(fs::exists(this->readers_));
}

TYPED_TEST(ReadersTest, IsCutOffBeyondTheLimit) {
  TreeOptions options = SmallTree();
  options.reader_bytes = 1 << 20;
  const auto writer = this->Writer(options);
  this->Write(*writer, 1);
  auto old = this->Reader();
  std::uint64_t most = 0;
  std::uint64_t generation = 2;
  for (; generation < 80; ++generation) {
    this->Write(*writer, generation);
    most = std::max(most, writer->GetStats().reader_bytes);
    if (writer->GetStats().num_readers == 0) break;
    EXPECT_EQ(writer->GetStats().oldest_reader, old->GetStats().epoch);
  }
  EXPECT_LT(generation, 80u);
  EXPECT_LE(most, options.reader_bytes);
  EXPECT_GT(most, 1u << 19);
  const auto present = this->Reader();  // is not cut off with the other
  for (int i = 0; i < 3; ++i) this->Write(*writer, ++generation);
  EXPECT_THAT(GenerationOf(*present), IsOk());
  EXPECT_THAT(GenerationOf(*old), StatusIs(absl::StatusCode::kAborted, HasSubstr("cut off")));
  EXPECT_THAT(old->Get(KeyOf(100)).status(), StatusIs(absl::StatusCode::kAborted, HasSubstr("Refresh")));
  EXPECT_THAT(old->Verify(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(old->CopyTo(this->dir_.File("copy.hkt")), StatusIs(absl::StatusCode::kAborted));
  EXPECT_FALSE(fs::exists(this->dir_.File("copy.hkt")));
  EXPECT_THAT(old->Scrub().status(), StatusIs(absl::StatusCode::kAborted));
  // The writer may cut the file under it.
  ASSERT_THAT(writer->Clear(), IsOk());
  ASSERT_THAT(writer->Synchronize(SyncMode::kHard), IsOk());
  ASSERT_THAT(writer->Rebuild(), IsOk());
  ASSERT_THAT(writer->Close(), IsOk());
  EXPECT_THAT(old->Get(KeyOf(200)).status(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(old->CopyTo(this->dir_.File("copy.hkt")), StatusIs(absl::StatusCode::kAborted, HasSubstr("cut off")));
  EXPECT_THAT(old->Verify(), StatusIs(absl::StatusCode::kAborted, HasSubstr("cut off")));
  EXPECT_THAT(old->Scrub().status(), StatusIs(absl::StatusCode::kAborted, HasSubstr("cut off")));
  for (const auto& [name, text] : old->Inspect()) {
    if (name == "damage") EXPECT_THAT(text, HasSubstr("cut off"));
  }
  ASSERT_THAT(Move(&old), IsOk());
  EXPECT_EQ(old->Count(), 0u);
}

std::uint64_t test_now = 0;
std::uint64_t TestClock() { return test_now; }

TYPED_TEST(ReadersTest, IsCutOffBeyondTheAge) {
  using Tree = typename TestFixture::Tree;
  test_now = 1'000'000;
  TreeOptions options = SmallTree();
  options.clock = &TestClock;
  options.reader_age = std::chrono::milliseconds(1'000);
  const auto writer = this->Writer(options);
  std::uint64_t generation = 1;
  this->Write(*writer, generation);
  const auto open = [&] {
    auto reader = Tree::Open(this->path_, options, kReading);
    EXPECT_THAT(reader, IsOk());
    return *std::move(reader);
  };
  const auto hanging = open(), refreshed = open();
  test_now += 1'000;
  const auto later = open();
  EXPECT_THAT(refreshed->Refresh(), IsOkAndHolds(testing::IsNull()));
  this->Write(*writer, ++generation);
  EXPECT_EQ(writer->GetStats().num_readers, 3u);  // at the limit
  test_now += 1;
  this->Write(*writer, ++generation);
  EXPECT_EQ(writer->GetStats().num_readers, 2u);
  for (int i = 0; i < 5; ++i) this->Write(*writer, ++generation);
  EXPECT_THAT(hanging->Scrub().status(), StatusIs(absl::StatusCode::kAborted, HasSubstr("reader_age")));
  EXPECT_THAT(GenerationOf(*refreshed), IsOkAndHolds(1u));
  EXPECT_THAT(GenerationOf(*later), IsOkAndHolds(1u));
  options.reader_age = std::chrono::milliseconds(-1);
  EXPECT_THAT(Tree::Open(this->dir_.File("other.hkt"), options).status(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TYPED_TEST(ReadersTest, ACutOffReaderOfTheNewestCheckpointIsOpenedAgain) {
  const auto writer = this->Writer();
  this->Write(*writer, 1);
  const auto reader = this->Reader();
  EXPECT_THAT(reader->Refresh(), IsOkAndHolds(testing::IsNull()));
  ReadersFile(this->path_).CutOffBelow(ReadersFile::kNone);
  ASSERT_OK_AND_ASSIGN(const auto newer, reader->Refresh());
  ASSERT_NE(newer, nullptr);
  EXPECT_THAT(newer->Refresh(), IsOkAndHolds(testing::IsNull()));
  this->Write(*writer, 2);
  this->Write(*writer, 3);
  EXPECT_THAT(GenerationOf(*newer), IsOkAndHolds(1u));
}

// It is no conflict, so no transaction is tried again.
TYPED_TEST(ReadersTest, ATransactionOverACutOffReaderIsNotTriedAgain) {
  TreeOptions options = SmallTree();
  options.reader_bytes = 1 << 16;
  const auto writer = this->Writer(options);
  this->Write(*writer, 1);
  const auto reader = this->Reader();
  int num_tries = 0;
  Transaction transaction(*reader);
  const Status retried = transaction.Retry(10, [&]() -> Status {
    if (++num_tries != 1) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(transaction.Get(KeyOf(100)).status());  // a long value, which is not cached
    for (std::uint64_t i = 0; i < 10; ++i) this->Write(*writer, i);
    return absl::OkStatus();
  });
  EXPECT_THAT(retried, StatusIs(absl::StatusCode::kAborted, HasSubstr("cut off")));
  EXPECT_EQ(num_tries, 1);
}

TYPED_TEST(ReadersTest, TruncationAndReplacementAreRefused) {
  const auto writer = this->Writer();
  this->Write(*writer, 1);
  const auto reader = this->Reader();
  ASSERT_THAT(writer->Close(), IsOk());
  const auto unavailable = StatusIs(absl::StatusCode::kUnavailable);
  EXPECT_THAT(TestFixture::Tree::Open(this->path_, SmallTree(), {.mode = OpenMode::kTruncate}).status(), unavailable);
  const auto other = TestFixture::Tree::Open(this->dir_.File("other.hkt"), SmallTree());
  ASSERT_THAT(other, IsOk());
  EXPECT_THAT((*other)->CopyTo(this->path_), unavailable);
  EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(1u));
  ASSERT_THAT(reader->Close(), IsOk());
  EXPECT_THAT((*other)->CopyTo(this->path_), IsOk());
  const auto truncating = TestFixture::Tree::Open(this->path_, SmallTree(), {.mode = OpenMode::kTruncate});
  ASSERT_THAT(truncating, IsOk());
  this->Write(**truncating, 7);
  EXPECT_THAT(GenerationOf(*this->Reader()), IsOkAndHolds(7u));
}

TYPED_TEST(ReadersTest, TwoWritersAreRefused) {
  const auto writer = this->Writer();
  const auto reader = this->Reader();
  EXPECT_THAT(TestFixture::Tree::Open(this->path_, SmallTree()).status(), StatusIs(absl::StatusCode::kUnavailable));
}

// Where the file of the readers cannot be made, many read without a writer, and none beside one.
TYPED_TEST(ReadersTest, WithoutItsFileReadersAndWritersExcludeEachOther) {
  this->Write(*this->Writer(), 1);
  fs::create_directory(this->readers_);
  {
    const auto reader = this->Reader(), second = this->Reader();
    EXPECT_THAT(GenerationOf(*second), IsOkAndHolds(1u));
    EXPECT_THAT(TestFixture::Tree::Open(this->path_, SmallTree()).status(), StatusIs(absl::StatusCode::kUnavailable));
  }
  const auto writer = this->Writer();
  EXPECT_THAT(TestFixture::Tree::Open(this->path_, SmallTree(), kReading).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("-readers")));
}

// If the file of the readers is lost, the writer reuses nothing, because it does not know what they need.
TYPED_TEST(ReadersTest, ALostFileKeepsReaders) {
  TreeOptions options = SmallTree();
  options.reader_bytes = 1 << 16;
  const auto writer = this->Writer(options);
  this->Write(*writer, 1);
  {
    const auto reader = this->Reader();
    fs::rename(this->readers_, this->readers_ + "x");
    for (std::uint64_t i = 2; i < 8; ++i) this->Write(*writer, i);
    fs::create_symlink(this->readers_ + "x", this->readers_);  // which the writer does not follow
    for (std::uint64_t i = 2; i < 8; ++i) this->Write(*writer, i);
    EXPECT_THAT(writer->Inspect(), Contains(Pair("readers", HasSubstr("cannot open"))));
    EXPECT_EQ(writer->GetStats().oldest_reader, 0u);
    fs::remove(this->readers_);
    fs::rename(this->readers_ + "x", this->readers_);
    EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(1u));
    EXPECT_THAT(reader->Verify(), IsOk());
  }
  for (std::uint64_t i = 2; i < 4; ++i) this->Write(*writer, i);
  EXPECT_THAT(writer->Inspect(), Not(Contains(Pair("readers", testing::_))));
  EXPECT_EQ(writer->GetStats().reader_bytes, 0u);
}

// The writer knows a reader by whichever name it has opened the file. Only under the writer's own name is it counted.
TYPED_TEST(ReadersTest, AnotherHardLinkIsProtected) {
  const std::string other = this->dir_.File("other.hkt");
  {
    const auto writer = this->Writer();
    this->Write(*writer, 1);
    fs::create_hard_link(this->path_, other);
    const auto reader = TestFixture::Tree::Open(other, SmallTree(), kReading);
    ASSERT_THAT(reader, IsOk());
    auto present = this->Reader();
    for (std::uint64_t i = 2; i < 8; ++i) {
      this->Write(*writer, i);
      ASSERT_THAT(Move(&present), IsOk());
    }
    EXPECT_EQ(writer->GetStats().num_readers, 2u);
    EXPECT_EQ(writer->GetStats().oldest_reader, 0u);
    ASSERT_THAT(writer->Rebuild(), IsOk());
    ASSERT_THAT(writer->Close(), IsOk());
    const auto next = this->Writer();
    for (std::uint64_t i = 8; i < 12; ++i) this->Write(*next, i);
    EXPECT_THAT(GenerationOf(**reader), IsOkAndHolds(1u));
    EXPECT_THAT((*reader)->CopyTo(this->dir_.File("copy.hkt")), IsOk());
    const auto copy = TestFixture::Tree::Open(this->dir_.File("copy.hkt"), SmallTree());
    ASSERT_THAT(copy, IsOk());
    EXPECT_THAT(GenerationOf(**copy), IsOkAndHolds(1u));
  }
  const auto writer = this->Writer();
  for (std::uint64_t i = 12; i < 15; ++i) this->Write(*writer, i);
  EXPECT_EQ(writer->GetStats().num_readers, 0u);
  EXPECT_EQ(writer->GetStats().reader_bytes, 0u);
  EXPECT_FALSE(fs::exists(other + "-readers"));
}

// What this process writes to a file that another one is creating.
TYPED_TEST(ReadersTest, AFileThatIsBeingCreatedIsUnavailable) {
  const auto open = [&] { return TestFixture::Tree::Open(this->path_, SmallTree(), kReading).status(); };
  auto file = TypeParam::Open(this->path_, {.beside_readers = true});
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(open(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("being created")));
  ASSERT_THAT(file->Resize(8192), IsOk());
  EXPECT_THAT(open(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("being created")));
  const std::string text = "this is not a database";
  ASSERT_THAT(file->WriteAt(0, std::as_bytes(std::span(text))), IsOk());
  EXPECT_THAT(open(), StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_THAT(file->Resize(0), IsOk());
  ASSERT_THAT(file->Close(), IsOk());
  EXPECT_THAT(open(), StatusIs(absl::StatusCode::kDataLoss));  // nobody creates it
}

TYPED_TEST(ReadersTest, WaitsForANewerCheckpoint) {
  using std::chrono::milliseconds;
  const auto writer = this->Writer(SmallTree(Durability::kProcess));
  this->Write(*writer, 1);
  auto reader = this->Reader();
  EXPECT_THAT(reader->WaitForCheckpoint(milliseconds(0)), IsOkAndHolds(false));
  EXPECT_THAT(reader->WaitForCheckpoint(milliseconds(20)), IsOkAndHolds(false));
  ASSERT_THAT(WriteGeneration(*writer, 2, this->random_), IsOk());
  EXPECT_THAT(reader->WaitForCheckpoint(milliseconds(0)), IsOkAndHolds(false));
  ASSERT_THAT(writer->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_THAT(reader->WaitForCheckpoint(milliseconds(0)), IsOkAndHolds(true));
  ASSERT_THAT(Move(&reader), IsOk());
  EXPECT_THAT(reader->WaitForCheckpoint(milliseconds(0)), IsOkAndHolds(false));
  // Each side waits for the other one.
  for (std::uint64_t generation = 3; generation < 20; ++generation) {
    std::thread writing([&] { this->Write(*writer, generation); });
    EXPECT_THAT(reader->WaitForCheckpoint(std::chrono::minutes(10)), IsOkAndHolds(true));
    writing.join();
    ASSERT_THAT(Move(&reader), IsOk());
    EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(generation));
  }
  ReadersFile(this->path_).CutOffBelow(ReadersFile::kNone);
  EXPECT_THAT(reader->WaitForCheckpoint(std::chrono::hours(1) * 1'000'000), IsOkAndHolds(true));
  EXPECT_THAT(writer->WaitForCheckpoint(milliseconds(0)), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_THAT(reader->Close(), IsOk());
  EXPECT_THAT(reader->WaitForCheckpoint(milliseconds(0)), StatusIs(absl::StatusCode::kFailedPrecondition));
}

// ---- processes ----

TYPED_TEST(ReadersTest, AKilledReaderKeepsNothing) {
  this->Write(*this->Writer(), 1);
  ChildProcess child([&](ChildProcess& self) {
    const auto reader = TestFixture::Tree::Open(this->path_, SmallTree(), kReading);
    if (!reader.ok()) return 1;
    // A process that is forked by the reader does not keep its slot, nor use the database.
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      if ((*reader)->Get(KeyOf(1)).ok() || (*reader)->Refresh().ok()) _exit(1);
      alarm(60);
      self.Tell();
      for (;;) pause();
    }
    for (;;) pause();
  });
  child.Wait();
  const auto writer = this->Writer();
  for (std::uint64_t i = 2; i < 5; ++i) this->Write(*writer, i);
  EXPECT_EQ(writer->GetStats().num_readers, 1u);
  EXPECT_GT(writer->GetStats().reader_bytes, 0u);
  child.Kill();
  this->Write(*writer, 5);
  EXPECT_EQ(writer->GetStats().num_readers, 0u);
  EXPECT_EQ(writer->GetStats().reader_bytes, 0u);
  EXPECT_TRUE(fs::exists(this->readers_));
  ASSERT_THAT(writer->Close(), IsOk());
  EXPECT_FALSE(fs::exists(this->readers_));
}

// A killed writer's updates are in its log: a reader has them, and does not go back when the next writer is there.
TYPED_TEST(ReadersTest, AKilledWritersLogIsReadOnceItIsDead) {
  std::unique_ptr<typename TestFixture::Tree> reader;
  {
    ChildProcess child([&](ChildProcess& self) {
      auto db = TestFixture::Tree::Open(this->path_, SmallTree(Durability::kProcess));
      if (!db.ok() || !WriteGeneration(**db, 1, this->random_).ok() || !(*db)->Synchronize(SyncMode::kHard).ok()) return 1;
      if (!WriteGeneration(**db, 2, this->random_).ok()) return 1;
      self.Tell();
      for (;;) pause();
    });
    child.Wait();
    reader = this->Reader();
    EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(1u));
    child.Kill();
  }
  ASSERT_THAT(Move(&reader), IsOk());
  EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(2u));
  const auto writer = this->Writer(SmallTree(Durability::kProcess));
  ASSERT_THAT(Move(&reader), IsOk());
  EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(2u));
  EXPECT_THAT(GenerationOf(*this->Reader()), IsOk());
  this->Write(*writer, 3);
  ASSERT_THAT(Move(&reader), IsOk());
  EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(3u));
}

// The next writer makes a checkpoint in the middle of its replay: a reader that has read the whole log does not
// go back to that.
TYPED_TEST(ReadersTest, RefreshDoesNotGoBackToAnEarlierPlaceInTheLog) {
  using Tree = typename TestFixture::Tree;
  const TreeOptions logged = SmallTree(Durability::kProcess);
  const std::string path = this->dir_.File("killed.hkt");
  {
    const auto writer = this->Writer(logged);
    this->Write(*writer, 1);
    ASSERT_THAT(WriteGeneration(*writer, 2, this->random_), IsOk());
    fs::copy_file(this->path_, path);  // as if the writer were killed now
    fs::copy_file(this->path_ + "-log", path + "-log");
  }
  auto reader = Tree::Open(path, logged, kReading);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT(GenerationOf(**reader), IsOkAndHolds(2u));
  // The checkpoint has none of the updates.
  std::FILE* const file = std::fopen(path.c_str(), "r+");
  format::TreeSuperBlock super{};
  std::fseek(file, static_cast<long>((*reader)->GetStats().epoch % 2 * storage::kSlotDistance), SEEK_SET);
  ASSERT_EQ(std::fread(&super, sizeof(super), 1, file), 1u);
  super.sequence = super.sequence + 1;
  super.check = format::CheckOf(super);
  std::fseek(file, static_cast<long>(super.sequence % 2 * storage::kSlotDistance), SEEK_SET);
  ASSERT_EQ(std::fwrite(&super, sizeof(super), 1, file), 1u);
  std::fclose(file);
  {
    const auto in_use = TypeParam::Open(path + "-log", {.mode = OpenMode::kReadWrite});
    ASSERT_THAT(in_use, IsOk());
    EXPECT_THAT((*reader)->Refresh(), IsOkAndHolds(testing::IsNull()));
  }
  ASSERT_OK_AND_ASSIGN(const auto newer, (*reader)->Refresh());
  ASSERT_NE(newer, nullptr);
  EXPECT_THAT(GenerationOf(*newer), IsOkAndHolds(2u));
  EXPECT_THAT(newer->Refresh(), IsOkAndHolds(testing::IsNull()));
}

// A process that reads: each scan has one generation, and no Refresh goes back.
template <class Tree>
void ReadOn(const std::string& path, std::uint64_t seed, CrashProgress& progress) {
  Random random(seed);
  FileOptions reading = kReading;
  reading.lock_timeout = std::chrono::seconds(20);
  auto db = Tree::Open(path, SmallTree(), reading);
  if (!db.ok()) return progress.Fail(db.status().ToString());
  std::uint64_t last = 0;
  progress.ready = true;
  for (;;) {
    const StatusOr<std::uint64_t> generation = GenerationOf(**db);
    if (!generation.ok()) return progress.Fail(absl::StrCat("scan: ", generation.status().ToString()));
    if (*generation < last) return progress.Fail(absl::StrCat(*generation, " after ", last));
    last = *generation;
    progress.writers[0].acknowledged.fetch_add(1);
    if (random.OneIn(3)) continue;  // scans the same checkpoint again
    if (const Status moved = Move(&*db); !moved.ok()) return progress.Fail(absl::StrCat("Refresh: ", moved.ToString()));
  }
}

template <class Tree>
void WriteOn(const std::string& path, std::uint64_t seed, Durability durability, CrashProgress& progress) {
  Random random(seed);
  auto db = Tree::Open(path, SmallTree(durability), {.lock_timeout = std::chrono::seconds(20)});
  if (!db.ok()) return progress.Fail(db.status().ToString());
  const StatusOr<std::uint64_t> found = GenerationOf(**db);
  if (!found.ok()) return progress.Fail(absl::StrCat("found: ", found.status().ToString()));
  progress.ready = true;
  for (std::uint64_t generation = *found + 1;; ++generation) {
    Status status = WriteGeneration(**db, generation, random);
    if (status.ok() && !random.OneIn(4)) status = (*db)->Synchronize(SyncMode::kHard);
    if (status.ok() && random.OneIn(30)) status = (*db)->Rebuild();
    if (!status.ok()) return progress.Fail(status.ToString());
    progress.writers[0].acknowledged.fetch_add(1);
  }
}

TYPED_TEST(ReadersTest, KilledReadersAndWritersLeaveEachReaderOneGeneration) {
  const char* const asked = std::getenv("HAKO_KILLS");
  const std::uint64_t num_kills = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 400 / kSlowdown;
  using Tree = typename TestFixture::Tree;
  this->Write(*this->Writer(), 1);
  std::unique_ptr<CrashChild> writer;
  std::vector<std::unique_ptr<CrashChild>> readers(3);
  std::uint64_t seed = 0, num_scans = 0, num_writes = 0;
  const auto end = [&](std::unique_ptr<CrashChild>* child, std::uint64_t* count) {
    (*child)->AwaitReady();
    (*child)->Kill();
    EXPECT_STREQ((*child)->progress().failure, "");
    *count += (*child)->progress().writers[0].acknowledged;
    child->reset();
  };
  for (std::uint64_t kill = 0; kill < num_kills && !this->HasFailure(); ++kill) {
    ++seed;
    if (writer == nullptr) {
      const Durability durability = this->random_.OneIn(2) ? Durability::kNone : Durability::kProcess;
      writer = std::make_unique<CrashChild>([&](CrashProgress& progress) { WriteOn<Tree>(this->path_, seed, durability, progress); });
    }
    for (auto& reader : readers) {
      ++seed;
      if (reader == nullptr)
        reader = std::make_unique<CrashChild>([&](CrashProgress& progress) { ReadOn<Tree>(this->path_, seed, progress); });
    }
    CrashChild::Pause(this->random_.Below(100'000));
    const std::uint64_t victim = this->random_.Below(8);
    victim == 0 ? end(&writer, &num_writes) : end(&readers[victim % readers.size()], &num_scans);
  }
  for (auto& reader : readers) {
    if (reader != nullptr) end(&reader, &num_scans);
  }
  if (writer != nullptr) end(&writer, &num_writes);
  std::printf("%llu processes killed, %llu scans, %llu generations\n", static_cast<unsigned long long>(num_kills),
              static_cast<unsigned long long>(num_scans), static_cast<unsigned long long>(num_writes));
  EXPECT_GT(num_scans, 0u);
  EXPECT_GT(num_writes, 0u);
  // Nothing is lost of the file.
  const auto db = this->Writer();
  ASSERT_NE(db, nullptr);
  EXPECT_THAT(GenerationOf(*db), IsOk());
  EXPECT_THAT(db->Verify(), IsOk());
  for (int i = 0; i < 3; ++i) this->Write(*db, i);
  EXPECT_EQ(db->GetStats().num_readers, 0u);
  EXPECT_EQ(db->GetStats().reader_bytes, 0u);
  ASSERT_THAT(db->Rebuild(), IsOk());
  EXPECT_LT(db->GetStats().total_bytes, 4u << 20);
}

// A writer that opens while a reader needs an older checkpoint does not know its space.
TYPED_TEST(ReadersTest, TheNextWriterKeepsWhatAnOldReaderNeeds) {
  using Tree = typename TestFixture::Tree;
  for (std::uint64_t round = 0; round < 4; ++round) {
    this->Write(*this->Writer(), 100);
    auto reader = this->Reader();
    CrashChild child([&](CrashProgress& progress) {
      WriteOn<Tree>(this->path_, round, round % 2 == 0 ? Durability::kNone : Durability::kProcess, progress);
    });
    child.AwaitReady();
    CrashChild::Pause(100'000);
    child.Kill();
    EXPECT_STREQ(child.progress().failure, "");
    const auto writer = this->Writer();
    for (std::uint64_t i = 1000; i < 1005; ++i) this->Write(*writer, i);
    EXPECT_GT(writer->GetStats().reader_bytes, 0u);
    EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(100u));
    EXPECT_THAT(reader->Verify(), IsOk());
    reader = nullptr;
    for (std::uint64_t i = 1000; i < 1003; ++i) this->Write(*writer, i);
    EXPECT_EQ(writer->GetStats().reader_bytes, 0u);
    EXPECT_THAT(writer->Verify(), IsOk());
  }
}

// ---- other kinds, and other ways to open ----

TEST(DirectReadersTest, ReaderOfADirectWriterShowsOneCheckpoint) {
  const TempDir dir;
  const std::string path = dir.File("db.hkt");
  const FileOptions direct = {.direct = true, .cache_bytes = 1 << 20};
  const auto writer = TreeDBM<PositionalParallelFile>::Open(path, SmallTree(), direct);
  if (absl::IsInvalidArgument(writer.status())) GTEST_SKIP() << writer.status();
  ASSERT_THAT(writer, IsOk());
  Random random(1);
  std::unique_ptr<TreeDBM<PositionalParallelFile>> readers[2];
  for (std::uint64_t generation = 1; generation < 20; ++generation) {
    ASSERT_THAT(WriteGeneration(**writer, generation, random), IsOk());
    ASSERT_THAT((*writer)->Synchronize(SyncMode::kHard), IsOk());
    for (auto& reader : readers) {
      const bool is_direct = &reader == &readers[1];
      if (reader == nullptr) {
        FileOptions reading = is_direct ? direct : FileOptions{};
        reading.mode = OpenMode::kReadOnly;
        ASSERT_OK_AND_ASSIGN(reader, TreeDBM<PositionalParallelFile>::Open(path, SmallTree(), reading));
      }
      const StatusOr<std::uint64_t> shown = GenerationOf(*reader);
      ASSERT_THAT(shown, IsOk()) << is_direct;
      ASSERT_THAT(Move(&reader), IsOk());
      EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(generation)) << is_direct;
    }
  }
}

TEST(ArrayReadersTest, ShowsOneCheckpointUntilRefresh) {
  const TempDir dir;
  const std::string path = dir.File("db.hka");
  const ArrayOptions options = {.width = 8, .cache_bytes = 1 << 20, .durability = Durability::kNone};
  ASSERT_OK_AND_ASSIGN(auto writer, ArrayDBM<>::Open(path, options));
  const auto write = [&](std::uint64_t generation) {
    for (std::uint64_t i = 0; i < 5000; ++i) ASSERT_THAT(writer->Set(i, absl::StrCat(absl::Dec(generation, absl::kZeroPad8))), IsOk());
    ASSERT_THAT(writer->Synchronize(SyncMode::kHard), IsOk());
  };
  const auto expect = [](ArrayDBM<>& reader, std::uint64_t generation) {
    const std::string expected = absl::StrCat(absl::Dec(generation, absl::kZeroPad8));
    std::uint64_t count = 0;
    for (std::uint64_t i = 0; i < 5000; ++i) count += reader.Get(i).value_or("") == expected;
    EXPECT_EQ(count, 5000u);
  };
  write(1);
  ASSERT_OK_AND_ASSIGN(auto old, ArrayDBM<>::Open(path, options, kReading));
  ASSERT_OK_AND_ASSIGN(auto reader, ArrayDBM<>::Open(path, options, kReading));
  for (std::uint64_t generation = 2; generation < 6; ++generation) {
    write(generation);
    ASSERT_THAT(Move(&reader), IsOk());
    expect(*reader, generation);
  }
  expect(*old, 1);
  EXPECT_THAT(old->Verify(), IsOk());
  EXPECT_EQ(writer->GetStats().num_readers, 2u);
}

TEST(AnyReadersTest, RefreshesTreesAndArrays) {
  const TempDir dir{TempDir::MemoryParent()};
  for (const char* const name : {"db.hkt", "pos.hkt?file=pos", "db.hka?width=1"}) {
    const std::string path = dir.File(name), more = path.find('?') == path.npos ? "?" : ",";
    ASSERT_OK_AND_ASSIGN(const auto writer, AnyDBM::Open(path + more + "reader_bytes=1Mi"));
    ASSERT_THAT(writer->Set("1", "a"), IsOk());
    ASSERT_THAT(writer->Synchronize(SyncMode::kHard), IsOk());
    ASSERT_OK_AND_ASSIGN(const auto reader, AnyDBM::Open(path + more + "mode=read"));
    EXPECT_THAT(reader->Refresh(), IsOkAndHolds(testing::IsNull()));
    EXPECT_THAT(reader->WaitForCheckpoint(std::chrono::milliseconds(0)), IsOkAndHolds(false));
    ASSERT_THAT(writer->Set("1", "b"), IsOk());
    ASSERT_THAT(writer->Synchronize(SyncMode::kHard), IsOk());
    EXPECT_THAT(reader->WaitForCheckpoint(std::chrono::milliseconds(0)), IsOkAndHolds(true));
    ASSERT_OK_AND_ASSIGN(const auto newer, reader->Refresh());
    ASSERT_NE(newer, nullptr);
    EXPECT_THAT(reader->Get("1"), IsOkAndHolds("a"));
    EXPECT_THAT(newer->Get("1"), IsOkAndHolds("b"));
    EXPECT_THAT(writer->Refresh(), StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  ASSERT_OK_AND_ASSIGN(const auto hash, AnyDBM::Open(dir.File("db.hkh")));
  EXPECT_THAT(hash->Refresh(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(hash->WaitForCheckpoint(std::chrono::milliseconds(0)), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(HashReadersTest, AreRefusedBesideAWriterAndManyReadWithoutOne) {
  const TempDir dir{TempDir::MemoryParent()};
  const std::string path = dir.File("db.hkh");
  {
    ASSERT_OK_AND_ASSIGN(const auto writer, HashDBM<>::Open(path));
    ASSERT_THAT(writer->Set("a", "b"), IsOk());
    EXPECT_THAT(HashDBM<>::Open(path, {}, kReading).status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("CopyTo")));
  }
  ASSERT_OK_AND_ASSIGN(const auto first, HashDBM<>::Open(path, {}, kReading));
  ASSERT_OK_AND_ASSIGN(const auto second, HashDBM<>::Open(path, {}, kReading));
  EXPECT_THAT(second->Get("a"), IsOkAndHolds("b"));
  EXPECT_THAT(HashDBM<>::Open(path).status(), StatusIs(absl::StatusCode::kUnavailable));
}

// ---- beside other features ----

// A restored database is another file: the readers of the one that was there before show that one, and Refresh goes on to the
// restored one.
TEST(ReadersBesideTest, RestoredDatabaseInThePlaceOfTheirs) {
  const TempDir dir{TempDir::MemoryParent()};
  const std::string path = dir.File("db.hkt"), copy = dir.File("copy.hkt"), archive = dir.File("archive");
  fs::create_directory(archive);
  TreeOptions archived = SmallTree(Durability::kProcess);
  archived.log_archive = archive;
  Random random(1);
  ASSERT_OK_AND_ASSIGN(auto writer, TreeDBM<>::Open(path, archived));
  ASSERT_THAT(WriteGeneration(*writer, 1, random), IsOk());
  ASSERT_THAT(writer->CopyTo(copy), IsOk());
  ASSERT_THAT(WriteGeneration(*writer, 2, random), IsOk());
  const std::uint64_t until = writer->LastLsn();
  ASSERT_THAT(WriteGeneration(*writer, 3, random), IsOk());
  ASSERT_THAT(writer->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto old, TreeDBM<>::Open(path, SmallTree(), kReading));
  EXPECT_THAT(Restore<TreeDBM<>>(copy, archive, path, {.until_lsn = until}).status(), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(old->WaitForCheckpoint(std::chrono::milliseconds(0)), IsOkAndHolds(false));
  fs::remove(path);
  ASSERT_THAT(Restore<TreeDBM<>>(copy, archive, path, {.until_lsn = until}), IsOk());
  EXPECT_THAT(old->WaitForCheckpoint(std::chrono::milliseconds(0)), IsOkAndHolds(true));
  ASSERT_OK_AND_ASSIGN(const auto restored, old->Refresh());
  ASSERT_NE(restored, nullptr);
  EXPECT_THAT(GenerationOf(*restored), IsOkAndHolds(2u));
  ASSERT_OK_AND_ASSIGN(writer, TreeDBM<>::Open(path, SmallTree()));
  for (std::uint64_t generation = 4; generation < 10; ++generation) {
    ASSERT_THAT(WriteGeneration(*writer, generation, random), IsOk());
    ASSERT_THAT(writer->Synchronize(SyncMode::kHard), IsOk());
  }
  EXPECT_THAT(GenerationOf(*old), IsOkAndHolds(3u));
  EXPECT_THAT(GenerationOf(*restored), IsOkAndHolds(2u));
  ASSERT_OK_AND_ASSIGN(const auto newest, restored->Refresh());
  ASSERT_NE(newest, nullptr);
  EXPECT_THAT(GenerationOf(*newest), IsOkAndHolds(9u));
}

// With an archive each opening begins another log.
TEST(ReadersBesideTest, ArchivedLog) {
  const TempDir dir{TempDir::MemoryParent()};
  const std::string path = dir.File("db.hkt");
  fs::create_directory(dir.File("archive"));
  TreeOptions archived = SmallTree(Durability::kProcess);
  archived.log_archive = dir.File("archive");
  Random random(1);
  std::unique_ptr<TreeDBM<>> reader;
  const auto open = [&] { return TreeDBM<>::Open(path, SmallTree(), kReading); };
  {
    ChildProcess child([&](ChildProcess& self) {
      const auto db = TreeDBM<>::Open(path, archived);
      if (!db.ok() || !WriteGeneration(**db, 1, random).ok() || !(*db)->Synchronize(SyncMode::kHard).ok()) return 1;
      if (!WriteGeneration(**db, 2, random).ok()) return 1;
      self.Tell();
      for (;;) pause();
    });
    child.Wait();
    ASSERT_OK_AND_ASSIGN(reader, open());
    EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(1u));
    child.Kill();
  }
  ASSERT_THAT(Move(&reader), IsOk());
  EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(2u));
  std::uint64_t shown = 2;
  for (std::uint64_t generation = 3; generation < 6; ++generation) {
    ASSERT_OK_AND_ASSIGN(const auto writer, TreeDBM<>::Open(path, archived));
    ASSERT_THAT(Move(&reader), IsOk());
    EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(shown));
    ASSERT_THAT(WriteGeneration(*writer, generation, random), IsOk());
    ASSERT_THAT(Move(&reader), IsOk());
    EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(shown));
    ASSERT_THAT(writer->Close(), IsOk());
    ASSERT_THAT(Move(&reader), IsOk());
    EXPECT_THAT(GenerationOf(*reader), IsOkAndHolds(generation));
    shown = generation;
  }
}

std::uint64_t reader_time = 0;
std::uint64_t ReaderTime() { return reader_time; }

// A record of the checkpoint expires for a reader when its own clock says so, whatever the writer has done since.
TEST(ReadersBesideTest, ExpiryByTheClockOfTheReader) {
  const TempDir dir{TempDir::MemoryParent()};
  const std::string path = dir.File("db.hkt");
  constexpr std::uint64_t kBegin = 1'700'000'000'000;
  test_now = reader_time = kBegin;
  TreeOptions options = SmallTree();
  options.expiry = true;
  options.clock = &TestClock;
  ASSERT_OK_AND_ASSIGN(const auto writer, TreeDBM<>::Open(path, options));
  ASSERT_THAT(writer->Set("short", "a", {.ttl = std::chrono::seconds(1)}), IsOk());
  ASSERT_THAT(writer->Set("long", "b", {.ttl = std::chrono::hours(1)}), IsOk());
  ASSERT_THAT(writer->Synchronize(SyncMode::kHard), IsOk());
  options.clock = &ReaderTime;
  ASSERT_OK_AND_ASSIGN(const auto reader, TreeDBM<>::Open(path, options, kReading));
  // The writer removes what has expired, and sets it again.
  test_now += 10'000;
  EXPECT_THAT(writer->Get("short").status(), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_THAT(writer->Set("short", "c", {.ttl = std::chrono::hours(1)}), IsOk());
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(writer->Set("other", "value"), IsOk());
    ASSERT_THAT(writer->Synchronize(SyncMode::kHard), IsOk());
  }
  EXPECT_THAT(reader->Get("short"), IsOkAndHolds("a"));
  reader_time += 1'001;
  EXPECT_THAT(reader->Get("short").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(reader->Get("long"), IsOkAndHolds("b"));
  EXPECT_THAT(reader->Verify(), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto newer, reader->Refresh());
  ASSERT_NE(newer, nullptr);
  EXPECT_THAT(newer->Get("short"), IsOkAndHolds("c"));
}

// Rebuild moves pages that the readers need, and cuts the file only behind all of them.
TEST(ReadersBesideTest, Rebuild) {
  const TempDir dir{TempDir::MemoryParent()};
  const std::string path = dir.File("db.hkt");
  Random random(1);
  ASSERT_OK_AND_ASSIGN(const auto writer, TreeDBM<>::Open(path, SmallTree()));
  std::vector<std::unique_ptr<TreeDBM<>>> readers;
  const auto write = [&](std::uint64_t generation) {
    ASSERT_THAT(WriteGeneration(*writer, generation, random), IsOk());
    ASSERT_THAT(writer->Synchronize(SyncMode::kHard), IsOk());
  };
  for (std::uint64_t generation = 0; generation < 5; ++generation) {
    write(generation);
    ASSERT_OK_AND_ASSIGN(auto reader, TreeDBM<>::Open(path, SmallTree(), kReading));
    readers.push_back(std::move(reader));
    for (int i = 0; i < 3; ++i) write(generation);
    ASSERT_THAT(writer->Rebuild(), IsOk());
    for (std::uint64_t of = 0; of <= generation; ++of) {
      EXPECT_THAT(GenerationOf(*readers[of]), IsOkAndHolds(of));
      EXPECT_THAT(readers[of]->Verify(), IsOk());
    }
  }
  const std::uint64_t beside = writer->GetStats().total_bytes;
  readers.clear();
  write(5);
  ASSERT_THAT(writer->Rebuild(), IsOk());
  EXPECT_LT(writer->GetStats().total_bytes, beside);
  EXPECT_THAT(GenerationOf(*writer), IsOkAndHolds(5u));
}

// ---- the file ----

TEST(ReadersFileTest, HalfWrittenSlotsCountAsReadersOfAnyCheckpoint) {
  const TempDir dir{TempDir::MemoryParent()};
  const std::string path = dir.File("db");
  std::FILE* const created = std::fopen(path.c_str(), "w");
  std::fclose(created);
  ReadersFile file(path);
  EXPECT_EQ(file.Look().oldest, ReadersFile::kNone);
  ASSERT_OK_AND_ASSIGN(const auto first, ReaderSlot::Take(path));
  EXPECT_EQ(file.Look().oldest, 0u);
  ASSERT_THAT(first->SetEpoch(7), IsOk());
  std::vector<std::unique_ptr<ReaderSlot>> others;
  for (std::uint64_t i = 0; i < 200; ++i) {
    ASSERT_OK_AND_ASSIGN(auto slot, ReaderSlot::Take(path));
    ASSERT_THAT(slot->SetEpoch(8 + i), IsOk());
    others.push_back(std::move(slot));
  }
  EXPECT_EQ(file.Look().oldest, 7u);
  EXPECT_EQ(file.Look().num_readers, 201u);
  file.CutOffBelow(9);
  EXPECT_TRUE(first->IsCutOff());
  EXPECT_TRUE(others[0]->IsCutOff());
  EXPECT_FALSE(others[1]->IsCutOff());
  EXPECT_THAT(first->Explain(absl::DataLossError("x")), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(others[1]->Explain(absl::DataLossError("x")), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(file.Look().oldest, 9u);
  others.erase(others.begin() + 1);
  EXPECT_EQ(file.Look().oldest, 10u);
  std::FILE* const damaged = std::fopen((path + "-readers").c_str(), "r+");
  std::fseek(damaged, 64 * 100, SEEK_SET);
  std::fputc('x', damaged);
  std::fclose(damaged);
  EXPECT_EQ(file.Look().oldest, 0u);
  // A slot that was cut off is used again by another reader.
  others.clear();
  ASSERT_OK_AND_ASSIGN(const auto again, ReaderSlot::Take(path));
  EXPECT_FALSE(again->IsCutOff());
}

TEST(ReadersFileTest, WhoMayReadTheDatabaseMayWriteIt) {
  const TempDir dir{TempDir::MemoryParent()};
  const std::string path = dir.File("db");
  std::FILE* const created = std::fopen(path.c_str(), "w");
  std::fclose(created);
  for (const auto& [mode, expected] : {std::pair<mode_t, mode_t>{0640, 0660}, {0644, 0666}, {0600, 0600}}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    {
      ASSERT_OK_AND_ASSIGN(const auto slot, ReaderSlot::Take(path));
      struct stat info;
      ASSERT_EQ(stat((path + "-readers").c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 07777, expected);
    }
    EXPECT_FALSE(fs::exists(path + "-readers"));
  }
  EXPECT_THAT(ReaderSlot::Take(dir.File("absent")).status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(fs::exists(dir.File("absent-readers")));
}

// Locks the bytes of the open file; returns whether that was possible.
bool LockBytes(int fd, short type, off_t from, off_t size) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = from;
  range.l_len = size;
  return fcntl(fd, F_OFD_SETLK, &range) == 0;
}

class ReadersFileOf : public testing::Test {
 protected:
  ReadersFileOf() { std::fclose(std::fopen(path_.c_str(), "w")); }
  const TempDir dir_{TempDir::MemoryParent()};
  const std::string path_ = dir_.File("db"), readers_ = path_ + "-readers";
};

// Without a superblock to look at, only the number tells.
TEST_F(ReadersFileOf, TellWakesThoseThatWait) {
  ASSERT_OK_AND_ASSIGN(const auto slot, ReaderSlot::Take(path_));
  ReadersFile file(path_);
  ASSERT_EQ(file.Look().num_readers, 1u);
  const std::uint32_t before = slot->NumTold();
  EXPECT_EQ(file.GetFigures().epoch, 0u);
  file.Tell({7, 8, 9, 10});
  EXPECT_EQ(slot->NumTold(), before + 1);
  EXPECT_EQ(file.GetFigures().epoch, 7u);
  EXPECT_EQ(file.GetFigures().free_bytes, 8u);
  EXPECT_EQ(file.GetFigures().reader_bytes, 9u);
  EXPECT_EQ(file.GetFigures().lsn, 10u);
  const auto far = std::chrono::steady_clock::now() + std::chrono::hours(1);
  slot->AwaitNews(before, far);      // returns at once
  slot->AwaitNews(before + 1, far);  // after a moment
}

TEST_F(ReadersFileOf, SlotsBeyondTheLastAreNotRead) {
  ASSERT_OK_AND_ASSIGN(const auto slot, ReaderSlot::Take(path_));
  ASSERT_THAT(slot->SetEpoch(5), IsOk());
  const int fd = open(readers_.c_str(), O_RDWR);
  ASSERT_TRUE(LockBytes(fd, F_WRLCK, 64 * 4097, 64));
  ASSERT_EQ(ftruncate(fd, off_t{1} << 40), 0);
  ReadersFile file(path_);
  EXPECT_EQ(file.Look().num_readers, 1u);
  EXPECT_EQ(file.Look().oldest, 5u);
  close(fd);
}

TEST_F(ReadersFileOf, AForkedChildKeepsNoLockOfTheWriter) {
  auto file = std::make_unique<ReadersFile>(path_);
  auto slot = *ReaderSlot::Take(path_);
  const int fd = open(readers_.c_str(), O_RDWR);
  EXPECT_EQ(file->Look().num_readers, 1u);
  ChildProcess child([](ChildProcess& self) {
    self.Tell();
    for (;;) pause();
    return 0;
  });
  child.Wait();
  // The reader was killed.
  fs::rename(readers_, readers_ + "x");
  slot = nullptr;
  fs::rename(readers_ + "x", readers_);
  file = nullptr;
  EXPECT_FALSE(fs::exists(readers_));
  EXPECT_TRUE(LockBytes(fd, F_RDLCK, 0, 64));
  close(fd);
}

TEST_F(ReadersFileOf, AFileThatStaysLockedIsUnavailable) {
  const int fd = open(readers_.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_TRUE(LockBytes(fd, F_WRLCK, 0, 64));
  EXPECT_THAT(ReaderSlot::Take(path_).status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("locked")));
  close(fd);
  EXPECT_THAT(ReaderSlot::Take(path_).status(), IsOk());
}

TEST_F(ReadersFileOf, ReadersThatCloseAtOnceLeaveNoFile) {
  for (int round = 0; round < 300; ++round) {
    auto first = *ReaderSlot::Take(path_), second = *ReaderSlot::Take(path_);
    std::thread other([&] { first = nullptr; });
    second = nullptr;
    other.join();
    ASSERT_FALSE(fs::exists(readers_)) << round;
  }
}

TEST_F(ReadersFileOf, HasTheGroupOfTheDatabase) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may change owners";
  ASSERT_EQ(chmod(dir_.path().c_str(), 0777), 0);
  ASSERT_EQ(chown(path_.c_str(), 1001, 2000), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  ChildProcess member([&](ChildProcess& self) {
    const gid_t group = 2000;
    if (setgroups(1, &group) != 0 || setgid(1002) != 0 || setuid(1002) != 0) return 1;
    const auto slot = ReaderSlot::Take(path_);
    if (!slot.ok()) return 2;
    self.Tell();
    self.Wait();
    return 0;
  });
  member.Wait();
  struct stat info = {};
  EXPECT_EQ(stat(readers_.c_str(), &info), 0);
  EXPECT_EQ(info.st_gid, 2000u);
  EXPECT_EQ(info.st_mode & 07777, 0660u);
  member.Tell();
  EXPECT_EQ(member.Result(), 0);
}

}  // namespace
}  // namespace hako
