// LoopThread: a thread with an event loop (libuv), and the connections that it serves.
//
// One turn of the loop:
//   1. Poll: each socket that has bytes is read, and its requests run (Connection). If Prefetch
//      reads the device, the loop first gathers the requests of all sockets, then reads their
//      records together, then runs the requests.
//   2. Group commit: if anything was changed, the log is committed once for the whole turn. A
//      commit that waits for a device runs in the Committer; the turns until it ends share the next
//      commit.
//   3. The replies of the turn are sent.
//
// Invariants
//   1. No reply is sent before the commits of its turn and of all earlier turns. If a commit fails, the
//      connections that have replies to send are closed without them.
//   2. Each list of connections has room for all of them, so adding one needs no memory.
//   3. The thread holds its lock of the TurnGate only while it runs commands, never while it waits for the
//      log or a socket.
#pragma once

#include <uv.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "hako/base/status.h"
#include "hako/sync/mutex.h"
#include "server/command.h"
#include "server/committer.h"
#include "server/connection.h"
#include "server/dispatcher.h"

namespace hako::server {

class LoopThread {
 public:
  LoopThread(ServerState* server, unsigned number);
  ~LoopThread();
  LoopThread(const LoopThread&) = delete;

  // ---- from any thread ----
  void Start();
  // Serves an accepted client; `is_tls` says that it came by the TLS port.
  void Adopt(int socket, std::string address, std::string local_address, bool is_tls);
  // Disconnects that client soon.
  void Kill(std::uint64_t id);
  // Commits, sends the replies, closes all connections, and ends the thread. Join waits for that.
  void Stop();
  void Join();

  // ---- from its own thread ----
  uv_loop_t* loop() { return &loop_; }
  CommandThread& commands() { return commands_; }
  Dispatcher& dispatcher() { return dispatcher_; }
  const Settings& settings() const { return commands_.server.settings; }
  uv_buf_t read_buffer() { return uv_buf_init(read_buffer_.get(), kReadBuffer); }
  RequestBatch& batch() { return batch_; }
  OutputBuffer& decrypted() { return decrypted_; }  // a buffer for the bytes of one read
  void FlushSoon(Connection& connection);
  void ResumeSoon(Connection& connection);
  bool gathers_requests() const { return gathers_requests_; }
  void Gather(Connection& connection);
  // Counts and logs a client whose TLS handshake has failed.
  void NoteTlsFailure(const Client& client, std::string_view reason);
  // Removes a connection that is closing.
  void Forget(Connection& connection);

 private:
  static constexpr unsigned kReadBuffer = 64 << 10;
  struct Accepted {
    int socket;
    std::string address, local_address;
    bool is_tls;
  };

  static LoopThread& Of(void* handle) { return *static_cast<LoopThread*>(static_cast<uv_handle_t*>(handle)->data); }
  void OnWake();
  void OnResume();
  void OnSecond();
  void Welcome(Accepted accepted);
  void AddConnection(Accepted& accepted);
  void CloseStalledHandshakes();
  void EndTurn();
  void RunGathered();
  void CommitTurn(bool is_last);
  void EndCommit();
  // Sends the replies of these connections, or closes them if their commit has failed.
  void SendReplies(std::vector<Connection*>* of, const Status& committed);
  void CloseAll();

  uv_loop_t loop_{};
  uv_async_t wake_{}, committed_{};
  uv_check_t end_of_turn_{};
  uv_idle_t resume_{};  // active while connections wait to be resumed or flushed, so that the loop does not block
  uv_timer_t second_{};
  CommandThread commands_;
  Dispatcher dispatcher_;
  RequestBatch batch_;
  const bool gathers_requests_;
  std::vector<std::string_view> keys_;  // keys of the gathered requests
  OutputBuffer decrypted_;
  unsigned logged_failures_ = 0, unlogged_failures_ = 0;  // failed handshakes in this second
  const std::unique_ptr<char[]> read_buffer_ = std::make_unique_for_overwrite<char[]>(kReadBuffer);
  std::unordered_map<std::uint64_t, Connection*> connections_;
  std::vector<Connection*> to_flush_, to_resume_, gathered_, turn_;
  std::vector<Connection*> held_;  // connections whose replies wait for the committer
  Committer committer_;
  std::thread thread_;

  sync::Mutex mutex_;
  std::vector<Accepted> accepted_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> killed_ ABSL_GUARDED_BY(mutex_);
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
};

// Holds the thread's lock of the TurnGate. The times of commands start at its construction.
class TurnLock {
 public:
  explicit TurnLock(LoopThread& loop) : thread_(loop.commands()) {
    thread_.server.gate.Enter(thread_.number);
    loop.dispatcher().BeginTurn();
  }
  TurnLock(const TurnLock&) = delete;
  ~TurnLock() { thread_.server.gate.Leave(thread_.number); }

 private:
  CommandThread& thread_;
};

}  // namespace hako::server
