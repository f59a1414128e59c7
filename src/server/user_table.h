// UserTable: the users of a server, their passwords and their roles.
//
// A user has one of three roles. Each role may do everything that the one before it may:
//   read    reads records, and sees figures of the server
//   write   also changes records
//   admin   also changes settings, disconnects clients, makes copies and stops the server
// Clients that name no user are the user `default`. It is an administrator, and its password is the
// setting requirepass. Without a password, and without other users, clients need not authenticate.
// With other users, but without that password, nobody can be `default`.
//
// As in Redis, only the SHA-256 hash of a password is kept. It protects long random passwords, not
// words, so the configuration file must be secret.
//
// Invariants
//   1. Authenticate does the same work whether the user exists or not, and whichever byte of the
//      password is wrong: it compares the hashes of both with those of every user.
//   2. No error contains a password.
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/status.h"
#include "hako/sync/mutex.h"

namespace hako::server {

// The role that a command needs, and that a user has. A user may run the commands of its role and
// of the roles before it.
enum class UserRole : std::uint8_t {
  kUnset,       // a line of the command table that lacks its role; no command may have it
  kConnection,  // commands about the connection itself, for every user
  kRead,
  kWrite,
  kAdmin,
};
inline constexpr std::array<std::string_view, 5> kRoleNames = {"", "connection", "read", "write", "admin"};
inline std::string_view NameOf(UserRole role) { return kRoleNames[static_cast<std::size_t>(role)]; }

class UserTable {
 public:
  static constexpr std::string_view kDefault = "default";
  // The most bytes of a password or a name, and of what a client may send before it has
  // authenticated.
  static constexpr std::size_t kPasswordMax = 16 << 10;

  // A user who has authenticated.
  struct Login {
    std::string name;
    UserRole role;
  };
  struct Entry {
    std::string name;
    UserRole role;
    std::string hash;  // of the password, in hexadecimal; empty = no password is needed
  };

  // Adds a user from a line "NAME PASSWORD ROLE". '#' and 64 hexadecimal digits in place of the
  // password are its hash. Returns InvalidArgument, which says what is wrong with the line.
  Status Add(std::string_view line);
  // Sets the password of `default`; empty = none.
  void SetDefaultPassword(std::string_view password);

  // Whether clients must authenticate.
  bool NeedsPassword() const { return needs_password_.load(std::memory_order_relaxed); }
  // Whether the user `default` has a password.
  bool HasDefaultPassword() const;
  // Returns the user of this name, if the password is right. No user has a name or a password of
  // more than 16 KiB.
  std::optional<Login> Authenticate(std::string_view name, std::string_view password) const;
  bool Contains(std::string_view name) const;
  // Returns all users; `default` is the first, if clients can be it.
  std::vector<Entry> List() const;

 private:
  using Hash = std::array<unsigned char, 32>;
  struct User {
    std::string name;
    Hash name_hash{}, password_hash{};
    UserRole role = UserRole::kUnset;
  };

  static Hash HashOf(std::string_view text);
  // Parses a hash of '#' and hexadecimal digits.
  static std::optional<Hash> ParseHash(std::string_view text);

  mutable sync::Mutex mutex_;
  std::vector<User> users_ ABSL_GUARDED_BY(mutex_);
  std::optional<Hash> default_password_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> needs_password_{false};
};

}  // namespace hako::server
