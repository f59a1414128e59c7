// Commands on the connection itself.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "hako/base/keyword_table.h"
#include "hako/base/wall_clock.h"
#include "server/handlers.h"
#include "server/number_text.h"
#include "server/version.h"

namespace hako::server::commands {

namespace {

constexpr unsigned kFailedLoginsMax = 5;

// Returns false after replying with an error. The last failed login that is allowed closes the
// connection.
bool Authenticate(Call& call, std::string_view user, std::string_view password) {
  const auto login = call.server().settings.users.Authenticate(user, password);
  if (!login) {
    call.client.closes |= ++call.client.failed_logins >= kFailedLoginsMax;
    return call.Fail("WRONGPASS invalid username-password pair or user is disabled."), false;
  }
  call.client.is_authenticated = true;
  call.server().clients.SetUser(&call.client, login->name, login->role);
  return true;
}

bool IsName(std::string_view name) {
  return std::ranges::all_of(name, [](char c) { return c >= '!' && c <= '~'; });
}
constexpr const char* kBadName = "ERR Client names cannot contain spaces, newlines or special characters.";

constexpr auto kClientTypes = MakeKeywordTable("normal", "master", "slave", "replica", "pubsub");  // all clients are normal

// Fields that client libraries expect. Fields without a measurement are 0.
constexpr const char* kOtherFields =
    " idle=0 flags=N sub=0 psub=0 ssub=0 multi=-1 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=NULL "
    "redir=-1";

std::string Describe(const ClientRegistry::Entry& client) {
  return "id=" + std::to_string(client.id) + " addr=" + client.address + " laddr=" + client.local_address + " name=" + client.name +
         " age=" + std::to_string((SteadyMilliseconds() - client.connected_at) / 1000) + " db=0 user=" + client.user + kOtherFields + "\n";
}

}  // namespace

void Ping(Call& call) {
  if (call.size() > 2) return call.FailArity();
  call.size() == 1 ? call.reply.Simple("PONG") : call.reply.Bulk(call.arg(1));
}

void Echo(Call& call) { call.reply.Bulk(call.arg(1)); }

void Quit(Call& call) {
  call.reply.Ok();
  call.client.closes = true;
}

void Reset(Call& call) {
  call.client.EndMulti();
  call.client.replies = Client::Replies::kAll;
  call.server().watches.Remove(&call.client.watched);
  call.server().clients.Rename(&call.client, "");
  call.client.protocol = 2;
  call.reply.set_protocol(2);
  call.client.is_authenticated = !call.server().settings.has_password();
  call.server().clients.SetUser(&call.client, UserTable::kDefault, UserRole::kAdmin);
  call.reply.Simple("RESET");
}

void Select(Call& call) {
  std::int64_t number = 0;
  if (!call.Integer(1, &number)) return;
  number == 0 ? call.reply.Ok() : call.Fail("ERR DB index is out of range");
}

void Auth(Call& call) {
  if (call.size() > 3) return call.FailSyntax();
  if (call.size() == 2 && !call.server().settings.users.HasDefaultPassword())
    return call.Fail(
        "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?");
  if (Authenticate(call, call.size() == 3 ? call.arg(1) : UserTable::kDefault, call.arg(call.size() - 1))) call.reply.Ok();
}

void Hello(Call& call) {
  std::int64_t protocol = call.client.protocol;
  std::string_view name;
  bool has_name = false;
  if (call.size() > 1) {
    const auto number = ParseInteger(call.arg(1));
    if (!number) return call.Fail("ERR Protocol version is not an integer or out of range");
    if (*number < 2 || *number > 3) return call.Fail("NOPROTO unsupported protocol version");
    protocol = *number;
  }
  for (std::size_t i = 2; i < call.size(); ++i) {
    if (call.Is(i, "auth") && i + 2 < call.size()) {
      if (!Authenticate(call, call.arg(i + 1), call.arg(i + 2))) return;
      i += 2;
    } else if (call.Is(i, "setname") && i + 1 < call.size()) {
      name = call.arg(++i);
      has_name = true;
      if (!IsName(name)) return call.Fail(kBadName);
    } else {
      return call.Fail("ERR Syntax error in HELLO option '" + std::string(call.arg(i)) + "'");
    }
  }
  if (!call.client.is_authenticated && call.server().settings.has_password())
    return call.Fail(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be "
        "used "
        "to authenticate the client and select the RESP protocol version at the same time");
  if (has_name) call.server().clients.Rename(&call.client, name);
  call.client.protocol = static_cast<int>(protocol);
  call.reply.set_protocol(call.client.protocol);
  call.reply.Map(7);
  for (const auto& [key, value] : {std::pair("server", "redis"), {"version", kRedisVersion}}) {
    call.reply.Bulk(key);
    call.reply.Bulk(value);
  }
  call.reply.Bulk("proto");
  call.reply.Integer(protocol);
  call.reply.Bulk("id");
  call.reply.Integer(static_cast<std::int64_t>(call.client.id));
  for (const auto& [key, value] : {std::pair("mode", "standalone"), {"role", "master"}}) {
    call.reply.Bulk(key);
    call.reply.Bulk(value);
  }
  call.reply.Bulk("modules");
  call.reply.Array(0);
}

void ClientId(Call& call) { call.reply.Integer(static_cast<std::int64_t>(call.client.id)); }

void ClientGetName(Call& call) { call.client.name.empty() ? call.reply.Null() : call.reply.Bulk(call.client.name); }

void ClientSetName(Call& call) {
  if (!IsName(call.arg(2))) return call.Fail(kBadName);
  call.server().clients.Rename(&call.client, call.arg(2));
  call.reply.Ok();
}

void ClientSetInfo(Call& call) {
  if (!call.Is(2, "lib-name") && !call.Is(2, "lib-ver")) return call.Fail("ERR Unrecognized option '" + std::string(call.arg(2)) + "'");
  call.reply.Ok();
}

// CLIENT REPLY ON gets a reply; OFF and SKIP get none (see Dispatcher::Execute).
void ClientReply(Call& call) {
  Client::Replies& replies = call.client.replies;
  if (call.Is(2, "on")) {
    replies = Client::Replies::kAll;
    call.reply.Ok();
  } else if (call.Is(2, "off")) {
    replies = Client::Replies::kNone;
  } else if (call.Is(2, "skip")) {
    if (replies != Client::Replies::kNone) replies = Client::Replies::kNotTheNext;
  } else {
    call.FailSyntax();
  }
}

void ClientInfo(Call& call) {
  const Client& client = call.client;
  call.reply.Verbatim(Describe(ClientRegistry::EntryOf(client)));
}

void ClientList(Call& call) {
  const bool by_type = call.size() == 4 && call.Is(2, "type"), by_id = call.size() >= 4 && call.Is(2, "id");
  if (call.size() > 2 && !by_type && !by_id) return call.FailSyntax();
  const int type = by_type ? kClientTypes.Find(call.arg(3)) : 0;
  if (type < 0) return call.Fail("ERR Unknown client type '" + std::string(call.arg(3)) + "'");
  std::set<std::uint64_t> ids;
  for (std::size_t i = 3; by_id && i < call.size(); ++i) {
    const auto id = ParseInteger(call.arg(i));
    if (!id || *id < 1) return call.Fail("ERR Invalid client ID");
    ids.insert(static_cast<std::uint64_t>(*id));
  }
  std::string text;
  for (const auto& client : call.server().clients.List()) {
    if (type == 0 && (!by_id || ids.contains(client.id))) text += Describe(client);
  }
  call.reply.Verbatim(text);
}

void ClientNoEvict(Call& call) { call.Is(2, "on") || call.Is(2, "off") ? call.reply.Ok() : call.FailSyntax(); }

}  // namespace hako::server::commands
