// The dirty pages of an epoch: registration, captured images, freed ids, and a failed checkpoint.
#include "hako/tree/file/dirty_pages.h"

#include <cstdint>
#include <cstring>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/storage/arena.h"
#include "hako/tree/memory/page_arena.h"

namespace hako::tree {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class DirtyPagesTest : public testing::Test {
 protected:
  // An empty leaf of one unit.
  std::uint32_t NewLeaf() {
    const std::uint32_t id = arena_->NewPage();
    format::PageLine& line = LineOf(id);
    line.unit = arena_->Allocate(1);
    std::memset(arena_->memory() + line.unit * format::kPageUnit, 0, format::kPageUnit);
    line.shape = {.units = 1, .heap = sizeof(format::PageTail)};
    return id;
  }
  format::PageLine& LineOf(std::uint32_t id) { return arena_->lines()[id]; }
  DirtyPages::Epoch Begin() {
    DirtyPages::Epoch epoch;
    dirty_.PrepareEpoch(arena_->page_end());
    dirty_.BeginEpoch(&epoch);
    dirty_.Unregister(epoch);
    return epoch;
  }
  // As a checkpoint that has encoded all pages of an epoch.
  void Finish(const DirtyPages::Epoch& epoch) {
    for (const std::uint32_t id : epoch.pages) DirtyPages::StoreMark(LineOf(id), 0);
    dirty_.EndCapturing();
    dirty_.NoteAllWritten();
  }

  std::unique_ptr<PageArena> arena_ = PageArena::Create(1 << 26).value();
  DirtyPages dirty_{storage::ReservedMemory::Reserve(arena_->id_mask() + std::uint64_t{1}).value(), *arena_, 4};
};

TEST_F(DirtyPagesTest, RegistersAPageOnceInEachEpoch) {
  const std::uint32_t id = NewLeaf();
  ASSERT_TRUE(dirty_.TryAddNew(LineOf(id)));
  EXPECT_TRUE(dirty_.Has(LineOf(id)));
  const DirtyPages::Epoch first = Begin();
  EXPECT_THAT(first.pages, ElementsAre(id));
  EXPECT_FALSE(dirty_.Has(LineOf(id))) << "the mark is that of the epoch before";
  Finish(first);
  EXPECT_THAT(Begin().pages, IsEmpty());
  dirty_.EndCapturing();
  dirty_.Add(LineOf(id));
  EXPECT_THAT(Begin().pages, ElementsAre(id));
}

TEST_F(DirtyPagesTest, CapturesAPageThatTheCheckpointHasYetToEncode) {
  const std::uint32_t changed = NewLeaf(), unchanged = NewLeaf();
  for (const std::uint32_t id : {changed, unchanged}) ASSERT_TRUE(dirty_.TryAddNew(LineOf(id)));
  dirty_.AddBytes(256);
  const DirtyPages::Epoch epoch = Begin();
  EXPECT_EQ(dirty_.bytes(), 0);
  EXPECT_EQ(dirty_.staying_bytes(), 256);
  dirty_.Add(LineOf(changed));
  EXPECT_EQ(dirty_.staying_bytes(), 128) << "the captured page no longer waits for the checkpoint";
  const auto captured = dirty_.TakeCaptured();
  ASSERT_EQ(captured.size(), 1u);
  EXPECT_EQ(captured[0].id, changed);
  EXPECT_THAT(dirty_.TakeCaptured(), IsEmpty());
  DirtyPages::StoreMark(LineOf(unchanged), 0);  // encoded by the checkpoint
  dirty_.Add(LineOf(unchanged));
  EXPECT_THAT(dirty_.TakeCaptured(), IsEmpty());
  dirty_.EndCapturing();
  EXPECT_THAT(Begin().pages, ElementsAre(changed, unchanged));
}

TEST_F(DirtyPagesTest, FreesAnIdAtOnceUnlessACheckpointKnowsIt) {
  const std::uint32_t known = NewLeaf(), unknown = NewLeaf();
  ASSERT_TRUE(dirty_.TryAddNew(LineOf(known)));
  Finish(Begin());
  ASSERT_TRUE(dirty_.TryAddNew(LineOf(unknown)));
  EXPECT_TRUE(dirty_.Forget(unknown));
  EXPECT_FALSE(dirty_.Forget(known));
  EXPECT_THAT(Begin().freed, ElementsAre(known));
  dirty_.AddNewId(unknown);  // as a long value
  EXPECT_TRUE(dirty_.Forget(unknown));
  dirty_.AddNewId(unknown);
  dirty_.NoteKnown(unknown);
  EXPECT_FALSE(dirty_.Forget(unknown));
}

TEST_F(DirtyPagesTest, ACapturedPageIsKnown) {
  const std::uint32_t id = NewLeaf();
  ASSERT_TRUE(dirty_.TryAddNew(LineOf(id)));
  DirtyPages::Epoch epoch;
  dirty_.PrepareEpoch(arena_->page_end());
  dirty_.BeginEpoch(&epoch);
  dirty_.Add(LineOf(id));  // before Unregister
  dirty_.Unregister(epoch);
  EXPECT_FALSE(dirty_.Forget(id));
}

TEST_F(DirtyPagesTest, TheNextEpochHasThePagesOfAFailedCheckpoint) {
  const std::uint32_t page = NewLeaf(), freed = NewLeaf();
  ASSERT_TRUE(dirty_.TryAddNew(LineOf(freed)));
  Finish(Begin());
  EXPECT_FALSE(dirty_.Forget(freed));
  ASSERT_TRUE(dirty_.TryAddNew(LineOf(page)));
  dirty_.AddBytes(128);
  DirtyPages::Epoch failed = Begin();
  dirty_.EndCapturing();
  for (const std::uint32_t id : failed.pages) dirty_.TakeBack(LineOf(id));
  dirty_.TakeBack(&failed);
  dirty_.NoteAllWritten();
  EXPECT_TRUE(dirty_.Has(LineOf(page)));
  EXPECT_EQ(dirty_.staying_bytes(), 128);
  const DirtyPages::Epoch next = Begin();
  EXPECT_THAT(next.pages, ElementsAre(page));
  EXPECT_THAT(next.freed, ElementsAre(freed));
}

}  // namespace
}  // namespace hako::tree
