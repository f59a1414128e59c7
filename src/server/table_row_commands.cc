// HAKO.TABLE PUT, GET and the other commands on rows.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/keyword_table.h"
#include "server/handlers.h"
#include "server/table_work.h"

namespace hako::server {

void ReplyValue(ReplyWriter& reply, const Value& value) {
  std::string buffer;
  switch (value.kind()) {
    case Value::Kind::kNull:
      return reply.Null();
    case Value::Kind::kBytes:
      return reply.Bulk(value.bytes());
    case Value::Kind::kInt:
      return reply.Integer(value.int_value());
    case Value::Kind::kDouble:
      return reply.Double(value.Text(&buffer));
    case Value::Kind::kBool:
      return reply.Truth(value.bool_value());
  }
}

void NoteWordIndices(ServerState* server) {
  const std::vector<IndexInfo> indices = server->table->Indices();
  server->has_word_index = std::any_of(indices.begin(), indices.end(), [](const IndexInfo& info) {
    const IndexKind kind = info.options.columns[0].kind;
    return kind == IndexKind::kToken || kind == IndexKind::kQGram;
  });
}

namespace commands {
namespace {

constexpr auto kPutVerbs = MakeKeywordTable("put", "putkeep", "update", "append");
enum PutVerb { kPut, kPutKeep, kUpdate, kAppend };

// Whether the change that these words request runs in the thread pool.
bool IsLongChange(const Call& call, std::size_t num_keys) {
  std::size_t bytes = 0;
  for (const std::string_view word : call.args) bytes += word.size();
  return bytes > kLoopBytes || num_keys > kLoopKeys || call.server().has_word_index.load(std::memory_order_relaxed);
}

Status Change(TableDBM& table, PutVerb verb, std::string_view key, std::span<const Cell> cells, ReplyWriter& reply) {
  const Status status = verb == kPut       ? table.Put(key, cells)
                        : verb == kPutKeep ? table.PutKeep(key, cells)
                        : verb == kUpdate  ? table.Update(key, cells)
                                           : table.Append(key, cells);
  const bool is_refused = absl::IsNotFound(status) || (absl::IsAlreadyExists(status) && status.message().empty());
  if (!status.ok() && !is_refused) return status;
  verb == kPut || verb == kAppend ? reply.Ok() : reply.Bool(!is_refused);
  return absl::OkStatus();
}

template <class Words>
std::vector<Cell> CellsOf(const Words& words) {
  std::vector<Cell> cells;
  cells.reserve(words.size() / 2);
  for (std::size_t i = 3; i + 1 < words.size(); i += 2) cells.push_back({std::string_view(words[i]), hako::Value::Untyped(words[i + 1])});
  return cells;
}

StatusOr<std::int64_t> Remove(TableDBM& table, std::string_view key) {
  const Status status = table.Remove(key);
  if (status.ok()) return 1;
  if (absl::IsNotFound(status)) return 0;
  return status;
}

}  // namespace

// HAKO.TABLE PUT key column value [column value ...] stores a row, replacing an existing one. PUTKEEP stores
// it only if there is none, UPDATE changes these columns of an existing row; both reply whether
// they did. APPEND appends to the text of these columns. Values are texts, which are converted to
// the type of the column. In a column without a type, the text of a number is stored as that number
// (Value::Untyped).
void TablePut(Call& call) {
  TableDBM* const table = TableOf(call);
  if (table == nullptr) return;
  if (call.size() % 2 == 0) return call.FailArity();
  const auto verb = static_cast<PutVerb>(kPutVerbs.Find(call.arg(1)));
  bool is_long = IsLongChange(call, 1);
  for (std::size_t i = 3; i < call.size() && !is_long; i += 2) is_long = !table->FindColumn(call.arg(i)).ok();
  if (is_long) {
    return RunInPool(call, true, [table, verb, words = std::vector<std::string>(call.args.begin(), call.args.end())](ReplyWriter& reply) {
      return Change(*table, verb, words[2], CellsOf(words), reply);
    });
  }
  const Status status = Change(*table, verb, call.arg(2), CellsOf(call.args), call.reply);
  call.thread.has_changed_rows |= status.ok();
  call.Check(status);
}

// HAKO.TABLE DEL key [key ...]: removes each row in a separate step, and replies how many it has
// removed.
void TableDel(Call& call) {
  TableDBM* const table = TableOf(call);
  if (table == nullptr) return;
  const auto remove_all = [table](const auto& keys, ReplyWriter& reply) -> Status {
    std::int64_t removed = 0;
    for (const auto& key : keys) {
      HAKO_ASSIGN_OR_RETURN(const std::int64_t one, Remove(*table, key));
      removed += one;
    }
    reply.Integer(removed);
    return absl::OkStatus();
  };
  const auto keys = call.args.subspan(2);
  if (IsLongChange(call, keys.size())) {
    return RunInPool(call, true, [remove_all, keys = std::vector<std::string>(keys.begin(), keys.end())](ReplyWriter& reply) {
      return remove_all(keys, reply);
    });
  }
  const Status status = remove_all(keys, call.reply);
  call.thread.has_changed_rows |= status.ok();
  call.Check(status);
}

// HAKO.TABLE GET key [column ...]: replies with the row, or these columns of it, as a map; with
// null if there is no such row.
void TableGet(Call& call) {
  TableDBM* const table = TableOf(call);
  if (table == nullptr) return;
  const std::string_view key = call.arg(2);
  const std::size_t begin = call.reply.out().size();
  const Status status =
      table->Get(key, [&](const RowView& row) { ReplyRow(call.reply, key, row, call.args.subspan(3), /*with_key=*/false); });
  if (status.ok()) return;
  call.reply.out().Truncate(begin);
  absl::IsNotFound(status) ? call.reply.Null() : call.Fail(status);
}

// HAKO.TABLE COUNT: replies with the number of rows.
void TableCount(Call& call) {
  TableDBM* const table = TableOf(call);
  if (table == nullptr) return;
  const StatusOr<std::uint64_t> count = table->Count();
  if (call.Check(count.status())) call.reply.Integer(static_cast<std::int64_t>(*count));
}

// HAKO.TABLE STAT: replies with statistics of the table's file.
void TableStat(Call& call) {
  TableDBM* const table = TableOf(call);
  if (table == nullptr) return;
  const Inspection inspection = table->Inspect();
  call.reply.Map(inspection.size());
  for (const auto& [name, text] : inspection) {
    call.reply.Bulk(name);
    call.reply.Bulk(text);
  }
}

}  // namespace commands
}  // namespace hako::server
