// Definitions of server/loop_thread.h.
#include "server/loop_thread.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <utility>

#include "hako/base/wall_clock.h"
#include "server/command_table.h"
#include "server/server_log.h"

namespace hako::server {

namespace {

bool IsLocal(std::string_view address) {
  return address.starts_with("127.") || address.starts_with("[::1]") || address.starts_with("[::ffff:127.");
}

constexpr std::string_view kDenied =
    "-DENIED hako-server is in protected mode: it has no password, so it accepts connections from its own machine only. Set requirepass, "
    "or disable protected-mode.\r\n";
constexpr std::string_view kTooMany = "-ERR max number of clients reached\r\n";

// Tells a client why it is refused, and disconnects it. A TLS client gets no reply, because it
// could not read one.
void TurnAway(int socket, bool is_tls, std::string_view reply) {
  if (!is_tls) (void)!write(socket, reply.data(), reply.size());
  close(socket);
}

constexpr unsigned kFailuresLogged = 5;  // per second

}  // namespace

LoopThread::LoopThread(ServerState* server, unsigned number)
    : commands_(server, number, AllCommands().size()),
      dispatcher_(commands_),
      gathers_requests_(server->database.PrefetchReads()),
      committer_(server, [this] { uv_async_send(&committed_); }) {
  uv_loop_init(&loop_);
  uv_async_init(&loop_, &wake_, [](uv_async_t* handle) { Of(handle).OnWake(); });
  uv_async_init(&loop_, &committed_, [](uv_async_t* handle) {
    if (LoopThread& self = Of(handle); self.committer_.HasEnded()) self.EndCommit();
  });
  uv_check_init(&loop_, &end_of_turn_);
  uv_idle_init(&loop_, &resume_);
  uv_timer_init(&loop_, &second_);
  wake_.data = committed_.data = end_of_turn_.data = resume_.data = second_.data = this;
  uv_check_start(&end_of_turn_, [](uv_check_t* handle) { Of(handle).EndTurn(); });
  uv_timer_start(
      &second_, [](uv_timer_t* handle) { Of(handle).OnSecond(); }, 1000, 1000);
}

LoopThread::~LoopThread() { uv_loop_close(&loop_); }

void LoopThread::Start() {
  thread_ = std::thread([this] { uv_run(&loop_, UV_RUN_DEFAULT); });
}
void LoopThread::Join() {
  if (thread_.joinable()) thread_.join();
}

void LoopThread::Adopt(int socket, std::string address, std::string local_address, bool is_tls) {
  {
    sync::MutexLock lock(mutex_);
    accepted_.push_back({socket, std::move(address), std::move(local_address), is_tls});
  }
  uv_async_send(&wake_);
}
void LoopThread::Kill(std::uint64_t id) {
  {
    sync::MutexLock lock(mutex_);
    killed_.push_back(id);
  }
  uv_async_send(&wake_);
}
void LoopThread::Stop() {
  {
    sync::MutexLock lock(mutex_);
    stops_ = true;
  }
  uv_async_send(&wake_);
}

void LoopThread::OnWake() {
  std::vector<Accepted> accepted;
  std::vector<std::uint64_t> killed;
  bool stops = false;
  {
    sync::MutexLock lock(mutex_);
    accepted.swap(accepted_);
    killed.swap(killed_);
    stops = stops_;
  }
  for (Accepted& one : accepted) stops ? (void)close(one.socket) : Welcome(std::move(one));
  for (const std::uint64_t id : killed) {
    if (const auto found = connections_.find(id); found != connections_.end()) found->second->Close();
  }
  if (stops) CloseAll();
}

void LoopThread::Welcome(Accepted accepted) {
  if (settings().is_protected && !settings().has_password() && !IsLocal(accepted.address))
    return TurnAway(accepted.socket, accepted.is_tls, kDenied);
  try {
    AddConnection(accepted);
  } catch (const std::bad_alloc&) {
    LogWarning("a client cannot be accepted: out of memory");
    TurnAway(accepted.socket, accepted.is_tls, kTooMany);
  }
}

// Adds an accepted connection. If it throws std::bad_alloc, it has added nothing.
void LoopThread::AddConnection(Accepted& accepted) {
  ServerState& server = commands_.server;
  const std::size_t count = connections_.size() + 1;
  for (auto* const list : {&to_flush_, &to_resume_, &gathered_, &turn_, &held_}) {
    if (list->capacity() < count) list->reserve(2 * count);
  }
  std::unique_ptr<TlsSession> tls = accepted.is_tls ? std::make_unique<TlsSession>(*server.tls.Get()) : nullptr;
  auto connection = std::make_unique<Connection>(*this);
  Client& client = connection->client();
  client.address = accepted.address;
  client.local_address = accepted.local_address;
  client.connected_at = SteadyMilliseconds();
  client.is_authenticated = !settings().has_password();
  if (!server.clients.Add(&client, static_cast<std::size_t>(settings().clients_max.load()), [this](std::uint64_t id) { Kill(id); })) {
    commands_.counters.rejected_connections.Add(1);
    return TurnAway(accepted.socket, accepted.is_tls, kTooMany);
  }
  try {
    connections_.emplace(client.id, connection.get());
  } catch (const std::bad_alloc&) {
    server.clients.Remove(client.id);
    throw;
  }
  commands_.counters.connections.Add(1);
  LogDebug("client connected", {{"client", client.address}, {"tls", accepted.is_tls ? "yes" : "no"}});
  connection.release()->Start(accepted.socket, std::move(tls));  // the connection deletes itself once it is closed
}

void LoopThread::FlushSoon(Connection& connection) {
  if (std::exchange(connection.is_listed, true)) return;
  to_flush_.push_back(&connection);
}
void LoopThread::ResumeSoon(Connection& connection) {
  if (std::exchange(connection.is_resumed, true)) return;
  to_resume_.push_back(&connection);
  uv_idle_start(&resume_, [](uv_idle_t* handle) { Of(handle).OnResume(); });
}

void LoopThread::Forget(Connection& connection) {
  LogDebug("client disconnected", {{"client", connection.client().address}});
  std::erase(to_flush_, &connection);
  std::erase(held_, &connection);
  std::erase(gathered_, &connection);
  std::erase(to_resume_, &connection);
  std::replace(turn_.begin(), turn_.end(), &connection, static_cast<Connection*>(nullptr));
  connections_.erase(connection.client().id);
  commands_.server.clients.Remove(connection.client().id);
  commands_.server.watches.Remove(&connection.client().watched);
}

void LoopThread::OnResume() {
  turn_.swap(to_resume_);
  for (std::size_t i = 0; i < turn_.size(); ++i) {
    if (turn_[i] != nullptr) turn_[i]->Resume();
  }
  turn_.clear();
}

void LoopThread::Gather(Connection& connection) {
  if (std::exchange(connection.is_gathered, true)) return;
  gathered_.push_back(&connection);
}

void LoopThread::RunGathered() {
  static constexpr std::size_t kKeysMax = 256;  // a small part of the cache of the file
  if (gathered_.empty()) return;
  keys_.clear();
  try {
    for (Connection* const connection : gathered_) {
      if (keys_.size() < kKeysMax) connection->AddKeys(&keys_);
    }
    if (keys_.size() > 1) {
      const TurnLock turn(*this);
      commands_.server.database.Prefetch(keys_);
    }
  } catch (const std::bad_alloc&) {  // then the records are read one by one
  }
  turn_.swap(gathered_);
  for (std::size_t i = 0; i < turn_.size(); ++i) {
    if (turn_[i] != nullptr && turn_[i]->is_gathered) turn_[i]->RunGathered();
  }
  turn_.clear();
}

void LoopThread::EndTurn() {
  RunGathered();
  if (!committer_.is_running()) CommitTurn(false);
  if (to_resume_.empty()) uv_idle_stop(&resume_);  // not earlier, or the loop would block with replies to send
}

// Commits the changes of all turns since the last commit. If all clients wait for the commit, the
// thread makes it itself, because it could serve nobody else meanwhile.
void LoopThread::CommitTurn(bool is_last) {
  const Changes changes = TakeChanges(commands_);
  if (changes) commands_.counters.commits.Add(1);
  const bool is_held = changes && commands_.server.log.Waits() && !is_last && to_flush_.size() < connections_.size();
  if (!is_held || !committer_.Begin(changes)) {
    const Status committed = Commit(commands_.server, changes);
    if (!committed.ok()) LogError("commit", committed);
    return SendReplies(&to_flush_, committed);
  }
  held_.swap(to_flush_);
  for (Connection* const connection : held_) {
    connection->is_listed = false;
    connection->Hold();
  }
}

void LoopThread::EndCommit() {
  const Status committed = committer_.End();
  for (Connection* const connection : held_) connection->Release();
  if (committed.ok()) {
    std::erase_if(held_, [](const Connection* connection) { return connection->is_listed; });
  } else {  // other clients may have read the changes whose commit failed
    LogError("commit", committed);
    SendReplies(&to_flush_, committed);
  }
  SendReplies(&held_, committed);
}

void LoopThread::SendReplies(std::vector<Connection*>* of, const Status& committed) {
  turn_.swap(*of);
  for (std::size_t i = 0; i < turn_.size(); ++i) {
    if (turn_[i] == nullptr) continue;
    turn_[i]->is_listed = false;
    committed.ok() ? turn_[i]->FlushOutput() : turn_[i]->Close();
  }
  turn_.clear();
}

void LoopThread::NoteTlsFailure(const Client& client, std::string_view reason) {
  commands_.counters.tls_failures.Add(1);
  if (logged_failures_ >= kFailuresLogged) return void(++unlogged_failures_);
  ++logged_failures_;
  LogInfo("TLS handshake failed", {{"client", client.address}, {"reason", reason}});
}

// Closes connections whose handshake takes longer than tls-handshake-timeout, however many bytes
// the client sends.
void LoopThread::CloseStalledHandshakes() {
  if (unlogged_failures_ > 0) LogInfo("more TLS handshakes failed", {{"count", std::to_string(unlogged_failures_)}});
  logged_failures_ = unlogged_failures_ = 0;
  const auto limit = static_cast<std::uint64_t>(settings().handshake_seconds.load(std::memory_order_relaxed)) * 1000;
  for (auto next = connections_.begin(); next != connections_.end();) {
    Connection* const connection = (next++)->second;  // Close removes it
    if (!connection->is_in_handshake() || uv_now(&loop_) - connection->started() < limit) continue;
    NoteTlsFailure(connection->client(), "it took longer than tls-handshake-timeout");
    connection->Close();
  }
}

void LoopThread::OnSecond() {
  if (settings().tls_port != kNoPort) CloseStalledHandshakes();
  const auto limit = static_cast<std::uint64_t>(settings().idle_seconds.load(std::memory_order_relaxed)) * 1000;
  if (limit == 0) return;
  for (auto next = connections_.begin(); next != connections_.end();) {
    Connection* const connection = (next++)->second;  // Close removes it
    if (!connection->is_held() && uv_now(&loop_) - connection->last_active() > limit) connection->Close();
  }
}

void LoopThread::CloseAll() {
  if (committer_.is_running()) EndCommit();
  CommitTurn(true);
  while (!connections_.empty()) connections_.begin()->second->Close();
  commands_.walk.reset();
  for (uv_handle_t* const handle :
       {reinterpret_cast<uv_handle_t*>(&wake_), reinterpret_cast<uv_handle_t*>(&committed_), reinterpret_cast<uv_handle_t*>(&end_of_turn_),
        reinterpret_cast<uv_handle_t*>(&resume_), reinterpret_cast<uv_handle_t*>(&second_)}) {
    if (uv_is_closing(handle) == 0) uv_close(handle, nullptr);
  }
}

}  // namespace hako::server
