// Commands that Redis lacks: ranges of an ordered database, compare-and-set, backups and checks. The last
// two take long, so they run in the thread pool, and only their client waits.
#include <cstdint>
#include <string>
#include <string_view>

#include "server/handlers.h"

namespace hako::server::commands {

namespace {

struct RangeArguments {
  bool is_reverse = false, keys_only = false;
  std::int64_t limit = -1;  // negative = no limit
};

bool ParseRangeArguments(Call& call, RangeArguments* arguments) {
  for (std::size_t i = 3; i < call.size(); ++i) {
    if (call.Is(i, "rev"))
      arguments->is_reverse = true;
    else if (call.Is(i, "keys"))
      arguments->keys_only = true;
    else if (call.Is(i, "limit") && i + 1 < call.size()) {
      if (!call.Integer(++i, &arguments->limit)) return false;
    } else {
      return call.FailSyntax(), false;
    }
  }
  return true;
}

// Runs `work`, which returns a Status, in the pool while the client waits.
template <class F>
void RunBeside(Call& call, F work) {
  call.client.work = [work = std::move(work), protocol = call.reply.protocol()](OutputBuffer* out) {
    ReplyWriter reply(out, protocol);
    const Status status = work();
    status.ok() ? reply.Ok() : reply.Error("ERR " + std::string(ToStd(status.message())));
  };
}

}  // namespace

// HAKO.RANGE from to [REV] [LIMIT n] [KEYS]: replies with the records of [from, to), as alternating
// keys and values. An empty `to` means no upper bound.
void HakoRange(Call& call) {
  RangeArguments arguments;
  if (!ParseRangeArguments(call, &arguments)) return;
  if (!call.keys().database().IsOrdered()) return call.Fail("ERR this kind of database is not ordered");
  const std::string_view from = call.arg(1);
  const std::string_view to = call.arg(2);
  OutputBuffer records(call.reply.out().limit());
  ReplyWriter writer(&records, call.reply.protocol());
  std::size_t count = 0;
  auto it = call.keys().MakeIterator();
  if (!arguments.is_reverse)
    it.Jump(from);
  else if (to.empty())
    it.Last();
  else
    it.JumpLower(to);
  for (std::int64_t left = arguments.limit; left != 0 && it.Valid(); --left) {
    if (arguments.is_reverse ? it.key() < from : (!to.empty() && it.key() >= to)) break;
    writer.Bulk(it.key());
    if (!arguments.keys_only) writer.Bulk(it.value());
    ++count;
    arguments.is_reverse ? it.Previous() : it.Next();
  }
  if (!call.Check(it.status())) return;
  call.reply.Array(arguments.keys_only ? count : 2 * count);
  call.reply.out().Append(records.view());
}

// HAKO.CAS key old new: stores `new` if the value is `old`, and replies whether it did. The record
// keeps its expiry time.
void HakoCas(Call& call) {
  bool is_set = false;
  const auto exchange = [&](Keyspace::Value found) {
    is_set = found == Keyspace::Value(call.arg(2));
    return is_set ? Action::SetKeepingExpiry(call.arg(3)) : Action::Keep();
  };
  if (call.Check(call.keys().Update(call.arg(1), exchange))) call.reply.Bool(is_set);
}

// HAKO.BACKUP name: copies the database into the directory of the option backup-dir. The copy appears
// complete and durable, or not at all. A client cannot name another directory. The copy of the table has
// the suffix .hktb after the name.
void HakoBackup(Call& call) {
  const std::string& directory = call.server().settings.backup_dir;
  const std::string_view name = call.arg(1);
  if (directory.empty()) return call.Fail("ERR the server has no backup-dir");
  if (name.empty() || name[0] == '.' || name.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos)
    return call.Fail("ERR the name of a backup has no directory, and does not begin with a dot");
  if (name.ends_with(".hktb")) return call.Fail("ERR the copy of the table has the suffix .hktb: leave it out");
  const ServerState& server = call.server();
  RunBeside(call, [&server, path = directory + "/" + std::string(name)]() -> Status {
    if (!server.has_only_table()) HAKO_RETURN_IF_ERROR(server.database.CopyTo(path));
    return server.table != nullptr ? server.table->CopyTo(path + ".hktb") : absl::OkStatus();
  });
}

// HAKO.CHECK: reads and checks the whole database, and the table.
void HakoCheck(Call& call) {
  const ServerState& server = call.server();
  RunBeside(call, [&server]() -> Status {
    HAKO_RETURN_IF_ERROR(server.database.Verify());
    return server.table != nullptr ? server.table->Verify() : absl::OkStatus();
  });
}

// HAKO.STAT: replies with the statistics that `hako inspect` shows.
void HakoStat(Call& call) {
  const Inspection inspection = call.keys().database().Inspect();
  call.reply.Map(inspection.size());
  for (const auto& [name, text] : inspection) {
    call.reply.Bulk(name);
    call.reply.Bulk(text);
  }
}

}  // namespace hako::server::commands
