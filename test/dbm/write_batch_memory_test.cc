// The databases in memory in the suite of WriteBatch.
#include "dbm/surroundings.h"
#include "dbm/write_batch_conformance.h"
#include "gtest/gtest.h"

namespace hako {
namespace {

using InMemoryTypes = testing::Types<TinySurroundings<MemoryFile>, BabySurroundings<MemoryFile>, BabySurroundings<MemoryFile, 128>>;
INSTANTIATE_TYPED_TEST_SUITE_P(InMemory, WriteBatchConformance, InMemoryTypes);

}  // namespace
}  // namespace hako
