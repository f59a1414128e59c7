// Opens a table on records that nobody checks: rows, entries of indices, the catalogue. What Verify
// finds sound is answered with indices as without, and stays sound when it is changed.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/target.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/table/table_dbm.h"

namespace hako::fuzz {
namespace {

using Records = std::vector<std::pair<std::string, std::string>>;

// An input: records of a length and a key, a length and a value.
Records Decode(std::string_view input) {
  Bytes bytes(input);
  Records records;
  while (!bytes.empty() && records.size() < 500) {
    const std::string_view key = bytes.Take(bytes.Byte());
    records.emplace_back(key, bytes.Take(bytes.Byte()));
  }
  return records;
}
std::string Encode(const Records& records) {
  std::string input;
  for (const auto& [key, value] : records) {
    for (const std::string& part : {key, value}) {
      input.push_back(static_cast<char>(std::min<std::size_t>(part.size(), 255)));
      input += part.substr(0, 255);
    }
  }
  return input;
}

std::unique_ptr<BabyDBM<>> MakeTree(const Records& records) {
  auto tree = BabyDBM<>::Open({.page_size = 512, .max_bytes = 64 << 20, .durability = Durability::kNone});
  Require(tree.ok(), "no memory", tree.status());
  for (const auto& [key, value] : records) Require((*tree)->Set(key, value).ok(), "cannot set");
  return *std::move(tree);
}

// Reads all in every way. The keys, and whether Verify finds it sound.
std::pair<std::vector<std::string>, bool> ReadAll(TableDBM& table) {
  std::vector<std::string> keys, sorted;
  auto plain = *TableDBM::OpenInMemory();
  for (const ColumnInfo& column : table.Columns()) (void)plain->SetColumn(column.name, {.type = column.type});
  Status refused;
  const Status scan = table.Select().Each([&](std::string_view key, const RowView& row) {
    std::vector<Cell> cells;
    for (std::size_t i = 0; i < row.size(); ++i) cells.push_back({row.name(i), row.value(i)});
    (void)row["n"].ToText();
    (void)row.Check();
    if (const Status put = plain->Put(key, cells); !put.ok()) refused = put;
    keys.emplace_back(key);
    return true;
  });
  const Status verified = table.Verify();
  Require(refused.ok() || !verified.ok(), "after Verify a row cannot be put:", refused);
  const std::string some = keys.empty() ? "" : keys[keys.size() / 2];
  const Condition conditions[] = {Column("n") >= 1,
                                  Column("n").IsNull(),
                                  Column("s") == "a",
                                  Column("s").BeginsWith("b"),
                                  Column("t").HasAll("word"),
                                  Column("t").Contains("word1"),
                                  Key() >= some,
                                  Column("u") == 7,
                                  Column("u").Numeric() < 5.5,
                                  Column("n").In({1, 2, "3", 2.0, true}),
                                  Column("s") < "b" && Column("n") < 7,
                                  Column("s") == "a" || Column("n") == 2};
  for (const Condition& condition : conditions) {
    const auto found = table.Select().Where(condition).OrderBy("").Keys();
    (void)table.Select().Where(condition).OrderBy("n", RowOrder::kDescending).Limit(3, 1).Keys();
    if (!verified.ok()) continue;
    const auto expected = plain->Select().Where(condition).OrderBy("").Keys();
    Require(found.ok() && *found == *expected, "after Verify a query has other rows with indices: " + condition.ToText(), found.status());
  }
  const auto count = table.Count();
  for (const std::string& key : keys) {
    const bool is_there = table.Get(key).ok();
    Require(is_there || !verified.ok(), "after Verify a row cannot be read");
  }
  if (verified.ok()) Require(scan.ok() && count.ok() && *count == keys.size(), "after Verify Count differs from the rows", scan);
  return {keys, verified.ok()};
}

void Run(std::string_view input) {
  auto opened = TableDBM::Open(MakeTree(Decode(input)));
  if (!opened.ok()) return Require(!opened.status().message().empty(), "a refusal says nothing:", opened.status());
  const std::unique_ptr<TableDBM> table = *std::move(opened);
  (void)table->Columns();
  (void)table->Indices();
  const auto [keys, is_sound] = ReadAll(*table);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i % 3 == 0) (void)table->Remove(keys[i]);
    if (i % 3 == 1) (void)table->Update(keys[i], {{"n", 5}, {"t", "another word"}, {"u", i % 2 == 0 ? Value(0.5) : Value("8")}});
    if (i % 3 == 2) (void)table->Append(keys[i], {{"s", "a"}});
  }
  (void)table->Put("new", {{"n", 1}, {"s", "a"}, {"t", "word"}});
  (void)table->Select().Where(Column("n") < 3).Update({{"s", "b"}});
  const Status created = table->CreateIndex({.name = "another", .columns = {{"s"}, {"n"}}});
  const bool is_sound_still = ReadAll(*table).second;
  Require(!is_sound || is_sound_still, "a sound table was changed and is damaged:", table->Verify());
  if (created.ok()) Require(table->DropIndex("another").ok(), "cannot drop");
  (void)table->Clear();
}

Records RecordsOf(bool has_words) {
  auto tree = BabyDBM<>::Open({.page_size = 512, .max_bytes = 64 << 20, .durability = Durability::kNone});
  BabyDBM<>* const db = tree->get();
  TableOptions options;
  options.columns = {{"n", {.type = ColumnType::kInt64}}, {"s", {.default_value = "a"}}};
  const auto table = *TableDBM::Open(*std::move(tree), options);
  const IndexOptions plain[] = {{.columns = {{"n"}}},
                                {.columns = {{"u", IndexKind::kNumeric}}},
                                {.columns = {{"s"}}, .covering = {"n"}},
                                {.columns = {{"u"}}, .unique = true},
                                {.name = "part", .columns = {{"s"}, {"n"}}, .where = "n >= 1"}};
  const IndexOptions words[] = {{.columns = {{"t", IndexKind::kToken}}}, {.columns = {{"t", IndexKind::kQGram}}}};
  for (const IndexOptions& index : plain) Require(has_words || table->CreateIndex(index).ok(), "cannot make an index");
  for (const IndexOptions& index : words) Require(!has_words || table->CreateIndex(index).ok(), "cannot make an index");
  for (int i = 0; i < (has_words ? 4 : 12); ++i) {
    const std::string s(1, static_cast<char>('a' + i % 3));
    Require(table->Put("k" + std::to_string(i), {{"n", i}, {"s", s}, {"t", "word" + s}, {"u", i}, {"d", 0.5}, {"b", true}}).ok(), "put");
  }
  Records records;
  Require(db->ProcessEach([&](std::string_view key, std::string_view value) { records.emplace_back(key, value); }).ok(), "scan");
  std::sort(records.begin(), records.end());
  return records;
}

std::vector<std::string> MakeSeeds() {
  std::vector<std::string> seeds;
  for (const bool has_words : {false, true}) {
    Records records = RecordsOf(has_words);
    seeds.push_back(Encode(records));
    records.insert(records.begin(), {std::string("\0n", 2), std::string("\0\0\0\0\0\0\0\x04", 8)});  // the number of rows
    seeds.push_back(Encode(records));
  }
  return seeds;
}

// Changes a key or a value, removes a record, or takes one twice.
void Mutate(std::string& input, Random& random) {
  Records records = Decode(input);
  if (records.empty() || random.OneIn(10)) return MutateBytes(input, random);
  const std::size_t at = random.Below(records.size());
  switch (random.Below(6)) {
    case 0:
      records.erase(records.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 1:
      records.push_back({records[at].first, records[random.Below(records.size())].second});
      break;
    case 2: {
      std::pair<std::string, std::string> copy = records[at];
      MutateBytes(copy.first, random);
      records.push_back(std::move(copy));
      break;
    }
    default:
      MutateBytes(random.OneIn(4) ? records[at].first : records[at].second, random);
  }
  input = Encode(records);
}

const Registration kTarget({.name = "table_records", .run = Run, .mutate = Mutate, .make_seeds = MakeSeeds, .mutants = 150});

}  // namespace
}  // namespace hako::fuzz
