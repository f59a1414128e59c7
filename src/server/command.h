// Command: a command of the server, and Call: one execution of it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/random_seed.h"
#include "hako/base/status.h"
#include "hako/base/wall_clock.h"
#include "hako/table/table_dbm.h"
#include "server/client.h"
#include "server/keyspace.h"
#include "server/local_log.h"
#include "server/reply_writer.h"
#include "server/scan_cursors.h"
#include "server/settings.h"
#include "server/statistics.h"
#include "server/tls_context.h"
#include "server/turn_gate.h"

namespace hako::server {

struct Call;
struct CommandThread;

// Properties of a command, for COMMAND and for the dispatcher.
enum CommandFlags : unsigned {
  kWrite = 1,        // changes records
  kReadOnly = 2,     // shows records
  kFast = 4,         // takes constant or logarithmic time
  kAdmin = 8,        // for operators
  kNoAuth = 16,      // allowed before AUTH
  kNoMulti = 32,     // not allowed between MULTI and EXEC
  kDenyOom = 64,     // may need more memory
  kAlone = 128,      // runs while no other thread runs a command
  kEndsMulti = 256,  // runs at once between MULTI and EXEC
  kContainer = 512,  // its second word is a subcommand
  kLoading = 1024,   // needs no records
  kRows = 2048,      // uses the table, not the database
};

struct Command {
  const char* name;
  int arity;  // number of words, including the name; negative = at least that many
  unsigned flags;
  int first_key, last_key, key_step;  // as COMMAND shows them; 0 = none
  void (*run)(Call&);
  UserRole role = UserRole::kUnset;  // the lowest role that may run it

  bool Takes(std::size_t num_words) const {
    const auto words = static_cast<int>(num_words);
    return arity >= 0 ? words == arity : words >= -arity;
  }
};

// State shared by all threads.
struct ServerState {
  ServerState(AnyDBM& db, TableDBM* rows, Settings& with, unsigned num_threads)
      : database(db), table(rows), settings(with), gate(num_threads), log(&db, with), table_log(rows, with) {}

  AnyDBM& database;
  TableDBM* const table;                    // nullptr = the server has none
  std::atomic<bool> has_word_index{false};  // whether the table has an index of words or q-grams
  bool has_only_table() const { return table != nullptr && settings.database.empty(); }
  Settings& settings;
  WatchTable watches;
  TurnGate gate;
  LocalLog<AnyDBM> log;
  LocalLog<TableDBM> table_log;
  SlowLog slow_log;
  ScanCursors cursors;
  ClientRegistry clients;
  TlsContextHolder tls;                 // for the TLS port, if there is one
  std::vector<CommandThread*> threads;  // does not change after the threads start
  const std::uint64_t started_at = SteadyMilliseconds();
  const std::uint64_t started_on = WallClock();  // microseconds since 1970
  std::string run_id;
  std::function<void()> stop;  // stops the server soon
};

// State of one loop thread.
struct CommandThread {
  CommandThread(ServerState* shared, unsigned index, std::size_t num_commands)
      : server(*shared), number(index), keys(shared->database, shared->watches), counters(num_commands) {}

  ServerState& server;
  const unsigned number;
  Keyspace keys;
  bool has_changed_rows = false;  // whether this turn has changed rows of the table
  ThreadCounters counters;
  std::unique_ptr<AnyDBM::Iterator> walk;  // for RANDOMKEY
  std::mt19937_64 random{RandomSeed()};
  std::chrono::steady_clock::time_point measured;  // the end of the last command, where the measurement of the next one begins
};

// Returns the sum of one counter over all threads.
inline std::uint64_t Sum(const ServerState& server, Counter ThreadCounters::*counter) {
  std::uint64_t sum = 0;
  for (const CommandThread* const thread : server.threads) sum += (thread->counters.*counter).value();
  return sum;
}

// Returns the text of an error reply for this error of the database or the table.
std::string ErrorLine(const Status& status);

struct Call {
  CommandThread& thread;
  Client& client;
  ReplyWriter& reply;
  const Command& command;
  std::span<const std::string_view> args;  // beginning with the command's name
  bool has_failed = false;

  ServerState& server() const { return thread.server; }
  Keyspace& keys() const { return thread.keys; }
  std::string_view arg(std::size_t i) const { return args[i]; }
  std::size_t size() const { return args.size(); }

  // Counts a look-up of a record as a hit or a miss.
  void CountLookup(bool found) const { (found ? thread.counters.hits : thread.counters.misses).Add(1); }
  // Replies with an error; `text` begins with the error code.
  void Fail(std::string_view text) {
    has_failed = true;
    reply.Error(text);
  }
  void FailSyntax() { Fail("ERR syntax error"); }
  void FailArity();
  // Replies with an error of the database, as TextOf puts it.
  void Fail(const Status& status) { Fail(TextOf(status)); }
  std::string TextOf(const Status& status) const;
  // Returns whether the status is OK. If not, replies with the error.
  bool Check(const Status& status) {
    if (status.ok()) [[likely]]
      return true;
    Fail(status);
    return false;
  }
  // Returns whether a value of this size can be stored. If not, replies with an error. Call before
  // allocating the value.
  bool CheckSize(std::size_t size);
  // Parses argument i as an integer. If it is none, replies with an error and returns false.
  bool Integer(std::size_t i, std::int64_t* value);
  // Whether argument i is this word, ignoring case.
  bool Is(std::size_t i, std::string_view word) const;
};

bool EqualsIgnoringCase(std::string_view a, std::string_view b);

}  // namespace hako::server
