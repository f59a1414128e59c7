// The files that support other tests model File, and do what they promise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "file/file_conformance.h"
#include "file/mapped_file_conformance.h"
#include "hako/file/memory_file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "support/archetypes.h"
#include "support/fault_file.h"
#include "support/recording_file.h"

namespace hako {
namespace {

using testing::ElementsAre;

struct ArchetypeTraits {
  using FileT = ArchetypeFile;
  FileT Create() { return ArchetypeFile::Make(); }
  FileT Reopen(FileT file) { return file; }  // it has no second life
};

struct RecordingTraits {
  using FileT = RecordingFile;
  FileT Create() { return RecordingFile(); }
  FileT Reopen(FileT file) {
    const auto history = file.history();
    EXPECT_THAT(file.Close(), IsOk());
    return RecordingFile(history->ImageAt(history->events().size()));
  }
};

struct FaultTraits {
  using FileT = FaultFile<MemoryFile>;
  FileT Create() { return FileT(content.Share(), plan); }
  FileT Reopen(FileT file) {
    EXPECT_THAT(file.Close(), IsOk());
    return Create();
  }
  MemoryFile content;
  std::shared_ptr<FaultPlan> plan = std::make_shared<FaultPlan>();
};

INSTANTIATE_TYPED_TEST_SUITE_P(ArchetypeFile, FileConformance, ArchetypeTraits);
INSTANTIATE_TYPED_TEST_SUITE_P(RecordingFile, FileConformance, RecordingTraits);
INSTANTIATE_TYPED_TEST_SUITE_P(FaultFile, FileConformance, FaultTraits);
INSTANTIATE_TYPED_TEST_SUITE_P(FaultFile, MappedFileConformance, FaultTraits);

static_assert(MappedFile<FaultFile<MemoryMapParallelFile>> && KernelBackedFile<FaultFile<MemoryMapParallelFile>>);
static_assert(File<FaultFile<ArchetypeFile>> && !MappedFile<FaultFile<ArchetypeFile>> && !KernelBackedFile<FaultFile<ArchetypeFile>>);

class FaultFileTest : public testing::Test {
 protected:
  FaultFileTest() { Fill(file_, "0123456789"); }

  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  FaultFile<MemoryFile> file_{MemoryFile(), plan_};
};

TEST_F(FaultFileTest, FailsTheNthCallOfAKindOnce) {
  plan_->Arm({.kind = FaultKind::kWrite, .call = 2, .status = absl::DataLossError("x")});
  EXPECT_THAT(file_.WriteAt(0, AsBytes("a")), IsOk());
  EXPECT_EQ(ContentOf(file_), "a123456789");
  EXPECT_THAT(file_.Sync(), IsOk());
  EXPECT_THAT(file_.WriteAt(1, AsBytes("b")), StatusIs(absl::StatusCode::kDataLoss, "x"));
  EXPECT_THAT(file_.WriteAt(2, AsBytes("c")), IsOk());
  EXPECT_EQ(ContentOf(file_), "a1c3456789");
  EXPECT_EQ(plan_->fired_count(), 1u);
  EXPECT_EQ(plan_->call_count(FaultKind::kWrite), 4u);
  EXPECT_EQ(plan_->call_count(FaultKind::kRead), 2u);
}

TEST_F(FaultFileTest, FailsForeverUntilDisarmed) {
  plan_->Arm({.kind = FaultKind::kResize, .forever = true});
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(file_.Resize(20).ok());
  EXPECT_EQ(file_.Size(), 10u);
  plan_->Disarm();
  EXPECT_THAT(file_.Resize(20), IsOk());
}

TEST_F(FaultFileTest, WithoutAKindCountsEveryCall) {
  plan_->Arm({.call = 4});
  std::string bytes(1, '?');
  EXPECT_THAT(file_.ReadAt(0, AsMutableBytes(bytes)), IsOk());
  EXPECT_THAT(file_.WriteAt(0, AsBytes("a")), IsOk());
  EXPECT_THAT(file_.Resize(11), IsOk());
  EXPECT_FALSE(file_.SyncRange(0, 1).ok());
  EXPECT_THAT(file_.Close(), IsOk());
}

TEST_F(FaultFileTest, ShortTransfersStopHalfWay) {
  plan_->Arm({.kind = FaultKind::kWrite, .is_short = true});
  EXPECT_FALSE(file_.WriteAt(2, AsBytes("abcd")).ok());
  EXPECT_EQ(ContentOf(file_), "01ab456789");
  plan_->Arm({.kind = FaultKind::kRead, .is_short = true});
  std::string bytes(4, '?');
  EXPECT_FALSE(file_.ReadAt(0, AsMutableBytes(bytes)).ok());
  EXPECT_EQ(bytes, "01??");
}

TEST_F(FaultFileTest, FailedCloseStillCloses) {
  plan_->Arm({.kind = FaultKind::kClose, .status = absl::DataLossError("x")});
  EXPECT_THAT(file_.Close(), StatusIs(absl::StatusCode::kDataLoss));
}

std::string Text(const FileHistory::Image& image) { return std::string(AsChars(image)); }

class FileHistoryTest : public testing::Test {
 protected:
  void Write(std::uint64_t offset, std::string_view bytes) { ASSERT_THAT(file_.WriteAt(offset, AsBytes(bytes)), IsOk()); }
  std::size_t Now() const { return file_.history()->events().size(); }

  RecordingFile file_{FileHistory::Image(2000, std::byte{'.'})};
};

TEST_F(FileHistoryTest, ReturnsTheContentAfterEveryEvent) {
  Write(1, "ab");
  ASSERT_THAT(file_.Resize(5), IsOk());
  Write(4, "c");
  const auto history = file_.history();
  EXPECT_EQ(Text(history->ImageAt(0)), std::string(2000, '.'));
  EXPECT_EQ(Text(history->ImageAt(1)), ".ab" + std::string(1997, '.'));
  EXPECT_EQ(Text(history->ImageAt(2)), ".ab..");
  EXPECT_EQ(Text(history->ImageAt(3)), ".ab.c");
}

TEST_F(FileHistoryTest, OnlySyncsMakeDurable) {
  ASSERT_THAT(file_.Resize(4), IsOk());
  Write(0, "a");
  EXPECT_EQ(Text(file_.history()->SyncedImageAt(Now())), std::string(2000, '.'));
  ASSERT_THAT(file_.Sync(), IsOk());
  Write(1, "b");
  EXPECT_EQ(Text(file_.history()->SyncedImageAt(Now())), "a...");
  EXPECT_EQ(Text(file_.history()->SyncedImageAt(2)), std::string(2000, '.'));
}

TEST_F(FileHistoryTest, CrashKeepsAnyVersionOfEachSectorSinceTheSync) {
  Write(0, "a");
  ASSERT_THAT(file_.Sync(), IsOk());
  Write(0, "b");     // sector 0
  Write(511, "cd");  // sectors 0 and 1, torn apart by the choices below
  std::vector<std::pair<std::uint64_t, std::size_t>> asked;
  const auto crash = [&](std::size_t of_0, std::size_t of_1) {
    asked.clear();
    const std::string image = Text(file_.history()->CrashImageAt(Now(), [&](std::uint64_t sector, std::size_t count) {
      asked.emplace_back(sector, count);
      return sector == 0 ? of_0 : of_1;
    }));
    EXPECT_EQ(image.size(), 2000u);
    return std::string{image[0], image[511], image[512]};
  };
  EXPECT_EQ(crash(0, 0), "a..");
  EXPECT_THAT(asked, ElementsAre(std::pair(0u, 3u), std::pair(1u, 2u)));
  EXPECT_EQ(crash(1, 0), "b..");
  EXPECT_EQ(crash(1, 1), "b.d");
  EXPECT_EQ(crash(2, 0), "bc.");
  EXPECT_EQ(crash(2, 1), "bcd");
}

TEST_F(FileHistoryTest, CrashChoosesTheSizeSeparately) {
  ASSERT_THAT(file_.Resize(3000), IsOk());
  Write(2500, "new");
  ASSERT_THAT(file_.Resize(100), IsOk());
  const auto crash = [&](std::size_t size_choice, bool latest) {
    return Text(file_.history()->CrashImageAt(Now(), [&](std::uint64_t sector, std::size_t count) {
      return sector == FileHistory::kSizeChoice ? size_choice : latest ? count - 1 : 0;
    }));
  };
  EXPECT_EQ(crash(0, false), std::string(2000, '.'));
  EXPECT_EQ(crash(1, false), std::string(2000, '.') + std::string(1000, '\0'));
  EXPECT_EQ(crash(2, false), std::string(100, '.'));
  EXPECT_EQ(crash(1, true), std::string(100, '.') + std::string(2900, '\0'));  // the cut was written, the size was not
}

TEST_F(FileHistoryTest, RecordingContinuesFromACrash) {
  Write(0, "a");
  RecordingFile again(file_.history()->ImageAt(Now()));
  ASSERT_THAT(again.WriteAt(1, AsBytes("b")), IsOk());
  EXPECT_EQ(Text(again.history()->SyncedImageAt(1)).substr(0, 3), "a..");
  EXPECT_EQ(Text(again.history()->ImageAt(1)).substr(0, 3), "ab.");
}

}  // namespace
}  // namespace hako
