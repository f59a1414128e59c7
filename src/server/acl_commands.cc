// ACL: shows the users in the format of Redis. Each command has one category: the role that it
// requires, or `connection` if every user may run it.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "server/command_table.h"
#include "server/handlers.h"

namespace hako::server::commands {

namespace {

constexpr UserRole kCategories[] = {UserRole::kConnection, UserRole::kRead, UserRole::kWrite, UserRole::kAdmin};

// Returns the rules of a user in the form of Redis' ACL SETUSER.
std::string RulesOf(const UserTable::Entry& user) {
  std::string rules = "user " + user.name + " on " + (user.hash.empty() ? "nopass" : "#" + user.hash) + " ~* &*";
  if (user.role == UserRole::kAdmin) return rules + " +@all";
  rules += " -@all";
  for (const UserRole role : kCategories) {
    if (role <= user.role) rules.append(" +@").append(NameOf(role));
  }
  return rules;
}

}  // namespace

void AclWhoAmI(Call& call) { call.reply.Bulk(call.client.user); }

void AclList(Call& call) {
  const auto users = call.server().settings.users.List();
  call.reply.Array(users.size());
  for (const auto& user : users) call.reply.Bulk(RulesOf(user));
}

void AclUsers(Call& call) {
  const auto users = call.server().settings.users.List();
  call.reply.Array(users.size());
  for (const auto& user : users) call.reply.Bulk(user.name);
}

// ACL CAT [category]: replies with the categories, or with the commands of one.
void AclCat(Call& call) {
  if (call.size() > 3) return call.FailArity();
  if (call.size() == 2) {
    call.reply.Array(std::size(kCategories));
    for (const UserRole role : kCategories) call.reply.Bulk(NameOf(role));
    return;
  }
  const auto* const role = std::ranges::find_if(kCategories, [&](UserRole one) { return call.Is(2, NameOf(one)); });
  if (role == std::end(kCategories)) return call.Fail("ERR Unknown category '" + std::string(call.arg(2).substr(0, 128)) + "'");
  std::vector<std::string_view> names;
  for (const Command& command : AllCommands()) {
    if (command.role == *role && command.run != nullptr) names.emplace_back(command.name);
  }
  call.reply.Array(names.size());
  for (const std::string_view name : names) call.reply.Bulk(name);
}

}  // namespace hako::server::commands
