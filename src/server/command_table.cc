// Definitions of server/command_table.h, and COMMAND.
#include "server/command_table.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "hako/base/keyword_table.h"
#include "server/handlers.h"

namespace hako::server {

namespace {

namespace c = commands;

constexpr unsigned kWriteFast = kWrite | kFast, kWriteMemory = kWrite | kDenyOom, kReadFast = kReadOnly | kFast;
constexpr unsigned kRowsRead = kReadOnly | kRows | kNoMulti, kRowsWrite = kWrite | kDenyOom | kRows | kNoMulti;
constexpr unsigned kPlain = kFast | kLoading, kOperator = kAdmin | kLoading;

constexpr auto kCommands = std::to_array<Command>({
    {"get", 2, kReadFast, 1, 1, 1, c::Get, UserRole::kRead},
    {"set", -3, kWriteMemory, 1, 1, 1, c::Set, UserRole::kWrite},
    {"setnx", 3, kWriteMemory | kFast, 1, 1, 1, c::SetNx, UserRole::kWrite},
    {"setex", 4, kWriteMemory, 1, 1, 1, c::SetEx, UserRole::kWrite},
    {"psetex", 4, kWriteMemory, 1, 1, 1, c::PSetEx, UserRole::kWrite},
    {"getset", 3, kWriteMemory | kFast, 1, 1, 1, c::GetSet, UserRole::kWrite},
    {"getdel", 2, kWriteFast, 1, 1, 1, c::GetDel, UserRole::kWrite},
    {"getex", -2, kWriteFast, 1, 1, 1, c::GetEx, UserRole::kWrite},
    {"mget", -2, kReadFast, 1, -1, 1, c::MGet, UserRole::kRead},
    {"mset", -3, kWriteMemory, 1, -1, 2, c::MSet, UserRole::kWrite},
    {"msetnx", -3, kWriteMemory, 1, -1, 2, c::MSetNx, UserRole::kWrite},
    {"strlen", 2, kReadFast, 1, 1, 1, c::StrLen, UserRole::kRead},
    {"append", 3, kWriteMemory | kFast, 1, 1, 1, c::Append, UserRole::kWrite},
    {"getrange", 4, kReadOnly, 1, 1, 1, c::GetRange, UserRole::kRead},
    {"substr", 4, kReadOnly, 1, 1, 1, c::GetRange, UserRole::kRead},
    {"setrange", 4, kWriteMemory, 1, 1, 1, c::SetRange, UserRole::kWrite},
    {"setbit", 4, kWriteMemory, 1, 1, 1, c::SetBit, UserRole::kWrite},
    {"getbit", 3, kReadFast, 1, 1, 1, c::GetBit, UserRole::kRead},
    {"bitcount", -2, kReadOnly, 1, 1, 1, c::BitCount, UserRole::kRead},
    {"incr", 2, kWriteMemory | kFast, 1, 1, 1, c::Incr, UserRole::kWrite},
    {"decr", 2, kWriteMemory | kFast, 1, 1, 1, c::Decr, UserRole::kWrite},
    {"incrby", 3, kWriteMemory | kFast, 1, 1, 1, c::IncrBy, UserRole::kWrite},
    {"decrby", 3, kWriteMemory | kFast, 1, 1, 1, c::DecrBy, UserRole::kWrite},
    {"incrbyfloat", 3, kWriteMemory | kFast, 1, 1, 1, c::IncrByFloat, UserRole::kWrite},

    {"expire", -3, kWriteFast, 1, 1, 1, c::Expire, UserRole::kWrite},
    {"pexpire", -3, kWriteFast, 1, 1, 1, c::PExpire, UserRole::kWrite},
    {"expireat", -3, kWriteFast, 1, 1, 1, c::ExpireAt, UserRole::kWrite},
    {"pexpireat", -3, kWriteFast, 1, 1, 1, c::PExpireAt, UserRole::kWrite},
    {"ttl", 2, kReadFast, 1, 1, 1, c::Ttl, UserRole::kRead},
    {"pttl", 2, kReadFast, 1, 1, 1, c::PTtl, UserRole::kRead},
    {"expiretime", 2, kReadFast, 1, 1, 1, c::ExpireTime, UserRole::kRead},
    {"pexpiretime", 2, kReadFast, 1, 1, 1, c::PExpireTime, UserRole::kRead},
    {"persist", 2, kWriteFast, 1, 1, 1, c::Persist, UserRole::kWrite},

    {"del", -2, kWrite, 1, -1, 1, c::Del, UserRole::kWrite},
    {"unlink", -2, kWriteFast, 1, -1, 1, c::Del, UserRole::kWrite},
    {"exists", -2, kReadFast, 1, -1, 1, c::Exists, UserRole::kRead},
    {"touch", -2, kReadFast, 1, -1, 1, c::Exists, UserRole::kRead},
    {"type", 2, kReadFast, 1, 1, 1, c::Type, UserRole::kRead},
    {"keys", 2, kReadOnly, 0, 0, 0, c::Keys, UserRole::kRead},
    {"randomkey", 1, kReadOnly, 0, 0, 0, c::RandomKey, UserRole::kRead},
    {"scan", -2, kReadOnly, 0, 0, 0, c::Scan, UserRole::kRead},
    {"rename", 3, kWrite, 1, 2, 1, c::Rename, UserRole::kWrite},
    {"renamenx", 3, kWriteFast, 1, 2, 1, c::RenameNx, UserRole::kWrite},
    {"copy", -3, kWriteMemory, 1, 2, 1, c::Copy, UserRole::kWrite},
    {"dbsize", 1, kReadFast, 0, 0, 0, c::DbSize, UserRole::kRead},
    {"flushall", -1, kWrite | kAlone, 0, 0, 0, c::FlushAll, UserRole::kWrite},
    {"flushdb", -1, kWrite | kAlone, 0, 0, 0, c::FlushAll, UserRole::kWrite},
    {"object", -2, kContainer, 0, 0, 0, nullptr, UserRole::kRead},
    {"object|encoding", 3, kReadOnly, 2, 2, 1, c::ObjectEncoding, UserRole::kRead},
    {"object|refcount", 3, kReadOnly, 2, 2, 1, c::ObjectRefCount, UserRole::kRead},
    {"memory", -2, kContainer, 0, 0, 0, nullptr, UserRole::kRead},
    {"memory|usage", -3, kReadOnly, 2, 2, 1, c::MemoryUsage, UserRole::kRead},

    {"multi", 1, kPlain | kEndsMulti, 0, 0, 0, c::Multi, UserRole::kConnection},
    {"exec", 1, kLoading | kEndsMulti | kAlone, 0, 0, 0, c::Exec, UserRole::kConnection},
    {"discard", 1, kPlain | kEndsMulti, 0, 0, 0, c::Discard, UserRole::kConnection},
    {"watch", -2, kPlain | kEndsMulti, 1, -1, 1, c::Watch, UserRole::kConnection},
    {"unwatch", 1, kPlain, 0, 0, 0, c::Unwatch, UserRole::kConnection},

    {"ping", -1, kPlain, 0, 0, 0, c::Ping, UserRole::kConnection},
    {"echo", 2, kPlain, 0, 0, 0, c::Echo, UserRole::kConnection},
    {"quit", -1, kPlain | kNoAuth | kEndsMulti, 0, 0, 0, c::Quit, UserRole::kConnection},
    {"reset", 1, kPlain | kNoAuth | kEndsMulti, 0, 0, 0, c::Reset, UserRole::kConnection},
    {"select", 2, kPlain, 0, 0, 0, c::Select, UserRole::kConnection},
    {"hello", -1, kPlain | kNoAuth | kNoMulti, 0, 0, 0, c::Hello, UserRole::kConnection},
    {"auth", -2, kPlain | kNoAuth | kNoMulti, 0, 0, 0, c::Auth, UserRole::kConnection},
    {"client", -2, kContainer, 0, 0, 0, nullptr, UserRole::kConnection},
    {"client|id", 2, kLoading, 0, 0, 0, c::ClientId, UserRole::kConnection},
    {"client|getname", 2, kLoading, 0, 0, 0, c::ClientGetName, UserRole::kConnection},
    {"client|setname", 3, kLoading, 0, 0, 0, c::ClientSetName, UserRole::kConnection},
    {"client|setinfo", 4, kLoading, 0, 0, 0, c::ClientSetInfo, UserRole::kConnection},
    {"client|reply", 3, kLoading | kNoMulti, 0, 0, 0, c::ClientReply, UserRole::kConnection},
    {"client|info", 2, kLoading, 0, 0, 0, c::ClientInfo, UserRole::kConnection},
    {"client|list", -2, kOperator, 0, 0, 0, c::ClientList, UserRole::kAdmin},
    {"client|kill", -3, kOperator, 0, 0, 0, c::ClientKill, UserRole::kAdmin},
    {"client|no-evict", 3, kOperator, 0, 0, 0, c::ClientNoEvict, UserRole::kAdmin},

    {"acl", -2, kContainer, 0, 0, 0, nullptr, UserRole::kConnection},
    {"acl|whoami", 2, kLoading, 0, 0, 0, c::AclWhoAmI, UserRole::kConnection},
    {"acl|list", 2, kOperator, 0, 0, 0, c::AclList, UserRole::kAdmin},
    {"acl|users", 2, kOperator, 0, 0, 0, c::AclUsers, UserRole::kAdmin},
    {"acl|cat", -2, kLoading, 0, 0, 0, c::AclCat, UserRole::kConnection},

    {"config", -2, kContainer, 0, 0, 0, nullptr, UserRole::kAdmin},
    {"config|get", -3, kOperator, 0, 0, 0, c::ConfigGet, UserRole::kAdmin},
    {"config|set", -4, kOperator, 0, 0, 0, c::ConfigSet, UserRole::kAdmin},
    {"config|resetstat", 2, kOperator, 0, 0, 0, c::ConfigResetStat, UserRole::kAdmin},
    {"info", -1, kLoading, 0, 0, 0, c::Info, UserRole::kRead},
    {"time", 1, kPlain, 0, 0, 0, c::Time, UserRole::kRead},
    {"role", 1, kPlain, 0, 0, 0, c::Role, UserRole::kRead},
    {"wait", 3, 0, 0, 0, 0, c::Wait, UserRole::kRead},
    {"lastsave", 1, kPlain, 0, 0, 0, c::LastSave, UserRole::kRead},
    {"shutdown", -1, kOperator | kNoMulti, 0, 0, 0, c::Shutdown, UserRole::kAdmin},
    {"function", -2, kContainer, 0, 0, 0, nullptr, UserRole::kWrite},
    {"function|flush", -2, kWrite, 0, 0, 0, c::FunctionFlush, UserRole::kWrite},
    {"slowlog", -2, kContainer, 0, 0, 0, nullptr, UserRole::kAdmin},
    {"slowlog|get", -2, kOperator, 0, 0, 0, c::SlowLogGet, UserRole::kAdmin},
    {"slowlog|len", 2, kOperator, 0, 0, 0, c::SlowLogLen, UserRole::kAdmin},
    {"slowlog|reset", 2, kOperator, 0, 0, 0, c::SlowLogReset, UserRole::kAdmin},
    {"latency", -2, kContainer, 0, 0, 0, nullptr, UserRole::kAdmin},
    {"latency|histogram", -2, kOperator, 0, 0, 0, c::LatencyHistogram, UserRole::kAdmin},
    {"latency|reset", -2, kOperator, 0, 0, 0, c::LatencyReset, UserRole::kAdmin},
    {"command", -1, kContainer | kLoading, 0, 0, 0, c::CommandAll, UserRole::kConnection},
    {"command|count", 2, kLoading, 0, 0, 0, c::CommandCount, UserRole::kConnection},
    {"command|info", -2, kLoading, 0, 0, 0, c::CommandInfo, UserRole::kConnection},
    {"command|docs", -2, kLoading, 0, 0, 0, c::CommandDocs, UserRole::kConnection},
    {"command|list", -2, kLoading, 0, 0, 0, c::CommandList, UserRole::kConnection},
    {"command|getkeys", -4, kLoading, 0, 0, 0, c::CommandGetKeys, UserRole::kConnection},

    {"hako.range", -3, kReadOnly, 0, 0, 0, c::HakoRange, UserRole::kRead},
    {"hako.cas", 4, kWriteMemory | kFast, 1, 1, 1, c::HakoCas, UserRole::kWrite},
    {"hako.backup", 2, kOperator | kNoMulti, 0, 0, 0, c::HakoBackup, UserRole::kAdmin},
    {"hako.check", 1, kOperator | kNoMulti, 0, 0, 0, c::HakoCheck, UserRole::kAdmin},
    {"hako.stat", 1, kReadOnly, 0, 0, 0, c::HakoStat, UserRole::kRead},

    {"hako.table", -2, kContainer, 0, 0, 0, nullptr, UserRole::kRead},
    {"hako.table|put", -5, kRowsWrite, 2, 2, 1, c::TablePut, UserRole::kWrite},
    {"hako.table|putkeep", -5, kRowsWrite, 2, 2, 1, c::TablePut, UserRole::kWrite},
    {"hako.table|update", -5, kRowsWrite, 2, 2, 1, c::TablePut, UserRole::kWrite},
    {"hako.table|append", -5, kRowsWrite, 2, 2, 1, c::TablePut, UserRole::kWrite},
    {"hako.table|del", -3, kRowsWrite, 2, -1, 1, c::TableDel, UserRole::kWrite},
    {"hako.table|get", -3, kRowsRead | kFast, 2, 2, 1, c::TableGet, UserRole::kRead},
    {"hako.table|count", 2, kRowsRead | kFast, 0, 0, 0, c::TableCount, UserRole::kRead},
    {"hako.table|query", -3, kRowsWrite, 0, 0, 0, c::TableQuery, UserRole::kWrite},
    {"hako.table|query_ro", -3, kRowsRead, 0, 0, 0, c::TableQuery, UserRole::kRead},
    {"hako.table|explain", 3, kRowsRead, 0, 0, 0, c::TableExplain, UserRole::kRead},
    {"hako.table|index", -3, kRowsWrite | kAdmin, 0, 0, 0, c::TableIndex, UserRole::kAdmin},
    {"hako.table|column", -3, kRowsWrite | kAdmin, 0, 0, 0, c::TableColumn, UserRole::kAdmin},
    {"hako.table|stat", 2, kRowsRead, 0, 0, 0, c::TableStat, UserRole::kRead},
});

constexpr std::size_t kCount = kCommands.size();

static_assert(std::ranges::none_of(kCommands, [](const Command& command) { return command.role == UserRole::kUnset; }),
              "each command needs a role");

consteval std::array<std::string_view, kCount> Names() {
  std::array<std::string_view, kCount> names;
  for (std::size_t i = 0; i < kCount; ++i) names[i] = kCommands[i].name;
  return names;
}
constexpr KeywordTable<kCount> kNames(Names());

bool IsSubcommand(const Command& command) { return std::strchr(command.name, '|') != nullptr; }

// Replies with the line of COMMAND for one command: ten elements, of which two are always empty.
void ReplyCommand(ReplyWriter& reply, const Command& command) {
  struct Flag {
    unsigned flag;
    const char* name;
  };
  static constexpr Flag kFlags[] = {{kWrite, "write"},      {kReadOnly, "readonly"}, {kDenyOom, "denyoom"}, {kAdmin, "admin"},
                                    {kNoMulti, "no_multi"}, {kNoAuth, "no_auth"},    {kFast, "fast"},       {kLoading, "loading"}};
  reply.Array(10);
  reply.Bulk(command.name);
  reply.Integer(command.arity);
  reply.Set(static_cast<std::size_t>(std::ranges::count_if(kFlags, [&](const Flag& flag) { return (command.flags & flag.flag) != 0; })));
  for (const Flag& flag : kFlags) {
    if ((command.flags & flag.flag) != 0) reply.Simple(flag.name);
  }
  reply.Integer(command.first_key);
  reply.Integer(command.last_key);
  reply.Integer(command.key_step);
  reply.Set(1);
  reply.Simple("@" + std::string(NameOf(command.role)));
  reply.Array(0);
  reply.Array(0);
  std::vector<const Command*> subcommands;
  const std::string prefix = std::string(command.name) + "|";
  for (const Command& other : kCommands) {
    if ((command.flags & kContainer) != 0 && std::string_view(other.name).starts_with(prefix)) subcommands.push_back(&other);
  }
  reply.Array(subcommands.size());
  for (const Command* const subcommand : subcommands) ReplyCommand(reply, *subcommand);
}

// Finds the command by its name in COMMAND INFO, such as "get" or "client|id".
const Command* FindName(std::string_view name) {
  const int index = kNames.Find(name);
  return index < 0 ? nullptr : &kCommands[static_cast<std::size_t>(index)];
}

std::size_t CountTop() {
  return static_cast<std::size_t>(std::ranges::count_if(kCommands, [](const Command& command) { return !IsSubcommand(command); }));
}

}  // namespace

const Command* FindCommand(std::span<const std::string_view> words) {
  const int index = kNames.Find(words[0]);
  if (index < 0) [[unlikely]]
    return nullptr;
  const Command& command = kCommands[static_cast<std::size_t>(index)];
  if ((command.flags & kContainer) == 0) [[likely]]
    return IsSubcommand(command) ? nullptr : &command;
  if (words.size() == 1) return &command;
  char name[64];
  const std::size_t size = words[0].size() + 1 + words[1].size();
  if (size > sizeof(name) || words[1].find('|') != std::string_view::npos) return nullptr;
  std::memcpy(name, words[0].data(), words[0].size());
  name[words[0].size()] = '|';
  if (!words[1].empty()) std::memcpy(name + words[0].size() + 1, words[1].data(), words[1].size());
  return FindName({name, size});
}

std::span<const Command> AllCommands() { return kCommands; }
std::size_t CommandIndex(const Command& command) { return static_cast<std::size_t>(&command - kCommands.data()); }

namespace commands {

void CommandAll(Call& call) {
  call.reply.Array(CountTop());
  for (const Command& command : kCommands) {
    if (!IsSubcommand(command)) ReplyCommand(call.reply, command);
  }
}

void CommandCount(Call& call) { call.reply.Integer(static_cast<std::int64_t>(CountTop())); }

void CommandInfo(Call& call) {
  if (call.size() == 2) return CommandAll(call);
  call.reply.Array(call.size() - 2);
  for (const std::string_view name : call.args.subspan(2)) {
    const Command* const command = FindName(name);
    command != nullptr ? ReplyCommand(call.reply, *command) : call.reply.Null();
  }
}

void CommandDocs(Call& call) { call.reply.Map(0); }

void CommandList(Call& call) {
  if (call.size() != 2) return call.FailSyntax();
  call.reply.Array(CountTop());
  for (const Command& command : kCommands) {
    if (!IsSubcommand(command)) call.reply.Bulk(command.name);
  }
}

void CommandGetKeys(Call& call) {
  const auto words = call.args.subspan(2);
  const Command* const command = FindCommand(words);
  if (command == nullptr) return call.Fail("ERR Invalid command specified");
  if (command->first_key == 0) return call.Fail("ERR The command has no key arguments");
  if (!command->Takes(words.size())) return call.Fail("ERR Invalid number of arguments specified for command");
  const auto size = static_cast<int>(words.size());
  const int last = command->last_key < 0 ? size + command->last_key : command->last_key;
  call.reply.Array(static_cast<std::size_t>((last - command->first_key) / command->key_step + 1));
  for (int i = command->first_key; i <= last; i += command->key_step) call.reply.Bulk(words[static_cast<std::size_t>(i)]);
}

}  // namespace commands

}  // namespace hako::server
