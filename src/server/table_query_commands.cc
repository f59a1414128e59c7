// HAKO.TABLE QUERY, QUERY_RO and EXPLAIN: statements of table/query_text.h.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/keyword_table.h"
#include "hako/table/query_effort.h"
#include "hako/table/statement_run.h"
#include "server/handlers.h"
#include "server/table_cursor.h"
#include "server/table_work.h"

namespace hako::server::commands {
namespace {

// The request of a query by a client.
struct TableRequest {
  Statement statement;
  std::optional<std::uint64_t> page;  // number of rows of a page
  std::optional<TableCursor> cursor;  // nullopt = the first page
  std::size_t bytes_max = 0;          // limit of the reply
};

constexpr auto kOptions = MakeKeywordTable("count", "cursor");
enum Option { kCount, kCursor };

bool ParseOptions(Call& call, TableRequest* request) {
  for (std::size_t i = 3; i < call.size(); i += 2) {
    const int option = kOptions.Find(call.arg(i));
    if (option < 0 || i + 1 == call.size()) return call.FailSyntax(), false;
    if (option == kCount) {
      std::int64_t rows = 0;
      if (!call.Integer(i + 1, &rows)) return false;
      if (rows < 1) return call.Fail("ERR COUNT is at least 1"), false;
      request->page = static_cast<std::uint64_t>(rows);
    } else if (call.arg(i + 1) != "0") {
      request->cursor = TableCursor::Parse(call.arg(i + 1));
      if (!request->cursor) return call.Fail("ERR invalid cursor"), false;
    }
  }
  if (request->cursor && !request->page) return call.Fail("ERR CURSOR needs COUNT"), false;
  return true;
}

bool HasRegularExpression(const std::shared_ptr<const table::Node>& node) {
  if (node == nullptr) return false;
  return node->op == table::Op::kRegex || std::any_of(node->children.begin(), node->children.end(), HasRegularExpression);
}

Status Refuse(std::string_view why) { return absl::InvalidArgumentError(ToAbsl(why)); }

// Restricts the statement to the requested page.
Status LimitToPage(const TableRequest& request, Statement* statement, StatementOptions* options) {
  if (statement->kind != Statement::Kind::kSelect) return Refuse("an update or a delete has no pages");
  if (!statement->aggregates.empty()) return Refuse("functions have no pages");
  const std::optional<std::uint64_t> most = request.cursor ? request.cursor->left : statement->limit;
  statement->limit = std::min(*request.page, most.value_or(*request.page));
  if (!request.cursor) return absl::OkStatus();
  statement->offset = 0;
  options->after = {request.cursor->key, request.cursor->value};
  return absl::OkStatus();
}

// Runs a statement. Replies with the rows of a select as an array of maps; for a page, the cursor
// of the next page comes first, which is "0" if there is none. For an update or a delete, replies
// with the number of rows.
Status Run(TableDBM& table, const TableRequest& request, QueryEffort* effort, ReplyWriter& reply) {
  Statement statement = request.statement;
  StatementOptions options = {.effort = effort};
  if (request.page) HAKO_RETURN_IF_ERROR(LimitToPage(request, &statement, &options));
  OutputBuffer rows;
  ReplyWriter writer(&rows, reply.protocol());
  TableCursor last;
  bool is_too_large = false;
  std::uint64_t count = 0;
  const auto show = [&](const ResultRow& row) {
    writer.Map(row.cells.size());
    for (const Cell& cell : row.cells) {
      writer.Bulk(cell.column);
      ReplyValue(writer, cell.value);
    }
    is_too_large = rows.size() > request.bytes_max;
    if (request.page && ++count == *statement.limit) {
      last.key = row.key;
      last.value = row.order;
    }
    return !is_too_large;
  };
  HAKO_ASSIGN_OR_RETURN(const std::uint64_t num_rows, table.Run(statement, show, options));
  if (is_too_large && !statement.aggregates.empty()) return Refuse("the groups exceed half of client-output-buffer-limit: give a limit");
  if (is_too_large) return Refuse("the rows exceed half of client-output-buffer-limit: take pages with COUNT, or a limit");
  if (statement.kind != Statement::Kind::kSelect) {
    reply.Integer(static_cast<std::int64_t>(num_rows));
    return absl::OkStatus();
  }
  if (request.page) {
    const std::optional<std::uint64_t> before = request.cursor ? request.cursor->left : request.statement.limit;
    if (before) last.left = *before - count;
    reply.Array(2);
    reply.Bulk(count < *statement.limit || count == 0 || last.left == 0 ? "0" : last.ToText());
  }
  reply.Array(num_rows);
  reply.out().Append(rows.view());
  return absl::OkStatus();
}

// Whether the statement may be short enough to begin in the loop.
bool MayBeShort(Call& call, TableDBM& table, const Statement& statement) {
  if (call.arg(2).size() > kLoopText || HasRegularExpression(statement.where.node())) return false;
  if (statement.kind == Statement::Kind::kSelect) return true;
  // Stopping these would leave some of the rows changed, or is impossible.
  if (statement.in_batches || RemovesAllRows(statement)) return false;
  return !call.server().has_word_index.load(std::memory_order_relaxed) &&
         std::all_of(statement.assignments.begin(), statement.assignments.end(),
                     [&table](const Statement::Assignment& one) { return table.FindColumn(one.column).ok(); });
}

// Parses and runs the statement. Returns false if it must run in the pool.
bool RunInLoop(Call& call, TableDBM& table, TableRequest& request) {
  const bool changes_rows = request.statement.kind != Statement::Kind::kSelect;
  if (!MayBeShort(call, table, request.statement)) return false;
  QueryEffort effort(kLoopUnits);
  const std::size_t begin = call.reply.out().size();
  const Status status = Run(table, request, &effort, call.reply);
  if (status.ok()) {
    call.thread.has_changed_rows |= changes_rows;
    return true;
  }
  call.reply.out().Truncate(begin);
  if (absl::IsCancelled(status)) return false;
  call.Fail(status);
  return true;
}

Status CheckVerb(const Statement& statement, bool is_read_only) {
  const bool is_allowed = !is_read_only || statement.kind == Statement::Kind::kSelect;
  return is_allowed ? absl::OkStatus() : Refuse("QUERY_RO takes a select only");
}

}  // namespace

// HAKO.TABLE QUERY statement [COUNT rows [CURSOR cursor]]: replies with the rows of a select as an
// array of maps, or with the number of rows that an update or delete has changed. With COUNT,
// replies with one page: an array of the cursor of the next page and the rows. QUERY_RO accepts
// only a select.
void TableQuery(Call& call) {
  TableDBM* const table = TableOf(call);
  if (table == nullptr) return;
  TableRequest request;
  if (!ParseOptions(call, &request)) return;
  request.bytes_max = static_cast<std::size_t>(call.server().settings.output_max.load(std::memory_order_relaxed) / 2);
  const bool is_read_only = (call.command.flags & kWrite) == 0;
  const std::string_view text = call.arg(2);
  bool changes_rows = !is_read_only;
  if (text.size() <= kLoopText) {
    StatusOr<Statement> statement = ParseStatement(text);
    if (!call.Check(statement.status()) || !call.Check(CheckVerb(*statement, is_read_only))) return;
    request.statement = *std::move(statement);
    changes_rows = request.statement.kind != Statement::Kind::kSelect;
    if (RunInLoop(call, *table, request)) return;
  }
  RunInPool(call, changes_rows,
            [table, request = std::move(request), is_read_only, text = std::string(text),
             stop = &call.client.is_disconnected](ReplyWriter& reply) mutable -> Status {
              HAKO_ASSIGN_OR_RETURN(request.statement, ParseStatement(text));
              HAKO_RETURN_IF_ERROR(CheckVerb(request.statement, is_read_only));
              QueryEffort effort(QueryEffort::kUnlimited, stop);
              return Run(*table, request, &effort, reply);
            });
}

// HAKO.TABLE EXPLAIN statement: replies with the plan of a query, one line for each step.
void TableExplain(Call& call) {
  TableDBM* const table = TableOf(call);
  if (table == nullptr) return;
  RunInPool(call, false, [table, text = std::string(call.arg(2)), stop = &call.client.is_disconnected](ReplyWriter& reply) -> Status {
    HAKO_ASSIGN_OR_RETURN(const Statement statement, ParseStatement(text));
    QueryEffort effort(QueryEffort::kUnlimited, stop);
    HAKO_ASSIGN_OR_RETURN(Query query, table->Select(statement));
    HAKO_ASSIGN_OR_RETURN(const std::string plan, query.Within(&effort).Explain());
    reply.Verbatim(plan);
    return absl::OkStatus();
  });
}

}  // namespace hako::server::commands
