// One file opened by different file types in turn, by processes that are killed. A mapped file keeps
// what a killed process stored; a positional one does not know how.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

#include "dbm/listing.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/positional_hash_dbm.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/format/hash_file_format.h"
#include "support/child_process.h"
#include "support/direct_file.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using Mapped = HashDBM<MemoryMapParallelFile>;

// The file of a killed process may be held for a while (FileOptions::lock_timeout).
const FileOptions kPatiently = {.lock_timeout = std::chrono::seconds(10)};

template <class FileT>
class FileTypesTest : public testing::Test {
 protected:
  // Opens the file in a process that is killed after body(db).
  template <class D, class F>
  void KillAfter(F&& body, Durability durability = Durability::kProcess) {
    ChildProcess child([&](ChildProcess&) {
      auto db = D::Open(path_, {.durability = durability}, kPatiently);
      if (!db.ok()) return 1;
      body(**db);
      _exit(0);
    });
    ASSERT_EQ(child.Result(), 0);
  }
  template <class D>
  void ExpectRecords(const Records& expected) {
    ASSERT_OK_AND_ASSIGN(auto db, D::Open(path_, {}, kPatiently));
    EXPECT_EQ(ListByIterator(*db).records, expected);
    EXPECT_THAT(db->Verify(), IsOk());
    EXPECT_THAT(db->Close(), IsOk());
  }
  std::string LiveState() const {
    std::string bytes(sizeof(format::LiveState), '\0');
    std::ifstream file(path_, std::ios::binary);
    file.seekg(format::kLiveStateOffset).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return bytes;
  }

  TempDir directory_;
  const std::string path_ = directory_.File("db");
};
using FileTypes = testing::Types<PositionalParallelFile, DirectFile<512>>;
TYPED_TEST_SUITE(FileTypesTest, FileTypes);

template <class D>
void SetMany(D& db, const std::string& prefix, int count) {
  for (int i = 0; i < count; ++i) (void)db.Set(prefix + std::to_string(i), std::string(40, 'v'));
}

TYPED_TEST(FileTypesTest, UpdatesOfAKilledProcessThatMappedTheFileAreNotDropped) {
  ASSERT_NO_FATAL_FAILURE(this->template KillAfter<Mapped>([](Mapped& db) { (void)db.Set("key", "value"); }));
  for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kCreate}) {
    EXPECT_THAT(HashDBM<TypeParam>::Open(this->path_, {}, {.mode = mode, .lock_timeout = kPatiently.lock_timeout}),
                StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("MemoryMapParallelFile")));
  }
  ASSERT_NO_FATAL_FAILURE(this->template ExpectRecords<Mapped>({{"key", "value"}}));
  ASSERT_NO_FATAL_FAILURE(this->template ExpectRecords<HashDBM<TypeParam>>({{"key", "value"}}));
}

// The live state that a killed process has left is that of another time.
TYPED_TEST(FileTypesTest, LiveStateOfAnEarlierProcessIsNotUsed) {
  ASSERT_NO_FATAL_FAILURE(this->template KillAfter<Mapped>([](Mapped& db) {
    SetMany(db, "key", 5000);
    (void)db.Synchronize(SyncMode::kHard);
  }));
  const std::string live = this->LiveState();
  ASSERT_OK_AND_ASSIGN(auto db, Mapped::Open(this->path_, {}, kPatiently));
  ASSERT_THAT(db->Close(), IsOk());
  Records expected;
  for (int i = 0; i < 5000; ++i) expected["key" + std::to_string(i)] = std::string(40, 'v');
  // As a kill within Close leaves it, once the superblock says that the file is closed.
  std::fstream(this->path_, std::ios::binary | std::ios::in | std::ios::out).seekp(format::kLiveStateOffset) << live;
  ASSERT_NO_FATAL_FAILURE(this->template KillAfter<HashDBM<TypeParam>>(
      [](HashDBM<TypeParam>& positional) {
        for (int i = 0; i < 5000; i += 2) (void)positional.Remove("key" + std::to_string(i));
        (void)positional.Synchronize(SyncMode::kHard);
        SetMany(positional, "later", 5000);
      },
      Durability::kNone));
  for (int i = 0; i < 5000; i += 2) expected.erase("key" + std::to_string(i));
  ASSERT_NO_FATAL_FAILURE(this->template ExpectRecords<Mapped>(expected));
}

TYPED_TEST(FileTypesTest, EachOpensWhatTheOtherHasLogged) {
  Records expected;
  for (int round = 0; round < 4; ++round) {
    const std::string key = "positional" + std::to_string(round), other = "mapped" + std::to_string(round);
    ASSERT_NO_FATAL_FAILURE(this->template KillAfter<HashDBM<TypeParam>>([&](HashDBM<TypeParam>& db) { (void)db.Set(key, "value"); }));
    expected[key] = "value";
    ASSERT_NO_FATAL_FAILURE(this->template KillAfter<Mapped>([&](Mapped& db) { (void)db.Set(other, "value"); }, Durability::kPower));
    expected[other] = "value";
    ASSERT_NO_FATAL_FAILURE(this->template ExpectRecords<Mapped>(expected));
  }
}

}  // namespace
}  // namespace hako
