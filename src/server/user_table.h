// UserTable: the users of a server, their passwords and their roles.
//
// A user has one of three roles, each of which may do all that the one before it may:
//   read    reads records, and sees figures of the server
//   write   also changes records
//   admin   also changes settings, disconnects clients, makes copies and stops the server
// The user `default` is the one of clients that name none. It is an administrator; its password is the
// setting requirepass. Without a password, and without other users, clients need not authenticate.
// With other users, but without that password, nobody can be `default`.
//
// Of passwords only the SHA-256 hash is kept, as Redis does: it protects long random passwords, not
// words, so the configuration file has to be secret.
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

// The role that a command needs, and that a user has. A user may run the commands of its role and of those
// before it.
enum class UserRole : std::uint8_t {
  kUnset,       // of a line of the command table that lacks it; no command may
  kConnection,  // about the connection itself: for every user
  kRead,
  kWrite,
  kAdmin,
};
inline constexpr std::array<std::string_view, 5> kRoleNames = {"", "connection", "read", "write", "admin"};
inline std::string_view NameOf(UserRole role) { return kRoleNames[static_cast<std::size_t>(role)]; }

class UserTable {
 public:
  static constexpr std::string_view kDefault = "default";
  // Bytes of a password, or of a name: the most that a client may send before it has authenticated.
  static constexpr std::size_t kPasswordMax = 16 << 10;

  // A user who has authenticated.
  struct Login {
    std::string name;
    UserRole role;
  };
  struct Entry {
    std::string name;
    UserRole role;
    std::string hash;  // of the password, in hexadecimal; empty: none is needed
  };

  // Adds a user from a line "NAME PASSWORD ROLE". A password of '#' and 64 hexadecimal digits is the
  // hash of the password. InvalidArgument says what is wrong.
  Status Add(std::string_view line);
  // Sets the password of `default`; empty = none.
  void SetDefaultPassword(std::string_view password);

  // Whether clients have to authenticate.
  bool NeedsPassword() const { return needs_password_.load(std::memory_order_relaxed); }
  // Whether the user `default` has a password.
  bool HasDefaultPassword() const;
  // The user of this name, if the password is right. No user has a name or a password of more than 16 KiB.
  std::optional<Login> Authenticate(std::string_view name, std::string_view password) const;
  bool Contains(std::string_view name) const;
  // All users, `default` first if clients can be it.
  std::vector<Entry> List() const;

 private:
  using Hash = std::array<unsigned char, 32>;
  struct User {
    std::string name;
    Hash name_hash{}, password_hash{};
    UserRole role = UserRole::kUnset;
  };

  static Hash HashOf(std::string_view text);
  // The hash that '#' and hexadecimal digits stand for.
  static std::optional<Hash> ParseHash(std::string_view text);

  mutable sync::Mutex mutex_;
  std::vector<User> users_ ABSL_GUARDED_BY(mutex_);
  std::optional<Hash> default_password_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> needs_password_{false};
};

}  // namespace hako::server
