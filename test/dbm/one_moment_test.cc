// Copies of a database beside writers are the state of one moment: what ProcessState shows, an export, a
// snapshot, CopyTo, of each kind.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/memory_array_dbm.h"
#include "hako/dbm/transfer.h"
#include "hako/dbm/write_batch.h"
#include "support/crash_states.h"
#include "support/model_dbm.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

constexpr unsigned kWidth = 24;  // of the records of arrays

// A kind, as a name of AnyDBM whose file is in the directory of the test.
struct Kind {
  const char* label;
  const char* file;  // "" = in memory only
  const char* options;
  bool IsArray() const { return std::string_view(label).find("Array") != std::string_view::npos; }
  std::string NameIn(const TempDir& dir, std::string_view prefix = "") const {
    return (*file != '\0' ? dir.File(std::string(prefix) + file) : "") + "?" + options;
  }
};
constexpr Kind kKinds[] = {
    {"Tiny", "", "dbm=tiny"},
    {"Baby", "", "dbm=baby,page_size=512"},
    {"MemoryArray", "", ""},
    {"TinyWithLog", "a.hks", "dbm=tiny"},
    {"TinyWithoutLog", "a.hks", "dbm=tiny,durability=none"},
    {"BabyWithLog", "a.hks", "dbm=baby,page_size=512"},
    {"BabyWithoutLog", "a.hks", "dbm=baby,durability=none"},
    {"TinyWithLimit", "", "dbm=tiny,capacity_records=1500"},
    {"BabyWithLimit", "", "dbm=baby,capacity_records=1500"},
    {"Hash", "a.hkh", "reclaim_bytes=0"},
    {"PositionalHash", "a.hkh", "file=pos"},
    {"DirectHash", "a.hkh", "direct"},
    {"Tree", "a.hkt", "page_size=512"},
    {"SmallTree", "a.hkt", "file=pos,page_size=512,cache_bytes=1048576,durability=none"},
    {"Array", "a.hka", "width=24"},
    {"PositionalArray", "a.hka", "width=24,file=pos"},
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.label; }

std::unique_ptr<AnyDBM> Open(const Kind& kind, const TempDir& dir, AnyOptions defaults = {}) {
  if (kind.IsArray() && *kind.file == '\0') {
    auto db = MemoryArrayDBM<>::Open({.width = kWidth});
    EXPECT_THAT(db, IsOk());
    return std::make_unique<AnyDBM>(*std::move(db));
  }
  const auto options = ParseAnyOptions(kind.NameIn(dir), std::move(defaults));
  EXPECT_THAT(options, IsOk());
  auto db = AnyDBM::Open(*options);
  EXPECT_THAT(db, IsOk());
  return *std::move(db);
}

class OneMomentTest : public testing::TestWithParam<Kind> {
 protected:
  const Kind& kind() const { return GetParam(); }
  std::string RandomKey() { return std::to_string(random_.Below(30'000)); }
  std::string RandomValue() {
    const std::string digits = std::to_string(random_.Next());
    if (kind().IsArray()) return digits;
    return digits + std::string(random_.OneIn(50) ? 9'000 + random_.Below(2'000) : random_.Below(60), 'v');
  }
  // A random update, or several.
  void Update(AnyDBM& db) {
    const std::string key = RandomKey(), other = RandomKey(), value = RandomValue();
    switch (random_.Below(8)) {
      case 0:
      case 1:
        return (void)db.Set(key, value);
      case 2:
        return (void)db.Remove(key);
      case 3:
        return (void)db.Append(key, kind().IsArray() ? "" : ", more");
      case 4:
        return (void)db.Process(key, [&](std::optional<std::string_view> found) { return found ? Action::Remove() : Action::Set(value); });
      case 5:
        return (void)db.Rekey(key, other, {.overwrite = true});
      case 6:
        if (db.IsOrdered()) EXPECT_THAT(db.RemoveRange(key, std::to_string(std::stoul(key) + 3)).status(), IsOk());
        [[fallthrough]];
      default: {
        WriteBatch batch;
        batch.Set(key, value);
        batch.Remove(other);
        for (int i = 0; i < 5; ++i) batch.Set(RandomKey(), value);
        if (db.IsOrdered() && random_.OneIn(4)) batch.RemoveRange(other, std::to_string(std::stoul(other) + 20));
        EXPECT_THAT(db.Write(batch), IsOk());
      }
    }
  }
  void Fill(AnyDBM& db, int count) {
    for (int i = 0; i < count; ++i) ASSERT_THAT(db.Set(RandomKey(), RandomValue()), IsOk());
  }

  Random random_{TestSeed()};
  TempDir dir_{TempDir::MemoryParent()};
};

// The visitor makes updates everywhere, so the records before, at and behind the scan change, pages and
// buckets are divided and joined, long values are replaced, and records are evicted.
TEST_P(OneMomentTest, ShowsTheRecordsOfTheCallWhileTheyChange) {
  const auto db = Open(kind(), dir_);
  Fill(*db, 9'000);  // a hash table grows from 8,192 records on
  const Records before = ListByIterator(*db).records;
  Listing shown;
  int updates = 0;
  std::optional<std::pair<Records, Records>> nested;
  const Status status = db->ProcessState([&](std::string_view key, std::string_view value, std::uint64_t) {
    shown.Add(key, value);
    for (std::uint64_t n = random_.Below(4); n > 0 && updates < 2'500; --n, ++updates) Update(*db);
    if (shown.order.size() == 500) {  // another one, in which nothing changes but what it changes
      Listing inner;
      nested.emplace(ListByIterator(*db).records, Records());
      EXPECT_THAT(db->ProcessState([&](std::string_view k, std::string_view v, std::uint64_t) {
        inner.Add(k, v);
        if (random_.OneIn(8)) Update(*db);
        return absl::OkStatus();
      }),
                  IsOk());
      nested->second = std::move(inner.records);
    }
    return absl::OkStatus();
  });
  ASSERT_THAT(status, IsOk());
  EXPECT_EQ(Difference(before, shown.records), "none");
  if (db->IsOrdered() && !kind().IsArray()) EXPECT_TRUE(std::ranges::is_sorted(shown.order));
  ASSERT_TRUE(nested);
  EXPECT_EQ(Difference(nested->first, nested->second), "none");
  EXPECT_GT(updates, 1'000);
  // Without an update it shows what an iterator does.
  Listing after;
  ASSERT_THAT(db->ProcessState([&](std::string_view k, std::string_view v, std::uint64_t) { return after.Add(k, v), absl::OkStatus(); }),
              IsOk());
  EXPECT_EQ(Difference(ListByIterator(*db).records, after.records), "none");
  EXPECT_THAT(db->Verify(), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
}

TEST_P(OneMomentTest, EndsWithTheErrorOfTheVisitor) {
  const auto db = Open(kind(), dir_);
  Fill(*db, 100);
  int shown = 0;
  const auto stop = [&](std::string_view, std::string_view, std::uint64_t) {
    return ++shown < 10 ? absl::OkStatus() : absl::CancelledError("enough");
  };
  EXPECT_THAT(db->ProcessState(stop), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(shown, 10);
  Fill(*db, 100);  // nothing is captured any more
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST_P(OneMomentTest, IsAbortedByClear) {
  const auto db = Open(kind(), dir_);
  Fill(*db, 500);
  int shown = 0;
  const auto clear = [&](std::string_view, std::string_view, std::uint64_t) { return ++shown == 10 ? db->Clear() : absl::OkStatus(); };
  EXPECT_THAT(db->ProcessState(clear), StatusIs(absl::StatusCode::kAborted));
  EXPECT_LT(shown, 200);
  EXPECT_EQ(db->Count(), 0u);
  EXPECT_THAT(db->Verify(), IsOk());
}

// ---- under a load ----

// Numbers of keys. Each batch moves an amount between two accounts, moves a record between two places,
// and counts in two records that are far apart.
constexpr std::uint64_t kAccounts = 2'000, kPlaces = 1'000, kRest = 6'000, kAmount = 1'000;
std::string Account(std::uint64_t i) { return std::to_string(1'000 + 7 * i); }
std::string Place(std::uint64_t i, bool is_second) { return std::to_string((is_second ? 900'000 : 100'000) + 3 * i); }
constexpr const char* kFirst = "1";
constexpr const char* kLast = "2000000";

std::uint64_t NumberIn(std::string_view value) { return std::strtoull(std::string(value).c_str(), nullptr, 10); }

class Load {
 public:
  explicit Load(AnyDBM& db) : db_(db) {
    for (std::uint64_t i = 0; i < kAccounts; ++i) Set(Account(i), kAmount);
    for (std::uint64_t i = 0; i < kPlaces; ++i) Set(Place(i, false), i);
    for (std::uint64_t i = 0; i < kRest; ++i) Set(std::to_string(200'000 + 11 * i), i);
    Set(kFirst, 0);
    Set(kLast, 0);
    for (int i = 0; i < 2; ++i) threads_.emplace_back([this, i] { Work(static_cast<std::uint64_t>(i)); });
  }
  ~Load() {
    stops_ = true;
    for (std::thread& thread : threads_) thread.join();
    EXPECT_THAT(failure_, IsOk());
  }
  void AwaitBatches(std::uint64_t count) const {
    for (const std::uint64_t from = num_batches_; num_batches_ < from + count;) std::this_thread::yield();
  }

 private:
  void Set(const std::string& key, std::uint64_t number) { EXPECT_THAT(db_.Set(key, std::to_string(number)), IsOk()); }
  void Work(std::uint64_t seed) {
    Random random(TestSeed() + seed);
    while (!stops_) {
      const std::uint64_t a = random.Below(kAccounts), b = (a + 1 + random.Below(kAccounts - 1)) % kAccounts;
      const std::uint64_t place = random.Below(kPlaces);
      const std::string names[] = {Account(a), Account(b), Place(place, false), Place(place, true), kFirst, kLast};
      const std::string_view keys[] = {names[0], names[1], names[2], names[3], names[4], names[5]};
      std::string values[6];
      std::uint64_t amount = 0;
      bool was_first = false;
      const auto move = [&](std::size_t i, std::optional<std::string_view> found) -> std::optional<Action> {
        const std::uint64_t number = found ? NumberIn(*found) : 0;
        switch (i) {
          case 0:
            amount = std::min<std::uint64_t>(number, 7);
            values[i] = std::to_string(number - amount);
            break;
          case 1:
            values[i] = std::to_string(number + amount);
            break;
          case 2:
            was_first = found.has_value();
            if (was_first) return Action::Remove();
            values[i] = std::to_string(place);
            break;
          case 3:
            if (!was_first) return Action::Remove();
            values[i] = std::to_string(place);
            break;
          default:
            values[i] = std::to_string(number + 1);
        }
        return Action::Set(values[i]);
      };
      if (const Status status = db_.ProcessMulti(keys, move); !status.ok()) {
        failure_ = status;
        return;
      }
      ++num_batches_;
    }
  }

  AnyDBM& db_;
  std::atomic<bool> stops_{false};
  std::atomic<std::uint64_t> num_batches_{0};
  std::vector<std::thread> threads_;
  Status failure_;
};

// "" if these records are a state that the load leaves, else what is torn.
std::string Torn(const Records& records) {
  std::uint64_t sum = 0, places = 0;
  const auto number = [&](const std::string& key) -> std::optional<std::uint64_t> {
    const auto it = records.find(key);
    return it != records.end() ? std::optional(NumberIn(it->second)) : std::nullopt;
  };
  for (std::uint64_t i = 0; i < kAccounts; ++i) sum += number(Account(i)).value_or(0);
  for (std::uint64_t i = 0; i < kPlaces; ++i) places += number(Place(i, false)).has_value() != number(Place(i, true)).has_value();
  std::ostringstream torn;
  if (sum != kAccounts * kAmount) torn << "the sum is " << sum << "; ";
  if (places != kPlaces) torn << kPlaces - places << " records are in two places or none; ";
  if (number(kFirst) != number(kLast)) torn << "the counts differ; ";
  if (records.size() != kAccounts + kPlaces + kRest + 2) torn << records.size() << " records";
  return torn.str();
}

using Copy = std::function<Status(AnyDBM& db, Records* copied)>;
class OneMomentUnderLoadTest : public OneMomentTest {
 protected:
  // Copies the database again and again, and says how many copies were torn.
  void CopyUnderLoad(const char* how, const Copy& copy) {
    const int copies = Copies(2);
    int torn = 0;
    std::string first;
    const auto db = Open(kind(), dir_);
    {
      const Load load(*db);
      for (int i = 0; i < copies; ++i) {
        load.AwaitBatches(20);
        Records records;
        ASSERT_THAT(copy(*db, &records), IsOk());
        const std::string what = Torn(records);
        torn += what.empty() ? 0 : 1;
        if (first.empty()) first = what;
      }
    }
    std::cout << kind().label << ", " << how << ": " << torn << " of " << copies << " torn\n";
    EXPECT_EQ(torn, 0) << first;
    EXPECT_THAT(db->Verify(), IsOk());
    EXPECT_THAT(db->Close(), IsOk());
  }
};

TEST_P(OneMomentUnderLoadTest, ConcurrentCopyToIsOneState) {
  CopyUnderLoad("CopyTo", [this](AnyDBM& db, Records* copied) -> Status {
    const bool is_in_memory = *kind().file == '\0' || std::string_view(kind().file) == "a.hks";
    const std::string path = dir_.File(std::string("copy-") + (is_in_memory ? "a.hks" : kind().file));
    HAKO_RETURN_IF_ERROR(db.CopyTo(path));
    HAKO_ASSIGN_OR_RETURN(const auto copy, AnyDBM::Open(path + "?mode=read"));
    *copied = ListByIterator(*copy).records;
    return copy->Close();
  });
}

TEST_P(OneMomentUnderLoadTest, ConcurrentExportToTextIsOneState) {
  CopyUnderLoad("Export to text", [](AnyDBM& db, Records* copied) -> Status {
    std::stringstream text;
    HAKO_RETURN_IF_ERROR(Export(db, SinkOf(text)).status());
    ModelDBM target;
    HAKO_RETURN_IF_ERROR(Import(target, SourceOf(text)).status());
    *copied = ListByIterator(target).records;
    return absl::OkStatus();
  });
}

TEST_P(OneMomentUnderLoadTest, ConcurrentExportToADatabaseIsOneState) {
  CopyUnderLoad("Export to a database", [](AnyDBM& db, Records* copied) -> Status {
    HAKO_ASSIGN_OR_RETURN(const auto target, AnyDBM::Open("?dbm=tiny"));
    HAKO_RETURN_IF_ERROR(db.Export(*target));
    *copied = ListByIterator(*target).records;
    return absl::OkStatus();
  });
}

// A hard Synchronize of a database in memory without a log writes a snapshot, which is all there is.
class OneSnapshotUnderLoadTest : public OneMomentUnderLoadTest {};
TEST_P(OneSnapshotUnderLoadTest, ConcurrentSynchronizeIsOneState) {
  CopyUnderLoad("Synchronize", [this](AnyDBM& db, Records* copied) -> Status {
    HAKO_RETURN_IF_ERROR(db.Synchronize(SyncMode::kHard));
    const std::string copy = dir_.File("copy.hks");  // as the snapshot is locked
    std::filesystem::copy_file(dir_.File("a.hks"), copy, std::filesystem::copy_options::overwrite_existing);
    HAKO_ASSIGN_OR_RETURN(const auto opened, AnyDBM::Open(copy + "?mode=read"));
    *copied = ListByIterator(*opened).records;
    return opened->Close();
  });
}

std::vector<Kind> KindsWhere(bool (*is_wanted)(const Kind&)) {
  std::vector<Kind> kinds;
  std::ranges::copy_if(kKinds, std::back_inserter(kinds), is_wanted);
  return kinds;
}
bool KeepsAll(const Kind& kind) { return std::string_view(kind.options).find("capacity") == std::string_view::npos; }
bool IsOnlySnapshot(const Kind& kind) {
  return std::string_view(kind.file) == "a.hks" && std::string_view(kind.options).find("durability=none") != std::string_view::npos;
}
std::string LabelOf(const testing::TestParamInfo<Kind>& info) { return info.param.label; }
INSTANTIATE_TEST_SUITE_P(Kinds, OneMomentTest, testing::ValuesIn(kKinds), LabelOf);
INSTANTIATE_TEST_SUITE_P(Kinds, OneMomentUnderLoadTest, testing::ValuesIn(KindsWhere(KeepsAll)), LabelOf);
INSTANTIATE_TEST_SUITE_P(Kinds, OneSnapshotUnderLoadTest, testing::ValuesIn(KindsWhere(IsOnlySnapshot)), LabelOf);

// ---- records that expire ----

std::atomic<std::uint64_t> fake_time{0};
std::uint64_t FakeClock() { return fake_time.load(); }

TEST(OneMomentExpiryTest, DecidesForTheMomentWhichRecordsHaveExpired) {
  for (const char* const options : {"dbm=tiny,expiry=true", "dbm=baby,expiry=true"}) {
    const TempDir dir;
    fake_time = 1'000'000;
    AnyOptions defaults;
    defaults.clock = &FakeClock;
    const auto db = Open({"", "", options}, dir, defaults);
    for (int i = 0; i < 200; ++i)
      ASSERT_THAT(db->Set(NumberedKey(static_cast<std::uint64_t>(i)), "v", {.expire_at = i % 2 == 0 ? 2'000'000u : 1'000'500u}), IsOk());
    fake_time = 1'000'500;  // the odd ones have expired
    int shown = 0;
    EXPECT_THAT(db->ProcessState([&](std::string_view, std::string_view value, std::uint64_t time) {
      EXPECT_EQ(value, "v");
      EXPECT_EQ(time, 2'000'000u);
      if (++shown == 10) fake_time = 3'000'000;  // all have
      return absl::OkStatus();
    }),
                IsOk());
    EXPECT_EQ(shown, 100) << options;
    EXPECT_THAT(db->Get("00000000").status(), StatusIs(absl::StatusCode::kNotFound));
  }
}

}  // namespace
}  // namespace hako
