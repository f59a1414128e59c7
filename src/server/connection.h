// Connection: one client's socket in a loop thread. Bytes that arrive are parsed in place and run at
// once; the replies are sent at the end of the loop's turn, after the group commit.
//
// Limits. A connection stops reading while more than kOutputPause bytes of replies wait to be sent, while
// they wait for a commit, and while its work runs beside the loop; so its memory is bounded by kOutputPause,
// the largest reply and the largest request. It runs at most kTurnCommands in a turn, then the others have
// theirs. One that has more than `output_max` bytes waiting is disconnected.
//
// An idle connection has no buffer: bytes arrive in the loop's, and only what is left of an incomplete
// request is copied. Where the loop gathers requests (LoopThread), all are, up to kGatheredMax bytes.
//
// TLS (TlsSession) is between the socket and Receive, and between FlushOutput and the socket. A reply is
// encrypted in pieces of kTlsPiece, each once the socket has taken the one before; so a connection holds
// one piece in encrypted form beside what it holds without TLS.
//
// Threads: its loop's.
#pragma once

#include <uv.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
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

  // Takes over the socket and starts to read; with a session, all bytes pass through that. False if that
  // fails; then the connection is closing.
  bool Start(int socket, std::unique_ptr<TlsSession> tls);
  // Runs what has arrived, as far as the limits allow.
  void Resume();
  // Its replies wait for a commit beside the loop, and no request runs until Release. Work in the pool may end
  // meanwhile: then the connection is_listed, and its replies wait for the next commit.
  void Hold() { is_held_ = true; }
  bool is_held() const { return is_held_; }
  void Release();
  // Adds the first words behind the names of the next few commands: the keys of most of them.
  void AddKeys(std::vector<std::string_view>* keys);
  // Runs the requests that were gathered.
  void RunGathered();
  // Sends what it can; at the end of a turn.
  void FlushOutput();
  // Closes the socket at once, with a close_notify of TLS. The connection deletes itself soon.
  void Close();

  Client& client() { return client_; }
  std::uint64_t last_active() const { return last_active_; }  // milliseconds of the loop's clock
  std::uint64_t started() const { return started_; }          // the same
  bool is_in_handshake() const { return tls_ != nullptr && tls_->state() == TlsSession::State::kHandshake; }
  bool is_listed = false;    // in the loop's list of connections to flush
  bool is_resumed = false;   // in that of connections to resume
  bool is_gathered = false;  // in that of connections with requests to run

 private:
  static Connection& Of(void* handle) { return *static_cast<Connection*>(static_cast<uv_handle_t*>(handle)->data); }
  static void OnAllocate(uv_handle_t* handle, std::size_t, uv_buf_t* buffer);
  static void OnRead(uv_stream_t* stream, ssize_t size, const uv_buf_t* buffer);
  static void OnWritten(uv_write_t* request, int status);
  static void OnClosed(uv_handle_t* handle);

  void Receive(std::string_view bytes);
  void ReceiveEncrypted(std::string_view bytes);
  // Ends the connection if its client has ended the session and all that it sent before was run.
  void EndIfSessionEnded();
  // Runs the requests in input_.
  void RunInput();
  // Runs requests; returns the number of bytes consumed.
  std::size_t RunRequests(std::string_view bytes);
  bool IsPaused() const { return client_.closes || is_held_ || is_working_ || has_more_ || is_sending_ || out_.size() >= kOutputPause; }
  RequestLimits Limits() const;
  std::size_t RunBatch(const RequestBatch& batch, ReplyWriter& reply);
  void StartWork();
  void EndWork(OutputBuffer* reply, bool changes_rows);
  void UpdateReading();
  // Sends as many bytes as the socket takes at once. False if it fails; then the connection is closing.
  bool TrySend(OutputBuffer* from);
  // Has the rest sent later.
  void SendRest(OutputBuffer* from);
  void FlushEncrypted();
  void DeleteIfDone();

  LoopThread& loop_;
  uv_tcp_t socket_{};
  Client client_;
  RequestParser parser_;
  OutputBuffer input_;    // a request that is not complete, or that waits
  OutputBuffer out_;      // replies of this turn
  OutputBuffer sending_;  // replies that the kernel has not taken yet
  uv_write_t write_{};
  std::unique_ptr<TlsSession> tls_;  // nullptr: plain
  std::uint64_t last_active_ = 0, started_ = 0;
  bool is_reading_ = false, is_sending_ = false, is_held_ = false, is_working_ = false, is_closing_ = false, is_closed_ = false;
  std::size_t num_prefetched_ = 0;  // of the next requests
  bool has_more_ = false;           // input_ has requests that were not run for the limits of a turn
};

}  // namespace hako::server
