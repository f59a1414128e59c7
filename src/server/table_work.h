// Functions that the commands of the table share: they find the table, reply with values and rows,
// and run work in libuv's thread pool.
//
// A command runs in its loop thread if it reads and writes little, and otherwise in the pool, where only
// its client waits:
//   1. a query that takes more than kLoopUnits (table/query_effort.h): it begins in the loop, and
//      is run again in the pool. Queries with long texts or regular expressions go to the pool at
//      once.
//   2. a change of more than kLoopBytes or kLoopKeys, or of a new column, which waits for an index that
//      is being created
//   3. every change, if the table has an index of words or of q-grams: one row may have 100,000 entries
//   4. a change in batches, the removal of all rows, and a change of the indices or columns
// A query in the pool stops when its client is disconnected (CLIENT KILL) or the server stops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "hako/table/row.h"
#include "hako/table/table_dbm.h"
#include "server/command.h"

namespace hako::server {

inline constexpr std::uint64_t kLoopUnits = 256;
inline constexpr std::size_t kLoopBytes = 64 << 10, kLoopKeys = 64, kLoopText = 1024;

// Returns the table. If there is none, replies with an error and returns nullptr.
inline TableDBM* TableOf(Call& call) {
  TableDBM* const table = call.server().table;
  if (table == nullptr) call.Fail("ERR the server has no table, see --table");
  return table;
}

// Runs `work`, Status(ReplyWriter&), in the pool while the client waits. `work` replies unless it
// returns an error. The thread of the pool commits its changes itself, because LastLsn is that of
// the calling thread.
template <class F>
void RunInPool(Call& call, bool changes_rows, F work) {
  call.client.work_changes_rows = changes_rows;
  call.client.work = [work = std::move(work), changes_rows, &client = call.client, &log = call.server().table_log,
                      protocol = call.reply.protocol()](OutputBuffer* out) mutable {
    ReplyWriter reply(out, protocol);
    Status status;
    try {
      status = work(reply);
    } catch (const std::bad_alloc&) {
      status = absl::ResourceExhaustedError("no memory");
    }
    if (changes_rows && status.ok()) client.work_commit = log.Commit(log.Position());
    if (status.ok()) return;
    out->Truncate(0);
    reply.Error(ErrorLine(status));
  };
}

// Replies with a value: bytes as a bulk, an int64 as an integer, null if the row lacks the column.
void ReplyValue(ReplyWriter& reply, const Value& value);
// Replies with columns of a row as a map. If `columns` is empty, these are all columns, after the
// primary key if `with_key`. The name "" means the primary key.
template <class Names>
void ReplyRow(ReplyWriter& reply, std::string_view key, const RowView& row, const Names& columns, bool with_key) {
  if (!std::empty(columns)) {
    reply.Map(std::size(columns));
    for (const auto& name : columns) {
      reply.Bulk(name.empty() ? std::string_view("key") : std::string_view(name));
      ReplyValue(reply, name.empty() ? Value(key) : row.Get(std::string_view(name)));
    }
    return;
  }
  reply.Map(row.size() + (with_key ? 1 : 0));
  if (with_key) {
    reply.Bulk("key");
    reply.Bulk(key);
  }
  for (std::size_t i = 0; i < row.size(); ++i) {
    reply.Bulk(row.name(i));
    ReplyValue(reply, row.value(i));
  }
}

// Sets ServerState::has_word_index.
void NoteWordIndices(ServerState* server);

}  // namespace hako::server
