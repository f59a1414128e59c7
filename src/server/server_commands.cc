// Commands on the server: settings, statistics, shutdown.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/wall_clock.h"
#include "server/command_table.h"
#include "server/glob_pattern.h"
#include "server/handlers.h"
#include "server/number_text.h"

namespace hako::server::commands {

namespace {

const SettingName* FindSetting(std::string_view name) {
  for (const SettingName& setting : SettingNames()) {
    if (EqualsIgnoringCase(setting.name, name)) return &setting;
  }
  return nullptr;
}

std::string Failed(std::string_view name, std::string_view why) {
  return "ERR CONFIG SET failed (possibly related to argument '" + std::string(name) + "') - " + std::string(why);
}

// Checks one name and value of CONFIG SET before anything is set. Returns the error, or an empty
// text.
std::string Refusal(Call& call, std::size_t i) {
  const SettingName* const setting = FindSetting(call.arg(i));
  if (setting == nullptr) return "ERR Unknown option or number of arguments for CONFIG SET - '" + std::string(call.arg(i)) + "'";
  for (std::size_t earlier = 2; earlier < i; earlier += 2) {
    if (EqualsIgnoringCase(call.arg(earlier), call.arg(i))) return Failed(setting->name, "duplicate parameter");
  }
  if (setting->set == nullptr || setting->is_fixed) return Failed(setting->name, "can't set immutable config");
  Settings scratch;
  return setting->set(scratch, call.arg(i + 1)) ? "" : Failed(setting->name, setting->expects);
}

}  // namespace

void ConfigGet(Call& call) {
  std::map<std::string_view, std::string> found;
  for (const SettingName& setting : SettingNames()) {
    for (const std::string_view pattern : call.args.subspan(2)) {
      if (GlobPattern(pattern, true).Matches(setting.name)) found[setting.name] = setting.get(call.server().settings);
    }
  }
  call.reply.Map(found.size());
  for (const auto& [name, value] : found) {
    call.reply.Bulk(name);
    call.reply.Bulk(value);
  }
}

void ConfigSet(Call& call) {
  if (call.size() % 2 != 0) return call.FailArity();
  for (std::size_t i = 2; i < call.size(); i += 2) {
    if (const std::string refusal = Refusal(call, i); !refusal.empty()) return call.Fail(refusal);
  }
  for (std::size_t i = 2; i < call.size(); i += 2) FindSetting(call.arg(i))->set(call.server().settings, call.arg(i + 1));
  SetLogLevel(call.server().settings.log_level);
  call.reply.Ok();
}

// Counters that other threads change meanwhile may keep a part of their value.
void ConfigResetStat(Call& call) {
  for (CommandThread* const thread : call.server().threads) thread->counters.Reset();
  call.reply.Ok();
}

void Time(Call& call) {
  const auto now = static_cast<std::int64_t>(WallClock());
  call.reply.Array(2);
  call.reply.Bulk(IntegerText(now / 1'000'000).view());
  call.reply.Bulk(IntegerText(now % 1'000'000).view());
}

void Role(Call& call) {
  call.reply.Array(3);
  call.reply.Bulk("master");
  call.reply.Integer(0);
  call.reply.Array(0);
}

void Wait(Call& call) {
  std::int64_t replicas = 0, timeout = 0;
  if (!call.Integer(1, &replicas)) return;
  if (!ParseInteger(call.arg(2))) return call.Fail("ERR timeout is not an integer or out of range");
  timeout = *ParseInteger(call.arg(2));
  if (timeout < 0) return call.Fail("ERR timeout is negative");
  call.reply.Integer(0);
}

void LastSave(Call& call) {
  const std::uint64_t synced_at = call.keys().database().GetStats().synced_at;
  call.reply.Integer(static_cast<std::int64_t>((synced_at != 0 ? synced_at : call.server().started_on) / 1'000'000));
}

void Shutdown(Call& call) {
  bool saves = false, omits_save = false, aborts = false, has_other = false;
  for (std::size_t i = 1; i < call.size(); ++i) {
    const bool is_other = call.Is(i, "now") || call.Is(i, "force");
    if (!call.Is(i, "save") && !call.Is(i, "nosave") && !call.Is(i, "abort") && !is_other) return call.FailSyntax();
    saves |= call.Is(i, "save");
    omits_save |= call.Is(i, "nosave");
    aborts |= call.Is(i, "abort");
    has_other |= is_other;
  }
  if ((saves && omits_save) || (aborts && (saves || omits_save || has_other))) return call.FailSyntax();
  if (aborts) return call.Fail("ERR No shutdown in progress.");
  call.client.closes = true;
  call.server().stop();
}

// The test suite of Redis sends this command. The server has no functions.
void FunctionFlush(Call& call) {
  const bool is_known = call.size() == 2 || (call.size() == 3 && (call.Is(2, "sync") || call.Is(2, "async")));
  is_known ? call.reply.Ok() : call.Fail("ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
}

void SlowLogGet(Call& call) {
  std::int64_t count = 10;
  if (call.size() > 3)
    return call.Fail("ERR unknown subcommand or wrong number of arguments for '" + std::string(call.arg(1)) + "'. Try SLOWLOG HELP.");
  if (call.size() == 3) count = ParseInteger(call.arg(2)).value_or(-2);
  if (count < -1) return call.Fail("ERR count should be greater than or equal to -1");
  const auto entries = call.server().slow_log.Get(count < 0 ? ~std::size_t{0} : static_cast<std::size_t>(count));
  call.reply.Array(entries.size());
  for (const SlowLog::Entry& entry : entries) {
    call.reply.Array(6);
    call.reply.Integer(entry.id);
    call.reply.Integer(entry.time);
    call.reply.Integer(entry.microseconds);
    call.reply.Array(entry.words.size());
    for (const std::string& word : entry.words) call.reply.Bulk(word);
    call.reply.Bulk(entry.address);
    call.reply.Bulk(entry.name);
  }
}

void SlowLogLen(Call& call) { call.reply.Integer(static_cast<std::int64_t>(call.server().slow_log.size())); }

void SlowLogReset(Call& call) {
  call.server().slow_log.Reset();
  call.reply.Ok();
}

// Replies, for each command that was called, with the cumulative number of calls that took at most
// 2^i - 1 microseconds.
void LatencyHistogram(Call& call) {
  struct Row {
    const Command* command;
    std::uint64_t calls = 0;
    std::vector<std::uint64_t> histogram = std::vector<std::uint64_t>(CommandCounters::kBuckets);
  };
  std::vector<Row> rows;
  for (const Command& command : AllCommands()) {
    bool is_wanted = call.size() == 2;
    for (const std::string_view name : call.args.subspan(2)) is_wanted |= EqualsIgnoringCase(name, command.name);
    Row row{&command};
    for (const CommandThread* const thread : call.server().threads) {
      const CommandCounters& counters = thread->counters.commands[CommandIndex(command)];
      row.calls += counters.calls.value();
      for (std::size_t i = 0; i < row.histogram.size(); ++i) row.histogram[i] += counters.histogram[i].value();
    }
    if (is_wanted && row.calls > 0) rows.push_back(std::move(row));
  }
  call.reply.Map(rows.size());
  for (const Row& row : rows) {
    std::vector<std::pair<std::int64_t, std::int64_t>> steps;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < row.histogram.size(); ++i) {
      sum += row.histogram[i];
      if (row.histogram[i] > 0) steps.emplace_back((std::int64_t{1} << i) - 1, static_cast<std::int64_t>(sum));
    }
    call.reply.Bulk(row.command->name);
    call.reply.Map(2);
    call.reply.Bulk("calls");
    call.reply.Integer(static_cast<std::int64_t>(row.calls));
    call.reply.Bulk("histogram_usec");
    call.reply.Map(steps.size());
    for (const auto& [limit, calls] : steps) {
      call.reply.Integer(limit);
      call.reply.Integer(calls);
    }
  }
}

void LatencyReset(Call& call) { call.reply.Integer(0); }

}  // namespace hako::server::commands
