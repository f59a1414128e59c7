// AnyDBM: names with options, wrapped databases, and snapshots of databases in memory.
#include "hako/dbm/any_dbm.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/any_file.h"
#include "hako/file/memory_file.h"
#include "support/child_process.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(AnyDBM, SuffixSelectsTheKind) {
  TempDir directory;
  for (const auto& [name, type] : {std::pair("a.hkh", "HashDBM"),
                                   {"a.hks", "TinyDBM"},
                                   {"a.hkt", "TreeDBM"},
                                   {"a.db?dbm=hash", "HashDBM"},
                                   {"b.db?dbm=tree", "TreeDBM"},
                                   {"c.hkt?file=pos", "TreeDBM"},
                                   {"b.hkh?dbm=tiny", "TinyDBM"},
                                   {"c.db?dbm=baby", "BabyDBM"}}) {
    ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(directory.File(name)));
    EXPECT_EQ(db->Inspect().front(), (std::pair<std::string, std::string>("class", type))) << name;
    EXPECT_THAT(db->Set("key", "value"), IsOk());
    EXPECT_THAT(db->Close(), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(directory.File("a.hkh")));
  EXPECT_THAT(db->Get("key"), IsOkAndHolds("value"));
  ASSERT_OK_AND_ASSIGN(auto tree, TreeDBM<>::Open(directory.File("a.hkt")));
  EXPECT_THAT(tree->Get("key"), IsOkAndHolds("value"));
}

TEST(AnyDBM, KeysOfAnArrayAreNumbers) {
  TempDir directory;
  for (const std::string file : {"mmap", "pos"}) {
    const std::string path = directory.File(file + ".hka");
    ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(path + "?width=8,file=" + file));
    for (const char* const key : {"10", "9", "2000000000"}) ASSERT_THAT(db->Set(key, "value"), IsOk());
    EXPECT_THAT(db->Set("nine", "x"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'nine' is not the number of a record")));
    EXPECT_THAT(db->Set("1", "123456789"), StatusIs(absl::StatusCode::kOutOfRange));
    EXPECT_THAT(db->PushLast("x"), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(db->Increment("5"), IsOkAndHolds(1));
    EXPECT_TRUE(db->IsOrdered());
    std::vector<std::string> keys;
    for (const auto& [key, value] : db->Range("6", "3000000000")) keys.emplace_back(key);
    EXPECT_THAT(keys, testing::ElementsAre("9", "10", "2000000000"));
    EXPECT_THAT(db->CountRange(""), IsOkAndHolds(4u));
    auto it = db->MakeIterator();
    it.Jump("");
    ASSERT_TRUE(it.Valid());
    EXPECT_EQ(it.key(), "5");
    it.JumpLower("");
    EXPECT_FALSE(it.Valid());
    EXPECT_THAT(it.status(), IsOk());
    it.Jump("x");
    EXPECT_THAT(it.status(), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(db->RemoveRange("6", "11"), IsOkAndHolds(2u));
    EXPECT_THAT(db->CopyTo(directory.File("copy.hka")), IsOk());
    EXPECT_THAT(db->Verify(), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    ASSERT_OK_AND_ASSIGN(db, AnyDBM::Open(directory.File("copy.hka")));
    EXPECT_EQ(db->Count(), 2u);
    EXPECT_EQ(db->Inspect().front().second, "ArrayDBM");
    EXPECT_THAT(db->Verify(), IsOk());
  }
}

TEST(AnyDBM, ParsesOptionsInNames) {
  ASSERT_OK_AND_ASSIGN(
      const AnyOptions options,
      ParseAnyOptions("dir/what?.hkh?num_records=1m,align_pow=5,file=pos,mode=read,wait=2,seed=7,reserve_bytes=4Gi,dbm=hash,"
                      "page_size=4ki,max_bytes=1Gi,cache_bytes=64m,checkpoint_bytes=16Mi,reader_bytes=2Mi,reader_age=3k,log_bytes=32Mi,"
                      "durability=power,sync_interval=1k,reclaim_bytes=8Mi,snapshot_bytes=3Mi"));
  EXPECT_EQ(options.path, "dir/what?.hkh");
  EXPECT_EQ(options.num_records, 1'000'000u);
  EXPECT_EQ(options.align_pow, 5);
  EXPECT_EQ(options.device, AnyFile::kPositional);
  EXPECT_EQ(options.file.mode, OpenMode::kReadOnly);
  EXPECT_EQ(options.file.lock_timeout, std::chrono::seconds(2));
  EXPECT_EQ(options.file.reserve_bytes, std::uint64_t{4} << 30);
  EXPECT_EQ(options.seed, 7u);
  EXPECT_EQ(options.page_size, 4096u);
  EXPECT_EQ(options.max_bytes, std::uint64_t{1} << 30);
  EXPECT_EQ(options.cache_bytes, 64'000'000u);
  EXPECT_EQ(options.checkpoint_bytes, std::uint64_t{16} << 20);
  EXPECT_EQ(options.snapshot_bytes, std::uint64_t{3} << 20);
  EXPECT_EQ(options.reader_bytes, std::uint64_t{2} << 20);
  EXPECT_EQ(options.reader_age, std::chrono::seconds(3));
  EXPECT_EQ(options.log_bytes, std::uint64_t{32} << 20);
  EXPECT_EQ(options.reclaim_bytes, std::uint64_t{8} << 20);
  EXPECT_EQ(options.durability, Durability::kPower);
  EXPECT_EQ(options.sync_interval, std::chrono::seconds(1));
  EXPECT_EQ(options.ResolvedKind(), AnyOptions::kHash);
  ASSERT_OK_AND_ASSIGN(const AnyOptions plain, ParseAnyOptions("a?b.hks?", {.num_records = 5}));
  EXPECT_EQ(plain.path, "a?b.hks");
  EXPECT_EQ(plain.num_records, 5u) << "the default holds";
  EXPECT_EQ(plain.ResolvedKind(), AnyOptions::kTiny);
  ASSERT_OK_AND_ASSIGN(const AnyOptions tree, ParseAnyOptions("a.hkt"));
  EXPECT_EQ(tree.ResolvedKind(), AnyOptions::kTree);
}

TEST(AnyDBM, OptionsTakeEffect) {
  TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(directory.File("a.hkh?num_records=100k")));
  ASSERT_OK_AND_ASSIGN(auto small, AnyDBM::Open(directory.File("b.hkh")));
  EXPECT_GT(db->GetStats().num_buckets, 10 * small->GetStats().num_buckets);
  EXPECT_THAT(db->Close(), IsOk());
  const auto num_pages = [](std::string_view name) {
    const auto baby = AnyDBM::Open(name).value();
    for (std::uint64_t i = 0; i < 500; ++i) EXPECT_THAT(baby->Set(NumberedKey(i), "v"), IsOk());
    return baby->GetStats().num_buckets;
  };
  EXPECT_GT(num_pages("?dbm=baby,page_size=256"), 3 * num_pages("?dbm=baby"));
  ASSERT_OK_AND_ASSIGN(auto small_baby, AnyDBM::Open("?dbm=baby,max_bytes=1Mi"));
  Status filled;
  for (std::uint64_t i = 0; filled.ok() && i < 10'000; ++i) filled = small_baby->Set(NumberedKey(i), std::string(1000, 'v'));
  EXPECT_THAT(filled, StatusIs(absl::StatusCode::kResourceExhausted));
  for (const char* name : {"d.hkh", "d.hkt"}) {
    ASSERT_OK_AND_ASSIGN(auto safe, AnyDBM::Open(directory.File(absl::StrCat(name, "?durability=power"))));
    EXPECT_THAT(safe->Set("k", "v"), IsOk());
    EXPECT_TRUE(std::filesystem::exists(directory.File(absl::StrCat(name, "-log"))));
    ASSERT_OK_AND_ASSIGN(auto unsafe, AnyDBM::Open(directory.File(absl::StrCat("u", name, "?durability=none"))));
    EXPECT_THAT(unsafe->Set("k", "v"), IsOk());
    EXPECT_FALSE(std::filesystem::exists(directory.File(absl::StrCat("u", name, "-log"))));
  }
  EXPECT_THAT(AnyDBM::Open(directory.File("c.hkh?mode=write")), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK_AND_ASSIGN(db, AnyDBM::Open(directory.File("a.hkh?mode=read")));
  EXPECT_THAT(db->Set("k", "v"), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(AnyDBM, OptionsOfTreesTakeEffect) {
  TempDir directory;
  const auto fill = [&](std::string_view name) {
    auto tree = AnyDBM::Open(directory.File(name)).value();
    for (std::uint64_t i = 0; i < 3000; ++i) EXPECT_THAT(tree->Set(NumberedKey(i), std::string(i == 0 ? 0 : 1000, 'v')), IsOk());
    return tree;
  };
  EXPECT_GT(fill("a.hkt?page_size=4096")->GetStats().num_buckets, fill("b.hkt")->GetStats().num_buckets * 3 / 2);
  const auto reads = [](AnyDBM& tree) {
    for (std::uint64_t i = 0; i < 3000; ++i) EXPECT_THAT(tree.Get(NumberedKey(i)), IsOk());
    for (const auto& [name, value] : tree.Inspect()) {
      if (name == "file_reads") return std::stoull(value);
    }
    return std::stoull("0");
  };
  EXPECT_GT(reads(*fill("c.hkt?cache_bytes=1Mi")), 0u) << "3 MB of records";
  EXPECT_EQ(reads(*fill("d.hkt")), 0u);
  const auto wait_for_a_checkpoint = [](AnyDBM& tree) {
    const std::uint64_t epoch = tree.GetStats().epoch;
    EXPECT_THAT(tree.Set("k", "v"), IsOk());
    while (tree.GetStats().epoch == epoch) std::this_thread::yield();  // ctest's time limit catches a checkpoint that never comes
  };
  ASSERT_OK_AND_ASSIGN(auto eager, AnyDBM::Open(directory.File("e.hkt?checkpoint_bytes=1")));
  wait_for_a_checkpoint(*eager);
  ASSERT_OK_AND_ASSIGN(auto timed, AnyDBM::Open(directory.File("f.hkt?sync_interval=1")));
  wait_for_a_checkpoint(*timed);
}

TEST(AnyDBM, ReportsMistakesInNames) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"a.hkh?num_recrods=5", "unknown option 'num_recrods'; the options are dbm, file,"},
      {"a.hkh?num_records=many", "invalid value 'many' of option num_records"},
      {"a.hkh?num_records=-1", "invalid value '-1' of option num_records"},
      {"a.hkh?num_records", "invalid value '' of option num_records"},
      {"a.hkh?file=tape", "invalid value 'tape' of option file"},
      {"a.hkh?mode=append", "invalid value 'append' of option mode"},
      {"a.hkh?wait=", "invalid value '' of option wait"},
      {"a.hkh?durability=high", "invalid value 'high' of option durability"},
      {"a.hkh?sync_interval=-1", "invalid value '-1' of option sync_interval"},
      {"?dbm=tiny,durability=power", "TinyOptions::durability kPower requires a path"},
      {"?dbm=baby,durability=power", "BabyOptions::durability kPower requires a path"},
      {"a.hks?sync_interval=5", "sync_interval requires dbm=hash, tree or array"},
      {"a.hka", "a new array needs ArrayOptions::width"},
      {"a.hka?width=5000", "width must be 1 to 4096"},
      {"?dbm=array,width=8", "a database of kind array needs a file name"},
      {"?dbm=baby,sync_interval=5", "kind baby is saved as a whole: option sync_interval"},
      {"?dbm=baby,page_size=64", "page_size must be 128 to 8192"},
      {"?dbm=baby,page_size=big", "invalid value 'big' of option page_size"},
      {"?dbm=baby,max_bytes=64Ki", "max_bytes must be 1048576 to 549754765312"},
      {"?dbm=baby,max_bytes=-1", "invalid value '-1' of option max_bytes"},
      {"a.hkh?dbm=skip", "invalid value 'skip' of option dbm"},
      {"a.hkt?cache_bytes=64Ki", "cache_bytes must be at least 1 MiB"},
      {"a.hkt?cache_bytes=all", "invalid value 'all' of option cache_bytes"},
      {"a.hkt?checkpoint_bytes=-5", "invalid value '-5' of option checkpoint_bytes"},
      {"a.hkt?page_size=9000", "page_size must be 128 to 8192"},
      {"a.hkh?,", "unknown option ''"},
      {"a.foo", "a.foo: unknown suffix"},
      {"?dbm=hash", "needs a file name"},
      {"?dbm=tree", "a database of kind tree needs a file name"},
      {"a.hkh?log_bytes=65535", "log_bytes must be at least 65536"},
      {"a.hkt?log_bytes=1", "log_bytes must be at least 65536"},
      {"a.hks?log_bytes=1", "log_bytes must be at least 65536"},
      {"?dbm=baby,log_bytes=1", "log_bytes must be at least 65536"},
      {"a.hkh?direct=true,file=mmap", "option direct requires file=pos"},
      {"a.hkt?file=mmap,direct", "option direct requires file=pos"},
      {"a.hks?direct", "a mapped file has no FileOptions::direct"},
      {"a.hkt?num_records=5", "option num_records requires dbm=hash or tiny"},
      {"a.hkt?align_pow=3", "option align_pow requires dbm=hash or tiny"},
      {"a.hka?width=8,seed=1", "option seed requires dbm=hash or tiny"},
      {"a.hks?reclaim_bytes=0", "option reclaim_bytes requires dbm=hash"},
      {"a.hkh?page_size=512", "option page_size requires dbm=tree or baby"},
      {"a.hkt?max_bytes=1Gi", "option max_bytes requires dbm=baby"},
      {"a.hkh?width=8", "option width requires dbm=array"},
      {"a.hkh?cache_bytes=1Gi", "option cache_bytes requires dbm=tree or array"},
      {"a.hkh?reader_bytes=1Gi", "option reader_bytes requires dbm=tree or array"},
      {"a.hkh?reader_age=1k", "option reader_age requires dbm=tree or array"},
      {"a.hks?checkpoint_bytes=1Gi", "option checkpoint_bytes requires dbm=tree or array"},
      {"a.hkh?raw", "option raw requires dbm=tree"},
      {"a.hkh?snapshot_bytes=1", "option snapshot_bytes requires an ordered database"},
      {"a.hka?width=8,expiry=true", "the records of an array do not expire"},
      {"a.hkh?align_pow=9", "align_pow must be 3 to 6"}};
  TempDir directory;
  for (const auto& [name, complaint] : mistakes)
    EXPECT_THAT(AnyDBM::Open(*name == '?' ? name : directory.File(name)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(complaint)))
        << name;
}

TEST(AnyDBM, WrapsAnyDatabase) {
  ASSERT_OK_AND_ASSIGN(auto hash, HashDBM<MemoryFile>::Open(MemoryFile(std::uint64_t{1} << 30)));
  AnyDBM db(std::move(hash));
  EXPECT_THAT(db.Increment("counter", 5), IsOkAndHolds(5));
  EXPECT_THAT(db.Rebuild(), IsOk());
  EXPECT_FALSE(db.ShouldBeRebuilt());
  EXPECT_THAT(db.CopyTo("/tmp/never"), StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(db.Increment("counter", 2), IsOkAndHolds(7));
  EXPECT_THAT(db.Verify(), IsOk());
  EXPECT_THAT(db.Close(), IsOk());
}

TEST(AnyDBM, CopiesAtomically) {
  TempDir directory;
  for (const std::string ending : {".hkh", ".hkt", ".hks"}) {
    ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(directory.File("a" + ending)));
    for (std::uint64_t i = 0; i < 500; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::to_string(i)), IsOk());
    const Records records = ListByIterator(*db).records;
    ASSERT_THAT(db->CopyTo(directory.File("b" + ending)), IsOk());
    ASSERT_THAT(db->Clear(), IsOk());
    ASSERT_OK_AND_ASSIGN(auto copy, AnyDBM::Open(directory.File("b" + ending + "?mode=read")));
    EXPECT_EQ(Difference(records, ListByProcessEach(*copy).records), "none") << ending;
    EXPECT_EQ(records.size(), 500u);
  }
}

std::vector<std::string> Keys(AnyDBM::Iterator& it, void (AnyDBM::Iterator::*move)()) {
  std::vector<std::string> keys;
  for (; it.Valid(); (it.*move)()) keys.emplace_back(it.key());
  return keys;
}

TEST(AnyDBM, MovesBothWaysIfOrdered) {
  using testing::ElementsAre;
  TempDir directory;
  for (const std::string& name : {std::string("?dbm=baby"), directory.File("a.hkt")}) {
    ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(name));
    EXPECT_TRUE(db->IsOrdered());
    for (const char* key : {"d", "b", "a", "c"}) EXPECT_THAT(db->Set(key, "v"), IsOk());
    auto it = db->MakeIterator();
    it.First();
    EXPECT_THAT(Keys(it, &AnyDBM::Iterator::Next), ElementsAre("a", "b", "c", "d"));
    it.Last();
    EXPECT_THAT(Keys(it, &AnyDBM::Iterator::Previous), ElementsAre("d", "c", "b", "a"));
    it.JumpLower("c");
    EXPECT_THAT(Keys(it, &AnyDBM::Iterator::Previous), ElementsAre("b", "a"));
    it.JumpLower("c", true);
    EXPECT_EQ(it.key(), "c");
    it.JumpUpper("b");
    EXPECT_THAT(Keys(it, &AnyDBM::Iterator::Next), ElementsAre("c", "d"));
    it.JumpUpper("b", true);
    EXPECT_EQ(it.key(), "b");
    EXPECT_THAT(it.status(), IsOk());
  }
}

std::vector<std::string> KeysOf(auto range) {
  std::vector<std::string> keys;
  for (const auto [key, value] : range) keys.emplace_back(key);
  EXPECT_THAT(range.status(), IsOk());
  return keys;
}

TEST(AnyDBM, ShowsRangesIfOrdered) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  TempDir directory;
  for (const std::string& name : {std::string("?dbm=baby"), directory.File("a.hkt"), directory.File("b.hkt?file=pos")}) {
    ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(name));
    for (const char* key : {"d", "b", "", "ba", "c"}) EXPECT_THAT(db->Set(key, "v"), IsOk());
    EXPECT_THAT(KeysOf(db->Range()), ElementsAre("", "b", "ba", "c", "d"));
    EXPECT_THAT(KeysOf(db->ReverseRange()), ElementsAre("d", "c", "ba", "b", ""));
    EXPECT_THAT(KeysOf(db->Range("b", "c")), ElementsAre("b", "ba"));
    EXPECT_THAT(KeysOf(db->Range("bb")), ElementsAre("c", "d"));
    EXPECT_THAT(KeysOf(db->ReverseRange("b", "d")), ElementsAre("c", "ba", "b"));
    EXPECT_THAT(KeysOf(db->ReverseRange("c")), ElementsAre("d", "c"));
    EXPECT_THAT(KeysOf(db->PrefixRange("b")), ElementsAre("b", "ba"));
    EXPECT_THAT(KeysOf(db->Range("d", "b")), IsEmpty());
    EXPECT_THAT(db->CountRange("b", "d"), IsOkAndHolds(3u));
    EXPECT_THAT(db->RemoveRange("b", "c"), IsOkAndHolds(2u));
    EXPECT_THAT(KeysOf(db->Range()), ElementsAre("", "c", "d"));
  }
}

// In another order keys of one prefix are no neighbours: of 1, 2, 10 and 19 those of "1" are not in a row.
TEST(AnyDBM, ShowsNoPrefixRangeOfAnotherOrder) {
  TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto tree, (TreeDBM<MemoryMapParallelFile, DecimalComparator>::Open(directory.File("a.hkt"))));
  AnyDBM decimal(std::move(tree));
  ASSERT_OK_AND_ASSIGN(auto array, AnyDBM::Open(directory.File("a.hka?width=1")));
  for (AnyDBM* const db : {&decimal, array.get()}) {
    for (const char* key : {"1", "2", "10", "19"}) EXPECT_THAT(db->Set(key, "v"), IsOk());
    auto range = db->PrefixRange("1");
    EXPECT_TRUE(range.begin() == range.end());
    EXPECT_THAT(range.status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("bytewise")));
  }
}

TEST(AnyDBM, KeepsTheOrderOfAWrappedDatabase) {
  TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto tree, (TreeDBM<MemoryMapParallelFile, DecimalComparator>::Open(directory.File("a.hkt"))));
  AnyDBM db(std::move(tree));
  for (const char* key : {"10", "9", "100", "8"}) EXPECT_THAT(db.Set(key, "v"), IsOk());
  EXPECT_THAT(KeysOf(db.Range("9", "100")), testing::ElementsAre("9", "10"));
  EXPECT_THAT(KeysOf(db.ReverseRange("9", "100")), testing::ElementsAre("10", "9"));
  EXPECT_THAT(db.CountRange("9"), IsOkAndHolds(3u));
  EXPECT_THAT(db.Close(), IsOk());
  EXPECT_THAT(AnyDBM::Open(directory.File("a.hkt")), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("decimal")));
}

TEST(AnyDBM, RefusesToMoveBackIfUnordered) {
  TempDir directory;
  for (const std::string& name : {directory.File("a.hkh"), std::string("?dbm=tiny")}) {
    ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(name));
    EXPECT_FALSE(db->IsOrdered());
    EXPECT_THAT(db->Set("a", "v"), IsOk());
    auto range = db->Range("a");
    EXPECT_TRUE(range.begin() == range.end());
    EXPECT_THAT(range.status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("not ordered")));
    EXPECT_THAT(db->CountRange("a"), StatusIs(absl::StatusCode::kUnimplemented));
    EXPECT_THAT(db->RemoveRange("a"), StatusIs(absl::StatusCode::kUnimplemented));
    EXPECT_THAT(KeysOf(db->Range()), testing::ElementsAre("a"));
    auto it = db->MakeIterator();
    const std::vector<std::function<void()>> moves = {[&] { it.Last(); }, [&] { it.Previous(); }, [&] { it.JumpLower("b"); },
                                                      [&] { it.JumpUpper("", true); }};
    for (const auto& move : moves) {
      it.First();
      EXPECT_TRUE(it.Valid());
      move();
      EXPECT_FALSE(it.Valid());
      EXPECT_THAT(it.status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("not ordered")));
      EXPECT_THAT(it.Set("w"), StatusIs(absl::StatusCode::kUnimplemented));
      it.Jump("a");
      EXPECT_TRUE(it.Valid());
      EXPECT_THAT(it.status(), IsOk());
    }
  }
}

// Snapshots do not depend on the kind: a tree loads those of a hash table, and the reverse.
TEST(AnyDBM, LoadsSnapshotsOfOtherKinds) {
  TempDir directory;
  const std::string path = directory.File("casket.hks");
  std::string kinds[] = {"tiny", "baby", "tiny"};
  for (std::uint64_t turn = 0; turn < std::size(kinds); ++turn) {
    ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(path + "?dbm=" + kinds[turn]));
    EXPECT_EQ(db->Count(), turn * 300);
    for (std::uint64_t i = turn * 300; i < (turn + 1) * 300; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::to_string(i)), IsOk());
    EXPECT_THAT(db->Close(), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(path + "?dbm=baby,mode=read"));
  for (std::uint64_t i = 0; i < 900; ++i) EXPECT_THAT(db->Get(NumberedKey(i)), IsOkAndHolds(std::to_string(i)));
  EXPECT_THAT(db->Set("k", "v"), StatusIs(absl::StatusCode::kFailedPrecondition));
}

class Snapshot : public testing::Test {
 protected:
  std::string Get(const std::string& key) {
    const auto db = AnyDBM::Open(path_ + "?mode=read");
    return db.ok() ? (*db)->GetOr(key, "absent").value() : db.status().ToString();
  }
  TempDir directory_;
  const std::string path_ = directory_.File("casket.hks");
};

TEST_F(Snapshot, KeepsTheRecordsOfTheLastSave) {
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(path_));
  EXPECT_THAT(db->Set("k", "saved by Close"), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
  EXPECT_THAT(db->Close(), IsOk()) << "again";
  EXPECT_EQ(Get("k"), "saved by Close");
  ASSERT_OK_AND_ASSIGN(db, AnyDBM::Open(path_));
  EXPECT_THAT(db->Set("k", "saved by the destructor"), IsOk());
  db.reset();
  EXPECT_EQ(Get("k"), "saved by the destructor");

  ASSERT_OK_AND_ASSIGN(db, AnyDBM::Open(path_ + "?durability=none"));
  EXPECT_THAT(db->Set("k", "saved by Synchronize"), IsOk());
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_THAT(db->Set("k", "not saved"), IsOk());
  std::filesystem::copy_file(path_, directory_.File("now.hks"));
  ASSERT_OK_AND_ASSIGN(auto copy, AnyDBM::Open(directory_.File("now.hks")));
  EXPECT_THAT(copy->Get("k"), IsOkAndHolds("saved by Synchronize"));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
}

// The process ends without Close: of its updates those are there that the durability promises.
TEST_F(Snapshot, KeepsWhatItsDurabilityPromises) {
  for (const std::string kind : {"tiny", "baby"}) {
    for (const std::string durability : {"none", "process", "power"}) {
      const std::string name = path_ + kind + durability + "?dbm=" + kind;
      ChildProcess child([&](ChildProcess&) {
        const auto db = AnyDBM::Open(name + ",durability=" + durability);
        if (!db.ok() || !(*db)->Set("k", "saved").ok() || !(*db)->Synchronize(SyncMode::kHard).ok()) return 1;
        if (((*db)->LastLsn() != 0) != (durability != "none")) return 2;
        return (*db)->Set("k", "logged").ok() ? _exit(0), 0 : 3;
      });
      ASSERT_EQ(child.Result(), 0) << name;
      ASSERT_OK_AND_ASSIGN(const auto db, AnyDBM::Open(name));
      EXPECT_THAT(db->Get("k"), IsOkAndHolds(durability == "none" ? "saved" : "logged")) << name;
    }
  }
}

TEST_F(Snapshot, SavesBesideConcurrentWriters) {
  constexpr int kThreads = 3, kRecords = 3000;
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(path_));
  std::atomic<int> num_done = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kRecords; ++i) EXPECT_THAT(db->Set(std::to_string(thread) + "/" + std::to_string(i), "v"), IsOk());
      ++num_done;
    });
  }
  while (num_done < kThreads) EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, AnyDBM::Open(path_));
  EXPECT_EQ(db->Count(), std::uint64_t{kThreads} * kRecords);
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST_F(Snapshot, IsLockedWhileOpenAndAfterEachSave) {
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(path_));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(AnyDBM::Open(path_), StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(AnyDBM::Open(path_ + "?mode=read"), StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  }
  EXPECT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(auto reader, AnyDBM::Open(path_ + "?mode=read"));
  EXPECT_THAT(AnyDBM::Open(path_ + "?mode=read"), IsOk());
  EXPECT_THAT(AnyDBM::Open(path_), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(Snapshot, ReadOnlyOpenChangesNothing) {
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(path_));
  EXPECT_THAT(db->Set("k", "v"), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
  const auto time = std::filesystem::last_write_time(path_);
  ASSERT_OK_AND_ASSIGN(db, AnyDBM::Open(path_ + "?mode=read"));
  EXPECT_FALSE(db->IsWritable());
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(db->Set("k", "w"), refused);
  EXPECT_THAT(db->Append("k", "w"), refused);
  EXPECT_THAT(db->Rekey("k", "l"), refused);
  const std::string_view keys[] = {"k"};
  EXPECT_THAT(db->ProcessMulti(keys, [](std::size_t, std::optional<std::string_view> value) { EXPECT_EQ(value, "v"); }), IsOk());
  EXPECT_THAT(db->Clear(), refused);
  std::string seen;
  EXPECT_THAT(db->Get("k", [&seen](std::string_view value) { seen = value; }), IsOk());
  EXPECT_EQ(seen, "v");
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), refused);
  EXPECT_THAT(db->Close(), IsOk());
  EXPECT_EQ(std::filesystem::last_write_time(path_), time);
}

TEST_F(Snapshot, DamageIsReportedAndKept) {
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(path_));
  EXPECT_THAT(db->Set("key", "a value to be damaged"), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(AnyFile file, AnyFile::Open(path_));
  std::vector<std::byte> bytes(file.Size());
  ASSERT_THAT(file.ReadAt(0, bytes), IsOk());
  bytes[bytes.size() / 2] ^= std::byte{4};
  ASSERT_THAT(file.WriteAt(0, bytes), IsOk());
  ASSERT_THAT(file.Close(), IsOk());
  EXPECT_THAT(AnyDBM::Open(path_), StatusIs(absl::StatusCode::kDataLoss, StartsWith(path_ + ": ")));
  ASSERT_OK_AND_ASSIGN(file, AnyFile::Open(path_));
  std::vector<std::byte> after(file.Size());
  ASSERT_THAT(file.ReadAt(0, after), IsOk());
  EXPECT_EQ(after, bytes);
}

TEST(AnyDBM, TakesTheLimitOfADatabaseInMemoryAndShowsIt) {
  ASSERT_OK_AND_ASSIGN(auto options, ParseAnyOptions("?dbm=tiny,capacity_bytes=64mi,capacity_records=1000"));
  ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(options));
  for (std::uint64_t i = 0; i < 2000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "value"), IsOk());
  EXPECT_LE(db->Count(), 1000u);
  const Inspection pairs = db->Inspect();
  EXPECT_THAT(pairs, testing::Contains(testing::Pair("capacity_bytes", "67108864")));
  EXPECT_THAT(pairs, testing::Contains(testing::Pair("capacity_records", "1000")));
  EXPECT_THAT(pairs, testing::Contains(testing::Pair("evictions", std::to_string(2000 - db->Count()))));
  EXPECT_THAT(db->Verify(), IsOk());
  for (const char* name : {"x.hkt?capacity_bytes=64mi", "x.hkh?capacity_records=1000"}) {
    ASSERT_OK_AND_ASSIGN(auto refused, ParseAnyOptions(name));
    EXPECT_THAT(AnyDBM::Open(refused), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("requires dbm=tiny"))) << name;
  }
  ASSERT_OK_AND_ASSIGN(options, ParseAnyOptions("?dbm=baby,capacity_bytes=64mi,capacity_records=1000"));
  ASSERT_OK_AND_ASSIGN(db, AnyDBM::Open(options));
  for (std::uint64_t i = 0; i < 2000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "value"), IsOk());
  EXPECT_LE(db->Count(), 1000u);
  EXPECT_THAT(db->Inspect(), testing::Contains(testing::Pair("capacity_bytes", "67108864")));
  EXPECT_THAT(db->Inspect(), testing::Contains(testing::Pair("capacity_records", "1000")));
  EXPECT_THAT(db->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
