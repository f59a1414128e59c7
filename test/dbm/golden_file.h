// Golden files: databases of each format version as that version left them, in dbm/golden,
// compressed with zstd. Each is opened or refused as dbm/golden/expected.txt records, a line for
// each file and way to open it.
//
// After raising a format version, or rewording an error, run the tests named *Golden* with
// HAKO_GOLDEN=write: files of the current version that are missing are made, and all outcomes are
// recorded again. Files that exist are never made again. Read the difference, then commit.
#pragma once

#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dbm/damage.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/hash.h"
#include "hako/base/status.h"
#include "support/file_system.h"
#include "support/status_matchers.h"

namespace hako {

class GoldenFiles {
 public:
  static bool IsWriting() {
    const char* const mode = std::getenv("HAKO_GOLDEN");
    return mode != nullptr && std::string_view(mode) == "write";
  }

  // The bytes of a file. If it is missing and files are to be made, that of make().
  template <class F>
  static Image Get(const std::string& name, F&& make) {
    const std::filesystem::path path = Folder() / (name + ".zst");
    if (IsWriting() && !std::filesystem::exists(path)) WriteFile(path, Compress(make()));
    return Decompress(ReadFile(path));
  }

  // Compares an outcome with the recorded one.
  static void Expect(const std::string& case_name, const std::string& outcome) {
    const std::filesystem::path path = Folder() / "expected.txt";
    std::map<std::string, std::string> lines;
    std::istringstream in(ReadFile(path));
    for (std::string line; std::getline(in, line);) {
      const std::size_t colon = line.find(": ");
      if (colon != std::string::npos) lines[line.substr(0, colon)] = line.substr(colon + 2);
    }
    if (IsWriting()) {
      lines[case_name] = outcome;
      std::string text;
      for (const auto& [name, line] : lines) text += name + ": " + line + "\n";
      WriteFile(path, text);
    }
    EXPECT_EQ(lines[case_name], outcome) << case_name;
  }

  static Image BytesOf(const MemoryFile& file) {
    const auto view = file.View(0, file.Size());
    return Image(view.begin(), view.end());
  }

 private:
  static std::filesystem::path Folder() { return std::filesystem::path(__FILE__).parent_path() / "golden"; }
  static std::string ReadFile(const std::filesystem::path& path) {
    EXPECT_TRUE(std::filesystem::exists(path) || IsWriting()) << path << " is missing";
    return ReadWhole(path);
  }
  static void WriteFile(const std::filesystem::path& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  static std::string Compress(const Image& image) {
    std::string packed(ZSTD_compressBound(image.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), image.data(), image.size(), 19));
    return packed;
  }
  static Image Decompress(const std::string& packed) {
    Image image(static_cast<std::size_t>(ZSTD_getFrameContentSize(packed.data(), packed.size())));
    EXPECT_EQ(ZSTD_decompress(image.data(), image.size(), packed.data(), packed.size()), image.size());
    return image;
  }
};

// The contents of the golden databases: short and long values, some replaced, some removed.
inline std::string GoldenKey(int i) { return "key-" + std::to_string(i); }
inline std::string GoldenValue(int i) {
  const std::string unit = "value-" + std::to_string(i) + ";";
  std::string value = unit;
  for (int n = i % 50 == 0 ? 2000 : i % 10; n > 0; --n) value += unit;
  return value;
}
template <class Db>
void FillGolden(Db& db) {
  for (int i = 0; i < 200; ++i) ASSERT_THAT(db.Set(GoldenKey(i), GoldenValue(i)), IsOk());
  for (int i = 0; i < 200; i += 7) ASSERT_THAT(db.Set(GoldenKey(i), GoldenValue(i + 1)), IsOk());
  for (int i = 0; i < 200; i += 9) ASSERT_THAT(db.Remove(GoldenKey(i)), IsOk());
}
// Updates that the next crash loses.
template <class Db>
void FillGoldenMore(Db& db) {
  for (int i = 0; i < 200; i += 3) ASSERT_THAT(db.Set(GoldenKey(i), "later"), IsOk());
  for (int i = 1; i < 200; i += 11) ASSERT_THAT(db.Remove(GoldenKey(i)), IsOk());
  for (int i = 200; i < 220; ++i) ASSERT_THAT(db.Set(GoldenKey(i), GoldenValue(i)), IsOk());
}

// Flips a bit in the first copy of these bytes.
inline Image DamageAt(Image image, std::string_view bytes) {
  const auto equal = [](std::byte a, char b) { return a == static_cast<std::byte>(b); };
  const auto at = std::search(image.begin(), image.end(), bytes.begin(), bytes.end(), equal);
  EXPECT_NE(at, image.end());
  if (at != image.end()) *at ^= std::byte{1};
  return image;
}
inline Image DamageAt(Image image, std::size_t offset) {
  image.at(offset) ^= std::byte{1};
  return image;
}

// Some records expire, in the year 3000.
inline constexpr std::uint64_t kGoldenTime = 32'503'680'000'000;
template <class Db>
void GiveTimes(Db& db) {
  for (int i = 0; i < 200; i += 5) {
    const Status status = db.SetExpiry(GoldenKey(i), kGoldenTime + static_cast<std::uint64_t>(i));
    ASSERT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
  }
}
// How many records have the time that GiveTimes has set, where the database keeps times.
template <class Db>
std::string TimesOf(Db& db) {
  if (db.expiry() == nullptr) return {};
  int count = 0;
  for (int i = 0; i < 220; ++i) {
    const StatusOr<std::uint64_t> time = db.GetExpiry(GoldenKey(i));
    if (time.ok() && *time == kGoldenTime + static_cast<std::uint64_t>(i)) ++count;
  }
  return absl::StrCat(", ", count, " expire");
}

inline std::string NameOf(const Status& status) {
  return status.ok() ? "OK" : absl::StrCat(absl::StatusCodeToString(status.code()), " \"", status.message(), "\"");
}

// The records of a database, what checks find, and whether it takes an update.
template <class Db>
std::string OutcomeOf(Db& db) {
  std::map<std::string, std::string> records;
  const Status scan = db.ProcessEach([&records](std::string_view key, std::string_view value) { records.emplace(key, value); });
  std::uint64_t hash = 0;
  for (const auto& [key, value] : records) hash = Hash64(value, Hash64(key, hash));
  std::string outcome = absl::StrCat(db.Count(), " records, ", records.size(), " shown, hash ", absl::Hex(hash, absl::kZeroPad16));
  absl::StrAppend(&outcome, TimesOf(db), ", scan ", NameOf(scan), ", verify ", NameOf(db.Verify()));
  const Status update = db.Set("a new key", "a new value");
  absl::StrAppend(&outcome, ", update ", NameOf(update), ", close ", NameOf(db.Close()));
  return outcome;
}
template <class Db>
std::string OutcomeOf(StatusOr<std::unique_ptr<Db>> db) {
  return db.ok() ? OutcomeOf(**db) : "refused, " + NameOf(db.status());
}

}  // namespace hako
