// Openings that cannot succeed, of every kind: with OpenMode::kTruncate they leave the content, and the error
// names what is wrong and what to do.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/array_dbm.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/memory_array_dbm.h"
#include "hako/dbm/positional_array_dbm.h"
#include "hako/dbm/positional_hash_dbm.h"
#include "hako/dbm/positional_tree_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/table/table_dbm.h"
#include "support/child_process.h"
#include "support/file_system.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;

class RefusedOpeningsTest : public testing::Test {
 protected:
  // The hashes of all files.
  std::map<std::string, std::size_t> Files() const {
    std::map<std::string, std::size_t> files;
    for (const auto& entry : fs::recursive_directory_iterator(directory_.path())) {
      if (entry.is_regular_file()) files[entry.path().string()] = std::hash<std::string>()(ReadWhole(entry.path().string()));
    }
    return files;
  }
  // The result of each kind's Open of a path.
  using Open = std::function<Status(const std::string& path, const FileOptions& file)>;
  static std::vector<std::pair<std::string, Open>> Kinds() {
    std::vector<std::pair<std::string, Open>> kinds;
    const auto add = [&kinds](const char* name, auto open) {
      kinds.emplace_back(name, [open](const std::string& path, const FileOptions& file) { return open(path, file).status(); });
    };
    add("hash", [](auto& path, auto& file) { return HashDBM<>::Open(path, {}, file); });
    add("positional hash", [](auto& path, auto& file) { return HashDBM<PositionalParallelFile>::Open(path, {}, file); });
    add("tree", [](auto& path, auto& file) { return TreeDBM<>::Open(path, {}, file); });
    add("positional tree", [](auto& path, auto& file) { return TreeDBM<PositionalParallelFile>::Open(path, {}, file); });
    add("array", [](auto& path, auto& file) { return ArrayDBM<>::Open(path, {.width = 8}, file); });
    add("positional array", [](auto& path, auto& file) { return ArrayDBM<PositionalParallelFile>::Open(path, {.width = 8}, file); });
    add("tiny", [](auto& path, auto& file) { return TinyDBM<>::Open(path, {}, file); });
    add("baby", [](auto& path, auto& file) { return BabyDBM<>::Open(path, {}, file); });
    add("memory array", [](auto& path, auto& file) { return MemoryArrayDBM<>::Open(path, {.width = 8}, file); });
    add("table", [](auto& path, auto& file) { return TableDBM::Open(path, {.file = file}); });
    return kinds;
  }

  const TempDir directory_;
};

TEST_F(RefusedOpeningsTest, TruncateLeavesTheContentIfTheOptionsAreWrong) {
  const std::string archive = directory_.File("archive");
  fs::create_directory(archive);
  {
    ASSERT_OK_AND_ASSIGN(auto other, HashDBM<>::Open(directory_.File("other"), {.log_archive = archive}));
    ASSERT_THAT(other->Set("a", "b"), IsOk());
    ASSERT_THAT(other->Close(), IsOk());
  }
  const std::pair<std::string_view, std::vector<std::string>> kinds[] = {
      {"dbm=hash", {"align_pow=9", "log_bytes=1", "log_archive=nowhere", "direct,file=mmap", "durability=none,log_archive=" + archive}},
      {"dbm=hash,file=pos", {"align_pow=9", "log_archive=nowhere", "log_archive=" + archive}},
      {"dbm=tree", {"page_size=64", "cache_bytes=1", "order=none", "codec=none-such", "log_archive=" + archive}},
      {"dbm=tree,file=pos", {"page_size=64", "cache_bytes=1", "log_archive=nowhere"}},
      {"dbm=array,width=8", {"width=9999", "cache_bytes=1", "log_archive=" + archive}},
      {"dbm=tiny", {"align_pow=9", "capacity_bytes=5", "log_archive=" + archive}},
      {"dbm=baby", {"page_size=64", "max_bytes=5", "log_archive=nowhere"}}};
  for (const bool is_killed : {false, true}) {
    for (const auto& [kind, mistakes] : kinds) {
      const std::string path = directory_.File("db");
      const std::string name = absl::StrCat(path, "?", std::string(kind));
      ChildProcess maker([&](ChildProcess&) {
        auto db = AnyDBM::Open(name);
        if (!db.ok() || !(*db)->Set("7", "12345678").ok()) return 1;
        if (!is_killed && !(*db)->Close().ok()) return 1;
        (void)db->release();
        return 0;
      });
      ASSERT_EQ(maker.Result(), 0) << name;
      const auto before = Files();
      for (const std::string& mistake : mistakes) {
        EXPECT_FALSE(AnyDBM::Open(absl::StrCat(name, ",mode=truncate,", mistake)).ok()) << kind << " " << mistake;
        EXPECT_EQ(Files(), before) << kind << ", killed " << is_killed << ": " << mistake;
      }
      for (const FileOptions& file :
           {FileOptions{.block_size = 4096}, FileOptions{.padding = true}, FileOptions{.direct = true, .block_size = 3}}) {
        AnyOptions options;
        ASSERT_OK_AND_ASSIGN(options, ParseAnyOptions(name));
        options.file = file;
        options.file.mode = OpenMode::kTruncate;
        EXPECT_FALSE(AnyDBM::Open(options).ok()) << kind;
        EXPECT_EQ(Files(), before) << kind << ", killed " << is_killed << ": blocks";
      }
      ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(name));
      EXPECT_THAT(db->Get("7"), IsOkAndHolds("12345678")) << name;
      EXPECT_THAT(db->Verify(), IsOk());
      ASSERT_THAT(db->Close(), IsOk());
      ASSERT_OK_AND_ASSIGN(db, AnyDBM::Open(name + ",mode=truncate"));
      EXPECT_EQ(db->Count(), 0u) << name;
      ASSERT_THAT(db->Close(), IsOk());
      fs::remove(path);
    }
  }
}

TEST_F(RefusedOpeningsTest, TruncateLeavesATableAndAnArrayIfTheOptionsAreWrong) {
  const std::string path = directory_.File("db");
  ASSERT_OK_AND_ASSIGN(auto table, TableDBM::Open(path));
  ASSERT_THAT(table->Put("a", {{"column", Value(1)}}), IsOk());
  ASSERT_THAT(table->Close(), IsOk());
  const std::string bytes = ReadWhole(path);
  TableOptions options;
  options.file.mode = OpenMode::kTruncate;
  options.columns = {{"", ColumnOptions()}};
  EXPECT_FALSE(TableDBM::Open(path, options).ok());
  EXPECT_EQ(ReadWhole(path), bytes);
  options.columns.clear();
  options.tree.page_size = 64;
  EXPECT_FALSE(TableDBM::Open(path, options).ok());
  EXPECT_EQ(ReadWhole(path), bytes);

  const std::string numbers = directory_.File("numbers");
  ASSERT_OK_AND_ASSIGN(auto array, ArrayDBM<>::Open(numbers, {.width = 8}));
  ASSERT_THAT(array->Set(1, "a"), IsOk());
  ASSERT_THAT(array->Close(), IsOk());
  const std::string records = ReadWhole(numbers);
  EXPECT_THAT(ArrayDBM<>::Open(numbers, {}, {.mode = OpenMode::kTruncate}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a new array needs ArrayOptions::width")));
  EXPECT_EQ(ReadWhole(numbers), records);
  EXPECT_FALSE(MemoryArrayDBM<>::Open(numbers, {}, {.mode = OpenMode::kTruncate}).ok());
  EXPECT_EQ(ReadWhole(numbers), records);
}

TEST_F(RefusedOpeningsTest, NamesAnEmptyPath) {
  for (const auto& [name, open] : Kinds()) {
    for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kCreate, OpenMode::kTruncate})
      EXPECT_THAT(open("", {.mode = mode}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("path is empty: name a file"))) << name;
  }
  EXPECT_THAT(AnyDBM::Open(""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name a file")));
  for (const char* const name : {"?dbm=hash", "?dbm=tree", "?dbm=array,width=8"})
    EXPECT_THAT(AnyDBM::Open(name), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("needs a file name"))) << name;
}

TEST_F(RefusedOpeningsTest, NamesWhatTheFileIs) {
  for (const auto& [name, open] : Kinds()) {
    if (name.starts_with("positional") || name == "baby" || name == "memory array") continue;
    EXPECT_THAT(open(directory_.File(name), {}), IsOk()) << name;
  }
  ChildProcess killed([this](ChildProcess&) {
    auto db = TreeDBM<>::Open(directory_.File("killed"));
    if (!db.ok() || !(*db)->Set("a", "b").ok()) return 1;
    (void)db->release();
    return 0;
  });
  ASSERT_EQ(killed.Result(), 0);
  fs::remove(directory_.File("killed"));
  fs::rename(directory_.File("killed-log"), directory_.File("log"));
  WriteWhole(directory_.File("text"), "This is a text, and no database.\n");
  WriteWhole(directory_.File("long text"), std::string(100'000, 'x'));
  fs::create_directory(directory_.File("directory"));
  struct Found {
    std::string file, hint;
    std::vector<std::string> opened_by;
  };
  const Found all[] = {{"hash", "HashDBM", {"hash", "positional hash"}},
                       {"tree", "TreeDBM", {"tree", "positional tree"}},
                       {"table", "TableDBM", {"table"}},
                       {"array", "ArrayDBM", {"array", "positional array"}},
                       {"tiny", "TinyDBM", {"tiny", "baby", "memory array"}},
                       {"log", "the log of a database", {}},
                       {"text", "a file of another program", {}},
                       {"long text", "a file of another program", {}},
                       {"directory", "is a directory", {}}};
  for (const auto& [file, hint, opened_by] : all) {
    const auto before = Files();
    for (const auto& [name, open] : Kinds()) {
      if (std::ranges::count(opened_by, name) != 0) continue;
      for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite, OpenMode::kCreate}) {
        EXPECT_THAT(open(directory_.File(file), {.mode = mode}),
                    StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(hint), HasSubstr(directory_.File(file)))))
            << file << " opened as " << name;
      }
    }
    EXPECT_EQ(Files(), before) << file;
  }
}

// The options of blocks are those of direct I/O.
TEST_F(RefusedOpeningsTest, NamesOptionsThatTheFileDoesNotHave) {
  for (const auto& [name, open] : Kinds()) {
    const std::string path = directory_.File("db");
    for (const auto& [what, file] : {std::pair("block_size", FileOptions{.block_size = 4096}), {"padding", FileOptions{.padding = true}}}) {
      EXPECT_THAT(open(path, file), StatusIs(absl::StatusCode::kInvalidArgument,
                                             AllOf(HasSubstr(what), HasSubstr("requires FileOptions::direct"), HasSubstr(path))))
          << name;
      EXPECT_FALSE(fs::exists(path)) << name;
    }
  }
}

}  // namespace
}  // namespace hako
