// HAKO.TABLE INDEX and COLUMN: the indices and columns of the table.
#include <string>
#include <utility>
#include <vector>

#include "hako/base/keyword_table.h"
#include "server/handlers.h"
#include "server/table_work.h"

namespace hako::server::commands {
namespace {

constexpr auto kIndexVerbs = MakeKeywordTable("create", "drop", "list");
enum IndexVerb { kCreate, kDrop, kListIndices };
constexpr auto kIndexOptions = MakeKeywordTable("unique", "positions", "covering", "where", "q", "on");
enum IndexOption { kUnique, kPositions, kCovering, kWhere, kQ, kOn };
constexpr auto kIndexKinds = MakeKeywordTable("ordered", "numeric", "token", "qgram");  // in the order of IndexKind

constexpr auto kColumnVerbs = MakeKeywordTable("set", "list");
enum ColumnVerb { kSet, kListColumns };
constexpr auto kColumnTypes = MakeKeywordTable("any", "string", "int64", "double", "bool", "bytes");  // in the order of ColumnType
constexpr auto kColumnRules = MakeKeywordTable("not_null", "unique");

// Parses the columns of ON, which end the request.
bool ParseParts(Call& call, std::size_t i, IndexOptions* index) {
  if (i == call.size() || (call.size() - i) % 2 != 0) return call.FailSyntax(), false;
  for (; i < call.size(); i += 2) {
    const int kind = kIndexKinds.Find(call.arg(i + 1));
    if (kind < 0) return call.Fail("ERR '" + std::string(call.arg(i + 1)) + "' is no kind of index"), false;
    index->columns.push_back({std::string(call.arg(i)), static_cast<IndexKind>(kind)});
  }
  return true;
}

bool ParseIndex(Call& call, IndexOptions* index) {
  index->name = call.arg(3);
  for (std::size_t i = 4; i < call.size(); ++i) {
    const int option = kIndexOptions.Find(call.arg(i));
    if (option == kOn) return ParseParts(call, i + 1, index);
    if (option == kUnique || option == kPositions) {
      (option == kUnique ? index->unique : index->positions) = true;
      continue;
    }
    if (option < 0 || ++i == call.size()) break;
    std::int64_t number = 0;
    if (option == kWhere) {
      index->where = call.arg(i);
      continue;
    }
    if (!call.Integer(i, &number)) return false;
    if (option == kQ) {
      index->q = number < 1 || number > 8 ? 0 : static_cast<unsigned>(number);
      if (index->q == 0) return call.Fail("ERR Q is from 1 to 8"), false;
      continue;
    }
    if (number < 1 || static_cast<std::uint64_t>(number) >= call.size() - i) break;
    for (; number > 0; --number) index->covering.emplace_back(call.arg(++i));
  }
  return call.FailSyntax(), false;
}

void ReplyIndex(ReplyWriter& reply, const IndexInfo& info) {
  const IndexOptions& index = info.options;
  reply.Map(8);
  reply.Bulk("name");
  reply.Bulk(index.name);
  reply.Bulk("columns");
  reply.Array(2 * index.columns.size());
  for (const IndexColumn& column : index.columns) {
    reply.Bulk(column.column);
    reply.Bulk(NameOf(column.kind));
  }
  reply.Bulk("unique");
  reply.Truth(index.unique);
  reply.Bulk("covering");
  reply.Array(index.covering.size());
  for (const std::string& column : index.covering) reply.Bulk(column);
  reply.Bulk("where");
  reply.Bulk(index.where);
  reply.Bulk("q");
  reply.Integer(index.q);
  reply.Bulk("positions");
  reply.Truth(index.positions);
  reply.Bulk("ready");
  reply.Truth(info.is_ready);
}

// Runs a change of INDEX or COLUMN in the pool.
template <class F>
void ChangeSchema(Call& call, F change) {
  RunInPool(call, true, [change = std::move(change), server = &call.server()](ReplyWriter& reply) -> Status {
    const Status status = change();
    NoteWordIndices(server);
    HAKO_RETURN_IF_ERROR(status);
    reply.Ok();
    return absl::OkStatus();
  });
}

}  // namespace

// HAKO.TABLE INDEX CREATE name [UNIQUE] [COVERING n column ...] [WHERE condition] [Q n] [POSITIONS] ON
// column kind [column kind ...]; INDEX DROP name; INDEX LIST.
void TableIndex(Call& call) {
  TableDBM* const table = TableOf(call);
  if (table == nullptr) return;
  const int verb = kIndexVerbs.Find(call.arg(2));
  if (verb == kListIndices && call.size() == 3) {
    const std::vector<IndexInfo> indices = table->Indices();
    call.reply.Array(indices.size());
    for (const IndexInfo& info : indices) ReplyIndex(call.reply, info);
    return;
  }
  if (verb == kDrop && call.size() == 4) {
    return ChangeSchema(call, [table, name = std::string(call.arg(3))]() -> Status {
      const Status status = table->DropIndex(name);
      return absl::IsNotFound(status) ? absl::NotFoundError("there is no index '" + name + "'") : status;
    });
  }
  IndexOptions index;
  if (verb != kCreate || call.size() < 7) return call.FailSyntax();
  if (!ParseIndex(call, &index)) return;
  if (index.columns[0].kind >= IndexKind::kToken) call.server().has_word_index = true;  // from the beginning of its creation on
  ChangeSchema(call, [table, index = std::move(index)]() -> Status {
    const Status status = table->CreateIndex(index);
    const bool exists = absl::IsAlreadyExists(status) && status.message().empty();
    return exists ? absl::AlreadyExistsError("there is an index of this name") : status;
  });
}

// HAKO.TABLE COLUMN SET name type [NOT_NULL] [UNIQUE]; COLUMN LIST.
void TableColumn(Call& call) {
  TableDBM* const table = TableOf(call);
  if (table == nullptr) return;
  const int verb = kColumnVerbs.Find(call.arg(2));
  if (verb == kListColumns && call.size() == 3) {
    const std::vector<ColumnInfo> columns = table->Columns();
    call.reply.Array(columns.size());
    for (const ColumnInfo& column : columns) {
      call.reply.Map(3);
      call.reply.Bulk("name");
      call.reply.Bulk(column.name);
      call.reply.Bulk("type");
      call.reply.Bulk(NameOf(column.type));
      call.reply.Bulk("not_null");
      call.reply.Truth(column.not_null);
    }
    return;
  }
  if (verb != kSet || call.size() < 5) return call.FailSyntax();
  ColumnOptions options;
  const int type = kColumnTypes.Find(call.arg(4));
  if (type < 0) return call.Fail("ERR '" + std::string(call.arg(4)) + "' is no type of a column");
  options.type = static_cast<ColumnType>(type);
  for (std::size_t i = 5; i < call.size(); ++i) {
    const int rule = kColumnRules.Find(call.arg(i));
    if (rule < 0) return call.FailSyntax();
    (rule == 0 ? options.not_null : options.unique) = true;
  }
  ChangeSchema(call, [table, name = std::string(call.arg(3)), options] { return table->SetColumn(name, options); });
}

}  // namespace hako::server::commands
