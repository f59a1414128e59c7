// Parses a statement and a condition. Each that is well-formed is answered by a table with indices of
// all kinds as by one without, which tests all rows; it is the same after it was written as text.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.h"
#include "hako/table/table_dbm.h"

namespace hako::fuzz {
namespace {

constexpr std::string_view kTokens[] = {"select",
                                        "update",
                                        "delete",
                                        "set",
                                        "where",
                                        "order by",
                                        "group by",
                                        "limit",
                                        "offset",
                                        "desc",
                                        "numeric",
                                        "numeric(n)",
                                        "numeric(s)",
                                        "inf",
                                        "key",
                                        "n",
                                        "s",
                                        "t",
                                        "u",
                                        "absent",
                                        "\"s\"",
                                        "count(*)",
                                        "sum(n)",
                                        "min(s)",
                                        "max(n)",
                                        "and",
                                        "or",
                                        "not",
                                        "(",
                                        ")",
                                        ",",
                                        "*",
                                        "=",
                                        "!=",
                                        "<",
                                        "<=",
                                        ">",
                                        ">=",
                                        "between",
                                        "in (",
                                        "is null",
                                        "is not null",
                                        "contains",
                                        "begins",
                                        "ends",
                                        "matches",
                                        "all",
                                        "any",
                                        "phrase",
                                        "search",
                                        "'a'",
                                        "'ab'",
                                        "'b a'",
                                        "'k1'",
                                        "'k7'",
                                        "''",
                                        "x'00'",
                                        "'a*b|c'",
                                        "'-a \"b a\"|c'",
                                        "0",
                                        "1",
                                        "1.0",
                                        "-2.5",
                                        "7",
                                        "9007199254740993",
                                        "1e300",
                                        "true",
                                        "false",
                                        "null",
                                        "'\xce\xb1\xce\xb2'",
                                        "'7'",
                                        "'(a|b)+'"};

Value NumberOf(std::uint64_t random, std::string* buffer) {
  const auto number = static_cast<std::int64_t>(random % 9) - 2;
  if (random / 9 % 5 == 0) return Value(static_cast<double>(number) + 0.5);
  if (random / 9 % 5 == 1) return Value(*buffer = std::to_string(number));
  return random / 9 % 7 == 0 ? Value((std::int64_t{1} << 53) + number) : Value(number);
}

std::unique_ptr<TableDBM> MakeTable(bool is_indexed) {
  auto table = *TableDBM::OpenInMemory();
  if (is_indexed) {
    const IndexOptions indices[] = {{.columns = {{"s"}}},
                                    {.columns = {{"n", IndexKind::kNumeric}}},
                                    {.columns = {{"n"}}, .covering = {"s"}},
                                    {.columns = {{"t", IndexKind::kToken}}},
                                    {.columns = {{"t", IndexKind::kQGram}}, .q = 2},
                                    {.columns = {{"s"}, {"n", IndexKind::kNumeric}}},
                                    {.name = "part", .columns = {{"s"}}, .where = "n >= 1"},
                                    {.columns = {{"u"}}, .unique = true}};
    for (const IndexOptions& index : indices) Require(table->CreateIndex(index).ok(), "cannot make an index");
  }
  Random random(1);
  for (int i = 0; i < 40; ++i) {
    std::string buffer, s, t;
    const Value number = NumberOf(random.Next(), &buffer);
    for (std::uint64_t left = random.Below(4); left > 0; --left) s.push_back(static_cast<char>('a' + random.Below(3)));
    for (std::uint64_t left = random.Below(5); left > 0; --left)
      t += random.OneIn(3) ? "A, " : random.OneIn(2) ? "b " : "\xce\xb1\xce\xb2 c";
    std::vector<Cell> cells = {{"u", i}};
    if (!random.OneIn(5)) cells.push_back({"n", number});
    if (!random.OneIn(5)) cells.push_back({"s", s});
    if (!random.OneIn(5)) cells.push_back({"t", t});
    Require(table->Put("k" + std::to_string(i), cells).ok(), "cannot make a row");
  }
  return table;
}

std::vector<std::string> RowsOf(const Query& query) {
  std::vector<std::string> rows;
  const Status status = query.Each([&rows](std::string_view key, const RowView& row) {
    rows.push_back(std::string(key) + ":" + row["s"].ToText() + ":" + row["n"].ToText());
    return true;
  });
  Require(status.ok(), "a query failed:", status);
  return rows;
}

void Compare(const Query& indexed, const Query& plain, bool is_ordered) {
  std::vector<std::string> rows = RowsOf(indexed), expected = RowsOf(plain);
  if (!is_ordered) std::sort(rows.begin(), rows.end()), std::sort(expected.begin(), expected.end());
  const bool is_same = rows == expected;
  if (!is_same) std::fprintf(stderr, "%s", indexed.Explain()->c_str());
  Require(is_same, "a query has other rows with indices than without");
  Require(*indexed.Count() == rows.size(), "Count differs from the rows");
  Require(indexed.Keys()->size() == rows.size(), "Keys differ from the rows");
}

void RunStatement(TableDBM& indexed, TableDBM& plain, std::string_view text) {
  const StatusOr<Statement> statement = ParseStatement(text);
  if (!statement.ok())
    return Require(absl::IsInvalidArgument(statement.status()) && statement.status().message().find("position ") == 0,
                   "another error than a position:", statement.status());
  const StatusOr<Query> query = indexed.Select(*statement), expected = plain.Select(*statement);
  Require(query.ok() == expected.ok(), "a statement has other columns with indices than without", query.status());
  if (!query.ok()) return Require(absl::IsInvalidArgument(query.status()), "another error:", query.status());
  Compare(*query, *expected, statement->order_by || statement->limit || statement->offset != 0);
  if (statement->kind != Statement::Kind::kSelect || (!statement->order_by && !statement->limit && statement->aggregates.empty())) return;
  const auto results_of = [&statement](TableDBM& table) {
    std::vector<std::string> results;
    const StatusOr<std::uint64_t> shown = table.Run(*statement, [&results](const ResultRow& row) {
      std::string& result = results.emplace_back();
      for (const Cell& cell : row.cells) result.append(cell.column).append("=").append(cell.value.ToText()).append(",");
      return true;
    });
    Require(shown.ok() && *shown == results.size(), "a select failed:", shown.status());
    return results;
  };
  Require(results_of(indexed) == results_of(plain), "a select shows other rows with indices than without");
}

void RunCondition(TableDBM& indexed, TableDBM& plain, std::string_view text) {
  const StatusOr<Condition> condition = ParseCondition(text);
  if (!condition.ok()) return Require(absl::IsInvalidArgument(condition.status()), "another error:", condition.status());
  const std::string again = condition->ToText();
  const StatusOr<Condition> parsed = ParseCondition(again);
  Require(parsed.ok() && parsed->ToText() == again, "a condition changes when written and read: " + again, parsed.status());
  Compare(indexed.Select().Where(*condition), plain.Select().Where(*parsed), false);
  Compare(indexed.Select().Where(*condition).OrderBy("s", RowOrder::kDescending).Limit(5, 1),
          plain.Select().Where(*parsed).OrderBy("s", RowOrder::kDescending).Limit(5, 1), true);
}

void Run(std::string_view input) {
  static const std::unique_ptr<TableDBM> indexed = MakeTable(true), plain = MakeTable(false);
  RunStatement(*indexed, *plain, input);
  const std::size_t where = input.find("where");
  RunCondition(*indexed, *plain, where == input.npos ? input : input.substr(where + 5));
}

// Replaces, inserts, removes and repeats tokens, and sometimes bytes.
void Mutate(std::string& input, Random& random) {
  if (random.OneIn(6)) return MutateBytes(input, random);
  std::vector<std::size_t> blanks = {0};
  for (std::size_t i = 0; i < input.size(); ++i) {
    if (input[i] == ' ') blanks.push_back(i);
  }
  const std::size_t at = blanks[random.Below(blanks.size())], end = std::min(input.size(), input.find(' ', at + 1));
  const std::string token = " " + std::string(kTokens[random.Below(std::size(kTokens))]) + " ";
  switch (random.Below(4)) {
    case 0:
      input.erase(at, end - at);
      break;
    case 1:
      input.replace(at, end - at, token);
      break;
    case 2:
      input.insert(at, input.substr(at, std::min<std::size_t>(random.Below(40), 2000 - std::min<std::size_t>(2000, input.size()))));
      break;
    default:
      input.insert(at, token);
  }
}

std::vector<std::string> MakeSeeds() {
  return {"select key , n where n >= 1 and s begins 'a' order by n desc numeric limit 10 offset 2",
          "select count(*) , sum(n) where t search 'a \"b a\" | -c' group by s",
          "select where t contains 'A, ' and t contains ', b' or key between 'k1' and 'k3' or not s = 'ab'",
          "select where n in ( 1 , 1.0 , '1' , 7 ) or s in ( 'a' , 'b' ) order by key desc",
          "delete where t all 'a b' and t any 'c' and t phrase 'a b' and n < 9007199254740993",
          "update set n = null where n is null and s is not null and t matches '^(A|b)+' and t ends ' '",
          "select where n between -2.5 and 3 and n >= 1 and s = 'a' order by s",
          "select where t contains '\xce\xb1\xce\xb2' and u = '7' and key in ( 'k7' , 'k8' )",
          "select where numeric(n) >= '1' and n <= inf and numeric(s) is null or n > 'a' order by n desc"};
}

const Registration kTarget({.name = "table_queries", .run = Run, .mutate = Mutate, .make_seeds = MakeSeeds, .mutants = 200});

}  // namespace
}  // namespace hako::fuzz
