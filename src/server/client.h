// Client: the part of a connection that commands use. It has no socket.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "hako/base/status.h"
#include "hako/sync/mutex.h"
#include "server/output_buffer.h"
#include "server/statistics.h"
#include "server/user_table.h"
#include "server/watch_table.h"

namespace hako::server {

struct Command;

// Only the thread of its connection uses it, except for the fields that ClientRegistry shows to
// others.
struct Client {
  std::uint64_t id = 0;
  std::string address, local_address;  // fixed
  std::uint64_t connected_at = 0;      // SteadyMilliseconds; fixed
  std::string name;                    // changed under the registry's mutex, as the user is
  std::string user{UserTable::kDefault};
  UserRole role = UserRole::kAdmin;  // of the user; applies once the client is authenticated, or if it need not authenticate
  int protocol = 2;
  bool is_authenticated = true;
  unsigned failed_logins = 0;  // since it connected
  bool closes = false;         // closes the connection after its replies are sent

  // The replies that the client gets (CLIENT REPLY).
  enum class Replies { kAll, kNone, kNotTheNext, kNotThis };
  Replies replies = Replies::kAll;

  // A command that waits for EXEC, with copies of its words.
  struct Queued {
    const Command* command;
    std::vector<std::string> words;
  };
  bool is_in_multi = false, has_bad_command = false;
  std::vector<Queued> queued;
  std::size_t queued_bytes = 0;
  WatchState watched;

  // Work that runs in libuv's thread pool while the client waits. Writes the reply.
  std::function<void(OutputBuffer*)> work;
  struct MeasuredWork {
    const Command* command = nullptr;
    std::uint64_t nanoseconds = 0;  // the time that the command took in the loop
    SlowLog::Entry entry;           // for SLOWLOG, if the command is slow
  } measured_work;
  bool work_changes_rows = false;            // whether the work changes rows of the table
  Status work_commit;                        // the commit of these changes; after an error the client gets no reply
  std::atomic<bool> is_disconnected{false};  // then the work may end early

  void EndMulti() {
    is_in_multi = has_bad_command = false;
    queued.clear();
    queued_bytes = 0;
  }
};

// The connected clients. Thread-safe.
class ClientRegistry {
 public:
  // The fields of a client that other threads may read.
  struct Entry {
    std::uint64_t id;
    std::string address, local_address, name, user;
    std::uint64_t connected_at;
  };

  // Adds a client and sets its number. Returns false if there are `clients_max` already.
  bool Add(Client* client, std::size_t clients_max, std::function<void(std::uint64_t)> kill) {
    sync::MutexLock lock(mutex_);
    if (clients_.size() >= clients_max) return false;
    client->id = ++last_id_;
    clients_[client->id] = {client, std::move(kill)};
    return true;
  }
  void Remove(std::uint64_t id) {
    sync::MutexLock lock(mutex_);
    clients_.erase(id);
  }
  void Rename(Client* client, std::string_view name) {
    sync::MutexLock lock(mutex_);
    client->name = name;
  }
  void SetUser(Client* client, std::string_view user, UserRole role) {
    sync::MutexLock lock(mutex_);
    client->user = user;
    client->role = role;
  }
  // The entry of a client that belongs to the calling thread.
  static Entry EntryOf(const Client& client) {
    return {client.id, client.address, client.local_address, client.name, client.user, client.connected_at};
  }
  std::vector<Entry> List() const {
    sync::MutexLock lock(mutex_);
    std::vector<Entry> list;
    for (const auto& [id, known] : clients_) list.push_back(EntryOf(*known.client));
    return list;
  }
  // Makes the client's thread disconnect it soon. Returns false if there is no such client.
  bool Kill(std::uint64_t id) {
    sync::MutexLock lock(mutex_);
    const auto found = clients_.find(id);
    if (found == clients_.end()) return false;
    found->second.kill(id);
    return true;
  }
  std::size_t size() const {
    sync::MutexLock lock(mutex_);
    return clients_.size();
  }

 private:
  struct Known {
    Client* client;
    std::function<void(std::uint64_t)> kill;
  };
  mutable sync::Mutex mutex_;
  std::map<std::uint64_t, Known> clients_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hako::server
