// Definitions of server/connection.h.
#include "server/connection.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <utility>

#include "server/loop_thread.h"
#include "server/server_log.h"

namespace hako::server {

bool Connection::Start(int socket, std::unique_ptr<TlsSession> tls) {
  tls_ = std::move(tls);
  socket_.data = this;
  uv_tcp_init(loop_.loop(), &socket_);
  last_active_ = started_ = uv_now(loop_.loop());
  if (uv_tcp_open(&socket_, socket) != 0) return Close(), false;
  uv_tcp_nodelay(&socket_, 1);
  UpdateReading();
  return true;
}

void Connection::OnAllocate(uv_handle_t* handle, std::size_t, uv_buf_t* buffer) {
  static constexpr std::size_t kLeast = 16 << 10, kMost = 256 << 10;
  Connection& self = Of(handle);
  if (self.input_.empty() || self.tls_ != nullptr) {
    *buffer = self.loop_.read_buffer();
    return;
  }
  const std::size_t size = std::clamp(self.parser_.missing(), kLeast, kMost);
  try {
    *buffer = uv_buf_init(self.input_.Reserve(size), static_cast<unsigned>(size));
  } catch (const std::bad_alloc&) {
    *buffer = uv_buf_init(nullptr, 0);  // makes OnRead get UV_ENOBUFS
  }
}

void Connection::OnRead(uv_stream_t* stream, ssize_t size, const uv_buf_t* buffer) {
  Connection& self = Of(stream);
  if (size == 0) return;
  if (size < 0) {  // requests that have arrived still run and get replies
    if (self.is_gathered) self.RunGathered();
    if (self.is_closing_) return;
    if (self.IsPaused() && !self.input_.empty()) return self.UpdateReading();  // the end is read again after the requests have run
    if (self.is_in_handshake() && self.tls_->has_received()) self.loop_.NoteTlsFailure(self.client_, "the client left");
    self.client_.closes = true;
    self.UpdateReading();
    return self.loop_.FlushSoon(self);
  }
  self.last_active_ = uv_now(self.loop_.loop());
  self.loop_.commands().counters.input_bytes.Add(static_cast<std::uint64_t>(size));
  try {
    if (self.tls_ != nullptr) [[unlikely]] {
      self.ReceiveEncrypted({buffer->base, static_cast<std::size_t>(size)});
    } else if (self.loop_.gathers_requests()) {
      const std::size_t added = static_cast<std::size_t>(size);
      self.input_.empty() ? self.input_.Append({buffer->base, added}) : self.input_.Extend(added);
      if (self.input_.size() < kGatheredMax) return self.loop_.Gather(self);
      return self.RunGathered();
    } else if (self.input_.empty()) {
      self.Receive({buffer->base, static_cast<std::size_t>(size)});
    } else {
      self.input_.Extend(static_cast<std::size_t>(size));
      self.input_.Consume(self.RunRequests(self.input_.view()));
    }
  } catch (const std::bad_alloc&) {
    self.Close();
    return;
  }
  if (self.input_.empty()) self.input_.Trim();
  self.UpdateReading();
}

void Connection::Receive(std::string_view bytes) { input_.Append(bytes.substr(RunRequests(bytes))); }

void Connection::ReceiveEncrypted(std::string_view bytes) {
  const bool was_failed = tls_->state() == TlsSession::State::kFailed, was_in_handshake = is_in_handshake();
  OutputBuffer& scratch = loop_.decrypted();
  scratch.Consume(scratch.size());
  OutputBuffer& plain = input_.empty() ? scratch : input_;
  const TlsSession::State state = tls_->Receive(bytes, &plain);
  if (&plain == &scratch && !scratch.empty()) Receive(scratch.view());
  if (&plain == &input_) input_.Consume(RunRequests(input_.view()));
  if (state == TlsSession::State::kFailed && !was_failed) {
    if (was_in_handshake) loop_.NoteTlsFailure(client_, tls_->error());
    client_.closes = true;
  }
  EndIfSessionEnded();
  loop_.FlushSoon(*this);
}

void Connection::EndIfSessionEnded() {
  if (tls_ == nullptr || tls_->state() != TlsSession::State::kEnded || IsPaused()) return;
  client_.closes = true;
  loop_.FlushSoon(*this);
}

void Connection::Resume() {
  is_resumed = false;
  if (is_closing_) return;
  has_more_ = false;
  RunInput();
}

void Connection::RunGathered() {
  is_gathered = false;
  if (!is_closing_) RunInput();
}

void Connection::RunInput() {
  if (!IsPaused()) {
    try {
      input_.Consume(RunRequests(input_.view()));
    } catch (const std::bad_alloc&) {
      return Close();
    }
    if (input_.empty()) input_.Trim();
    EndIfSessionEnded();
  }
  UpdateReading();
}

void Connection::AddKeys(std::vector<std::string_view>* keys) {
  num_prefetched_ = 0;
  const RequestLimits limits = Limits();
  if (IsPaused() || !parser_.is_at_begin() || !limits.is_authenticated) return;
  RequestParser parser;
  RequestBatch& batch = loop_.batch();
  const auto result = batch.Fill(parser, input_.view(), limits, RequestBatch::kMax);
  std::size_t count = batch.size();
  if (result == RequestParser::Result::kRequest && parser.is_inline()) --count;  // its words are gone with the next Parse
  for (std::size_t i = 0; i < count; ++i) {
    if (batch.words(i).size() > 1) keys->push_back(batch.words(i)[1]);
  }
  num_prefetched_ = count;
}

RequestLimits Connection::Limits() const {
  const Settings& settings = loop_.settings();
  return {.bulk = settings.bulk_max.load(std::memory_order_relaxed),
          .request = static_cast<std::size_t>(settings.request_max.load(std::memory_order_relaxed)),
          .is_authenticated = client_.is_authenticated || !settings.has_password()};
}

std::size_t Connection::RunRequests(std::string_view bytes) {
  if (IsPaused()) return 0;
  std::size_t used = 0, commands = 0;
  out_.set_limit(static_cast<std::size_t>(loop_.settings().output_max.load(std::memory_order_relaxed)));
  ReplyWriter reply(&out_, client_.protocol);
  const TurnLock turn(loop_);
  while (!IsPaused()) {
    if (commands >= kTurnCommands) {
      has_more_ = true;
      loop_.ResumeSoon(*this);
      break;
    }
    const RequestLimits limits = Limits();
    RequestBatch& batch = loop_.batch();
    const auto result = batch.Fill(parser_, bytes.substr(used), limits, limits.is_authenticated ? RequestBatch::kMax : 1);
    const std::size_t done = RunBatch(batch, reply);
    commands += done;
    used += batch.consumed(done);
    if (done < batch.size()) {  // the other requests are parsed again later
      parser_.Reset();
      break;
    }
    if (result == RequestParser::Result::kIncomplete) break;
    if (result != RequestParser::Result::kError) continue;
    if (IsPaused()) {
      parser_.Reset();
    } else {
      if (client_.replies == Client::Replies::kAll) reply.Error("ERR " + parser_.error());
      client_.closes = true;
    }
  }
  loop_.FlushSoon(*this);
  return used;
}

// Runs requests of the batch, and returns how many.
std::size_t Connection::RunBatch(const RequestBatch& batch, ReplyWriter& reply) {
  if (num_prefetched_ >= batch.size()) {
    num_prefetched_ -= batch.size();
  } else if (batch.size() > 1) {
    num_prefetched_ = 0;
    std::string_view keys[RequestBatch::kMax];
    std::size_t count = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (batch.words(i).size() > 1) keys[count++] = batch.words(i)[1];
    }
    loop_.commands().server.database.Prefetch({keys, count});
  }
  std::size_t done = 0;
  while (done < batch.size() && !IsPaused()) {
    const auto words = batch.words(done++);
    if (words.empty()) continue;
    loop_.dispatcher().Execute(client_, reply, words);
    if (client_.work) StartWork();
  }
  return done;
}

void Connection::StartWork() {
  struct Request {
    uv_work_t request;
    Connection* connection;
    std::function<void(OutputBuffer*)> work;
    OutputBuffer reply;
    bool changes_rows;
    std::chrono::nanoseconds took{0};
    bool lacks_memory = false;
  };
  auto* const request = new Request{{}, this, std::exchange(client_.work, nullptr), {}, std::exchange(client_.work_changes_rows, false)};
  request->request.data = request;
  is_working_ = true;
  uv_queue_work(
      loop_.loop(), &request->request,
      [](uv_work_t* work) {
        auto* const self = static_cast<Request*>(work->data);
        const auto begin = std::chrono::steady_clock::now();
        try {
          self->work(&self->reply);
        } catch (const std::bad_alloc&) {
          self->lacks_memory = true;
        }
        self->took = std::chrono::steady_clock::now() - begin;
      },
      [](uv_work_t* work, int) {
        const std::unique_ptr<Request> self(static_cast<Request*>(work->data));
        NoteWork(self->connection->loop_.commands(), self->connection->client_, static_cast<std::uint64_t>(self->took.count()));
        if (self->lacks_memory) self->connection->Close();
        self->connection->EndWork(&self->reply, self->changes_rows);
      });
}

void Connection::EndWork(OutputBuffer* reply, bool changes_rows) {
  is_working_ = false;
  if (changes_rows) loop_.commands().counters.commits.Add(1);
  if (!client_.work_commit.ok()) {
    LogError("commit", client_.work_commit);
    if (!is_closing_) return Close();
  }
  if (is_closing_) return DeleteIfDone();
  try {
    out_.empty() ? std::swap(out_, *reply) : out_.Append(reply->view());
  } catch (const std::bad_alloc&) {
    return Close();
  }
  loop_.FlushSoon(*this);
  loop_.ResumeSoon(*this);
}

void Connection::UpdateReading() {
  const bool reads = !is_closing_ && !IsPaused();
  if (reads == is_reading_ || is_closing_) return;
  is_reading_ = reads;
  if (reads)
    uv_read_start(reinterpret_cast<uv_stream_t*>(&socket_), OnAllocate, OnRead);
  else
    uv_read_stop(reinterpret_cast<uv_stream_t*>(&socket_));
}

void Connection::Release() {
  is_held_ = false;
  last_active_ = uv_now(loop_.loop());
  if (!input_.empty() || (tls_ != nullptr && tls_->state() == TlsSession::State::kEnded))
    loop_.ResumeSoon(*this);  // runs the requests that arrived while the connection was held
  else
    UpdateReading();
}

void Connection::FlushOutput() {
  if (is_closing_) return;
  const std::size_t encrypted = tls_ != nullptr ? tls_->out().size() : 0;
  if (sending_.size() + out_.size() + encrypted > static_cast<std::size_t>(loop_.settings().output_max.load(std::memory_order_relaxed)))
    return Close();
  if (is_sending_) return;
  const bool was_full = out_.size() >= kOutputPause;
  if (tls_ != nullptr) [[unlikely]] {
    try {
      FlushEncrypted();
    } catch (const std::bad_alloc&) {
      Close();
    }
    if (is_sending_ || is_closing_) return;
  } else {
    if (!TrySend(&out_)) return;
    if (!out_.empty()) return SendRest(&out_);
  }
  out_.Trim();
  if (client_.closes && !is_working_) return Close();
  if (was_full) loop_.ResumeSoon(*this);
}

// Sends everything, or as much as the socket accepts; then it is called again once the rest is
// sent. After each kOutputPause bytes that a fast reader accepts, other connections are served.
void Connection::FlushEncrypted() {
  OutputBuffer& wire = tls_->out();
  for (std::size_t sent = 0;; sent += kTlsPiece) {
    if (tls_->state() == TlsSession::State::kFailed) out_.Consume(out_.size());
    if (!out_.empty()) {
      const std::string_view piece = out_.view().substr(0, kTlsPiece);
      if (!tls_->Encrypt(piece)) return Close();
      out_.Consume(piece.size());
    }
    if (sent >= kOutputPause && !out_.empty()) return SendRest(&wire);
    if (!TrySend(&wire)) return;
    if (!wire.empty()) return SendRest(&wire);
    if (out_.empty()) return wire.Trim();
  }
}

bool Connection::TrySend(OutputBuffer* from) {
  if (from->empty()) return true;
  const std::string_view bytes = from->view();
  const uv_buf_t buffer = uv_buf_init(const_cast<char*>(bytes.data()), static_cast<unsigned>(std::min<std::size_t>(bytes.size(), 1 << 30)));
  const int sent = uv_try_write(reinterpret_cast<uv_stream_t*>(&socket_), &buffer, 1);
  if (sent == UV_EAGAIN) return true;
  if (sent < 0) return Close(), false;
  loop_.commands().counters.output_bytes.Add(static_cast<std::uint64_t>(sent));
  from->Consume(static_cast<std::size_t>(sent));
  return true;
}

void Connection::SendRest(OutputBuffer* from) {
  std::swap(*from, sending_);
  SendMore();
}

void Connection::SendMore() {
  const std::string_view rest = sending_.view();
  const uv_buf_t buffer = uv_buf_init(const_cast<char*>(rest.data()), static_cast<unsigned>(std::min<std::size_t>(rest.size(), 1 << 30)));
  is_sending_ = true;
  write_.data = this;
  if (uv_write(&write_, reinterpret_cast<uv_stream_t*>(&socket_), &buffer, 1, OnWritten) != 0) return Close();
  UpdateReading();
}

void Connection::OnWritten(uv_write_t* request, int status) {
  Connection& self = *static_cast<Connection*>(request->data);
  self.is_sending_ = false;
  if (status != 0) return self.Close();
  const std::size_t sent = std::min<std::size_t>(self.sending_.size(), 1 << 30);
  self.loop_.commands().counters.output_bytes.Add(sent);
  self.last_active_ = uv_now(self.loop_.loop());
  self.sending_.Consume(sent);
  if (!self.sending_.empty()) return self.SendMore();  // it was longer than one write takes
  self.sending_.Trim();
  self.loop_.FlushSoon(self);
  self.loop_.ResumeSoon(self);
}

void Connection::Close() {
  if (is_closing_) return;
  is_closing_ = true;
  client_.is_disconnected.store(true, std::memory_order_relaxed);
  loop_.Forget(*this);
  if (tls_ != nullptr && !is_sending_) {
    tls_->Close();
    (void)TrySend(&tls_->out());
  }
  uv_close(reinterpret_cast<uv_handle_t*>(&socket_), OnClosed);
}

void Connection::OnClosed(uv_handle_t* handle) {
  Connection& self = Of(handle);
  self.is_closed_ = true;
  self.DeleteIfDone();
}

void Connection::DeleteIfDone() {
  if (is_closed_ && !is_working_) delete this;
}

}  // namespace hako::server
