// Reads that go to the device: they see all that was written before, however the file was written,
// and whatever is in a cache.
#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <string>

#include "gtest/gtest.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "support/direct_file.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

template <class FileT>
class DeviceReadTest : public testing::Test {
 protected:
  static std::span<std::byte> Bytes(std::string& text) { return std::as_writable_bytes(std::span(text)); }
  static std::string ReadDevice(const FileT& file, std::uint64_t offset, std::size_t size) {
    std::string out(size, '?');
    EXPECT_THAT(file.ReadDevice(offset, Bytes(out)), IsOk());
    return out;
  }

  TempDir dir_;
};

using DeviceFiles = testing::Types<MemoryMapParallelFile, PositionalParallelFile, DirectFile<4096>, DirectFile<512>, DirectFile<4096, 0>,
                                   DirectFile<4096, 64 << 20>>;
TYPED_TEST_SUITE(DeviceReadTest, DeviceFiles);

TYPED_TEST(DeviceReadTest, SeesUnsynchronizedWritesAtAnyOffset) {
  ASSERT_OK_AND_ASSIGN(auto file, TypeParam::Open(this->dir_.File("file")));
  std::string content(700'001, '\0');
  Random random(1);
  for (char& byte : content) byte = static_cast<char>(random.Next());
  ASSERT_THAT(file.Resize(content.size()), IsOk());
  ASSERT_THAT(file.WriteAt(0, std::as_bytes(std::span(content))), IsOk());
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t at = random.Below(content.size());
    const std::size_t size = random.Below(std::min<std::uint64_t>(content.size() - at, i % 10 == 0 ? 600'000 : 9'000)) + 1;
    ASSERT_EQ(this->ReadDevice(file, at, size), content.substr(at, size)) << at << " " << size;
    content[at] = 'x';
    ASSERT_THAT(file.WriteAt(at, std::as_bytes(std::span(content)).subspan(at, 1)), IsOk());
    ASSERT_EQ(this->ReadDevice(file, at, 1), "x");
  }
  EXPECT_EQ(this->ReadDevice(file, content.size() - 1, 1), content.substr(content.size() - 1));
  EXPECT_EQ(this->ReadDevice(file, 7, 0), "");
  std::string out(2, '?');
  EXPECT_THAT(file.ReadDevice(content.size() - 1, this->Bytes(out)), StatusIs(absl::StatusCode::kOutOfRange));
}

TYPED_TEST(DeviceReadTest, SeesTheFileOfAReadOnlyHandle) {
  {
    ASSERT_OK_AND_ASSIGN(auto file, TypeParam::Open(this->dir_.File("file")));
    ASSERT_THAT(file.Resize(3), IsOk());
    ASSERT_THAT(file.WriteAt(0, std::as_bytes(std::span("abc", 3))), IsOk());
    ASSERT_THAT(file.Close(), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto file, TypeParam::Open(this->dir_.File("file"), {.mode = OpenMode::kReadOnly}));
  EXPECT_EQ(this->ReadDevice(file, 1, 2), "bc");
}

// A store to the private map of a read-only file is not in the file.
TEST(DeviceReader, DoesNotSeeStoresToAPrivateMap) {
  TempDir dir;
  {
    ASSERT_OK_AND_ASSIGN(auto file, MemoryMapParallelFile::Open(dir.File("file")));
    ASSERT_THAT(file.Resize(4096), IsOk());
    ASSERT_THAT(file.Close(), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto file, MemoryMapParallelFile::Open(dir.File("file"), {.mode = OpenMode::kReadOnly}));
  file.MutableView(5, 1)[0] = std::byte{9};
  std::byte in_memory{}, on_device{77};
  ASSERT_THAT(file.ReadAt(5, std::span(&in_memory, 1)), IsOk());
  ASSERT_THAT(file.ReadDevice(5, std::span(&on_device, 1)), IsOk());
  EXPECT_EQ(in_memory, std::byte{9});
  const int fd = open(dir.File("file").c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0) GTEST_SKIP() << "the file system has no direct I/O";
  close(fd);
  EXPECT_EQ(on_device, std::byte{0});
}

}  // namespace
}  // namespace hako
