// Close, destruction and fork of an AnyDBM, over each kind of database.
#include <cstdint>
#include <memory>
#include <string>

#include "dbm/lifetime_dbm_conformance.h"
#include "hako/dbm/any_dbm.h"
#include "hako/file/positional_parallel_file.h"
#include "support/temp_dir.h"
#include "support/test_types.h"

namespace hako {
namespace {

struct Hash {
  [[maybe_unused]] static constexpr const char* kName = "casket.hkh";
};
struct Tree {
  static constexpr const char* kName = "casket.hkt?file=pos";
};
struct SavedTiny {
  [[maybe_unused]] static constexpr const char* kName = "casket.hks";
};
struct SavedBaby {
  [[maybe_unused]] static constexpr const char* kName = "casket.hks?dbm=baby";
};

template <class Kind>
struct AnySurroundings {
  using Database = AnyDBM;
  using Options = AnyOptions;
  using FileType = PositionalParallelFile;
  StatusOr<std::unique_ptr<AnyDBM>> Open() { return AnyDBM::Open(directory.File(Kind::kName)); }
  TempDir directory;
};

using All = TestTypes<testing::Types<AnySurroundings<Tree>>, AnySurroundings<Hash>, AnySurroundings<SavedTiny>, AnySurroundings<SavedBaby>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Any, LifetimeDBMConformance, All);

}  // namespace
}  // namespace hako
