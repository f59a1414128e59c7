// The commands on tables: hako table create, columns, schema, put, get, remove, query, explain, index,
// import, export, verify.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "hako/table/table_dbm.h"
#include "tool/command.h"
#include "tool/database.h"
#include "tool/output.h"
#include "tool/progress.h"
#include "tool/row_printer.h"
#include "tool/table_statement.h"
#include "tool/table_text.h"
#include "tool/table_transfer.h"

namespace hako::tool {
namespace {

struct TableCommand {
  DatabaseOptions database;
  std::vector<std::string> columns;  // create
  bool closed = false;
  std::string key;
  std::vector<std::string> cells;  // put: NAME=VALUE
  bool keep = false, update = false, append = false;
  std::string statement;
  std::vector<std::string> parameters;
  RowStyleOption style;
  bool json = false;
  std::string name, kind = "ordered", where, on, covering, drop;  // index
  std::int64_t q = 3;
  bool unique = false, positions = false;
};

int RunCreate(const TableCommand& given) {
  TableCommand options = given;
  TableOptions table;
  table.closed_schema = options.closed;
  for (const std::string& text : options.columns) {
    const std::vector<std::string> words = absl::StrSplit(text, ':');
    ColumnOptions column;
    for (std::size_t i = 1; i < words.size(); ++i) {
      bool known = words[i] == "not_null" || words[i] == "unique";
      column.not_null = column.not_null || words[i] == "not_null";
      column.unique = column.unique || words[i] == "unique";
      for (const ColumnType type :
           {ColumnType::kAny, ColumnType::kString, ColumnType::kInt64, ColumnType::kDouble, ColumnType::kBool, ColumnType::kBytes}) {
        if (words[i] != NameOf(type)) continue;
        column.type = type;
        known = true;
      }
      if (!known)
        return FailUsage("table create", absl::StrCat("column '", words[0], "' has the unknown type '", words[i],
                                                      "'; use string, int64, double, bool, bytes or any, and not_null, unique"));
    }
    table.columns.emplace_back(words[0], column);
  }
  if (std::filesystem::exists(options.database.path())) {
    Complain(absl::StrCat(options.database.path(), ": exists; give another name, or remove it first"), "table create");
    return kExitNo;
  }
  options.database.any.file.mode = OpenMode::kCreate;
  return WithTable(
      options.database, [](TableDBM&) { return kExitDone; }, table);
}

int RunPut(const TableCommand& options) {
  std::vector<std::pair<std::string, OwnedValue>> owned;
  for (const std::string& cell : options.cells) {
    const std::size_t equals = cell.find('=');
    if (equals == cell.npos || equals == 0) return FailUsage("table put", absl::StrCat("'", cell, "' is not NAME=VALUE"));
    owned.emplace_back(cell.substr(0, equals), LiteralOf(cell.substr(equals + 1)));
  }
  std::vector<Cell> cells;
  for (const auto& [name, value] : owned) cells.push_back({name, value.get()});
  return WithTable(options.database, [&](TableDBM& table) -> int {
    const Status status = options.keep     ? table.PutKeep(options.key, cells)
                          : options.update ? table.Update(options.key, cells)
                          : options.append ? table.Append(options.key, cells)
                                           : table.Put(options.key, cells);
    const bool exists = absl::IsAlreadyExists(status) && status.message().empty();
    if (exists || absl::IsNotFound(status)) {
      Note(absl::StrCat(options.database.path(), exists ? ": there is a row '" : ": no row '", options.key, "'"));
      return kExitNo;
    }
    return status.ok() ? kExitDone : FailTable(options.database, status);
  });
}

int RunGet(const TableCommand& options) {
  return WithTable(options.database, [&](TableDBM& table) -> int {
    Output output(STDOUT_FILENO);
    const Status status = table.Get(options.key, [&](const RowView& row) { AppendJsonRow(options.key, row, {}, output.buffer()); });
    if (absl::IsNotFound(status)) {
      Note(absl::StrCat(options.database.path(), ": no row '", options.key, "'"));
      return kExitNo;
    }
    return status.ok() ? Finish(output, kExitDone) : FailTable(options.database, status);
  });
}

int RunRemove(const TableCommand& options) {
  return WithTable(options.database, [&](TableDBM& table) -> int {
    const Status status = table.Remove(options.key);
    if (!absl::IsNotFound(status)) return status.ok() ? kExitDone : FailTable(options.database, status);
    Note(absl::StrCat(options.database.path(), ": no row '", options.key, "'"));
    return kExitNo;
  });
}

int RunQuery(const TableCommand& given) {
  TableCommand options = given;
  const StatusOr<Statement> statement = ParseWithParameters(options.statement, options.parameters);
  if (!statement.ok()) return FailUsage("table query", ToStd(statement.status().message()));
  const bool reads = statement->kind == Statement::Kind::kSelect;
  options.database.any.file.mode = reads ? OpenMode::kReadOnly : OpenMode::kReadWrite;
  return WithTable(options.database,
                   [&](TableDBM& table) { return RunStatement(options.database, table, *statement, options.style.style()); });
}

int RunExplain(const TableCommand& options) {
  const StatusOr<Statement> statement = ParseWithParameters(options.statement, options.parameters);
  if (!statement.ok()) return FailUsage("table explain", ToStd(statement.status().message()));
  return WithTable(options.database, [&](TableDBM& table) { return ExplainStatement(options.database, table, *statement); });
}

void AppendIndex(const IndexInfo& info, std::string* out) {
  const IndexOptions& index = info.options;
  absl::StrAppend(out, index.name, "\t");
  for (std::size_t i = 0; i < index.columns.size(); ++i)
    absl::StrAppend(out, i > 0 ? ", " : "", index.columns[i].column, " ", ToAbsl(NameOf(index.columns[i].kind)));
  if (index.unique) absl::StrAppend(out, "\tunique");
  if (index.positions) absl::StrAppend(out, "\tpositions");
  if (!index.covering.empty()) absl::StrAppend(out, "\tcovers ", absl::StrJoin(index.covering, ", "));
  if (!index.where.empty()) absl::StrAppend(out, "\twhere ", index.where);
  absl::StrAppend(out, info.is_ready ? "\n" : "\tnot ready\n");
}

// Whether a unique index makes the values of the column unique.
bool IsUnique(const std::vector<IndexInfo>& indices, const std::string& column) {
  return std::any_of(indices.begin(), indices.end(), [&](const IndexInfo& info) {
    return info.options.unique && info.options.where.empty() && info.options.columns.size() == 1 &&
           info.options.columns[0].column == column;
  });
}

std::string RulesOf(const ColumnInfo& column, bool is_unique) {
  std::vector<std::string> rules;
  if (column.not_null) rules.emplace_back("not_null");
  if (is_unique) rules.emplace_back("unique");
  if (const Value value = column.default_value.get(); !value.is_null()) rules.push_back(absl::StrCat("default ", value.ToText()));
  return absl::StrJoin(rules, ", ");
}

using Json = nlohmann::ordered_json;

Json ToJson(const Value& value) {
  std::string text;
  AppendJsonValue(value, &text);
  return Json::parse(text);
}

Json ToJson(const ColumnInfo& column, bool is_unique) {
  return {{"name", column.name},
          {"type", std::string(NameOf(column.type))},
          {"not_null", column.not_null},
          {"unique", is_unique},
          {"default", ToJson(column.default_value.get())}};
}

Json ToJson(const IndexInfo& info) {
  const IndexOptions& index = info.options;
  Json columns = Json::array();
  for (const IndexColumn& part : index.columns) columns.push_back({{"name", part.column}, {"kind", std::string(NameOf(part.kind))}});
  Json json = {{"name", index.name}, {"columns", std::move(columns)}, {"unique", index.unique}, {"covering", index.covering}};
  json["where"] = index.where.empty() ? Json() : Json(index.where);
  if (index.columns[0].kind == IndexKind::kQGram) json["q"] = index.q;
  if (index.columns[0].kind >= IndexKind::kToken) json["positions"] = index.positions;
  json["ready"] = info.is_ready;
  return json;
}

int RunColumns(const TableCommand& options) {
  return WithTable(options.database, [&](TableDBM& table) {
    Output output(STDOUT_FILENO);
    const std::vector<IndexInfo> indices = table.Indices();
    const bool is_box = !options.json && isatty(STDOUT_FILENO) == 1;
    RowPrinter box(RowStyle::kBox, {"column", "type", "rules"}, output);
    for (const ColumnInfo& column : table.Columns()) {
      const bool is_unique = IsUnique(indices, column.name);
      const std::string type(NameOf(column.type)), rules = RulesOf(column, is_unique);
      if (is_box)
        box.Add({{"column", OwnedValue(Value(column.name))}, {"type", OwnedValue(Value(type))}, {"rules", OwnedValue(Value(rules))}});
      else if (options.json)
        output.buffer()->append(ToJson(column, is_unique).dump(-1, ' ', false, Json::error_handler_t::replace)).append("\n");
      else
        absl::StrAppend(output.buffer(), column.name, "\t", type, rules.empty() ? "" : "\t", rules, "\n");
    }
    if (is_box) box.Finish();
    return Finish(output, kExitDone);
  });
}

int RunSchema(const TableCommand& options) {
  return WithTable(options.database, [&](TableDBM& table) {
    Output output(STDOUT_FILENO);
    const std::vector<IndexInfo> indices = table.Indices();
    Json root = {{"closed", table.HasClosedSchema()}, {"columns", Json::array()}, {"indices", Json::array()}};
    std::string text = absl::StrCat("schema\t", table.HasClosedSchema() ? "closed: rows have no other columns" : "open", "\n");
    for (const ColumnInfo& column : table.Columns()) {
      const bool is_unique = IsUnique(indices, column.name);
      root["columns"].push_back(ToJson(column, is_unique));
      const std::string rules = RulesOf(column, is_unique);
      absl::StrAppend(&text, "column\t", column.name, "\t", ToAbsl(NameOf(column.type)), rules.empty() ? "" : "\t", rules, "\n");
    }
    for (const IndexInfo& info : indices) {
      root["indices"].push_back(ToJson(info));
      text += "index\t";
      AppendIndex(info, &text);
    }
    if (options.json) text = root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    output.buffer()->append(text);
    return Finish(output, kExitDone);
  });
}

int RunIndex(const TableCommand& given) {
  TableCommand options = given;
  IndexOptions index;
  index.name = options.name;
  index.unique = options.unique;
  index.where = options.where;
  index.q = static_cast<unsigned>(options.q);
  index.positions = options.positions;
  IndexKind kind = IndexKind::kOrdered;
  for (const IndexKind one : {IndexKind::kNumeric, IndexKind::kToken, IndexKind::kQGram}) kind = options.kind == NameOf(one) ? one : kind;
  for (const auto part : absl::StrSplit(options.on, ',', absl::SkipEmpty())) {  // NAME or NAME:KIND
    const std::vector<std::string> words = absl::StrSplit(part, ':');
    IndexColumn column{words[0], kind};
    for (const IndexKind one : {IndexKind::kOrdered, IndexKind::kNumeric, IndexKind::kToken, IndexKind::kQGram}) {
      if (words.size() > 1 && words[1] == NameOf(one)) column.kind = one;
    }
    if (words.size() > 1 && words[1] != NameOf(column.kind))
      return FailUsage("table index", absl::StrCat("'", words[1], "' is no kind of index"));
    index.columns.push_back(std::move(column));
  }
  for (const auto name : absl::StrSplit(options.covering, ',', absl::SkipEmpty())) index.covering.emplace_back(name);
  const bool changes = !options.on.empty() || !options.drop.empty();
  options.database.any.file.mode = changes ? OpenMode::kReadWrite : OpenMode::kReadOnly;
  return WithTable(options.database, [&](TableDBM& table) -> int {
    if (!options.drop.empty()) {
      const Status dropped = table.DropIndex(options.drop);
      if (absl::IsNotFound(dropped)) {
        Note(absl::StrCat(options.database.path(), ": no index '", options.drop, "'"));
        return kExitNo;
      }
      if (!dropped.ok()) return FailTable(options.database, dropped);
    }
    if (!options.on.empty()) {
      Progress progress(Progress::Stream(true), table.Count().value_or(0));
      const Status created = table.CreateIndex(index, [&progress](std::uint64_t num_rows) { progress.Update(num_rows, num_rows); });
      progress.Finish();
      if (!created.ok()) return FailTable(options.database, created);
    }
    if (changes) return kExitDone;
    Output output(STDOUT_FILENO);
    for (const IndexInfo& info : table.Indices()) AppendIndex(info, output.buffer());
    return Finish(output, kExitDone);
  });
}

int RunVerify(const TableCommand& options) {
  return WithTable(options.database, [&](TableDBM& table) -> int {
    const Status status = table.Verify();
    if (!status.ok()) return FailDatabase(options.database, status);
    return kExitDone;
  });
}

void AddIndexOptions(CLI::App* app, TableCommand& options) {
  app->add_option("--on", options.on, "Create an index on these columns: NAME or NAME:KIND, separated by commas")->type_name("COLUMNS");
  AddChoice(app, "--kind", &options.kind, {"ordered", "numeric", "token", "qgram"},
            "The kind of its columns, default ordered; numeric: the numbers of texts, token: words, qgram: substrings");
  app->add_option("--name", options.name, "Its name, default that of its columns")->type_name("NAME");
  app->add_flag("--unique", options.unique, "No two rows have the same value");
  app->add_option("--covering", options.covering, "Further columns that are stored with it")->type_name("COLUMNS");
  app->add_option("--where", options.where, "Only rows that meet this condition")->type_name("CONDITION");
  AddNumber(app, "--q", &options.q, "Characters of a q-gram, default 3", 1, 8);
  app->add_flag("--positions", options.positions, "Positions of words or q-grams, which decide on phrases and long substrings");
  app->add_option("--drop", options.drop, "Drop this index")->type_name("NAME");
}

void AddPutOptions(CLI::App* app, TableCommand& options) {
  app->add_option(
         "CELL", options.cells,
         "NAME=VALUE: true, false, null, 'text' in quotes, or text as the column's type takes it; in a column without a type it is a "
         "number if hako writes that number so (36, -0.5, but not 007)")
      ->type_name("");
  CLI::Option* const keep = app->add_flag("--keep", options.keep, "Only if there is no such row");
  CLI::Option* const update = app->add_flag("--update", options.update, "Only these columns of an existing row");
  app->add_flag("--append", options.append, "Append to the text of these columns")->excludes(keep)->excludes(update);
  update->excludes(keep);
}

}  // namespace

void AddTableCommand(Commands& commands) {
  CLI::App* const group =
      commands.Add("table", "Rows of named columns in a table (.hktb), with indices and queries", [] { return kExitDone; });
  const char* const kFile = "The table's file, usually NAME.hktb; options of a tree may follow it, as '?cache_bytes=1gi'";
  const auto add = [&](const char* name, const char* summary, int (*run)(const TableCommand&), Access access) {
    const auto options = std::make_shared<TableCommand>();
    CLI::App* const app = commands.Add(
        name, summary, [options, run] { return run(*options); }, group);
    AddDatabase(app, "FILE", &options->database, access, kFile)->required();
    AddSpace(app, &options->database);
    AddFileOptions(app, &options->database, access);
    return std::pair(app, options);
  };
  const auto add_key = [](CLI::App* app, TableCommand& options) {
    app->add_option("KEY", options.key, "The primary key")->required()->type_name("");
  };
  const auto add_json = [](CLI::App* app, TableCommand& options, const char* description) {
    app->add_flag("--json", options.json, description);
  };

  auto [create, create_options] = add("create", "Create a table", RunCreate, Access::kWrite);
  create->add_option("--column", create_options->columns, "A column: NAME:TYPE, and :not_null or :unique; several times")
      ->type_name("COLUMN");
  create->add_flag("--closed", create_options->closed, "Rows have no other columns than these");

  auto [columns, columns_options] =
      add("columns", "List the columns that rows have had, with their types and rules", RunColumns, Access::kRead);
  add_json(columns, *columns_options, "A JSON object a column: name, type, not_null, unique, default");
  auto [schema, schema_options] = add("schema", "Show the columns, their rules, and the indices", RunSchema, Access::kRead);
  add_json(schema, *schema_options, "One JSON object: closed, columns, indices");

  auto [put, put_options] = add("put", "Store a row, or change some of its columns; exit code 1 if --keep or --update finds it otherwise",
                                RunPut, Access::kWrite);
  add_key(put, *put_options);
  AddPutOptions(put, *put_options);

  auto [get, get_options] = add("get", "Print a row as JSON; exit code 1 if it is absent", RunGet, Access::kRead);
  add_key(get, *get_options);
  auto [remove, remove_options] = add("remove", "Remove a row; exit code 1 if it is absent", RunRemove, Access::kWrite);
  add_key(remove, *remove_options);

  const auto add_statement = [](CLI::App* app, TableCommand& options) {
    app->add_option("STATEMENT", options.statement,
                    "As \"select name, age where age >= 20 order by age desc limit 10\", \"update set age = null where age < 0 limit "
                    "1000\", \"delete where age < 0 in batches\"")
        ->required()
        ->type_name("");
    app->add_option(
           "PARAMETER", options.parameters,
           "What stands for each ? of the statement: a number, true, false, null, or else a text; 'text' in quotes is a text in any case")
        ->type_name("");
  };
  auto [query, query_options] = add("query", "Run a statement: select, update or delete", RunQuery, Access::kWrite);
  add_statement(query, *query_options);
  query_options->style.AddTo(query);
  auto [explain, explain_options] = add("explain", "Print how a statement finds its rows", RunExplain, Access::kRead);
  add_statement(explain, *explain_options);

  auto [index, index_options] = add("index", "List, create or drop indices", RunIndex, Access::kWrite);
  AddIndexOptions(index, *index_options);

  const auto add_transfer = [&](const char* name, const char* summary, int (*run)(TableTransfer), Access access, const char* text) {
    const auto options = std::make_shared<TableTransfer>();
    CLI::App* const app = commands.Add(
        name, summary, [options, run] { return run(*options); }, group);
    AddDatabase(app, "FILE", &options->database, access, kFile)->required();
    AddSpace(app, &options->database);
    AddFileOptions(app, &options->database, access);
    app->add_option("TEXT", options->text, text)->type_name("");
    AddChoice(app, "--format", &options->format, {"csv", "jsonl"}, "The format, default by the suffix of TEXT; of a standard stream jsonl");
    return std::pair(app, options);
  };
  auto [import, import_options] = add_transfer("import", "Store the rows of a text; creates the table if it is absent", ImportRows,
                                               Access::kWrite, "The text to read, default standard input");
  import->add_option("--key", import_options->key_name, "The field that is the primary key, default 'key', else the first of CSV")
      ->type_name("NAME");
  add_transfer("export", "Write all rows as a text", ExportRows, Access::kRead, "The text to write, default standard output");
  auto [verify, verify_options] =
      add("verify", "Check the file, each row and all indices; exit code 1 if there is damage", RunVerify, Access::kRead);
  verify_options->database.on_damage = kExitNo;
}

}  // namespace hako::tool
