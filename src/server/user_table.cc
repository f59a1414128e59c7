// Definitions of server/user_table.h.
#include "server/user_table.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "hako/text/text_encoding.h"

namespace hako::server {

namespace {

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= 128 && std::ranges::all_of(name, [](char c) { return c >= '!' && c <= '~' && c != '#'; });
}

UserRole RoleOf(std::string_view name) {
  for (const UserRole role : {UserRole::kRead, UserRole::kWrite, UserRole::kAdmin}) {
    if (NameOf(role) == name) return role;
  }
  return UserRole::kUnset;
}

}  // namespace

UserTable::Hash UserTable::HashOf(std::string_view text) {
  Hash hash{};
  unsigned size = 0;
  // EVP_Digest fails only if memory runs out.
  if (EVP_Digest(text.data(), text.size(), hash.data(), &size, EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  return hash;
}

std::optional<UserTable::Hash> UserTable::ParseHash(std::string_view text) {
  Hash hash{};
  if (text.size() != 1 + 2 * hash.size() || !text::DecodeHex(text.substr(1), reinterpret_cast<char*>(hash.data()))) return std::nullopt;
  return hash;
}

Status UserTable::Add(std::string_view line) {
  const std::vector<std::string> words =
      absl::StrSplit(absl::string_view(line.data(), line.size()), absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.size() != 3) return absl::InvalidArgumentError("a user is NAME PASSWORD ROLE");
  const std::string& name = words[0];
  const std::string& password = words[1];
  if (!IsName(name)) return absl::InvalidArgumentError("the name of a user has 1 to 128 printable characters, without '#'");
  if (name == kDefault) return absl::InvalidArgumentError("the password of the user default is requirepass");
  User user{name, HashOf(name), HashOf(password), RoleOf(words[2])};
  if (user.role == UserRole::kUnset)
    return absl::InvalidArgumentError(absl::StrCat("the role of user ", name, " is not read, write or admin"));
  if (password[0] == '#') {
    const auto hash = ParseHash(password);
    if (!hash)
      return absl::InvalidArgumentError(
          absl::StrCat("the password of user ", name, " begins with '#', but 64 hexadecimal digits do not follow"));
    user.password_hash = *hash;
  }
  sync::MutexLock lock(mutex_);
  if (std::ranges::any_of(users_, [&](const User& other) { return other.name == name; }))
    return absl::InvalidArgumentError(absl::StrCat("two users have the name ", name));
  users_.push_back(std::move(user));
  needs_password_ = true;
  return absl::OkStatus();
}

void UserTable::SetDefaultPassword(std::string_view password) {
  std::optional<Hash> hash;
  if (!password.empty()) hash = HashOf(password);
  sync::MutexLock lock(mutex_);
  default_password_ = hash;
  needs_password_ = hash || !users_.empty();
}

bool UserTable::HasDefaultPassword() const {
  sync::MutexLock lock(mutex_);
  return default_password_.has_value();
}

std::optional<UserTable::Login> UserTable::Authenticate(std::string_view name, std::string_view password) const {
  static const Hash kDefaultName = HashOf(kDefault), kNoHash{};
  if (name.size() > kPasswordMax || password.size() > kPasswordMax) return std::nullopt;
  const Hash name_hash = HashOf(name), password_hash = HashOf(password);
  const auto differs = [](const Hash& a, const Hash& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()); };
  sync::MutexLock lock(mutex_);
  // Adds up the number of the matching user, so that no branch depends on the text.
  std::size_t matching = 0, number = 0;
  for (const User& user : users_) {
    const int is_other = differs(user.name_hash, name_hash) | differs(user.password_hash, password_hash);
    matching += ++number * static_cast<std::size_t>(is_other == 0);
  }
  const int is_other = differs(kDefaultName, name_hash) | differs(default_password_.value_or(kNoHash), password_hash);
  if (matching > 0) return Login{users_[matching - 1].name, users_[matching - 1].role};
  const bool is_default = default_password_ ? is_other == 0 : users_.empty() && name == kDefault;
  if (is_default) return Login{std::string(kDefault), UserRole::kAdmin};
  return std::nullopt;
}

bool UserTable::Contains(std::string_view name) const {
  const auto users = List();
  return std::ranges::any_of(users, [&](const Entry& user) { return user.name == name; });
}

std::vector<UserTable::Entry> UserTable::List() const {
  const auto text = [](const Hash& hash) { return absl::BytesToHexString({reinterpret_cast<const char*>(hash.data()), hash.size()}); };
  sync::MutexLock lock(mutex_);
  std::vector<Entry> list;
  if (default_password_ || users_.empty())
    list.push_back({std::string(kDefault), UserRole::kAdmin, default_password_ ? text(*default_password_) : ""});
  for (const User& user : users_) list.push_back({user.name, user.role, text(user.password_hash)});
  return list;
}

}  // namespace hako::server
