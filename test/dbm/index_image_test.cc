// A clean close of an unmapped HashDBM saves its index as an image, which is only an optimization:
// if the image is damaged or lost, the file still opens with all its records.
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/surroundings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/format/hash_file_format.h"
#include "support/checked_value.h"
#include "support/direct_file.h"
#include "support/file_system.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using Direct = DirectFile<4096, 4 << 20>;
constexpr std::uint64_t kRecords = 2500;

format::HashSuperBlock SuperBlockIn(const std::string& content) {
  format::HashSuperBlock slots[2];
  for (const std::uint64_t i : {0, 1}) std::memcpy(&slots[i], content.data() + i * storage::kSlotDistance, sizeof(slots[i]));
  return slots[slots[1].sequence > slots[0].sequence];
}
std::uint64_t ImageIn(const std::string& content) {
  const format::HashSuperBlock super = SuperBlockIn(content);
  return (super.tail + super.note_size + 4095) / 4096 * 4096;
}

template <class FileT>
class IndexImageTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(auto db, HashOn<FileT>::Open(path_, {.num_records = 10 * kRecords}));  // an index of several extents
    for (std::uint64_t i = 0; i < kRecords; ++i) {
      const std::string key = NumberedKey(i);
      records_[key] = CheckedValue(key, 700 + i % 50);
      ASSERT_THAT(db->Set(key, records_[key]), IsOk());
    }
    for (std::uint64_t i = 0; i < kRecords; i += 3) {
      ASSERT_THAT(db->Remove(NumberedKey(i)), IsOk());
      records_.erase(NumberedKey(i));
    }
    ASSERT_THAT(db->Close(), IsOk());
    closed_ = ReadWhole(path_);
    image_ = ImageIn(closed_);
    ASSERT_LT(image_ + 3 * 65536, closed_.size()) << "extents of lines behind the page that lists them";
  }

  // Opens and uses the database. The image was loaded if hardly any records were read.
  template <class OtherFile = FileT>
  void ExpectOpens(bool image_holds, OpenMode mode = OpenMode::kReadWrite) {
    ASSERT_OK_AND_ASSIGN(auto db, HashOn<OtherFile>::Open(path_, {}, {.mode = mode}));
    if constexpr (CountingFile<OtherFile>) {
      const std::uint64_t read_bytes = db->GetStats().device_read_bytes, image_bytes = closed_.size() - ImageIn(closed_);
      EXPECT_EQ(read_bytes < image_bytes + (256 << 10), image_holds) << read_bytes;
    }
    EXPECT_EQ(Difference(records_, ListByIterator(*db).records), "none");
    EXPECT_THAT(db->Verify(), IsOk());
    if (mode != OpenMode::kReadOnly) {
      for (std::uint64_t i = 0; i < 100; ++i) {
        const std::string key = NumberedKey(i);
        records_[key] = CheckedValue(key, 70, ++salt_);
        ASSERT_THAT(db->Set(key, records_[key]), IsOk());
      }
      EXPECT_THAT(db->Verify(), IsOk());
    }
    ASSERT_THAT(db->Close(), IsOk());
  }

  // A closed file changed by `damage` opens by a scan, and has a valid image after that.
  void ExpectSurvives(const std::string& what, const std::function<void(std::string&)>& damage) {
    SCOPED_TRACE(what);
    std::string content = closed_;
    damage(content);
    WriteWhole(path_, content);
    ExpectOpens(false, OpenMode::kReadOnly);
    EXPECT_TRUE(ReadWhole(path_) == content) << "reading alone changes nothing";
    const Records before = records_;
    ExpectOpens(false);
    ExpectOpens(true);
    records_ = before;
  }

  TempDir directory_;
  const std::string path_ = directory_.File("db");
  Records records_;
  std::string closed_;
  std::uint64_t image_ = 0, salt_ = 0;
};

using Files = testing::Types<PositionalParallelFile, Direct>;
TYPED_TEST_SUITE(IndexImageTest, Files);

TYPED_TEST(IndexImageTest, OpenLoadsTheImageAndCloseWritesANewOne) {
  this->ExpectOpens(true);
  this->ExpectOpens(true);
}

TYPED_TEST(IndexImageTest, ReadOnlyOpenLoadsTheImageUnchanged) {
  this->ExpectOpens(true, OpenMode::kReadOnly);
  EXPECT_TRUE(ReadWhole(this->path_) == this->closed_);
  EXPECT_EQ(StatOf(this->path_).st_size, static_cast<off_t>(this->closed_.size()));
}

TYPED_TEST(IndexImageTest, RebuildsADamagedImage) {
  const std::uint64_t image = this->image_, size = this->closed_.size(), lines = image + 4096;
  const auto flipped = [this](const std::string& what, std::uint64_t at) {
    this->ExpectSurvives(what, [at](std::string& content) { content[at] ^= 1; });
  };
  flipped("the count", image);
  flipped("the count, far too large", image + 6);
  flipped("the first size", image + 8 + 2);
  flipped("the first size, larger than the file", image + 8 + 5);
  flipped("the first kind", image + 16);
  flipped("what is behind the sizes", image + 4095);
  flipped("the first line", lines + 5);
  flipped("a line in the middle", (lines + size) / 2);
  flipped("the last byte", size - 1);
  this->ExpectSurvives("all zero", [&](std::string& content) { content.replace(image, size - image, size - image, '\0'); });
}

TYPED_TEST(IndexImageTest, RebuildsTheImageOfATruncatedFile) {
  const std::uint64_t size = this->closed_.size(), image = this->image_;
  for (const std::uint64_t length : {size - 1, size - 65536, image + 4096, image + 100, image + 1, image})
    this->ExpectSurvives("cut at " + std::to_string(length), [&](std::string& content) { content.resize(length); });
}

// The image follows the closing note, and truncation into the note damages both.
TYPED_TEST(IndexImageTest, RebuildsTheImageIfTheNoteIsDamaged) {
  const std::uint64_t tail = SuperBlockIn(this->closed_).tail, note_size = SuperBlockIn(this->closed_).note_size;
  ASSERT_GT(note_size, 8u);
  this->ExpectSurvives("cut in the note", [&](std::string& content) { content.resize(tail + note_size / 2); });
  this->ExpectSurvives("cut before the note", [&](std::string& content) { content.resize(tail); });
  this->ExpectSurvives("the note", [&](std::string& content) { content[tail + 1] ^= 1; });
}

// A mapped file has its index in place and no image; each file type opens files of the other.
TYPED_TEST(IndexImageTest, FileChangesBetweenMappedAndPositional) {
  for (int round = 0; round < 2; ++round) {
    this->template ExpectOpens<MemoryMapParallelFile>(false);
    EXPECT_EQ(SuperBlockIn(ReadWhole(this->path_)).index_extents == 0, false);
    this->ExpectOpens(false);
    EXPECT_EQ(SuperBlockIn(ReadWhole(this->path_)).index_extents, 0u);
    this->closed_ = ReadWhole(this->path_);
    this->ExpectOpens(true);
  }
}

// The image of an earlier close is not used for a later state, although its own check holds.
TYPED_TEST(IndexImageTest, IgnoresTheImageOfAnEarlierClose) {
  const std::string earlier = this->closed_;
  this->ExpectOpens(true);
  this->closed_ = ReadWhole(this->path_);
  const std::uint64_t size = earlier.size() - this->image_;
  ASSERT_EQ(this->closed_.size() - ImageIn(this->closed_), size) << "they are of one shape";
  this->ExpectSurvives("the earlier image",
                       [&](std::string& content) { content.replace(ImageIn(content), size, earlier.substr(this->image_, size)); });
}

}  // namespace
}  // namespace hako
