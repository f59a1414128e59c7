// The databases in memory with a path, and so a log, in the suites of every DBM. Opening one again reads
// its snapshot, or, where it was not closed, its log.
#include <memory>
#include <string>

#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/lifetime_dbm_conformance.h"
#include "dbm/multi_dbm_conformance.h"
#include "dbm/ordered_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "dbm/write_batch_conformance.h"
#include "gtest/gtest.h"
#include "support/test_types.h"

namespace hako {
namespace {

template <class DatabaseT, auto kOptions>  // of a function that returns them
class PathSurroundings {
 public:
  using FileType = MemoryMapParallelFile;
  using Database = DatabaseT;
  using Opened = StatusOr<std::unique_ptr<Database>>;

  Opened Open(std::uint64_t = 0) {
    ++number_;
    return OpenLast();
  }
  Opened Reopen(std::unique_ptr<Database> db) {
    HAKO_RETURN_IF_ERROR(db->Close());
    db.reset();
    return OpenLast();
  }

  FileStore<FileType> files;

 private:
  Opened OpenLast() { return Database::Open(files.Path("db" + std::to_string(number_)), kOptions()); }
  int number_ = 0;
};
TinyOptions TinyWithShortLog() { return {.log_bytes = 1 << 20}; }
BabyOptions BabyWithShortLog() { return {.page_size = 256, .log_bytes = 1 << 20}; }
BabyOptions BabyOfSmallPages() { return {.page_size = 256}; }

using All = TestTypes<testing::Types<PathSurroundings<BabyDBM<>, BabyWithShortLog>>, PathSurroundings<TinyDBM<>, TinyWithShortLog>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Path, DBMConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Path, ConcurrentDBMConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Path, MultiDBMConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Path, WriteBatchConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Path, LifetimeDBMConformance, All);
using Baby = testing::Types<PathSurroundings<BabyDBM<>, BabyOfSmallPages>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Path, OrderedDBMConformance, Baby);

}  // namespace
}  // namespace hako
