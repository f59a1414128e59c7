// How much stack the calls of a database need: no more than include/hako/dbm/README.md says.
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/lz4_codec.h"
#include "hako/base/zstd_codec.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/any_tree.h"
#include "hako/dbm/write_batch.h"
#include "support/killed_files.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

// Runs `body` in a thread and returns how much of its stack was used, with what the system has there.
std::size_t StackOf(const std::function<void()>& body) {
  static constexpr std::size_t kSize = 1 << 20;
  static constexpr unsigned char kUnused = 0xa5;
  void* const memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  std::memset(memory, kUnused, kSize);
  pthread_attr_t attributes;
  pthread_t thread;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstack(&attributes, memory, kSize);
  const auto run = [](void* given) -> void* { return (*static_cast<const std::function<void()>*>(given))(), nullptr; };
  if (::pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&body)) == 0) ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&attributes);
  const auto* const bytes = static_cast<const unsigned char*>(memory);
  const auto* const used = std::find_if(bytes, bytes + kSize, [](unsigned char byte) { return byte != kUnused; });
  const std::size_t size = static_cast<std::size_t>(bytes + kSize - used);
  ::munmap(memory, kSize);
  return size;
}

class StackTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer needs more";
    AddTreeToAnyDBM<BytewiseComparator, Lz4Codec>();
    AddTreeToAnyDBM<BytewiseComparator, ZstdCodec<>>();
  }
  std::string Name(const char* base) const { return dir_.File(base) + GetParam(); }
  std::string File(const char* base) const { return Name(base).substr(0, Name(base).find('?')); }
  // Runs a call, which must fit.
  void Measure(const char* call, const std::function<void()>& body) {
    const std::size_t used = StackOf(body);
    if (used > most_) most_ = used, call_ = call;
    EXPECT_LE(used, kLimit) << call;
  }
  bool IsArray() const { return absl::StrContains(GetParam(), ".hka"); }
  std::string Key(std::uint64_t i) const {
    return IsArray() ? std::to_string(i) : absl::StrCat("key ", i * 7919 % 10007, std::string(i % 90, 'k'));
  }
  std::string Value(std::uint64_t i) const {
    return std::string(IsArray() ? 32 : i % 97 == 0 ? 20'000 : i % 300, static_cast<char>('a' + i % 26));
  }

  static constexpr std::size_t kLimit = 128 << 10;
  static constexpr std::uint64_t kRecords = 4000;
  const TempDir dir_;
  std::size_t most_ = 0;
  const char* call_ = "";
};

TEST_P(StackTest, EachCallNeedsNoMoreThanIsDocumented) {
  std::unique_ptr<AnyDBM> db;
  const auto open = [&](const std::string& name) {
    StatusOr<std::unique_ptr<AnyDBM>> opened = AnyDBM::Open(name);
    ASSERT_THAT(opened.status(), IsOk()) << name;
    db = *std::move(opened);
  };
  Measure("Open", [&] { open(Name("db")); });
  ASSERT_NE(db, nullptr);
  Measure("Set", [&] {
    for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db->Set(Key(i), Value(i)), IsOk());
  });
  Measure("Process", [&] {
    for (std::uint64_t i = 0; i < kRecords; i += 3)
      ASSERT_THAT(db->Process(Key(i), [](std::optional<std::string_view> value) { return value ? Action::Keep() : Action::Remove(); }),
                  IsOk());
  });
  Measure("Get", [&] {
    for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db->Get(Key(i)), IsOk());
  });
  Measure("GetMulti", [&] {
    std::vector<std::string> keys;
    for (std::uint64_t i = 0; i < 200; ++i) keys.push_back(Key(i * 13 % kRecords));
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    ASSERT_THAT(db->GetMulti(views, [](std::size_t, std::optional<std::string_view>) {}), IsOk());
  });
  Measure("Write", [&] {
    WriteBatch batch;
    for (std::uint64_t i = 0; i < kRecords; i += 5) i % 2 == 0 ? batch.Set(Key(i), Value(i)) : batch.Remove(Key(i));
    ASSERT_THAT(db->Write(batch), IsOk());
  });
  if (db->IsOrdered()) {
    Measure("RemoveRange", [&] { ASSERT_THAT(db->RemoveRange(Key(50)).status(), IsOk()); });
    for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db->Set(Key(i), Value(i)), IsOk());
  }
  Measure("ProcessEach", [&] { ASSERT_THAT(db->ProcessEach([](std::string_view, std::string_view) {}), IsOk()); });
  Measure("an iterator", [&] {
    auto it = db->MakeIterator();
    std::uint64_t count = 0;
    for (it.First(); it.Valid(); it.Next()) ++count;
    ASSERT_THAT(it.status(), IsOk());
    ASSERT_EQ(count, db->Count());
  });
  Measure("ProcessState", [&] {
    ASSERT_THAT(db->ProcessState([](std::string_view, std::string_view, std::uint64_t) { return absl::OkStatus(); }), IsOk());
  });
  Measure("Synchronize", [&] { ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk()); });
  Measure("Verify", [&] { ASSERT_THAT(db->Verify(), IsOk()); });
  Measure("Scrub", [&] {
    const Status scrubbed = db->Scrub({}).status();  // databases in memory have none
    ASSERT_TRUE(scrubbed.ok() || absl::StrContains(GetParam(), ".hks")) << scrubbed;
  });
  Measure("Rebuild", [&] { (void)db->Rebuild(); });
  Measure("CopyTo", [&] { ASSERT_THAT(db->CopyTo(File("copy")), IsOk()); });
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db->Set(Key(i), Value(i + 1)), IsOk());
  CopyAsKilled(File("db"), File("killed"));
  Measure("Close", [&] { ASSERT_THAT(db->Close(), IsOk()); });
  Measure("Open of a closed one", [&] { open(Name("db")); });
  Measure("Verify of a closed one", [&] { ASSERT_THAT(db->Verify(), IsOk()); });
  Measure("Clear", [&] { ASSERT_THAT(db->Clear(), IsOk()); });
  ASSERT_THAT(db->Close(), IsOk());
  Measure("Open after a kill", [&] {
    StatusOr<std::unique_ptr<AnyDBM>> killed =
        AnyDBM::Open(absl::StrCat(Name("killed"), absl::StrContains(GetParam(), ".hkh") ? ",unproven=drop" : ""));
    ASSERT_THAT(killed.status(), IsOk());
    db = *std::move(killed);
  });
  Measure("Verify after a kill", [&] { ASSERT_THAT(db->Verify(), IsOk()); });
  ASSERT_THAT(db->Close(), IsOk());
  if (!absl::StrContains(GetParam(), ".hks"))
    Measure("Salvage", [&] { ASSERT_THAT(AnyDBM::Salvage(File("killed"), File("salvaged")).status(), IsOk()); });
  std::printf("%s: %zu bytes by %s\n", GetParam(), most_, call_);
}

INSTANTIATE_TEST_SUITE_P(Kinds, StackTest,
                         testing::Values(".hkh?file=mmap", ".hkh?file=pos", ".hkh?direct=true", ".hkt?file=mmap,cache_bytes=1mi",
                                         ".hkt?file=pos,cache_bytes=1mi", ".hkt?file=pos,cache_bytes=1mi,codec=lz4",
                                         ".hkt?file=pos,cache_bytes=1mi,codec=zstd", ".hkt?direct=true,cache_bytes=1mi,page_size=8192",
                                         ".hka?width=32,file=mmap,cache_bytes=1mi", ".hka?width=32,file=pos,cache_bytes=1mi",
                                         ".hks?dbm=tiny", ".hks?dbm=baby"));

}  // namespace
}  // namespace hako
