// The conformance suites run on the model first: a test that std::map under a mutex fails is wrong.
#include "support/model_dbm.h"

#include <memory>

#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/multi_dbm_conformance.h"
#include "dbm/ordered_dbm_conformance.h"
#include "dbm/write_batch_conformance.h"

namespace hako {
namespace {

struct ModelSurroundings {
  using Database = ModelDBM;
  StatusOr<std::unique_ptr<ModelDBM>> Open(std::uint64_t = 0) { return std::make_unique<ModelDBM>(); }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Model, DBMConformance, ModelSurroundings);
INSTANTIATE_TYPED_TEST_SUITE_P(Model, ConcurrentDBMConformance, ModelSurroundings);
INSTANTIATE_TYPED_TEST_SUITE_P(Model, MultiDBMConformance, ModelSurroundings);
INSTANTIATE_TYPED_TEST_SUITE_P(Model, OrderedDBMConformance, ModelSurroundings);
INSTANTIATE_TYPED_TEST_SUITE_P(Model, WriteBatchConformance, ModelSurroundings);

}  // namespace
}  // namespace hako
