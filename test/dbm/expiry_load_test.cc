// A steady load of records that expire, with a clock that the load sets: the expired ones are a small part
// of all, although nobody asks for their removal; each record is there until its time and not after it.
// With HAKO_TEST_FULL=1: HAKO_LOAD_RECORDS (ten million) records that live for 60 s, for an hour by that
// clock, or as much of it as HAKO_LOAD_SECONDS (600) of real time allow.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "dbm/expiry_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/endian.h"
#include "hako/base/hash.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "support/full_size.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

int FromEnvironment(const char* name, int otherwise) {
  const char* const given = std::getenv(name);
  return given != nullptr ? std::atoi(given) : otherwise;
}
std::chrono::seconds TimeToSpend() { return std::chrono::seconds(FromEnvironment("HAKO_LOAD_SECONDS", 600)); }
std::uint64_t LiveRecords() {
  return FullSize() ? static_cast<std::uint64_t>(FromEnvironment("HAKO_LOAD_RECORDS", 10'000'000)) : std::uint64_t{6'000};
}

// The load is faster than its clock says, so where the background thread needs its time, the load waits.
template <class D>
void TestSteadyLoad(D& db) {
  constexpr std::uint64_t kLife = 60'000;  // milliseconds
  const std::uint64_t live = LiveRecords(), lives = FullSize() ? 60 : 4, most = live + live / 10;
  const auto key_of = [](std::uint64_t i) {
    std::string key(8, '\0');
    StoreBigEndian(MixBits(i + 1), key.data());
    return key;
  };
  const std::uint64_t together = live / kLife + 1;  // records that may expire in one millisecond
  std::uint64_t most_records = 0, least_bytes = 0, most_bytes = 0, i = 0;
  const auto began = SteadyClock::now();
  SteadyClock::duration waited{};
  for (; i < lives * live && SteadyClock::now() - began < TimeToSpend(); ++i) {
    the_time = kStart + i * kLife / live;
    ASSERT_THAT(db.Set(key_of(i), "12345678", {.ttl = std::chrono::milliseconds(kLife)}), IsOk());
    if (i % (live / 60) == 0) {
      const auto wait_from = SteadyClock::now();
      for (int wait = 0; wait < 100'000 && db.Count() > most; ++wait) std::this_thread::sleep_for(1ms);
      waited += SteadyClock::now() - wait_from;
      most_records = std::max(most_records, db.Count());
      most_bytes = std::max(most_bytes, db.GetStats().total_bytes);
    }
    if (i == live - 1) least_bytes = db.GetStats().total_bytes;
    if (i < live) continue;
    ASSERT_THAT(db.Contains(key_of(i - live + together)), IsOkAndHolds(true)) << i;
    ASSERT_THAT(db.Contains(key_of(i - live)), IsOkAndHolds(false)) << i;
  }
  EXPECT_LE(most_records, most + live / 60);
  const auto seconds = [](auto time) { return std::chrono::duration<double>(time).count(); };
  std::printf(
      "%.1f minutes by the clock in %.0f s, of which the load waited %.0f s: at most %.3f records and %.3f bytes for each live one\n",
      static_cast<double>(i) / static_cast<double>(live), seconds(SteadyClock::now() - began), seconds(waited),
      static_cast<double>(most_records) / static_cast<double>(live),
      static_cast<double>(most_bytes) / static_cast<double>(std::max<std::uint64_t>(least_bytes, 1)));
  EXPECT_THAT(db.Verify(), IsOk());
  EXPECT_THAT(db.Close(), IsOk());
}

class ExpiryLoadTest : public testing::Test {
 protected:
  void SetUp() override { the_time = kStart; }
  const TempDir dir_;
};

TEST_F(ExpiryLoadTest, TinyDBMDoesNotGrow) { TestSteadyLoad(*TinyDBM<>::Open({.expiry = true, .clock = &TheTime}).value()); }
TEST_F(ExpiryLoadTest, BabyDBMDoesNotGrow) { TestSteadyLoad(*BabyDBM<>::Open({.expiry = true, .clock = &TheTime}).value()); }
TEST_F(ExpiryLoadTest, HashDBMDoesNotGrow) {
  TestSteadyLoad(*HashDBM<>::Open(dir_.path() + "/db.hkh", {.expiry = true, .clock = &TheTime}).value());
}
TEST_F(ExpiryLoadTest, TreeDBMDoesNotGrow) {
  const std::uint64_t cache_bytes = FullSize() ? std::uint64_t{1} << 30 : 64 << 20;
  TestSteadyLoad(*TreeDBM<>::Open(dir_.path() + "/db.hkt", {.cache_bytes = cache_bytes, .expiry = true, .clock = &TheTime}).value());
}

}  // namespace
}  // namespace hako
