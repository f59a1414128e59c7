// Connection: one client's socket in a loop thread. Requests are parsed in place and run as soon as
// they arrive. Replies are sent at the end of the loop's turn, after the group commit.
//
// Limits. The loop does not read a connection while more than kOutputPause bytes of its replies are
// unsent, while its replies wait for a commit, and while its work runs in the thread pool. So its
// memory is bounded by kOutputPause, the largest reply and the largest request. After kTurnCommands
// commands in a turn the loop serves other connections. A connection with more than `output_max`
// unsent bytes is closed.
//
// An idle connection has no buffer: bytes arrive in the loop's buffer, and only an incomplete request is
// copied. If the loop gathers requests (LoopThread), all requests are copied, up to kGatheredMax bytes.
//
// TLS (TlsSession) is between the socket and Receive, and between FlushOutput and the socket. A reply is
// encrypted in pieces of kTlsPiece, each after the socket has accepted the previous one. So a connection
// with TLS holds one more piece, in encrypted form.
//
// Only the thread of its loop uses it.
#pragma once

#include <uv.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "server/client.h"
#include "server/output_buffer.h"
#include "server/reply_writer.h"
#include "server/request_batch.h"
#include "server/request_parser.h"
#include "server/tls_session.h"

namespace hako::server {

class LoopThread;

class Connection {
 public:
  static constexpr std::size_t kOutputPause = std::size_t{1} << 20;
  static constexpr unsigned kTurnCommands = 1000;
  static constexpr std::size_t kGatheredMax = std::size_t{64} << 10;
  static constexpr std::size_t kTlsPiece = std::size_t{256} << 10;

  explicit Connection(LoopThread& loop) : loop_(loop) {}
  Connection(const Connection&) = delete;

  // Takes ownership of the socket and starts to read; `tls` is nullptr for a plain connection. If
  // that fails, returns false, and the connection is closing.
  bool Start(int socket, std::unique_ptr<TlsSession> tls);
  // Runs the requests that have arrived, as far as the limits allow.
  void Resume();
  // Makes the replies wait for the Committer: no request runs until Release. If work in the pool
  // ends before that, the connection is listed, and its replies wait for the next commit.
  void Hold() { is_held_ = true; }
  bool is_held() const { return is_held_; }
  void Release();
  // Adds the first argument of each of the next few commands, which is the key of most commands.
  void AddKeys(std::vector<std::string_view>* keys);
  // Runs the requests that were gathered.
  void RunGathered();
  // Sends as much as the socket accepts. Called at the end of a turn.
  void FlushOutput();
  // Closes the socket at once, with a close_notify of TLS. The connection deletes itself soon.
  void Close();

  Client& client() { return client_; }
  std::uint64_t last_active() const { return last_active_; }  // milliseconds of the loop's clock
  std::uint64_t started() const { return started_; }          // milliseconds of the loop's clock
  bool is_in_handshake() const { return tls_ != nullptr && tls_->state() == TlsSession::State::kHandshake; }
  bool is_listed = false;    // in the loop's list of connections to flush
  bool is_resumed = false;   // in the loop's list of connections to resume
  bool is_gathered = false;  // in the loop's list of connections whose requests are gathered

 private:
  static Connection& Of(void* handle) { return *static_cast<Connection*>(static_cast<uv_handle_t*>(handle)->data); }
  static void OnAllocate(uv_handle_t* handle, std::size_t, uv_buf_t* buffer);
  static void OnRead(uv_stream_t* stream, ssize_t size, const uv_buf_t* buffer);
  static void OnWritten(uv_write_t* request, int status);
  static void OnClosed(uv_handle_t* handle);

  void Receive(std::string_view bytes);
  void ReceiveEncrypted(std::string_view bytes);
  // Closes the connection if its client has ended the session and all its requests have run.
  void EndIfSessionEnded();
  // Runs the requests in input_.
  void RunInput();
  // Runs requests, and returns the number of bytes consumed.
  std::size_t RunRequests(std::string_view bytes);
  bool IsPaused() const { return client_.closes || is_held_ || is_working_ || has_more_ || is_sending_ || out_.size() >= kOutputPause; }
  RequestLimits Limits() const;
  std::size_t RunBatch(const RequestBatch& batch, ReplyWriter& reply);
  void StartWork();
  void EndWork(OutputBuffer* reply, bool changes_rows);
  void UpdateReading();
  // Sends as many bytes as the socket accepts at once. If that fails, returns false, and the
  // connection is closing.
  bool TrySend(OutputBuffer* from);
  // Sends the rest once the socket accepts more.
  void SendRest(OutputBuffer* from);
  void SendMore();
  void FlushEncrypted();
  void DeleteIfDone();

  LoopThread& loop_;
  uv_tcp_t socket_{};
  Client client_;
  RequestParser parser_;
  OutputBuffer input_;    // an incomplete request, and requests that have not run
  OutputBuffer out_;      // replies of this turn
  OutputBuffer sending_;  // replies that the kernel has not accepted yet
  uv_write_t write_{};
  std::unique_ptr<TlsSession> tls_;  // nullptr = a plain connection
  std::uint64_t last_active_ = 0, started_ = 0;
  bool is_reading_ = false, is_sending_ = false, is_held_ = false, is_working_ = false, is_closing_ = false, is_closed_ = false;
  std::size_t num_prefetched_ = 0;  // number of next requests whose records were prefetched
  bool has_more_ = false;           // input_ has requests beyond the limit of a turn
};

}  // namespace hako::server
