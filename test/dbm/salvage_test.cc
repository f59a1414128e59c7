// Salvage of both kinds of database in files: an undamaged file gives an equal one, each damaged
// piece costs its own records only, is reported, and no record comes out with a wrong value.
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "dbm/salvage_files.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/file/memory_file.h"
#include "support/allocation_counter.h"
#include "support/sanitizers.h"
#include "support/temp_dir.h"
#include "support/test_types.h"

namespace hako {
namespace {

using Kind = SalvageReport::Kind;

template <class D>
class SalvageTest : public testing::Test {
 protected:
  // A closed database.
  void Make(int num_records, std::size_t longest, unsigned page_size = 1024) {
    auto options = [&] {
      if constexpr (kIsTree<D>)
        return TreeOptions{.page_size = page_size};
      else
        return HashOptions{};
    }();
    ASSERT_OK_AND_ASSIGN(auto db, D::Open(from_, options));
    records_ = Fill(*db, num_records, longest);
    ASSERT_THAT(db->SetType(77), IsOk());
    ASSERT_THAT(db->SetMetadata(UserMetadata{std::byte{5}}), IsOk());
    WriteBatch batch;
    batch.SetAppliedIndex(1234);
    ASSERT_THAT(db->Write(batch), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    image_ = ReadWhole(from_);
  }
  Salvaged<D> SalvageImage(std::string_view image) {
    WriteWhole(from_, image);
    std::filesystem::remove(to_);
    Salvaged<D> salvaged(from_, to_);
    EXPECT_TRUE(ReadWhole(from_) == image) << "the damaged file was changed";
    return salvaged;
  }
  // Whether a record that was taken is listed and noted as one that may have been removed or replaced
  // (hash/file/heap_salvage.h).
  static bool IsListed(const SalvageReport& report, const std::string& key) {
    const auto is_of_key = [&](const SalvageReport::Place& place) { return place.kind == Kind::kRecord && place.key == key; };
    return !report.notes.empty() && std::ranges::any_of(report.places, is_of_key);
  }
  // Whatever was damaged: the records that come out are right, or listed as doubtful, and if any are
  // missing, the report says so.
  void CheckWhatIsThere(const Salvaged<D>& salvaged) {
    if (!salvaged.status.ok()) {
      ASSERT_TRUE(absl::IsDataLoss(salvaged.status) || absl::IsInvalidArgument(salvaged.status)) << salvaged.status;
      ASSERT_FALSE(std::filesystem::exists(to_));
      return;
    }
    for (const auto& [key, value] : salvaged.records) {
      const auto it = records_.find(key);
      if (it == records_.end() || it->second != value)
        ASSERT_TRUE(!kIsTree<D> && IsListed(salvaged.report, key))
            << key << (it == records_.end() ? " had been removed" : " has a wrong value");
    }
    ASSERT_EQ(salvaged.report.num_records, salvaged.records.size());
    if (salvaged.report.num_lost && salvaged.report.notes.empty()) {
      ASSERT_EQ(*salvaged.report.num_lost, records_.size() - salvaged.records.size());
    }
    if (salvaged.records != records_) {
      ASSERT_FALSE(salvaged.report.IsComplete());
      ASSERT_GT(salvaged.report.num_places, 0u);
    }
  }

  TempDir dir_;
  const std::string suffix_ = kIsTree<D> ? ".hkt" : ".hkh";
  const std::string from_ = dir_.File("damaged" + suffix_), to_ = dir_.File("new" + suffix_);
  Records records_;
  std::string image_;
  Random random_{TestSeed()};
};

using Databases = TestTypes<testing::Types<HashDBM<>, TreeDBM<PositionalParallelFile>>, HashDBM<PositionalParallelFile>, TreeDBM<>>;
TYPED_TEST_SUITE(SalvageTest, Databases);

TYPED_TEST(SalvageTest, UndamagedFileGivesAnEqualDatabase) {
  ASSERT_NO_FATAL_FAILURE(this->Make(3000 / kSlowdown, 2 << 20));
  const auto salvaged = this->SalvageImage(this->image_);
  ASSERT_THAT(salvaged.status, IsOk());
  EXPECT_EQ(Difference(this->records_, salvaged.records), "none");
  EXPECT_TRUE(salvaged.report.IsComplete());
  EXPECT_EQ(salvaged.report.num_places, 0u);
  EXPECT_EQ(salvaged.report.num_lost, std::optional<std::uint64_t>(0));
  EXPECT_THAT(salvaged.report.lost_ranges, testing::IsEmpty());
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->to_));
  EXPECT_EQ(db->GetType(), 77u);
  EXPECT_EQ(db->GetMetadata()[0], std::byte{5});
  EXPECT_EQ(db->AppliedIndex(), 1234u);
}

TYPED_TEST(SalvageTest, EmptyDatabaseGivesAnEmptyOne) {
  ASSERT_NO_FATAL_FAILURE(this->Make(0, 0));
  const auto salvaged = this->SalvageImage(this->image_);
  ASSERT_THAT(salvaged.status, IsOk());
  EXPECT_THAT(salvaged.records, testing::IsEmpty());
  EXPECT_TRUE(salvaged.report.IsComplete());
}

TYPED_TEST(SalvageTest, OneDamagedPieceInAHundredCostsItsRecordsOnly) {
  SCOPED_TRACE(TestSeed());
  ASSERT_NO_FATAL_FAILURE(this->Make(4000, 70'000, 256));
  std::vector<Piece> pieces;
  if constexpr (kIsTree<TypeParam>) {
    const TreePieces tree(this->image_);
    ASSERT_GT(tree.inner_pages.size(), 10u);
    ASSERT_GT(tree.long_values.size(), 10u);
    for (const auto* of : {&tree.leaves, &tree.inner_pages, &tree.long_values}) pieces.insert(pieces.end(), of->begin(), of->end());
    std::swap(pieces[0], pieces[tree.leaves.size()]);                            // an inner page
    std::swap(pieces[1], pieces[tree.leaves.size() + tree.inner_pages.size()]);  // a long value
  } else {
    pieces = RecordsIn(this->image_, this->records_);
  }
  std::string damaged = this->image_;
  std::multiset<std::uint64_t> offsets;
  std::set<std::string> lost;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (i > 1 && !this->random_.OneIn(100)) continue;
    std::uint64_t at = this->random_.Below(piece.size);
    if (!kIsTree<TypeParam> && (at == 4 || at == 5)) at = 6;  // the stamp
    damaged[piece.offset + at] = static_cast<char>(damaged[piece.offset + at] ^ (1 + this->random_.Below(255)));
    offsets.insert(piece.offset);
    lost.insert(piece.keys.begin(), piece.keys.end());
  }
  const auto salvaged = this->SalvageImage(damaged);
  ASSERT_THAT(salvaged.status, IsOk());
  Records expected = this->records_;
  for (const std::string& key : lost) expected.erase(key);
  EXPECT_EQ(Difference(expected, salvaged.records), "none");
  EXPECT_EQ(salvaged.report.num_lost, std::optional<std::uint64_t>(lost.size()));
  std::multiset<std::uint64_t> listed;
  for (const SalvageReport::Place& place : salvaged.report.places) {
    // A long value whose leaf is damaged is lost too, and listed.
    const bool is_orphan = place.kind == Kind::kLongValue && offsets.count(place.offset) == 0 && place.key.empty();
    if (!is_orphan) listed.insert(place.offset);
    EXPECT_TRUE(place.key.empty() || lost.count(place.key) == 1) << place.key;
  }
  EXPECT_EQ(listed, offsets);
  EXPECT_EQ(salvaged.report.num_places, salvaged.report.places.size());
  EXPECT_FALSE(salvaged.report.IsComplete());
}

TYPED_TEST(SalvageTest, ZeroedBlocksCostTheirRecordsOnly) {
  ASSERT_NO_FATAL_FAILURE(this->Make(300, 9000));
  constexpr std::size_t kBlock = 4096;
  std::size_t num_whole = 0;
  const std::size_t step = kBlock * kSlowdown;
  for (std::size_t at = 0; at < this->image_.size(); at += step) {
    SCOPED_TRACE(at);
    std::string damaged = this->image_;
    const std::size_t size = std::min(kBlock, damaged.size() - at);
    damaged.replace(at, size, std::string(size, '\0'));
    const auto salvaged = this->SalvageImage(damaged);
    ASSERT_THAT(salvaged.status, IsOk());
    ASSERT_NO_FATAL_FAILURE(this->CheckWhatIsThere(salvaged));
    num_whole += salvaged.records == this->records_;
    if (at < 2 * kBlock) {
      EXPECT_EQ(salvaged.OffsetsOf(Kind::kSuperBlock), std::multiset<std::uint64_t>{at});
    }
  }
  EXPECT_GT(num_whole, 0u);
}

TYPED_TEST(SalvageTest, BitsFlippedAnywhereGiveNoWrongValue) {
  SCOPED_TRACE(TestSeed());
  ASSERT_NO_FATAL_FAILURE(this->Make(300, 9000));
  for (int round = 0; round < 40 / kSlowdown; ++round) {
    std::string damaged = this->image_;
    for (int i = 0; i < 1 << round % 10; ++i) {
      char& byte = damaged[this->random_.Below(damaged.size())];
      byte = static_cast<char>(byte ^ 1 << this->random_.Below(8));
    }
    ASSERT_NO_FATAL_FAILURE(this->CheckWhatIsThere(this->SalvageImage(damaged)));
  }
}

TYPED_TEST(SalvageTest, TruncatedFileKeepsTheRecordsThatAreThere) {
  ASSERT_NO_FATAL_FAILURE(this->Make(2000, 20'000));
  std::size_t before = this->records_.size();
  for (const unsigned parts : {15u, 12u, 8u, 4u, 1u}) {
    SCOPED_TRACE(parts);
    const std::size_t size = this->image_.size() / 16 * parts - 100;
    const auto salvaged = this->SalvageImage(std::string_view(this->image_).substr(0, size));
    ASSERT_THAT(salvaged.status, IsOk());
    ASSERT_NO_FATAL_FAILURE(this->CheckWhatIsThere(salvaged));
    EXPECT_LE(salvaged.records.size(), before);
    before = salvaged.records.size();
    if (parts == 4) {
      EXPECT_FALSE(salvaged.OffsetsOf(Kind::kTruncated).empty());
    }
    if (!kIsTree<TypeParam> && parts == 8) {
      EXPECT_GT(before, 0u) << "half of the file has records";
    }
  }
  for (const std::size_t size : {std::size_t{1}, std::size_t{511}, std::size_t{4608}, std::size_t{8192}, std::size_t{40'000}})
    ASSERT_NO_FATAL_FAILURE(this->CheckWhatIsThere(this->SalvageImage(std::string_view(this->image_).substr(0, size))));
}

TYPED_TEST(SalvageTest, RestoresASuperBlockWithOneDamagedByte) {
  ASSERT_NO_FATAL_FAILURE(this->Make(200, 5000));
  std::string damaged = this->image_;
  damaged[200] = static_cast<char>(damaged[200] ^ 0x40);
  damaged[4096 + 40] = static_cast<char>(damaged[4096 + 40] ^ 0x7f);
  const auto salvaged = this->SalvageImage(damaged);
  ASSERT_THAT(salvaged.status, IsOk());
  EXPECT_EQ(Difference(this->records_, salvaged.records), "none");
  EXPECT_TRUE(salvaged.report.IsComplete());
  EXPECT_EQ(salvaged.OffsetsOf(Kind::kSuperBlock), (std::multiset<std::uint64_t>{0, 4096}));
}

TYPED_TEST(SalvageTest, RefusesAFileWithoutASuperBlock) {
  ASSERT_NO_FATAL_FAILURE(this->Make(200, 5000));
  std::string zeroed = this->image_;
  zeroed.replace(0, 8192, std::string(8192, '\0'));
  const auto lost = this->SalvageImage(zeroed);
  EXPECT_THAT(lost.status, StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_NE(lost.status.message().find("both superblocks"), absl::string_view::npos) << lost.status;
  EXPECT_FALSE(std::filesystem::exists(this->to_));
  std::string garbled = this->image_;
  for (const std::size_t slot : {std::size_t{0}, std::size_t{4096}}) garbled.replace(slot + 100, 300, this->random_.Bytes(300));
  EXPECT_THAT(this->SalvageImage(garbled).status, StatusIs(absl::StatusCode::kDataLoss));
}

TYPED_TEST(SalvageTest, RefusesWhatIsNoSuchDatabase) {
  using Other = std::conditional_t<kIsTree<TypeParam>, HashDBM<>, TreeDBM<>>;
  ASSERT_NO_FATAL_FAILURE(this->Make(10, 10));
  EXPECT_THAT(Salvage<Other>(this->from_, this->to_).status(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(this->SalvageImage(std::string(20'000, 'x')).status, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(this->SalvageImage("").status, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(Salvage<TypeParam>(this->dir_.File("absent"), this->to_).ok());
  EXPECT_FALSE(std::filesystem::exists(this->to_));
}

TYPED_TEST(SalvageTest, RefusesToReplaceAFile) {
  ASSERT_NO_FATAL_FAILURE(this->Make(10, 10));
  WriteWhole(this->to_, "mine");
  EXPECT_THAT(Salvage<TypeParam>(this->from_, this->to_).status(), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(ReadWhole(this->to_), "mine");
  EXPECT_THAT(Salvage<TypeParam>(this->from_, this->from_).status(), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_TRUE(ReadWhole(this->from_) == this->image_);
}

TYPED_TEST(SalvageTest, RefusesAnOpenDatabase) {
  ASSERT_NO_FATAL_FAILURE(this->Make(10, 10));
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->from_));
  EXPECT_THAT(Salvage<TypeParam>(this->from_, this->to_).status(), StatusIs(absl::StatusCode::kUnavailable));
}

TYPED_TEST(SalvageTest, LeavesNoFileWithoutSpace) {
  ASSERT_NO_FATAL_FAILURE(this->Make(1000, 200'000));
  const auto files = [this] { return std::distance(std::filesystem::directory_iterator(this->dir_.path()), {}); };
  const auto before = files();
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t size : {rlim_t{0}, rlim_t{40'000}, rlim_t{1'000'000}}) {
    const rlimit small{size, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const Status status = Salvage<TypeParam>(this->from_, this->to_).status();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_EQ(files(), before);
  }
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(Salvage<TypeParam>(this->from_, this->to_).ok());
}

TYPED_TEST(SalvageTest, FailsClearlyWithoutMemory) {
  ASSERT_NO_FATAL_FAILURE(this->Make(100, 5000));
  using To = typename internal::SalvageSource<TypeParam, PositionalParallelFile>::Target;
  ASSERT_OK_AND_ASSIGN(const auto from, PositionalParallelFile::Open(this->from_, {.mode = OpenMode::kReadOnly}));
  std::uint64_t num_failed = 0;
  for (std::uint64_t n = 1, step = kSlowdown;; n += step) {
    ASSERT_OK_AND_ASSIGN(auto file, To::Open(this->to_, {.mode = OpenMode::kTruncate}));
    StatusOr<SalvageReport> result = absl::UnknownError("");
    bool has_failed = false;
    {
      const FailingAllocation failing(n, FailingAllocation::Which::kFromThenOn, FailingAllocation::Whose::kThisThread);
      result = SalvageInto<TypeParam>(from, LogPlace<PositionalParallelFile>(), std::move(file));
      has_failed = failing.HasFailed();
    }
    if (!has_failed) break;
    num_failed += !result.ok();
    if (result.ok()) {  // the allocation was only a help
      EXPECT_EQ(result->num_records, this->records_.size()) << n;
    } else {
      ASSERT_THAT(result.status(), StatusIs(absl::StatusCode::kResourceExhausted)) << n;
    }
    if (n > 300) step = 37 * kSlowdown;
  }
  EXPECT_GT(num_failed, 20u / kSlowdown);
}

}  // namespace
}  // namespace hako
