// The concept PageSpace refuses a space that lacks any one of its operations.
#include "hako/tree/page_space.h"

#include "gtest/gtest.h"
#include "support/toy_page_space.h"

namespace hako {
namespace {

#define HAKO_EXPECT_NEEDED(Toy, operation)                                  \
  {                                                                         \
    struct Lacking : Toy {                                                  \
      void operation() = delete; /* hides that of the toy */                \
    };                                                                      \
    EXPECT_FALSE(tree::PageSpace<Lacking>) << #operation " is not checked"; \
  }

TEST(PageSpaceTest, RefusesASpaceThatLacksAnOperation) {
  using Toy = ToyPageSpace<true>;
  struct Complete : Toy {};
  EXPECT_TRUE(tree::PageSpace<Complete>);
  HAKO_EXPECT_NEEDED(Toy, gate)
  HAKO_EXPECT_NEEDED(Toy, lines)
  HAKO_EXPECT_NEEDED(Toy, memory)
  HAKO_EXPECT_NEEDED(Toy, NewPage)
  HAKO_EXPECT_NEEDED(Toy, FreePage)
  HAKO_EXPECT_NEEDED(Toy, Allocate)
  HAKO_EXPECT_NEEDED(Toy, Free)
  HAKO_EXPECT_NEEDED(Toy, HasRoomFor)
  HAKO_EXPECT_NEEDED(Toy, MarkDirty)
  HAKO_EXPECT_NEEDED(Toy, mark)
  HAKO_EXPECT_NEEDED(Toy, has_long_values)
  HAKO_EXPECT_NEEDED(Toy, StoreLong)
  HAKO_EXPECT_NEEDED(Toy, FreeLong)
}

TEST(PageSpaceTest, RefusesAnEvictingSpaceThatLacksAnOperation) {
  using Toy = ToyPageSpace<false>;
  struct Complete : Toy {};
  EXPECT_TRUE(tree::PageSpace<Complete>);
  HAKO_EXPECT_NEEDED(Toy, IsEvicted)
  HAKO_EXPECT_NEEDED(Toy, LoadPage)
  HAKO_EXPECT_NEEDED(Toy, LoadPages)
  HAKO_EXPECT_NEEDED(Toy, DiscardEvicted)
  HAKO_EXPECT_NEEDED(Toy, ReadAhead)
  HAKO_EXPECT_NEEDED(Toy, ahead_max)
  HAKO_EXPECT_NEEDED(Toy, MustBeRead)
  HAKO_EXPECT_NEEDED(Toy, Demote)
  HAKO_EXPECT_NEEDED(Toy, NeedsEviction)
  HAKO_EXPECT_NEEDED(Toy, EvictIfNeeded)
  HAKO_EXPECT_NEEDED(Toy, IsLarge)
}

#undef HAKO_EXPECT_NEEDED

}  // namespace
}  // namespace hako
