// CLIENT KILL.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/handlers.h"
#include "server/number_text.h"

namespace hako::server::commands {

namespace {

// The conditions of CLIENT KILL. It selects the clients for which all of them hold.
struct Meant {
  std::optional<std::uint64_t> id;
  std::optional<std::string_view> address, local_address, user;
  bool is_normal = true;  // true for every client: there are no replicas and no subscribers
  bool skips_caller = true;

  bool Holds(const ClientRegistry::Entry& client) const {
    return is_normal && (!id || client.id == *id) && (!address || client.address == *address) &&
           (!local_address || client.local_address == *local_address) && (!user || client.user == *user);
  }
};

// Parses the type of a client: normal, or one that no client has. Returns false after replying with
// an error.
bool ParseType(Call& call, std::size_t i, Meant* meant) {
  for (const char* const other : {"master", "slave", "replica", "pubsub"}) {
    if (call.Is(i, other)) return meant->is_normal = false, true;
  }
  if (call.Is(i, "normal")) return true;
  call.Fail("ERR Unknown client type '" + std::string(call.arg(i)) + "'");
  return false;
}

// Parses one condition, whose value is at i + 1. Returns false after replying with an error.
bool ParseCondition(Call& call, std::size_t i, Meant* meant) {
  const std::string_view value = call.arg(i + 1);
  if (call.Is(i, "id")) {
    const std::int64_t id = ParseInteger(value).value_or(0);
    if (id < 1) return call.Fail("ERR client-id should be greater than 0"), false;
    meant->id = static_cast<std::uint64_t>(id);
  } else if (call.Is(i, "type")) {
    return ParseType(call, i + 1, meant);
  } else if (call.Is(i, "addr")) {
    meant->address = value;
  } else if (call.Is(i, "laddr")) {
    meant->local_address = value;
  } else if (call.Is(i, "user")) {
    const bool exists = value == UserTable::kDefault || call.server().settings.users.Contains(value);
    if (!exists) return call.Fail("ERR No such user '" + std::string(value) + "'"), false;
    meant->user = value;
  } else if (call.Is(i, "skipme") && (call.Is(i + 1, "yes") || call.Is(i + 1, "no"))) {
    meant->skips_caller = call.Is(i + 1, "yes");
  } else {
    return call.FailSyntax(), false;
  }
  return true;
}

}  // namespace

// CLIENT KILL address, or CLIENT KILL condition value ...
void ClientKill(Call& call) {
  const bool is_old_form = call.size() == 3;
  Meant meant;
  if (is_old_form) {
    meant.address = call.arg(2);
    meant.skips_caller = false;
  }
  for (std::size_t i = 2; !is_old_form && i < call.size(); i += 2) {
    if (i + 1 == call.size()) return call.FailSyntax();
    if (!ParseCondition(call, i, &meant)) return;
  }
  std::int64_t killed = 0;
  for (const auto& client : call.server().clients.List()) {
    const bool is_caller = client.id == call.client.id;
    if (!meant.Holds(client) || (is_caller && meant.skips_caller)) continue;
    ++killed;
    is_caller ? (void)(call.client.closes = true) : (void)call.server().clients.Kill(client.id);
  }
  if (!is_old_form) return call.reply.Integer(killed);
  killed > 0 ? call.reply.Ok() : call.Fail("ERR No such client");
}

}  // namespace hako::server::commands
