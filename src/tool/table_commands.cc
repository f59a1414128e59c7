// The commands on tables: hako table create, put, get, remove, query, explain, index, import, export,
// verify.
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "hako/table/table_dbm.h"
#include "hako/text/json_record.h"
#include "tool/command.h"
#include "tool/database.h"
#include "tool/interrupt.h"
#include "tool/output.h"
#include "tool/table_text.h"
#include "tool/text_file.h"

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
  bool csv = false;
  std::string name, kind = "ordered", where, on, covering, drop;  // index
  std::int64_t q = 3;
  bool unique = false;
  std::string text, format, key_name;  // import, export
};

int FailTable(const TableCommand& options, const Status& status) {
  // What is wrong with the arguments, a statement or a row is no error of the file.
  if (absl::IsInvalidArgument(status) || absl::IsOutOfRange(status) || absl::IsAlreadyExists(status)) {
    Complain(absl::StrCat(options.database.path(), ": ", status.message()), "table");
    return kExitUsage;
  }
  return FailDatabase(options.database, status);
}

// Opens the table, runs `body`, and closes it.
int WithTable(const TableCommand& options, OpenMode mode, const std::function<int(TableDBM&)>& body, TableOptions table = {}) {
  if (SharedDatabase::IsThere()) return FailUsage("table", "the shell has another database open");
  const AnyOptions& any = options.database.any;
  if (!any.order.empty() || !any.codec.empty() || (any.kind != AnyOptions::kAuto && any.kind != AnyOptions::kTree))
    return FailUsage("table", absl::StrCat(options.database.path(), ": a table is in a tree of bytewise order without a codec"));
  table.tree = TreeOptionsOf(any);
  table.file = any.file;
  table.file.mode = mode;
  table.positional = any.device == "pos";
  const auto opened = TableDBM::Open(options.database.path(), table);
  if (!opened.ok())
    return absl::IsInvalidArgument(opened.status()) ? FailDatabase(options.database, opened.status()) : FailTable(options, opened.status());
  const int code = body(**opened);
  const Status closed = (*opened)->Close();
  return closed.ok() ? code : FailDatabase(options.database, closed);
}

int Finish(Output& output, int code) {
  const Status written = output.Flush();
  return written.ok() ? code : Fail("standard output", written);
}

int RunCreate(const TableCommand& options) {
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
  return WithTable(
      options, OpenMode::kCreate, [](TableDBM&) { return kExitDone; }, table);
}

// true, false, null and 'text' as in a statement; all else is a text without a type.
table::OwnedValue LiteralOf(const std::string& text) {
  if (text == "null") return {};
  if (text == "true" || text == "false") return table::OwnedValue(Value(text == "true"));
  if (text.size() >= 2 && text.front() == '\'' && text.back() == '\'')
    return table::OwnedValue(Value(std::string_view(text).substr(1, text.size() - 2)));
  return Value::Untyped(text);
}

int RunPut(const TableCommand& options) {
  std::vector<std::pair<std::string, table::OwnedValue>> owned;
  for (const std::string& cell : options.cells) {
    const std::size_t equals = cell.find('=');
    if (equals == cell.npos || equals == 0) return FailUsage("table put", absl::StrCat("'", cell, "' is not NAME=VALUE"));
    owned.emplace_back(cell.substr(0, equals), LiteralOf(cell.substr(equals + 1)));
  }
  std::vector<Cell> cells;
  for (const auto& [name, value] : owned) cells.push_back({name, value.get()});
  return WithTable(options, OpenMode::kReadWrite, [&](TableDBM& table) -> int {
    const Status status = options.keep     ? table.PutKeep(options.key, cells)
                          : options.update ? table.Update(options.key, cells)
                          : options.append ? table.Append(options.key, cells)
                                           : table.Put(options.key, cells);
    const bool exists = absl::IsAlreadyExists(status) && status.message().empty();
    if (exists || absl::IsNotFound(status)) {
      Note(absl::StrCat(options.database.path(), exists ? ": there is a row '" : ": no row '", options.key, "'"));
      return kExitNo;
    }
    return status.ok() ? kExitDone : FailTable(options, status);
  });
}

int RunGet(const TableCommand& options) {
  return WithTable(options, OpenMode::kReadOnly, [&](TableDBM& table) -> int {
    Output output(STDOUT_FILENO);
    const Status status = table.Get(options.key, [&](const RowView& row) { AppendJsonRow(options.key, row, {}, output.buffer()); });
    if (absl::IsNotFound(status)) {
      Note(absl::StrCat(options.database.path(), ": no row '", options.key, "'"));
      return kExitNo;
    }
    return status.ok() ? Finish(output, kExitDone) : FailTable(options, status);
  });
}

int RunRemove(const TableCommand& options) {
  return WithTable(options, OpenMode::kReadWrite, [&](TableDBM& table) -> int {
    const Status status = table.Remove(options.key);
    if (!absl::IsNotFound(status)) return status.ok() ? kExitDone : FailTable(options, status);
    Note(absl::StrCat(options.database.path(), ": no row '", options.key, "'"));
    return kExitNo;
  });
}

void AppendFigure(const Statement::Aggregate& aggregate, const Aggregates& all, std::string* out) {
  text::AppendJsonBytes(LabelOf(aggregate), out);
  out->push_back(':');
  AppendJsonValue(FigureOf(aggregate, all).get(), out);
}

// A line a group, or one line of all rows.
int ShowFigures(const TableCommand& options, const Statement& statement, const Query& query, Output& output) {
  const std::string group = statement.group_by.value_or("");
  std::map<OwnedValue, std::string> lines;  // by group
  for (const Statement::Aggregate& aggregate : statement.aggregates) {
    Query::Groups figures;
    if (statement.group_by) {
      auto groups = query.GroupBy(group, aggregate.column);
      if (!groups.ok()) return FailTable(options, groups.status());
      figures = *std::move(groups);
    } else {
      auto all = query.Aggregate(aggregate.column);
      if (!all.ok()) return FailTable(options, all.status());
      figures[Value()] = *std::move(all);
    }
    for (const auto& [name, all] : figures) {
      std::string& line = lines[name];
      if (line.empty() && statement.group_by) {
        line = "{";
        text::AppendJsonBytes(group.empty() ? "key" : group, &line);
        line += ":";
        AppendJsonValue(name.get(), &line);
      }
      line += line.empty() ? "{" : ",";
      AppendFigure(aggregate, all, &line);
    }
  }
  for (const auto& [name, line] : lines) output.buffer()->append(line).append("}\n");
  return Finish(output, kExitDone);
}

int Select(const TableCommand& options, TableDBM& table, const Statement& statement, Query query) {
  Output output(STDOUT_FILENO);
  if (!statement.aggregates.empty()) return ShowFigures(options, statement, query, output);
  if (statement.group_by) return FailUsage("table query", "group by needs a function: count(*), sum(x), min(x) or max(x)");
  std::vector<std::string> columns = statement.columns;
  if (!columns.empty()) {
    std::vector<std::string> names = columns;
    std::erase(names, "");
    if (!names.empty()) query.Columns(std::move(names));
  }
  if (options.csv) {
    if (columns.empty()) {
      columns.emplace_back();
      for (const ColumnInfo& column : table.Columns()) columns.push_back(column.name);
    }
    AppendCsvHeader(columns, output.buffer());
  }
  const Status status = query.Each([&](std::string_view key, const RowView& row) {
    options.csv ? AppendCsvRow(key, row, columns, output.buffer()) : AppendJsonRow(key, row, columns, output.buffer());
    output.MaybeFlush();
    return output.ok();
  });
  return status.ok() ? Finish(output, kExitDone) : FailTable(options, status);
}

int RunQuery(const TableCommand& options) {
  const StatusOr<Statement> statement = ParseStatement(options.statement);
  if (!statement.ok()) return FailUsage("table query", ToStd(statement.status().message()));
  const bool reads = statement->kind == Statement::Kind::kSelect;
  return WithTable(options, reads ? OpenMode::kReadOnly : OpenMode::kReadWrite, [&](TableDBM& table) -> int {
    const Query query = table.Select(*statement);
    if (reads) return Select(options, table, *statement, query);
    std::vector<Cell> cells;
    for (const Statement::Assignment& one : statement->assignments) cells.push_back({one.column, one.value.get()});
    const auto changed = statement->kind == Statement::Kind::kUpdate ? query.Update(cells) : query.Remove();
    if (!changed.ok()) return FailTable(options, changed.status());
    Output output(STDOUT_FILENO);
    absl::StrAppend(output.buffer(), *changed, *changed == 1 ? " row\n" : " rows\n");
    return Finish(output, kExitDone);
  });
}

int RunExplain(const TableCommand& options) {
  const StatusOr<Statement> statement = ParseStatement(options.statement);
  if (!statement.ok()) return FailUsage("table explain", ToStd(statement.status().message()));
  return WithTable(options, OpenMode::kReadOnly, [&](TableDBM& table) -> int {
    const StatusOr<std::string> plan = table.Select(*statement).Explain();
    if (!plan.ok()) return FailTable(options, plan.status());
    Output output(STDOUT_FILENO);
    output.buffer()->append(*plan);
    return Finish(output, kExitDone);
  });
}

void AppendIndex(const IndexInfo& info, std::string* out) {
  const IndexOptions& index = info.options;
  absl::StrAppend(out, index.name, "\t");
  for (std::size_t i = 0; i < index.columns.size(); ++i)
    absl::StrAppend(out, i > 0 ? ", " : "", index.columns[i].column, " ", ToAbsl(NameOf(index.columns[i].kind)));
  if (index.unique) absl::StrAppend(out, "\tunique");
  if (!index.covering.empty()) absl::StrAppend(out, "\tcovers ", absl::StrJoin(index.covering, ", "));
  if (!index.where.empty()) absl::StrAppend(out, "\twhere ", index.where);
  absl::StrAppend(out, info.is_ready ? "\n" : "\tbeing built\n");
}

int RunIndex(const TableCommand& options) {
  IndexOptions index;
  index.name = options.name;
  index.unique = options.unique;
  index.where = options.where;
  index.q = static_cast<unsigned>(options.q);
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
  return WithTable(options, changes ? OpenMode::kReadWrite : OpenMode::kReadOnly, [&](TableDBM& table) -> int {
    if (!options.drop.empty()) {
      const Status dropped = table.DropIndex(options.drop);
      if (absl::IsNotFound(dropped)) {
        Note(absl::StrCat(options.database.path(), ": no index '", options.drop, "'"));
        return kExitNo;
      }
      if (!dropped.ok()) return FailTable(options, dropped);
    }
    if (!options.on.empty()) {
      const Status created = table.CreateIndex(index);
      if (!created.ok()) return FailTable(options, created);
    }
    if (changes) return kExitDone;
    Output output(STDOUT_FILENO);
    for (const IndexInfo& info : table.Indices()) AppendIndex(info, output.buffer());
    return Finish(output, kExitDone);
  });
}

// The format of a text; nullopt if its name does not tell.
std::optional<bool> IsCsv(const TableCommand& options) {
  if (!options.format.empty()) return options.format == "csv";
  if (options.text.ends_with(".csv")) return true;
  if (options.text.ends_with(".jsonl") || IsStandardStream(options.text)) return false;
  return std::nullopt;
}

int RunImport(const TableCommand& options) {
  constexpr std::size_t kRowsAtOnce = 1000, kPiece = 256 << 10;
  const std::optional<bool> is_csv = IsCsv(options);
  if (!is_csv) return FailUsage("table import", absl::StrCat(options.text, ": unknown suffix; use .csv or .jsonl, or set --format"));
  TextInput text;
  if (const Status opened = text.Open(options.text); !opened.ok()) return FailText(text.name(), opened);
  const Interrupt interrupt;
  return WithTable(options, OpenMode::kCreate, [&](TableDBM& table) -> int {
    TableBatch batch;
    std::uint64_t num_rows = 0, first_line = 0, last_line = 0;
    Status stored;
    const auto write = [&]() -> Status {
      if (batch.size() == 0) return absl::OkStatus();
      stored = table.Write(batch);
      if (!stored.ok()) return Status(stored.code(), absl::StrCat("lines ", first_line, " to ", last_line, ": ", stored.message()));
      num_rows += batch.size();
      batch.Clear();
      return absl::OkStatus();
    };
    TableReader reader(*is_csv, options.key_name, [&](const TextRow& row) -> Status {
      std::vector<Cell> cells;
      for (const auto& [name, value] : row.cells) cells.push_back({name, value.get()});
      if (batch.size() == 0) first_line = row.line;
      last_line = row.line;
      batch.Put(row.key, cells);
      return batch.size() < kRowsAtOnce ? absl::OkStatus() : write();
    });
    std::string piece(kPiece, '\0');
    Status status;
    while (status.ok()) {
      const auto size = text.Read(interrupt, std::span(piece));
      status = !size.ok() ? size.status() : *size == 0 ? reader.End() : reader.Feed(std::string_view(piece).substr(0, *size));
      if (size.value_or(0) == 0) break;
    }
    if (stored.ok() && (status.ok() || absl::IsInvalidArgument(status))) {  // the rows before a malformed line
      const Status last = write();
      if (status.ok()) status = last;
    }
    Note(absl::StrCat(options.database.path(), ": ", num_rows, num_rows == 1 ? " row" : " rows", " imported"));
    if (absl::IsCancelled(status)) return kExitSignal + interrupt.signal();
    if (status.ok()) return kExitDone;
    return stored.ok() ? Fail(text.name(), status) : FailTable(options, status);
  });
}

int RunExport(const TableCommand& options) {
  const std::optional<bool> is_csv = IsCsv(options);
  if (!is_csv) return FailUsage("table export", absl::StrCat(options.text, ": unknown suffix; use .csv or .jsonl, or set --format"));
  const Interrupt interrupt;
  return WithTable(options, OpenMode::kReadOnly, [&](TableDBM& table) -> int {
    TextOutput text;
    if (const Status opened = text.Open(options.text); !opened.ok()) return FailText(text.name(), opened);
    std::vector<std::string> columns;
    std::string buffer;
    if (*is_csv) {
      columns.emplace_back();
      for (const ColumnInfo& column : table.Columns()) columns.push_back(column.name);
      AppendCsvHeader(columns, &buffer);
    }
    Status written;
    const auto flush = [&] {
      written = text.Write(interrupt, buffer);
      buffer.clear();
      return written.ok();
    };
    const Status status = table.Select().Each([&](std::string_view key, const RowView& row) {
      *is_csv ? AppendCsvRow(key, row, columns, &buffer) : AppendJsonRow(key, row, {}, &buffer);
      return buffer.size() < (64 << 10) || flush();
    });
    if (!status.ok()) return FailTable(options, status);
    if (written.ok()) flush();
    if (absl::IsCancelled(written) && interrupt.signal() != 0) return kExitSignal + interrupt.signal();
    if (written.ok()) written = text.Commit();
    return written.ok() ? kExitDone : Fail(text.name(), written);
  });
}

int RunVerify(const TableCommand& options) {
  return WithTable(options, OpenMode::kReadOnly, [&](TableDBM& table) -> int {
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
  const auto add = [&](const char* name, const char* summary, int (*run)(const TableCommand&), Access access) {
    const auto options = std::make_shared<TableCommand>();
    CLI::App* const app = commands.Add(
        name, summary, [options, run] { return run(*options); }, group);
    AddDatabase(app, "FILE", &options->database, access,
                "The table's file, usually NAME.hktb; options of a tree may follow it, as ?cache_bytes=1gi")
        ->required();
    return std::pair(app, options);
  };
  const auto add_key = [](CLI::App* app, TableCommand& options) {
    app->add_option("KEY", options.key, "The primary key")->required()->type_name("");
  };

  auto [create, create_options] = add("create", "Create a table", RunCreate, Access::kWrite);
  create->add_option("--column", create_options->columns, "A column: NAME:TYPE, and :not_null or :unique; several times")
      ->type_name("COLUMN");
  create->add_flag("--closed", create_options->closed, "Rows have no other columns than these");

  auto [put, put_options] = add("put", "Store a row, or change some of its columns; exit code 1 if --keep or --update finds it otherwise",
                                RunPut, Access::kWrite);
  add_key(put, *put_options);
  AddPutOptions(put, *put_options);

  auto [get, get_options] = add("get", "Print a row as JSON; exit code 1 if it is absent", RunGet, Access::kRead);
  add_key(get, *get_options);
  auto [remove, remove_options] = add("remove", "Remove a row; exit code 1 if it is absent", RunRemove, Access::kWrite);
  add_key(remove, *remove_options);

  const char* const kStatement =
      "As \"select name, age where age >= 20 order by age desc limit 10\"; also update set ... where, and delete where";
  auto [query, query_options] = add("query", "Run a statement: select, update or delete", RunQuery, Access::kRead);
  query->add_option("STATEMENT", query_options->statement, kStatement)->required()->type_name("");
  query->add_flag("--csv", query_options->csv, "Print CSV, not JSON Lines");
  auto [explain, explain_options] = add("explain", "Print how a statement finds its rows", RunExplain, Access::kRead);
  explain->add_option("STATEMENT", explain_options->statement, kStatement)->required()->type_name("");

  auto [index, index_options] = add("index", "List, create or drop indices", RunIndex, Access::kRead);
  AddIndexOptions(index, *index_options);

  const auto add_text = [](CLI::App* app, TableCommand& options, const char* description) {
    app->add_option("TEXT", options.text, description)->type_name("");
    AddChoice(app, "--format", &options.format, {"csv", "jsonl"}, "The format, default by the suffix of TEXT; of a standard stream jsonl");
  };
  auto [import, import_options] = add("import", "Store the rows of a text; creates the table if it is absent", RunImport, Access::kWrite);
  add_text(import, *import_options, "The text to read, default standard input");
  import->add_option("--key", import_options->key_name, "The field that is the primary key, default 'key', else the first of CSV")
      ->type_name("NAME");
  auto [exporting, export_options] = add("export", "Write all rows as a text", RunExport, Access::kRead);
  add_text(exporting, *export_options, "The text to write, default standard output");
  auto [verify, verify_options] =
      add("verify", "Check the file, each row and all indices; exit code 1 if there is damage", RunVerify, Access::kRead);
  verify_options->database.on_damage = kExitNo;
}

}  // namespace hako::tool
