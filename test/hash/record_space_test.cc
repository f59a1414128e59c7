// The concept RecordSpace refuses a space that lacks any one of its operations.
#include "hako/hash/record_space.h"

#include "gtest/gtest.h"
#include "support/toy_record_space.h"

namespace hako {
namespace {

using Toy = ToyRecordSpace<false>;

#define HAKO_EXPECT_NEEDED(operation)                                         \
  {                                                                           \
    struct Lacking : Toy {                                                    \
      void operation() = delete; /* hides that of the toy */                  \
    };                                                                        \
    EXPECT_FALSE(hash::RecordSpace<Lacking>) << #operation " is not checked"; \
  }

TEST(RecordSpaceTest, RefusesASpaceThatLacksAnOperation) {
  struct Complete : Toy {};
  EXPECT_TRUE(hash::RecordSpace<Complete>);
  HAKO_EXPECT_NEEDED(gate)
  HAKO_EXPECT_NEEDED(AllocateIndexExtent)
  HAKO_EXPECT_NEEDED(index_base)
  HAKO_EXPECT_NEEDED(index_end)
  HAKO_EXPECT_NEEDED(StoreLineCount)
  HAKO_EXPECT_NEEDED(Prefetch)
  HAKO_EXPECT_NEEDED(PrefetchRest)
  HAKO_EXPECT_NEEDED(TryFetchShort)
  HAKO_EXPECT_NEEDED(TryFetch)
  HAKO_EXPECT_NEEDED(CopyRecord)
  HAKO_EXPECT_NEEDED(CopyIsIntact)
  HAKO_EXPECT_NEEDED(DamageAt)
  HAKO_EXPECT_NEEDED(MatchKey)
  HAKO_EXPECT_NEEDED(View)
  HAKO_EXPECT_NEEDED(Write)
  HAKO_EXPECT_NEEDED(WriteAhead)
  HAKO_EXPECT_NEEDED(EndAhead)
  HAKO_EXPECT_NEEDED(Overwrite)
  HAKO_EXPECT_NEEDED(Commit)
  HAKO_EXPECT_NEEDED(Revive)
  HAKO_EXPECT_NEEDED(Retire)
  HAKO_EXPECT_NEEDED(ReleaseFreed)
  HAKO_EXPECT_NEEDED(NoteMove)
  HAKO_EXPECT_NEEDED(KeyHash)
  HAKO_EXPECT_NEEDED(MatchShort)
  HAKO_EXPECT_NEEDED(ViewShort)
  HAKO_EXPECT_NEEDED(WriteShort)
  HAKO_EXPECT_NEEDED(GiveBack)
  HAKO_EXPECT_NEEDED(OverwriteShort)
  HAKO_EXPECT_NEEDED(RetireShort)
}

#undef HAKO_EXPECT_NEEDED

}  // namespace
}  // namespace hako
