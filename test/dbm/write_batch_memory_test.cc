// The databases in memory in the suite of WriteBatch.
#include "dbm/surroundings.h"
#include "dbm/write_batch_conformance.h"
#include "gtest/gtest.h"
#include "support/test_types.h"

namespace hako {
namespace {

using InMemoryTypes =
    TestTypes<testing::Types<TinySurroundings<MemoryFile>, BabySurroundings<MemoryFile, 128>>, BabySurroundings<MemoryFile>>;
INSTANTIATE_TYPED_TEST_SUITE_P(InMemory, WriteBatchConformance, InMemoryTypes);

}  // namespace
}  // namespace hako
