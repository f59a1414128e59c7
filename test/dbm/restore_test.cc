// Restore: the state after each update, from copies of different moments, over lives of the database
// that end in different ways; and its errors.
#include "hako/dbm/restore.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "dbm/restore_lives.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/log_summary.h"
#include "support/system_counts.h"

namespace hako {
namespace {

using testing::HasSubstr;

template <class D>
class RestoreTest : public testing::Test {
 protected:
  using End = typename Lives<D>::End;

  static std::uint64_t LsnOf(const std::string& copy) {
    auto file = PositionalParallelFile::Open(copy, {.mode = OpenMode::kReadOnly});
    EXPECT_THAT(file.status(), IsOk());
    const auto named = FindNamedLog(*file);
    EXPECT_THAT(named.status(), IsOk());
    EXPECT_TRUE(named.ok() && named->HasEnded()) << "the copy needs a log";
    return named.ok() ? named->from.lsn : 0;
  }
  // Restores to a new file and returns its records.
  Records RestoreAt(const std::string& copy, const RestoreOptions& options) {
    const std::string to = lives_.File("restored");
    std::filesystem::remove(to);
    const auto report = Restore<D>(copy, lives_.archive(), to, options);
    EXPECT_THAT(report.status(), IsOk());
    if (!report.ok()) return {};
    report_ = *report;
    Records records;
    auto db = D::Open(to);
    EXPECT_THAT(db.status(), IsOk());
    if (!db.ok()) return {};
    records = ListByIterator(**db).records;
    EXPECT_THAT((*db)->Verify(), IsOk());
    EXPECT_THAT((*db)->Set("goes on", "with a log"), IsOk());
    EXPECT_THAT((*db)->Close(), IsOk());
    return records;
  }

  Lives<D> lives_;
  RestoreReport report_;
};

using Kinds = testing::Types<HashDBM<>, HashDBM<PositionalParallelFile>, TreeDBM<>, TinyDBM<>, BabyDBM<>>;
TYPED_TEST_SUITE(RestoreTest, Kinds);

TYPED_TEST(RestoreTest, HasTheStateAfterEachUpdateOfAllLives) {
  using End = typename TestFixture::End;
  Random random(TestSeed());
  auto& lives = this->lives_;
  std::vector<std::string> copies;
  for (int i = 0; i < 7; ++i) {
    const End end = random.OneIn(3) ? End::kClose : random.OneIn(2) ? End::kDie : End::kKilledAnywhere;
    const int num_writers = end == End::kKilledAnywhere ? 1 : static_cast<int>(random.Between(1, 3));
    std::string copy;
    if (end != End::kKilledAnywhere) copies.push_back(copy = lives.File("copy" + std::to_string(i)));
    lives.Live(random, end, num_writers, 150, copy);
    if (this->HasFatalFailure()) return;
    if (random.OneIn(3)) lives.OpenOnly();
    if (end == End::kClose) {
      copies.push_back(lives.File("closed" + std::to_string(i)));
      std::filesystem::copy_file(lives.path(), copies.back());
    }
  }
  lives.Live(random, End::kClose, 2, 50);
  lives.OpenOnly();
  const std::vector<std::uint64_t> lsns = lives.Lsns();
  int num_restored = 0;
  for (const std::string& copy : copies) {
    const std::uint64_t from = this->LsnOf(copy);
    for (int i = 0; i < 12; ++i) {
      const std::uint64_t lsn = lsns[random.Below(lsns.size())] - random.Below(2);
      if (lsn < from) continue;
      SCOPED_TRACE(testing::Message() << copy << " of LSN " << from << " to LSN " << lsn);
      EXPECT_EQ(Difference(lives.StateAt(lsn), this->RestoreAt(copy, {.until_lsn = lsn})), "none");
      ++num_restored;
      if (this->HasFailure()) return;
    }
    EXPECT_EQ(Difference(lives.StateAt(lsns.back()), this->RestoreAt(copy, {})), "none");
  }
  EXPECT_GT(num_restored, 5);
}

}  // namespace
}  // namespace hako
