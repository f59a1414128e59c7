// Keyspace: the records of the database as the commands of one loop thread see them.
//
// Outside a transaction each call is one atomic step of the database, on one record or on several.
// Between Begin and Commit the updates are kept in memory, where later commands see them, and Commit
// writes their effects as one WriteBatch: values and times, never commands. A call on all records
// (Count, MakeIterator) writes the pending updates first; Clear discards them. The time stands
// still between Begin and Commit: a record that Prepare or a command has read does not expire.
// Calls on all records are an exception.
//
// Invariants
//   1. NoteChange registers each update, for clients that watch its key, and for the commit before
//      the reply.
//   2. Between Begin and Commit no other thread runs a command (TurnGate).
//
// Not thread-safe, except num_changes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/function_ref.h"
#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/write_batch.h"
#include "server/statistics.h"
#include "server/watch_table.h"

namespace hako::server {

class Keyspace {
 public:
  using Value = std::optional<std::string_view>;
  using Keys = std::span<const std::string_view>;
  using TimedUpdate = FunctionRef<Action(Value, std::uint64_t)>;  // the value and its expiry time; 0 = never

  Keyspace(AnyDBM& database, WatchTable& watches) : database_(database), watches_(watches) {}

  // ---- one record ----
  // See dbm/operations.h.
  template <Sink S>
  Status Fetch(std::string_view key, S&& sink) {
    if (is_pending_) [[unlikely]]
      return FetchPending(key, SinkRef(sink));
    return database_.Fetch(key, sink);
  }
  // Shows the value to void(Value).
  Status Show(std::string_view key, ReadRef visitor);
  // Changes the record by Action(Value).
  template <class V>
  Status Update(std::string_view key, V&& visitor) {
    if (is_pending_) [[unlikely]]
      return UpdatePending(key, [&](Value value, std::uint64_t) { return visitor(value); });
    bool changes = false;
    Status status = database_.Process(key, [&](Value value) -> Action {
      const Action action = visitor(value);
      changes = action.kind() == Action::Kind::kSet || (action.kind() == Action::Kind::kRemove && value);
      return action;
    });
    if (changes) NoteChange(key);
    return status;
  }
  // As Update; the visitor also gets the expiry time.
  Status UpdateTimed(std::string_view key, TimedUpdate visitor);
  // Stores the record with an expiry time; 0 = never.
  Status Set(std::string_view key, std::string_view value, std::uint64_t expire_at = Expiry::kNever) {
    if (is_pending_) [[unlikely]]
      return UpdatePending(key, [&](Value, std::uint64_t) { return Action::Set(value, expire_at); });
    Status status = database_.Process(key, Action::Set(value, expire_at));
    if (status.ok()) NoteChange(key);
    return status;
  }
  // Returns the expiry time of a record; 0 = never. Returns NotFound if the record is absent.
  StatusOr<std::uint64_t> GetExpiry(std::string_view key);
  StatusOr<bool> Contains(std::string_view key);

  // ---- several records in one atomic step ----
  Status ShowMulti(Keys keys, MultiReadRef visitor);
  // Removes the records and returns how many existed.
  StatusOr<std::int64_t> RemoveMulti(Keys keys);
  // Stores alternating keys and values. With `if_absent`, returns Aborted if one of the keys
  // exists.
  Status SetMulti(Keys keys_and_values, bool if_absent);
  // See RekeyOptions.
  Status Rekey(std::string_view from, std::string_view to, bool overwrite, bool copies);

  // ---- all records ----
  std::uint64_t Count();
  AnyDBM::Iterator MakeIterator();
  Status Clear();

  // ---- times ----
  bool KeepsTimes() const { return database_.expiry() != nullptr; }
  // Returns the present time of the database, in milliseconds since 1970. Within a transaction,
  // returns the time at which it began.
  std::uint64_t Now() const;

  // ---- transactions ----
  // Begins a transaction, whose records may take up to `bytes_max` bytes of memory.
  void Begin(std::size_t bytes_max) {
    began_at_ = Now();
    is_pending_ = true;
    pending_left_ = bytes_max;
  }
  // Within a transaction: reads a record that a later command needs. That command reports an error.
  void Prepare(std::string_view key) { (void)Load(key); }
  // Writes the effects atomically. After an error nothing was written.
  Status Commit();
  // Ends the transaction without writing its pending updates.
  void Abandon();

  AnyDBM& database() { return database_; }
  // Whether anything was changed since the last call.
  bool TakeChanged() { return std::exchange(has_changed_, false); }
  // The number of updates. Thread-safe.
  std::uint64_t num_changes() const { return num_changes_.value(); }

 private:
  struct Pending {
    std::optional<std::string> value;
    std::uint64_t time = Expiry::kNever;
    bool is_changed = false;
    Value view() const { return value ? Value(*value) : std::nullopt; }
  };

  void NoteChange(std::string_view key) {
    has_changed_ = true;
    num_changes_.Add(1);
    watches_.Touch(key);
  }
  StatusOr<Pending*> Load(std::string_view key);
  // Replaces the value of a record of pending_. Returns ResourceExhausted if there is no room; then
  // Commit fails.
  Status Replace(Pending* record, Value value);
  Status FetchPending(std::string_view key, SinkRef sink);
  Status UpdatePending(std::string_view key, TimedUpdate visitor);
  Status RekeyPending(std::string_view from, std::string_view to, bool overwrite, bool copies);
  Status WritePending();

  AnyDBM& database_;
  WatchTable& watches_;
  WriteBatch batch_;
  bool is_pending_ = false;
  std::uint64_t began_at_ = 0;  // the time, while is_pending_
  bool has_changed_ = false;
  Counter num_changes_;
  std::map<std::string, Pending, std::less<>> pending_;
  std::size_t pending_left_ = 0;  // bytes that pending_ may still take
  Status pending_status_;         // the error of a write before Commit, or of a lack of room
};

}  // namespace hako::server
