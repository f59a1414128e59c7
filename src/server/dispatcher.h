// The dispatcher: from the words of a request to the call of its command.
#pragma once

#include <chrono>
#include <span>
#include <string_view>

#include "server/command.h"

namespace hako::server {

// Runs commands of one connection after the other, between Enter and Leave of the TurnGate.
//
// Per request: find the command (one look-up), check its arity, AUTH and the role of the user, queue it
// between MULTI and EXEC, or run it, measure it, and count it. The role cannot change between MULTI and
// EXEC, which therefore does not check it again.
class Dispatcher {
 public:
  explicit Dispatcher(CommandThread& thread) : thread_(thread) {}

  // Commands follow, which are measured from now on.
  void BeginTurn() { thread_.measured = std::chrono::steady_clock::now(); }
  void Execute(Client& client, ReplyWriter& reply, std::span<const std::string_view> words) {
    if (client.replies == Client::Replies::kAll) [[likely]]
      return ExecuteReplying(client, reply, words);
    ExecuteMuted(client, reply, words);
  }

 private:
  void ExecuteReplying(Client& client, ReplyWriter& reply, std::span<const std::string_view> words);
  // For a client that gets no reply, unless the command changes that.
  void ExecuteMuted(Client& client, ReplyWriter& reply, std::span<const std::string_view> words);

  // Replies an error instead of running the command. An EXEC ends its transaction.
  void Reject(Client& client, ReplyWriter& reply, std::string_view error, const Command* command);
  // False if the transaction would take too much memory.
  bool Queue(Client& client, const Command& command, std::span<const std::string_view> words);

  CommandThread& thread_;
};

// Runs a command, also one of EXEC: measures it, counts it and its errors, and notes it in SLOWLOG if it was slow.
// One that leaves work to the thread pool is noted by NoteWork.
void RunMeasured(Call& call);
// The work of this client has ended, and took as long in the pool.
void NoteWork(CommandThread& thread, Client& client, std::uint64_t nanoseconds);

}  // namespace hako::server
