// HashDBM in the suite of WriteBatch: on mapped and positional files, and with direct I/O.
#include "dbm/surroundings.h"
#include "dbm/write_batch_conformance.h"
#include "gtest/gtest.h"
#include "support/direct_file.h"
#include "support/test_types.h"

namespace hako {
namespace {

using HashTypes = TestTypes<testing::Types<HashSurroundings<MemoryMapParallelFile>>, HashSurroundings<PositionalParallelFile>,
                            HashSurroundings<DirectFile<512, 8 << 20>>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Hash, WriteBatchConformance, HashTypes);

}  // namespace
}  // namespace hako
