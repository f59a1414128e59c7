// Definitions of server/dispatcher.h and server/command.h.
#include "server/dispatcher.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "server/command_table.h"
#include "server/handlers.h"
#include "server/server_log.h"

namespace hako::server {

namespace {

// Shortens a word for the text of an error. It ends at a zero byte, as in Redis, which prints a C
// string.
std::string_view Printed(std::string_view word, std::size_t size_max) { return word.substr(0, std::min(word.find('\0'), size_max)); }

std::string UnknownCommand(std::span<const std::string_view> words) {
  std::string args;
  for (std::size_t i = 1; i < words.size() && args.size() < 128; ++i) {
    const std::string_view shown = Printed(words[i], 128 - args.size());
    args.append("'").append(shown).append("' ");
  }
  return "ERR unknown command '" + std::string(Printed(words[0], 128)) + "', with args beginning with: " + args;
}

// Whether the word begins a line of HTTP. A web page can make a browser send commands in the body
// of a POST.
bool IsHttp(std::string_view word) { return EqualsIgnoringCase(word, "post") || EqualsIgnoringCase(word, "host:"); }

// Closes the connection, as Redis does, and logs that at most once a minute.
void RefuseHttp(Client& client) {
  static LogPace pace(60'000);
  client.closes = true;
  if (pace.Passes()) LogWarning("a client sent HTTP, perhaps from a web page that attacks this server", {{"client", client.address}});
}

// Whether a word is a password or belongs to one: SLOWLOG does not show it.
bool IsSecret(const Call& call, std::size_t i) {
  if (call.command.run == &commands::Auth) return i > 0;
  if (call.command.run == &commands::Hello) return (i > 2 && call.Is(i - 1, "auth")) || (i > 3 && call.Is(i - 2, "auth"));
  return call.command.run == &commands::ConfigSet && i > 2 && i % 2 == 1 && call.Is(i - 1, "requirepass");
}

// Makes the entry of SLOWLOG for a command, without its time.
SlowLog::Entry EntryOf(const Call& call) {
  SlowLog::Entry entry;
  entry.address = call.client.address;
  entry.name = call.client.name;
  for (std::size_t i = 0; i < std::min(call.size(), SlowLog::kWordsMax); ++i) {
    const std::string_view word = IsSecret(call, i) ? "(redacted)" : call.arg(i);
    std::string& kept = entry.words.emplace_back(word.substr(0, SlowLog::kWordMax));
    if (word.size() > SlowLog::kWordMax) kept += "... (" + std::to_string(word.size() - SlowLog::kWordMax) + " more bytes)";
  }
  if (call.size() > SlowLog::kWordsMax)
    entry.words.back() = "... (" + std::to_string(call.size() - SlowLog::kWordsMax + 1) + " more arguments)";
  return entry;
}

void NoteSlow(ServerState& server, SlowLog::Entry entry, std::uint64_t nanoseconds) {
  entry.time = static_cast<std::int64_t>(WallClock() / 1'000'000);
  entry.microseconds = static_cast<std::int64_t>(nanoseconds / 1000);
  server.slow_log.Add(std::move(entry), static_cast<std::size_t>(server.settings.slow_log_size.load()));
}

bool IsSlow(const ServerState& server, std::uint64_t nanoseconds) {
  const std::int64_t slow = server.settings.slow_microseconds.load(std::memory_order_relaxed);
  return slow >= 0 && nanoseconds >= static_cast<std::uint64_t>(slow) * 1000;
}

}  // namespace

bool EqualsIgnoringCase(std::string_view a, std::string_view b) { return absl::EqualsIgnoreCase(ToAbsl(a), ToAbsl(b)); }

void Call::FailArity() { Fail("ERR wrong number of arguments for '" + std::string(command.name) + "' command"); }

namespace {

// Logs an error that the operator should know, at most one a second: damage, or a device that fails
// or is full.
void LogIfSerious(const Status& status) {
  const bool is_serious =
      absl::IsDataLoss(status) || absl::IsUnavailable(status) || absl::IsResourceExhausted(status) || absl::IsInternal(status);
  static LogPace pace(1'000);
  if (is_serious && pace.Passes()) LogError("a command failed", status);
}

}  // namespace

std::string ErrorLine(const Status& status) {
  LogIfSerious(status);
  const std::string message(ToStd(status.message()));
  if (absl::IsResourceExhausted(status)) return "OOM " + (message.empty() ? std::string("no memory") : message);
  return (absl::IsDataLoss(status) ? "ERR damaged data: " : "ERR ") + message;
}

std::string Call::TextOf(const Status& status) const {
  if (absl::IsResourceExhausted(status) && reply.out().is_refused()) return "ERR the reply exceeds client-output-buffer-limit";
  // A database with a limit refuses large records and batches with OutOfRange.
  const bool is_full = absl::IsResourceExhausted(status) || absl::IsOutOfRange(status);
  if (is_full && server().settings.evicts) return "OOM command not allowed when used memory > 'maxmemory'.";
  return ErrorLine(status);
}

bool Call::CheckSize(std::size_t size) {
  const std::int64_t memory_max = server().settings.memory_max.load(std::memory_order_relaxed);
  return memory_max == 0 || size <= static_cast<std::size_t>(memory_max) || (Fail(absl::ResourceExhaustedError("")), false);
}

bool Call::Integer(std::size_t i, std::int64_t* value) {
  const auto number = ParseInteger(args[i]);
  if (!number) return Fail("ERR value is not an integer or out of range"), false;
  *value = *number;
  return true;
}

bool Call::Is(std::size_t i, std::string_view word) const { return EqualsIgnoringCase(args[i], word); }

void Dispatcher::Reject(Client& client, ReplyWriter& reply, std::string_view error, const Command* command) {
  if (client.is_in_multi) client.has_bad_command = true;
  thread_.counters.errors.Add(1);
  if (command != nullptr) thread_.counters.commands[CommandIndex(*command)].rejected.Add(1);
  if (command == nullptr || command->run != &commands::Exec) return reply.Error(error);
  client.EndMulti();
  thread_.server.watches.Remove(&client.watched);
  if (error.starts_with("ERR ")) error.remove_prefix(4);
  reply.Error("EXECABORT Transaction discarded because of: " + std::string(error));
}

void Dispatcher::ExecuteMuted(Client& client, ReplyWriter& reply, std::span<const std::string_view> words) {
  using Replies = Client::Replies;
  if (client.replies == Replies::kNotTheNext) client.replies = Replies::kNotThis;
  const std::size_t begin = reply.out().size();
  ExecuteReplying(client, reply, words);
  if (client.replies != Replies::kNone && client.replies != Replies::kNotThis) return;
  reply.out().Truncate(begin);
  if (client.work) {
    client.work = [work = std::move(client.work)](OutputBuffer*) {
      OutputBuffer dropped;
      work(&dropped);
    };
  }
  if (client.replies == Replies::kNotThis) client.replies = Replies::kAll;
}

void Dispatcher::ExecuteReplying(Client& client, ReplyWriter& reply, std::span<const std::string_view> words) {
  const Command* const command = FindCommand(words);
  if (command == nullptr) [[unlikely]] {
    const Command* const container = FindCommand(words.first(1));
    if (container == nullptr && IsHttp(words[0])) return RefuseHttp(client);
    if (container == nullptr) return Reject(client, reply, UnknownCommand(words), nullptr);
    const std::string name = absl::AsciiStrToUpper(container->name);
    return Reject(client, reply, "ERR unknown subcommand '" + std::string(Printed(words[1], 128)) + "'. Try " + name + " HELP.", nullptr);
  }
  if (!command->Takes(words.size())) [[unlikely]]
    return Reject(client, reply, "ERR wrong number of arguments for '" + std::string(command->name) + "' command", command);
  if (!client.is_authenticated && (command->flags & kNoAuth) == 0 && thread_.server.settings.has_password()) [[unlikely]]
    return Reject(client, reply, "NOAUTH Authentication required.", command);
  const bool is_queued = client.is_in_multi && (command->flags & kEndsMulti) == 0;
  if (is_queued && (command->flags & kNoMulti) != 0) [[unlikely]]
    return Reject(client, reply, "ERR Command not allowed inside a transaction", command);
  if (command->role > client.role) [[unlikely]]
    return Reject(client, reply, "NOPERM this user has no permissions to run the '" + std::string(command->name) + "' command", command);
  if (thread_.server.has_only_table() && (command->flags & (kWrite | kReadOnly)) != 0 && (command->flags & kRows) == 0) [[unlikely]]
    return Reject(client, reply, "ERR this server has a table and no other database, see --db: use HAKO.TABLE", command);
  if (is_queued) [[unlikely]] {
    if (!Queue(client, *command, words)) return Reject(client, reply, "ERR the transaction exceeds client-query-buffer-limit", command);
    return reply.Simple("QUEUED");
  }
  Call call{.thread = thread_, .client = client, .reply = reply, .command = *command, .args = words};
  if ((command->flags & kAlone) == 0) [[likely]]
    return RunMeasured(call);
  thread_.server.gate.RunAlone(thread_.number, [&] { RunMeasured(call); });
}

bool Dispatcher::Queue(Client& client, const Command& command, std::span<const std::string_view> words) {
  client.queued_bytes += sizeof(Client::Queued);
  for (const std::string_view word : words) client.queued_bytes += sizeof(std::string) + word.size();
  if (client.queued_bytes > static_cast<std::size_t>(thread_.server.settings.request_max.load(std::memory_order_relaxed))) return false;
  client.queued.push_back({&command, {words.begin(), words.end()}});
  return true;
}

// The time of EXEC includes that of the commands that it runs.
void RunMeasured(Call& call) {
  const auto begin = call.thread.measured;
  call.command.run(call);
  call.thread.measured = std::chrono::steady_clock::now();
  const auto took = static_cast<std::uint64_t>(std::chrono::nanoseconds(call.thread.measured - begin).count());
  if (call.client.work) [[unlikely]] {
    call.client.measured_work = {&call.command, took, EntryOf(call)};
    return;
  }
  CommandCounters& counters = call.thread.counters.commands[CommandIndex(call.command)];
  counters.Note(took);
  if (call.has_failed) [[unlikely]] {
    counters.failed.Add(1);
    call.thread.counters.errors.Add(1);
  }
  if (IsSlow(call.server(), took) && call.command.run != &commands::Exec) [[unlikely]]
    NoteSlow(call.server(), EntryOf(call), took);
}

void NoteWork(CommandThread& thread, Client& client, std::uint64_t nanoseconds) {
  Client::MeasuredWork work = std::exchange(client.measured_work, {});
  work.nanoseconds += nanoseconds;
  thread.counters.commands[CommandIndex(*work.command)].Note(work.nanoseconds);
  try {
    if (IsSlow(thread.server, work.nanoseconds)) NoteSlow(thread.server, std::move(work.entry), work.nanoseconds);
  } catch (const std::bad_alloc&) {  // the entry is left out
  }
}

}  // namespace hako::server
