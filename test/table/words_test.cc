// Words of a text beside those of Python (test/table/word_data.h): of every character, of texts in several
// languages, with and without an index. And indices of words that another version of Unicode has made.
#include "hako/table/words.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/table/index.h"
#include "hako/table/index_key.h"
#include "hako/table/posting_block.h"
#include "hako/table/table_dbm.h"
#include "support/hooked_store.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "table/word_data.h"

namespace hako {
namespace {

using table::WordReader;
using table::WordsOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(WordsTest, AreThoseOfPython) {
  for (const word_data::Text& text : word_data::kTexts) {
    EXPECT_THAT(WordsOf(text.text), testing::ElementsAreArray(text.words)) << text.text;
    std::size_t position = 0;
    for (WordReader reader(text.text); reader.Next(); ++position) {
      EXPECT_EQ(reader.position(), position);
      EXPECT_EQ(reader.word(), text.words[position]);
    }
    EXPECT_EQ(position, text.words.size());
  }
}

std::uint32_t Crc32(std::string_view bytes, std::uint32_t crc) {
  crc = ~crc;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
  }
  return ~crc;
}

std::string Utf8(std::uint32_t point) {
  const auto low = [point](unsigned shift) { return static_cast<char>(0x80 | ((point >> shift) & 0x3f)); };
  if (point < 0x80) return {static_cast<char>(point)};
  if (point < 0x800) return {static_cast<char>(0xc0 | point >> 6), low(0)};
  if (point < 0x10000) return {static_cast<char>(0xe0 | point >> 12), low(6), low(0)};
  return {static_cast<char>(0xf0 | point >> 18), low(12), low(6), low(0)};
}

TEST(WordsTest, OfEachCharacterAreThoseOfPython) {
  if (!table::WordTables().starts_with("Unicode " + std::string(word_data::kUnicodeVersion) + ","))
    GTEST_SKIP() << table::WordTables() << " is not the version of test/table/word_data.h";
  for (const word_data::Block& block : word_data::kBlocks) {
    std::uint32_t crc = 0;
    std::string bytes;
    for (std::uint32_t point = block.number << 12; point >> 12 == block.number; ++point) {
      if (point >= 0xd800 && point < 0xe000) continue;
      const std::string character = Utf8(point);
      for (const std::string& text : {character, "x" + character + "Y"}) {
        bytes.clear();
        for (WordReader reader(text); reader.Next();) bytes.append(bytes.empty() ? 0 : 1, '\n').append(reader.word());
        crc = Crc32(bytes.append(1, '\0'), crc);
      }
    }
    EXPECT_EQ(crc, block.crc) << "U+" << std::hex << block.number << "000";
  }
}

TEST(WordsTest, BytesThatAreNotUtf8AreThemselves) {
  EXPECT_THAT(WordsOf("\xff"), ElementsAre("\xff"));
  EXPECT_THAT(WordsOf("A\xff\xc3\x84\x84 \xc3"), ElementsAre("a\xff\xc3\xa4\x84", "\xc3"));
  EXPECT_THAT(WordsOf("\xed\xa0\x80 \xc0\xaf \xf4\x90\x80\x80"), ElementsAre("\xed\xa0\x80", "\xc0\xaf", "\xf4\x90\x80\x80"));
  EXPECT_THAT(WordsOf(std::string("a\0\xff", 3)), ElementsAre("a", "\xff"));
  EXPECT_THAT(WordsOf("\xff\xcc\x81z"), ElementsAre("\xff\xcc\x81z"));  // an accent follows it
  for (unsigned first = 0x80; first < 0x100; ++first) {
    for (unsigned second = 0; second < 0x100; ++second) {
      const std::string bytes = {static_cast<char>(first), static_cast<char>(second)};
      if (first >= 0xc2 && first <= 0xdf && (second & 0xc0) == 0x80) continue;  // a character
      const bool is_letter = second >= 0x80 || std::isalnum(static_cast<int>(second)) != 0 || second == '_';
      std::string word = bytes.substr(0, is_letter ? 2 : 1);
      if (second >= 'A' && second <= 'Z') word[1] = static_cast<char>(second + 32);
      EXPECT_THAT(WordsOf(bytes), ElementsAre(word)) << first << " " << second;
    }
  }
}

TEST(WordsTest, LongRunIsCut) {
  EXPECT_THAT(WordsOf(std::string(1'000'000, 'A')), ElementsAre(std::string(table::kWordMax, 'a')));
  std::string long_run, ignored;
  for (int i = 0; i < 1'000'000; ++i) {
    long_run += "\xef\xb7\xba";  // U+FDFA, 18 characters in another form
    ignored += "\xc2\xad";
  }
  const std::vector<std::string> words = WordsOf(long_run + " b");
  ASSERT_EQ(words.size(), 2u);
  EXPECT_GT(words[0].size(), table::kWordMax - 4);
  EXPECT_LE(words[0].size(), table::kWordMax);
  EXPECT_THAT(WordsOf(ignored + " c"), ElementsAre("c"));
  EXPECT_THAT(WordsOf("a" + ignored + "b c"), ElementsAre("a", "c"));  // only the first kRunMax bytes count
  EXPECT_THAT(WordsOf(std::string(300, '\xff')), ElementsAre(std::string(table::kWordMax, '\xff')));
  EXPECT_THAT(WordsOf(std::string(199, 'x') + "\xc3\x84z"), ElementsAre(std::string(199, 'x')));  // no half character
}

// Whether all words of `asked`, one of them, or all in a row, are words of `text`, as Python has them.
enum class Wanted { kAll, kAny, kPhrase };
bool Has(const word_data::Text& text, const word_data::Text& asked, Wanted wanted) {
  const auto has = [&](std::string_view word) { return std::find(text.words.begin(), text.words.end(), word) != text.words.end(); };
  if (wanted == Wanted::kAll) return std::all_of(asked.words.begin(), asked.words.end(), has);
  if (wanted == Wanted::kAny) return std::any_of(asked.words.begin(), asked.words.end(), has);
  return std::search(text.words.begin(), text.words.end(), asked.words.begin(), asked.words.end()) != text.words.end();
}
Condition ConditionOf(std::string_view words, Wanted wanted) {
  const Column text("t");
  return wanted == Wanted::kAll ? text.HasAll(words) : wanted == Wanted::kAny ? text.HasAny(words) : text.HasPhrase(words);
}

TEST(WordsTest, QueriesShowTheSameRowsWithAnIndex) {
  const auto table = *TableDBM::OpenInMemory();
  // Each text, and each of its words alone: spelled in another way than in the text where that is folded.
  std::vector<word_data::Text> asked;
  for (const word_data::Text& text : word_data::kTexts) {
    ASSERT_THAT(table->Put("row " + std::to_string(asked.size()), {{"t", text.text}}), IsOk());
    asked.push_back(text);
  }
  const std::size_t num_rows = asked.size();
  for (const word_data::Text& text : word_data::kTexts) {
    for (const std::string_view word : text.words) {
      if (WordsOf(word).size() == 1) asked.push_back({word, {word}});
    }
  }
  // Folded, these have characters that end a word.
  asked.push_back({"\xc2\xbd",
                   {"1\xe2\x81\x84"
                    "2"}});
  asked.push_back({"\xe2\x91\xb4 none", {"(1)", "none"}});
  asked.push_back({"none \xc2\xbd",
                   {"none",
                    "1\xe2\x81\x84"
                    "2"}});
  for (const bool has_index : {false, true}) {
    if (has_index) {
      ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
    }
    for (const word_data::Text& text : asked) {
      for (const Wanted wanted : {Wanted::kAll, Wanted::kAny, Wanted::kPhrase}) {
        std::vector<std::string> keys;
        for (std::size_t i = 0; i < num_rows; ++i) {
          if (Has(asked[i], text, wanted)) keys.push_back("row " + std::to_string(i));
        }
        std::sort(keys.begin(), keys.end());
        const auto query = [&] { return table->Select().Where(ConditionOf(text.text, wanted)).OrderBy(""); };
        EXPECT_THAT(query().Keys(), IsOkAndHolds(keys)) << text.text << static_cast<int>(wanted);
        if (!has_index) continue;
        EXPECT_THAT(query().Explain(), IsOkAndHolds(HasSubstr("index t:token"))) << text.text;
      }
    }
  }
  EXPECT_THAT(table->Verify(), IsOk());
}

// ---- indices of another version ----

constexpr std::string_view kOtherTables = "Unicode 13.0.0, utf8proc 2.6.1";
const IndexOptions kIndices[] = {{.name = "words", .columns = {{"t", IndexKind::kToken}}},
                                 {.name = "part", .columns = {{"n"}}, .where = "t all '\xc3\x84rger'"},
                                 {.name = "plain", .columns = {{"n"}}},
                                 {.name = "grams", .columns = {{"t", IndexKind::kQGram}}}};

constexpr std::uint16_t kOfWords[] = {1, 2};  // the numbers of those that depend on words

class OtherUnicodeTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path_));
    for (const IndexOptions& index : kIndices) ASSERT_THAT(table->CreateIndex(index), IsOk());
    ASSERT_THAT(table->Put("a", {{"t", "\xc3\x84rger"}, {"n", 1}}), IsOk());
    ASSERT_THAT(table->Put("b", {{"t", "\xc3\xa4rger"}, {"n", 2}}), IsOk());
    ASSERT_THAT(table->Put("c", {{"t", "none"}, {"n", 3}}), IsOk());
    ASSERT_THAT(table->Close(), IsOk());
  }

  std::unique_ptr<TreeDBM<>> OpenStore() {
    auto tree = TreeDBM<>::Open(path_, {.type = kTableType});
    EXPECT_THAT(tree, IsOk());
    return *std::move(tree);
  }
  static std::string Read(TreeDBM<>& store, std::string_view key) {
    std::string value;
    EXPECT_THAT(store.Get(key, &value), IsOk());
    return value;
  }
  static std::vector<std::string> KeysOf(TreeDBM<>& store, const std::string& prefix) {
    std::vector<std::string> keys;
    auto cursor = store.MakeIterator();
    for (cursor.Jump(prefix); cursor.Valid() && cursor.key().starts_with(prefix); cursor.Next()) keys.emplace_back(cursor.key());
    return keys;
  }
  // The version in the record of an index, at its end.
  static bool Replace(std::string_view from, std::string_view to, std::string* record) {
    const std::string before = static_cast<char>(from.size()) + std::string(from), after = static_cast<char>(to.size()) + std::string(to);
    if (!record->ends_with(before)) return false;
    record->replace(record->size() - before.size(), before.size(), after);
    return true;
  }
  static std::string BlockOf(const std::vector<table::RowNumber>& numbers) {
    std::string block;
    EXPECT_EQ(table::EncodePostings(numbers, 0, &block), numbers.size());
    return block;
  }
  // Of the first index, words of rows; of the second, rows.
  static std::size_t NumEntries(TreeDBM<>& store, std::uint16_t number) {
    std::size_t count = 0;
    for (const std::string& key : KeysOf(store, table::EntryPrefix(number)))
      count += number == 1 ? table::DecodePostingHead(Read(store, key))->count : 1;
    return count;
  }
  // As the other version has left the file, to which an A with an umlaut was no letter: the first two indices lack entries.
  void MakeOld() {
    const auto store = OpenStore();
    const std::string without_a = BlockOf({1});
    for (const std::uint16_t number : kOfWords) {
      std::string record = Read(*store, table::CatalogueKey('i', number));
      ASSERT_TRUE(Replace(table::WordTables(), kOtherTables, &record));
      Set(*store, table::CatalogueKey('i', number), Action::Set(record));
      for (const std::string& key : KeysOf(*store, table::EntryPrefix(number))) {
        if (number == 2 && key.ends_with("a")) Set(*store, key, Action::Remove());
        if (number == 1 && key.find("rger") != key.npos) Set(*store, key, Action::Set(without_a));
      }
    }
    ASSERT_THAT(store->Close(), IsOk());
  }
  static void Set(TreeDBM<>& store, std::string_view key, const Action& action) {
    ASSERT_THAT(store.Process(key, [&](std::optional<std::string_view>) { return action; }), IsOk());
  }
  void ExpectRows(TableDBM& table) {
    EXPECT_THAT(table.Select().Where(Column("t").HasAll("\xc3\x84RGER")).OrderBy("").Keys(), IsOkAndHolds(ElementsAre("a", "b")));
    EXPECT_THAT(table.Select().Where(Column("t").HasAll("\xc3\x84rger") && Column("n") >= 1).OrderBy("").Keys(),
                IsOkAndHolds(ElementsAre("a", "b")));
    EXPECT_THAT(table.Select().Where(Column("t").Contains("none")).Keys(), IsOkAndHolds(ElementsAre("c")));
    EXPECT_THAT(table.Verify(), IsOk());
  }
  static std::vector<std::string> ReadyOf(TableDBM& table) {
    std::vector<std::string> names;
    for (const IndexInfo& index : table.Indices()) {
      if (index.is_ready) names.push_back(index.options.name);
    }
    return names;
  }

  const TempDir dir_;
  const std::string path_ = dir_.File("a.hktb");
};

TEST_F(OtherUnicodeTest, OpenBuildsIndicesOfWordsAgain) {
  {
    const auto store = OpenStore();
    for (const std::uint16_t number : {std::uint16_t{3}, std::uint16_t{4}}) {
      std::string record = Read(*store, table::CatalogueKey('i', number));
      EXPECT_TRUE(Replace("", "", &record)) << "an index without words has a version";
    }
  }
  MakeOld();
  {
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path_));
    EXPECT_THAT(ReadyOf(*table), ElementsAre("words", "part", "plain", "grams"));
    ExpectRows(*table);
    EXPECT_THAT(table->Select().Where(Column("t").HasAll("\xc3\x84RGER")).Explain(), IsOkAndHolds(HasSubstr("index words")));
  }
  const auto store = OpenStore();
  for (const std::uint16_t number : kOfWords) EXPECT_TRUE(Read(*store, table::CatalogueKey('i', number)).ends_with(table::WordTables()));
}

TEST_F(OtherUnicodeTest, ReadOnlyTableDoesNotUseThem) {
  MakeOld();
  ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path_, {.file = {.mode = OpenMode::kReadOnly}}));
  EXPECT_THAT(ReadyOf(*table), ElementsAre("plain", "grams"));
  ExpectRows(*table);
}

// Each call of Open fails in turn. What is left, neither version takes for ready but with all entries of its own.
TEST_F(OtherUnicodeTest, FailedOpenLeavesNoIndexThatLooksReady) {
  bool is_over = false;
  for (int step = 0; !is_over; ++step) {
    SCOPED_TRACE(step);
    MakeOld();
    const auto hook = std::make_shared<StoreHook>();
    int calls = 0;
    hook->before = [&](StoreHook::Call) { return calls++ == step ? absl::UnavailableError("refused") : absl::OkStatus(); };
    const StatusOr<std::unique_ptr<TableDBM>> opened = TableDBM::Open(std::make_unique<HookedStore<TreeDBM<>>>(OpenStore(), hook), {});
    hook->before = nullptr;
    is_over = calls <= step;
    if (opened.ok()) {
      EXPECT_THAT((*opened)->Close(), IsOk());
    }
    {
      const auto store = OpenStore();
      for (const std::uint16_t number : kOfWords) {
        std::string record = Read(*store, table::CatalogueKey('i', number));
        const bool is_old = Replace(kOtherTables, "", &record), is_ready = record[0] == static_cast<char>(table::IndexState::kReady);
        const std::size_t num_entries = NumEntries(*store, number);
        const std::size_t num_complete = (number == 1 ? 3u : 2u) - (is_old ? 1u : 0u);
        EXPECT_TRUE(!is_ready || num_entries == num_complete) << number << ": " << num_entries;
      }
    }
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path_));
    EXPECT_THAT(ReadyOf(*table), ElementsAre("words", "part", "plain", "grams"));
    ExpectRows(*table);
  }
}

TEST_F(OtherUnicodeTest, UniqueIndexThatIsNoLongerUniqueIsNotDropped) {
  {
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path_));
    for (const IndexOptions& index : kIndices) ASSERT_THAT(table->DropIndex(index.name), IsOk());
    ASSERT_THAT(table->CreateIndex({.name = "u", .columns = {{"n"}}, .unique = true, .where = "t all '\xc3\xa4rger'"}), IsOk());
    ASSERT_THAT(table->Close(), IsOk());
  }
  {  // The other version took a and b for rows without the word.
    const auto store = OpenStore();
    const std::vector<std::string> records = KeysOf(*store, table::CatalogueKey('i'));
    ASSERT_EQ(records.size(), 1u);
    std::string record = Read(*store, records[0]);
    ASSERT_TRUE(Replace(table::WordTables(), kOtherTables, &record));
    Set(*store, records[0], Action::Set(record));
    const std::string row = Read(*store, table::RowKey("a"));
    Set(*store, table::RowKey("b"), Action::Set(row));
    ASSERT_THAT(store->Close(), IsOk());
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(TableDBM::Open(path_).status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                         testing::AllOf(HasSubstr("index u cannot be unique"), HasSubstr("drop it"))));
  }
  ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path_, {.file = {.mode = OpenMode::kReadOnly}}));
  EXPECT_THAT(ReadyOf(*table), IsEmpty());
}

}  // namespace
}  // namespace hako
