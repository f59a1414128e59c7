// AnyDBM over every kind of database in the suites of every DBM.
#include <cstdint>
#include <memory>
#include <string_view>

#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/multi_dbm_conformance.h"
#include "dbm/write_batch_conformance.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

struct MappedHash {
  static constexpr const char* kName = "casket.hkh";
};
struct PositionalHash {
  static constexpr const char* kName = "casket.hkh?file=pos";
};
struct MappedTree {
  static constexpr const char* kName = "casket.hkt?page_size=256";
};
struct PositionalTree {
  static constexpr const char* kName = "casket.hkt?file=pos";
};
struct SavedTiny {
  static constexpr const char* kName = "casket.hks";
};
struct MemoryTiny {
  static constexpr const char* kName = "";
};
struct SavedBaby {
  static constexpr const char* kName = "casket.hks?dbm=baby,page_size=256";
};

template <class Kind>
struct AnySurroundings {
  using Database = AnyDBM;
  StatusOr<std::unique_ptr<AnyDBM>> Open(std::uint64_t num_records = 0) {
    const std::string_view name = Kind::kName;
    if (name.empty()) return AnyDBM::Open({.kind = "tiny", .num_records = num_records});
    HAKO_ASSIGN_OR_RETURN(const AnyOptions options, ParseAnyOptions(directory.File(name), {.num_records = num_records}));
    return AnyDBM::Open(options);
  }
  TempDir directory;
};

using All =
    testing::Types<AnySurroundings<MappedHash>, AnySurroundings<PositionalHash>, AnySurroundings<SavedTiny>, AnySurroundings<MemoryTiny>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Any, DBMConformance, All);
using Some =
    testing::Types<AnySurroundings<MappedHash>, AnySurroundings<SavedTiny>, AnySurroundings<SavedBaby>, AnySurroundings<PositionalTree>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Any, ConcurrentDBMConformance, Some);
using Multi = testing::Types<AnySurroundings<MappedHash>, AnySurroundings<PositionalHash>, AnySurroundings<SavedTiny>,
                             AnySurroundings<MemoryTiny>, AnySurroundings<SavedBaby>, AnySurroundings<MappedTree>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Any, MultiDBMConformance, Multi);
INSTANTIATE_TYPED_TEST_SUITE_P(Any, WriteBatchConformance, Multi);

}  // namespace
}  // namespace hako
