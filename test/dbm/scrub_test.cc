// Scrub of both kinds of database in files: a pass finds each damaged piece of the file, which is
// damaged while the database is open, and nothing else; it reads no more than it is asked to.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dbm/salvage_files.h"
#include "dbm/scrub_passes.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/temp_dir.h"
#include "support/test_types.h"

namespace hako {
namespace {

using Kind = SalvageReport::Kind;

template <class Case>
class ScrubTest : public testing::Test {
 protected:
  using D = typename Case::D;

  void Make(int num_records, std::size_t longest) {
    {
      ASSERT_OK_AND_ASSIGN(auto db, Open());
      records_ = Fill(*db, num_records, longest);
      ASSERT_THAT(db->Close(), IsOk());
    }
    image_ = ReadWhole(path_);
  }
  StatusOr<std::unique_ptr<D>> Open(OpenMode mode = OpenMode::kCreate) {
    auto options = [] {
      if constexpr (kIsTree<D>)
        return TreeOptions{.page_size = 1024};
      else
        return HashOptions{};
    }();
    options.durability = Durability::kNone;  // or the log would be read as well
    FileOptions file = Case::File();
    file.mode = mode;
    return D::Open(path_, options, file);
  }
  // The pieces of the file, each with a byte that its check covers.
  std::vector<std::pair<Piece, std::uint64_t>> Pieces() {
    std::vector<std::pair<Piece, std::uint64_t>> pieces;
    Random random(5);
    const auto add = [&](const std::vector<Piece>& some, std::uint64_t from) {
      for (const Piece& piece : some) pieces.emplace_back(piece, piece.offset + random.Between(from, piece.size - 1));
    };
    if constexpr (kIsTree<D>) {
      const TreePieces tree(image_);
      add(tree.leaves, 0);
      add(tree.inner_pages, 0);
      add(tree.long_values, 0);
      add(tree.nodes, 0);
    } else {
      add(RecordsIn(image_, records_), 8);
    }
    return pieces;
  }
  // Changes bytes of the file on the device.
  void Overwrite(std::uint64_t offset, std::string_view bytes) {
    const int fd = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)), static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(fsync(fd), 0);
    close(fd);
  }
  void Flip(std::uint64_t offset) { Overwrite(offset, std::string(1, static_cast<char>(image_[offset] ^ 0x10))); }
  void Restore(std::uint64_t offset) { Overwrite(offset, image_.substr(offset, 1)); }

  TempDir dir_;
  const std::string path_ = dir_.File(kIsTree<D> ? "casket.hkt" : "casket.hkh");
  Records records_;
  std::string image_;
};

template <class Database, bool kDirect>
struct ScrubCase {
  using D = Database;
  static FileOptions File() {
    FileOptions options;
    if (kDirect && HasDirectIo()) options.direct = true;
    return options;
  }
};
using ScrubCases = TestTypes<testing::Types<ScrubCase<HashDBM<>, false>, ScrubCase<TreeDBM<PositionalParallelFile>, true>>,
                             ScrubCase<HashDBM<PositionalParallelFile>, false>, ScrubCase<HashDBM<PositionalParallelFile>, true>,
                             ScrubCase<TreeDBM<>, false>, ScrubCase<TreeDBM<PositionalParallelFile>, false>>;
TYPED_TEST_SUITE(ScrubTest, ScrubCases);

TYPED_TEST(ScrubTest, FindsNothingInAnUndamagedFile) {
  this->Make(3000, 40'000);
  for (const OpenMode mode : {OpenMode::kReadWrite, OpenMode::kReadOnly}) {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(mode));
    for (const std::uint64_t max_bytes : {1u, 4096u, 100'000u, 100'000'000u}) {
      const ScrubbedPass pass = ScrubWhole(*db, max_bytes);
      EXPECT_THAT(pass.damage, testing::IsEmpty());
      std::uint64_t bytes = 0;
      for (const auto& [key, value] : this->records_) bytes += value.size();
      EXPECT_GT(pass.read_bytes, bytes);
      EXPECT_LT(pass.read_bytes, 3 * this->image_.size() + 8192 * pass.num_calls);
    }
    ASSERT_THAT(db->Close(), IsOk());
  }
}

TYPED_TEST(ScrubTest, FindsNothingInAnEmptyDatabase) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open());
  EXPECT_THAT(ScrubWhole(*db, 1).damage, testing::IsEmpty());
}

TYPED_TEST(ScrubTest, NamesEachDamagedPiece) {
  this->Make(600, 20'000);
  ASSERT_OK_AND_ASSIGN(auto db, this->Open());
  Random random(3);
  const auto pieces = this->Pieces();
  ASSERT_GT(pieces.size(), 100u);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i >= 12 && i + 12 < pieces.size() && !random.OneIn(8)) continue;
    const auto& [piece, at] = pieces[i];
    this->Flip(at);
    const ScrubbedPass pass = ScrubWhole(*db, 64 << 10);
    ASSERT_EQ(pass.damage.size(), 1u) << i << " at " << at << " of " << piece.offset;
    EXPECT_EQ(NameOf(pass.damage[0].kind), NameOf(piece.kind)) << i;
    EXPECT_EQ(pass.damage[0].offset, piece.offset);
    EXPECT_THAT(pass.damage[0].error, StatusIs(absl::StatusCode::kDataLoss, testing::HasSubstr(std::to_string(piece.offset))));
    this->Restore(at);
  }
  EXPECT_THAT(ScrubWhole(*db, 64 << 10).damage, testing::IsEmpty());
  EXPECT_THAT(db->Close(), IsOk());
}

TYPED_TEST(ScrubTest, DoesNotStopAtTheFirstDamage) {
  this->Make(600, 20'000);
  ASSERT_OK_AND_ASSIGN(auto db, this->Open());
  std::multiset<std::uint64_t> damaged;
  const auto pieces = this->Pieces();
  for (std::size_t i = 0; i < pieces.size(); i += 7) {
    if (pieces[i].first.kind == Kind::kPageMap) continue;  // the nodes below would be out of reach
    this->Flip(pieces[i].second);
    damaged.insert(pieces[i].first.offset);
  }
  for (const std::uint64_t max_bytes : {1u, 1u << 20}) {
    std::multiset<std::uint64_t> found;
    for (const auto& damage : ScrubWhole(*db, max_bytes).damage) found.insert(damage.offset);
    EXPECT_EQ(found, damaged);
  }
}

// Zeros are what a device returns for a sector that it has lost.
TYPED_TEST(ScrubTest, FindsZeroedSectors) {
  this->Make(600, 20'000);
  ASSERT_OK_AND_ASSIGN(auto db, this->Open());
  const auto pieces = this->Pieces();
  const std::uint64_t sector = pieces[pieces.size() / 2].second / 512 * 512;
  this->Overwrite(sector, std::string(512, '\0'));
  const ScrubbedPass pass = ScrubWhole(*db, 1 << 20);
  std::set<std::uint64_t> found, expected;
  for (const auto& damage : pass.damage) found.insert(damage.offset);
  for (const auto& [piece, at] : pieces) {
    if (piece.offset < sector + 512 && piece.offset + piece.size > sector) expected.insert(piece.offset);
  }
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(found, expected);
}

TYPED_TEST(ScrubTest, FindsADamagedSuperBlock) {
  this->Make(100, 1000);
  ASSERT_OK_AND_ASSIGN(auto db, this->Open());
  const std::string opened = ReadWhole(this->path_);
  std::size_t num_found = 0;
  for (const std::uint64_t slot : {0u, 4096u}) {
    this->Overwrite(slot + 40, std::string(1, static_cast<char>(opened[slot + 40] ^ 1)));
    const ScrubbedPass pass = ScrubWhole(*db, 1 << 20);
    for (const auto& damage : pass.damage) {
      EXPECT_EQ(NameOf(damage.kind), "superblock");
      EXPECT_EQ(damage.offset, slot);
      ++num_found;
    }
    this->Overwrite(slot + 40, opened.substr(slot + 40, 1));
  }
  EXPECT_EQ(num_found, kIsTree<typename TypeParam::D> ? 1u : 2u);  // a tree needs the newer one only
}

// The device is checked, though a copy in memory is undamaged.
TYPED_TEST(ScrubTest, FindsDamageBelowACache) {
  if (!TypeParam::File().direct && !kIsTree<typename TypeParam::D>) GTEST_SKIP() << "has no cache";
  this->Make(300, 2000);
  ASSERT_OK_AND_ASSIGN(auto db, this->Open());
  for (const auto& [key, value] : this->records_) ASSERT_EQ(*db->Get(key), value);
  const auto [piece, at] = this->Pieces()[3];
  this->Flip(at);
  EXPECT_EQ(ScrubWhole(*db, 1 << 20).damage.size(), 1u);
  for (const std::string& key : piece.keys) EXPECT_EQ(*db->Get(key), this->records_[key]);
}

TYPED_TEST(ScrubTest, FailsAfterClose) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open());
  ASSERT_THAT(db->Scrub(), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  EXPECT_THAT(db->Scrub(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

using MappedScrubTest = ScrubTest<ScrubCase<HashDBM<>, false>>;

// A recovery after a crash would not find the records of such an extent.
TEST_F(MappedScrubTest, FindsADamagedHeaderOfAnExtent) {
  Make(600, 20'000);
  ASSERT_OK_AND_ASSIGN(auto db, Open());
  int num_headers = 0;
  for (std::size_t at = 0; (at = image_.find("hakoheap", at)) != image_.npos; ++at, ++num_headers) {
    Flip(at + 3);
    const ScrubbedPass pass = ScrubWhole(*db, 1 << 20);
    ASSERT_EQ(pass.damage.size(), 1u);
    EXPECT_EQ(NameOf(pass.damage[0].kind), "extent header");
    Restore(at + 3);
  }
  EXPECT_GT(num_headers, 1);
  EXPECT_THAT(ScrubWhole(*db, 1 << 20).damage, testing::IsEmpty());
}

TEST_F(MappedScrubTest, FindsDamageToTheIndex) {
  Make(600, 500);
  ASSERT_OK_AND_ASSIGN(auto db, Open());
  const std::string opened = ReadWhole(path_);
  int num_lost = 0, num_wrong = 0;
  for (const Piece& piece : RecordsIn(opened, records_)) {
    const auto handle = static_cast<std::uint32_t>(piece.offset >> 3);
    const std::string entry(reinterpret_cast<const char*>(&handle), sizeof(handle)), none(sizeof(handle), '\0');
    std::size_t at = 0;
    do {
      at = opened.find(entry, at + 1);
    } while (at != opened.npos && at % 4 != 0);
    if (at == opened.npos || num_lost == 20) continue;
    Overwrite(at, none);
    if (absl::IsNotFound(db->Get(*piece.keys.begin()).status())) {  // else it was no entry
      ++num_lost;
      const ScrubbedPass lost = ScrubWhole(*db, 1 << 20);
      ASSERT_EQ(lost.damage.size(), 1u);
      EXPECT_EQ(NameOf(lost.damage[0].kind), "index");
      EXPECT_EQ(lost.damage[0].offset, piece.offset);
      const auto wrong = handle + 1;  // not the beginning of a record
      Overwrite(at, {reinterpret_cast<const char*>(&wrong), sizeof(wrong)});
      const ScrubbedPass misled = ScrubWhole(*db, 1 << 20);
      ASSERT_EQ(misled.damage.size(), 2u);  // the record without an entry, and the entry without a record
      num_wrong += misled.damage[0].offset == piece.offset && misled.damage[1].offset == piece.offset + 8 ? 1 : 0;
    }
    Overwrite(at, entry);
  }
  EXPECT_GT(num_lost, 10);
  EXPECT_EQ(num_wrong, num_lost);
  EXPECT_THAT(ScrubWhole(*db, 1 << 20).damage, testing::IsEmpty());
}

}  // namespace
}  // namespace hako
