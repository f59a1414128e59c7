// Dispatcher: finds the command of a request, checks it, and runs it.
#pragma once

#include <chrono>
#include <span>
#include <string_view>

#include "server/command.h"

namespace hako::server {

// For each request: finds the command (one look-up), checks its arity, AUTH and the role of the user. Then
// it queues the command between MULTI and EXEC, or runs, measures and counts it. The role cannot change
// between MULTI and EXEC, so EXEC does not check it again.
//
// REQUIRES: the thread is in the TurnGate (checked in Execute)
class Dispatcher {
 public:
  explicit Dispatcher(CommandThread& thread) : thread_(thread) {}

  // Starts the clock of the first command.
  void BeginTurn() { thread_.measured = std::chrono::steady_clock::now(); }
  void Execute(Client& client, ReplyWriter& reply, std::span<const std::string_view> words) {
    thread_.server.gate.AssertEntered(thread_.number);
    if (client.replies == Client::Replies::kAll) [[likely]]
      return ExecuteReplying(client, reply, words);
    ExecuteMuted(client, reply, words);
  }

 private:
  void ExecuteReplying(Client& client, ReplyWriter& reply, std::span<const std::string_view> words);
  // Executes a request of a client that has turned off replies (CLIENT REPLY).
  void ExecuteMuted(Client& client, ReplyWriter& reply, std::span<const std::string_view> words);

  // Replies with an error instead of running the command. If the command is EXEC, ends the
  // transaction.
  void Reject(Client& client, ReplyWriter& reply, std::string_view error, const Command* command);
  // Queues a command. Returns false if the transaction would take too much memory.
  bool Queue(Client& client, const Command& command, std::span<const std::string_view> words);

  CommandThread& thread_;
};

// Runs a command, possibly inside EXEC: measures it, counts it and its errors, and adds it to SLOWLOG if it
// was slow. If the command leaves work to the thread pool, NoteWork does all this once the work has
// ended.
void RunMeasured(Call& call);
// Call when the work of this client has ended, which took this long in the pool.
void NoteWork(CommandThread& thread, Client& client, std::uint64_t nanoseconds);

}  // namespace hako::server
