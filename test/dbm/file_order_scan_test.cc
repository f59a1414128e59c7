// ProcessEach of a HashDBM on an unmapped file, which scans in file order, while other threads or
// its visitor move records within the file.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/surroundings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/positional_parallel_file.h"
#include "support/checked_value.h"
#include "support/direct_file.h"
#include "support/file_system.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "support/threads.h"

namespace hako {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::Le;

// With a cache of a fraction of the records; and without direct I/O, where extents are small.
using Direct = DirectFile<4096, 512 << 10>;
using Buffered = PositionalParallelFile;
constexpr std::uint64_t kKeys = 6000 / kSlowdown, kValueSize = 900;

template <class FileT>
class FileOrderScanTest : public testing::Test {
 protected:
  using Database = typename HashOn<FileT>::Database;

  void SetUp() override { Open(); }
  void Open() {
    auto opened = HashOn<FileT>::Open(path_, {.seed = 7});
    ASSERT_THAT(opened, IsOk());
    db_ = *std::move(opened);
  }
  void SetAll(std::uint64_t keys = kKeys) {
    for (std::uint64_t i = 0; i < keys; ++i) ASSERT_THAT(Set(NumberedKey(i), 1), IsOk());
  }
  // A self-checking value whose size depends on its version.
  Status Set(const std::string& key, std::uint64_t version) {
    return db_->Set(key, CheckedValue(key, kValueSize + version % 5 * 100, version));
  }

  // The versions that a scan shows; `each` is called after each record.
  template <class F>
  std::map<std::string, std::uint64_t> Scan(F&& each, Status expected = absl::OkStatus()) {
    std::map<std::string, std::uint64_t> shown;
    const Status status = db_->ProcessEach([&](std::string_view key, std::string_view value) {
      const std::optional<std::uint64_t> version = SaltOf(key, value);
      EXPECT_TRUE(version.has_value()) << "a torn value of " << key;
      EXPECT_TRUE(shown.emplace(key, version.value_or(0)).second) << "shown twice: " << key;
      each();
    });
    EXPECT_EQ(status.code(), expected.code()) << status;
    return shown;
  }
  std::map<std::string, std::uint64_t> Scan() {
    return Scan([] {});
  }

  TempDir directory_;
  const std::string path_ = directory_.File("db");
  std::unique_ptr<Database> db_;
};
using Files = testing::Types<Direct, Buffered>;
TYPED_TEST_SUITE(FileOrderScanTest, Files);

TYPED_TEST(FileOrderScanTest, ShowsNothingOfAnEmptyDatabase) {
  EXPECT_TRUE(this->Scan().empty());
  this->SetAll(100);
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_THAT(this->db_->Remove(NumberedKey(i)), IsOk());
  EXPECT_TRUE(this->Scan().empty());
  this->SetAll(100);
  ASSERT_THAT(this->db_->Clear(), IsOk());
  EXPECT_TRUE(this->Scan().empty());
}

TYPED_TEST(FileOrderScanTest, ShowsRecordsOfAnySizeAfterReopening) {
  Records records;
  for (std::uint64_t i = 0; i < kKeySizeMax && i < 3000; ++i) {
    // A few are longer than one read of the scan.
    const std::size_t size = i % 1000 == 500 ? (3 << 20) + i : i * i % 3001;
    std::string key = NumberedKey(i) + std::string(i % 300, 'k');
    records[key] = CheckedValue(key, size);
    ASSERT_THAT(this->db_->Set(key, records[key]), IsOk());
  }
  EXPECT_TRUE(ListByProcessEach(*this->db_).records == records);
  for (const OpenMode mode : {OpenMode::kReadWrite, OpenMode::kReadOnly}) {
    ASSERT_THAT(this->db_->Close(), IsOk());
    ASSERT_OK_AND_ASSIGN(this->db_, HashOn<TypeParam>::Open(this->path_, {}, {.mode = mode}));
    EXPECT_TRUE(ListByProcessEach(*this->db_).records == records);
  }
}

// Each record is shown once while writers constantly replace, remove and add others, the table
// grows, and Rebuild moves records.
TYPED_TEST(FileOrderScanTest, ShowsPresentRecordsOnceDuringUpdates) {
  this->SetAll();
  ASSERT_THAT(this->db_->Synchronize(SyncMode::kHard), IsOk());
  // Of four keys one stays unchanged, one is replaced by one thread, one by all threads, and one is
  // inserted and removed.
  std::vector<std::atomic<std::uint64_t>> begun(kKeys), done(kKeys);
  std::atomic<bool> scanning = true;
  std::atomic<std::uint64_t> failures = 0;
  const auto check = [&](const Status& status) { failures += status.ok() ? 0 : 1; };
  RunThreads(4, [&](int thread) {
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    if (thread == 3) {  // one round at least
      do {
        check(this->db_->Synchronize(SyncMode::kHard));
        check(this->db_->Rebuild());
      } while (scanning);
      return;
    }
    if (thread > 0) {
      const auto me = static_cast<std::uint64_t>(thread - 1);
      for (std::uint64_t n = 0; scanning; ++n) {
        const std::uint64_t i = random.Below(kKeys / 8) * 8 + 4 * me;  // the first of four that only this thread changes
        begun[i + 1] = begun[i + 1] + 1;
        check(this->Set(NumberedKey(i + 1), begun[i + 1] + 1));
        done[i + 1] = begun[i + 1].load();
        const std::string shared = NumberedKey(random.Below(8) * 4 + 2);
        check(this->Set(shared, n + 2));
        const std::string passing = NumberedKey(i + 3);
        if (n % 2 == 0)
          (void)this->db_->Remove(passing);
        else
          check(this->Set(passing, n));
        if (n % 8 == 0) check(this->Set("new" + std::to_string(me) + "-" + std::to_string(n), n));
        const std::string pair[] = {NumberedKey(i + 3), NumberedKey(i + 1)};
        const std::vector<std::string_view> keys(std::begin(pair), std::end(pair));
        if (n % 16 == 0) {
          const std::uint64_t version = begun[i + 1] = begun[i + 1] + 1;
          const std::string values[] = {CheckedValue(pair[0], 950, n), CheckedValue(pair[1], 950, version + 1)};
          check(this->db_->ProcessMulti(
              keys, [&](std::size_t k, std::optional<std::string_view>) -> std::optional<Action> { return Action::Set(values[k]); }));
          done[i + 1] = version;
        }
      }
      return;
    }
    for (int round = 0; round < 12 && !this->HasFailure(); ++round) {
      std::vector<std::uint64_t> before(kKeys);
      for (std::uint64_t i = 0; i < kKeys; ++i) before[i] = done[i] + 1;
      const auto shown = this->Scan();
      for (std::uint64_t i = 0; i < kKeys && !this->HasFailure(); ++i) {
        if (i % 4 == 3) continue;
        const auto it = shown.find(NumberedKey(i));
        EXPECT_NE(it, shown.end()) << "missed " << i << " in round " << round;
        if (it == shown.end()) break;
        if (i % 4 == 0) {
          EXPECT_EQ(it->second, 1u) << i;
        }
        if (i % 4 == 1) {
          EXPECT_THAT(it->second, AllOf(Ge(before[i]), Le(begun[i] + 1))) << i;
        }
      }
    }
    scanning = false;
  });
  EXPECT_EQ(failures, 0u);
  EXPECT_THAT(this->db_->Verify(), IsOk());
}

TYPED_TEST(FileOrderScanTest, VisitorMaySetTheShownRecordAndAddOthers) {
  this->SetAll();
  std::map<std::string, int> shown;
  ASSERT_THAT(this->db_->ProcessEach([&](std::string_view key, std::string_view) {
    const std::string own(key);
    ++shown[own];
    ASSERT_THAT(this->Set(own, 2), IsOk());
    ASSERT_THAT(this->Set("new" + own, 2), IsOk());
  }),
              IsOk());
  EXPECT_EQ(shown.size(), kKeys);
  for (const auto& [key, times] : shown) EXPECT_EQ(times, 1) << key;
  EXPECT_EQ(this->Scan().size(), 2 * kKeys);
}

// Records not yet shown are replaced repeatedly, or moved by Rebuild. Some are removed and set
// again: they may be shown or not, but not twice.
TYPED_TEST(FileOrderScanTest, VisitorMayMoveRecordsNotYetShown) {
  constexpr std::uint64_t kSome = 2000 / kSlowdown;
  this->SetAll(kSome);
  std::uint64_t calls = 0, version = 1;
  const auto shown = this->Scan([&] {
    if (++calls % (kSome / 8) != 1) return;
    ++version;
    for (std::uint64_t i = 0; i < kSome; ++i) {
      if (i % 10 == 9) {
        ASSERT_THAT(this->db_->Remove(NumberedKey(i)), IsOk());
      }
      ASSERT_THAT(this->Set(NumberedKey(i), version), IsOk());
    }
    if (version % 2 == 0) {
      ASSERT_THAT(this->db_->Rebuild(), IsOk());
    }
  });
  EXPECT_GE(version, 8u);
  for (std::uint64_t i = 0; i < kSome; ++i) {
    const auto it = shown.find(NumberedKey(i));
    if (i % 10 != 9) {
      ASSERT_NE(it, shown.end()) << i;
    }
    if (it != shown.end()) {
      ASSERT_THAT(it->second, AllOf(Ge(1u), Le(version)));
    }
  }
  EXPECT_EQ(this->Scan().size(), kSome);
  EXPECT_THAT(this->db_->Verify(), IsOk());
}

// Records that are owed at the end, and replaced faster than they can be read.
TYPED_TEST(FileOrderScanTest, ShowsARecordThatIsConstantlyReplaced) {
  this->SetAll(100);
  std::atomic<bool> scanning = true;
  RunThreads(2, [&](int thread) {
    for (std::uint64_t n = 2; thread == 1 && scanning; ++n) EXPECT_THAT(this->Set(NumberedKey(99), n), IsOk());
    if (thread == 1) return;
    for (int round = 0; round < 200 / kSlowdown && !this->HasFailure(); ++round) {
      bool is_first = true;
      const auto shown = this->Scan([&] {
        for (int n = 0; std::exchange(is_first, false) && n < 100; ++n) ASSERT_THAT(this->Set(NumberedKey(99), 1), IsOk());
      });
      EXPECT_EQ(shown.size(), 100u);
    }
    scanning = false;
  });
}

TYPED_TEST(FileOrderScanTest, SupportsSeveralScansAtOnce) {
  constexpr std::uint64_t kSome = 1500 / kSlowdown;
  this->SetAll(kSome);
  std::map<std::string, std::uint64_t> inner;
  std::uint64_t calls = 0;
  const auto outer = this->Scan([&] {
    if (++calls == 3) inner = this->Scan();
  });
  EXPECT_EQ(inner.size(), kSome);
  EXPECT_TRUE(inner == outer);
  RunThreads(3, [&](int) {
    for (int round = 0; round < 3; ++round) EXPECT_EQ(this->Scan().size(), kSome);
  });
}

TYPED_TEST(FileOrderScanTest, ShowsNothingAfterAClear) {
  this->SetAll();
  std::uint64_t calls = 0;
  const auto shown = this->Scan([&] {
    if (++calls != 1) return;
    ASSERT_THAT(this->db_->Clear(), IsOk());
    this->SetAll();
  });
  EXPECT_LT(shown.size(), 200u) << "what was found together";
  EXPECT_EQ(this->Scan().size(), kKeys);
}

// There the stamps are as the crash left them, and only the index decides which of two records is
// valid.
TYPED_TEST(FileOrderScanTest, ReadOnlyOpenAfterCrashShowsLastSyncedState) {
  ASSERT_THAT(this->db_->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(this->db_, HashOn<TypeParam>::Open(this->path_, {.durability = Durability::kNone}));
  this->SetAll();
  ASSERT_THAT(this->db_->Synchronize(SyncMode::kHard), IsOk());
  for (std::uint64_t i = 0; i < kKeys; i += 2) ASSERT_THAT(this->Set(NumberedKey(i), 2), IsOk());
  const std::string copy = this->directory_.File("copy");
  std::filesystem::copy_file(this->path_, copy);
  ASSERT_OK_AND_ASSIGN(this->db_, HashOn<TypeParam>::Open(copy, {}, {.mode = OpenMode::kReadOnly}));
  const auto shown = this->Scan();
  EXPECT_EQ(shown.size(), kKeys);
  for (const auto& [key, version] : shown) ASSERT_EQ(version, 1u) << key;
}

TYPED_TEST(FileOrderScanTest, ReportsDamageAndShowsAllOtherRecords) {
  this->SetAll();
  ASSERT_THAT(this->db_->Close(), IsOk());
  std::string bytes = ReadWhole(this->path_);
  const std::string key = NumberedKey(kKeys / 2);
  const std::size_t value = bytes.find(key + CheckedValue(key, kValueSize + 100, 1).substr(0, 50)) + key.size();
  ASSERT_NE(value, key.size() - 1);
  {
    std::fstream out(this->path_, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(value + 20));
    out.put(static_cast<char>(bytes[value + 20] ^ 1));
  }
  this->Open();
  EXPECT_THAT(this->db_->Get(key), StatusIs(absl::StatusCode::kDataLoss));
  const auto shown = this->Scan([] {}, absl::DataLossError(""));
  EXPECT_EQ(shown.size(), kKeys - 1);
  EXPECT_EQ(shown.count(key), 0u);
  // A removed record is not missed.
  ASSERT_THAT(this->db_->Clear(), IsOk());
  EXPECT_TRUE(this->Scan().empty());
}

}  // namespace
}  // namespace hako
