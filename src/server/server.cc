// Definitions of server/server.h.
#include "server/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <new>
#include <random>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/open_options.h"
#include "server/server_log.h"
#include "server/table_work.h"

namespace hako::server {

namespace {

StatusOr<std::unique_ptr<AnyDBM>> OpenDatabase(const Settings& settings) {
  HAKO_ASSIGN_OR_RETURN(const AnyOptions options, DatabaseOptions(settings));
  return AnyDBM::Open(options);
}

// Returns nullptr if the settings name no table. After a crash the file lacks the number of rows,
// which each query needs, so the rows are counted here.
StatusOr<std::unique_ptr<TableDBM>> OpenTable(const Settings& settings) {
  if (settings.table.empty()) return std::unique_ptr<TableDBM>();
  HAKO_ASSIGN_OR_RETURN(const TableFile file, TableFileOf(settings));
  HAKO_ASSIGN_OR_RETURN(auto table, TableDBM::Open(file.path, file.options));
  HAKO_RETURN_IF_ERROR(table->Count().status());
  return table;
}

// Returns the address and port of an IPv4 or IPv6 socket; "?" for another family.
std::string AddressText(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return absl::StrCat(text, ":", ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  return absl::StrCat("[", text, "]:", ntohs(v6.sin6_port));
}
std::string LocalAddress(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return AddressText(address);
}

// Opens a socket that listens on this address.
StatusOr<int> OpenListener(const std::string& text, std::uint16_t port) {
  HAKO_ASSIGN_OR_RETURN(const SocketAddress address, ParseAddress("bind", text, port));
  const int made = socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (made >= 0) setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (made >= 0 && !address.is_v4) setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  if (made < 0 || bind(made, &address.any, address.size()) != 0 || listen(made, 511) != 0) {
    Status status = absl::ErrnoToStatus(errno, absl::StrCat("listening on ", text, " port ", port));
    if (made >= 0) close(made);
    return status;
  }
  return made;
}

// Raises the limit of open files, as far as the system permits, so that it suffices for all clients
// and the database.
void AllowFiles(std::int64_t clients_max) {
  static constexpr rlim_t kOthers = 64;
  rlimit limit{};
  const rlim_t wanted = static_cast<rlim_t>(clients_max) + kOthers;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  (void)setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < wanted) LogWarning(absl::StrCat("only ", limit.rlim_cur, " files can be open: fewer than maxclients can be served"));
}

std::string RandomId() {
  std::random_device device;
  std::string id;
  while (id.size() < 40) absl::StrAppend(&id, absl::Hex(device(), absl::kZeroPad8));
  return id;
}

}  // namespace

Server::Server(std::unique_ptr<AnyDBM> database, std::unique_ptr<TableDBM> table, Settings& settings)
    : database_(std::move(database)),
      table_(std::move(table)),
      settings_(settings),
      state_(*database_, table_.get(), settings, settings.threads) {
  if (table_ != nullptr) NoteWordIndices(&state_);
  const Stats stats = database_->GetStats();
  settings_.memory_max = static_cast<std::int64_t>(stats.capacity_bytes);
  settings_.evicts = (stats.capacity_bytes | stats.capacity_records) != 0;
  state_.run_id = RandomId();
  state_.stop = [this] { uv_async_send(&stop_); };
  for (unsigned i = 0; i < settings.threads; ++i) {
    threads_.push_back(std::make_unique<LoopThread>(&state_, i));
    state_.threads.push_back(&threads_.back()->commands());
  }
  uv_loop_init(&loop_);
  uv_async_init(&loop_, &stop_, [](uv_async_t* handle) { static_cast<Server*>(handle->data)->OnStop(); });
  uv_timer_init(&loop_, &accept_again_);
  stop_.data = accept_again_.data = this;
}

Server::~Server() {
  OnStop();
  uv_run(&loop_, UV_RUN_DEFAULT);
  uv_loop_close(&loop_);
}

StatusOr<std::unique_ptr<Server>> Server::Open(Settings& settings) {
  AllowFiles(settings.clients_max);
  HAKO_ASSIGN_OR_RETURN(auto database, OpenDatabase(settings));
  HAKO_ASSIGN_OR_RETURN(auto table, OpenTable(settings));
  std::unique_ptr<Server> server(new Server(std::move(database), std::move(table), settings));
  HAKO_RETURN_IF_ERROR(server->Listen());
  if (settings.metrics_port != kNoPort) {
    server->metrics_ = std::make_unique<MetricsServer>(&server->loop_, server->state_);
    HAKO_RETURN_IF_ERROR(server->metrics_->Listen(settings.metrics_bind, settings.metrics_port));
  }
  return server;
}

Status Server::ListenOn(const std::string& addresses, int port, bool is_tls) {
  std::istringstream words(addresses);
  for (std::string address; words >> address;) {
    HAKO_ASSIGN_OR_RETURN(const int socket, OpenListener(address, static_cast<std::uint16_t>(port)));
    auto& listener = listeners_.emplace_back(new Listener{socket, is_tls, this, {}});
    uv_poll_init(&loop_, &listener->poll, socket);
    listener->poll.data = listener.get();
    listener->Start();
    LogInfo((is_tls ? "listening with TLS on " : "listening on ") + LocalAddress(socket));
  }
  return listeners_.empty() ? absl::InvalidArgumentError("bind: no address") : absl::OkStatus();
}

// Port 0 means no port if there is another port for clients, and any free port otherwise.
Status Server::Listen() {
  if (settings_.tls_port == kNoPort) return ListenOn(settings_.bind, std::max<int>(settings_.port, kAnyPort), false);
  HAKO_RETURN_IF_ERROR(state_.tls.Open(settings_.tls));
  HAKO_RETURN_IF_ERROR(ListenOn(settings_.bind, settings_.tls_port, true));
  return settings_.port == kNoPort ? absl::OkStatus() : ListenOn(settings_.bind, settings_.port, false);
}

void Server::Listener::Start() {
  uv_poll_start(&poll, UV_READABLE, [](uv_poll_t* handle, int, int) {
    const auto* const of = static_cast<const Listener*>(handle->data);
    of->server->Accept(*of);
  });
}

void Server::Accept(const Listener& listener) {
  static constexpr int kTogether = 64;
  for (int i = 0; i < kTogether; ++i) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    const int socket = accept4(listener.socket, reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) PauseAccepting(std::strerror(errno));
      return;
    }
    try {
      threads_[next_thread_++ % threads_.size()]->Adopt(socket, AddressText(address), LocalAddress(socket), listener.is_tls);
    } catch (const std::bad_alloc&) {
      close(socket);
      return PauseAccepting("out of memory");
    }
  }
}

// Stops accepting for a second. Clients that connect meanwhile wait in the kernel's queue.
void Server::PauseAccepting(const char* reason) {
  LogWarning("clients cannot be accepted now, and wait", {{"reason", reason}});
  for (const auto& listener : listeners_) uv_poll_stop(&listener->poll);
  const auto start = [](uv_timer_t* timer) {
    for (const auto& listener : static_cast<Server*>(timer->data)->listeners_) listener->Start();
  };
  uv_timer_start(&accept_again_, start, 1000, 0);
}

// Returns false once the ticker must stop.
bool Server::WaitForTick() {
  sync::MutexLock lock(ticker_mutex_);
  const auto next = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!ticker_stops_ && ticker_wakes_.WaitUntil(ticker_mutex_, next)) continue;
  return !ticker_stops_;
}

void Server::RunTicker() {
  while (WaitForTick()) {
    try {
      if (const Status status = state_.log.Tick(); !status.ok()) LogError("synchronization", status);
      if (const Status status = state_.table_log.Tick(); !status.ok()) LogError("synchronization of the table", status);
      RemoveExpiredIfFew();
      if (settings_.tls_port != kNoPort) RefreshCertificate();
    } catch (const std::bad_alloc&) {
      LogWarning("out of memory");
    }
  }
}

// The database removes expired records once there are many of them (dbm/expiry_schedule.h). In a
// small database this removes them each second, which is cheap, so that DBSIZE does not count them.
void Server::RemoveExpiredIfFew() {
  static constexpr std::uint64_t kFew = 10'000;
  if (database_->expiry() == nullptr || !database_->IsWritable()) return;
  if (const std::uint64_t count = database_->Count(); count == 0 || count > kFew) return;
  if (const auto removed = database_->RemoveExpired(); !removed.ok()) LogError("removing expired records", removed.status());
}

void Server::RefreshCertificate() {
  bool is_loaded = false;
  if (const Status status = state_.tls.Refresh(&is_loaded); !status.ok())
    LogError("the present certificate stays, as the new one cannot be loaded", status);
  if (is_loaded) LogInfo("the certificate has changed, and serves new clients");
}

Status Server::Run() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);  // sent when the terminal is closed
  static constexpr int kSignals[] = {SIGINT, SIGTERM};
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    uv_signal_init(&loop_, &signals_[i]);
    signals_[i].data = this;
    uv_signal_start(
        &signals_[i], [](uv_signal_t* signal, int) { static_cast<Server*>(signal->data)->OnStop(); }, kSignals[i]);
  }
  for (const auto& thread : threads_) thread->Start();
  ticker_ = std::thread([this] { RunTicker(); });
  LogInfo("ready");
  uv_run(&loop_, UV_RUN_DEFAULT);
  LogInfo("stopping");
  for (const auto& thread : threads_) thread->Stop();
  for (const auto& thread : threads_) thread->Join();
  {
    sync::MutexLock lock(ticker_mutex_);
    ticker_stops_ = true;
  }
  ticker_wakes_.NotifyOne();
  ticker_.join();
  state_.cursors.Clear();
  Status closed = database_->Close();
  if (table_ != nullptr) closed.Update(table_->Close());
  closed.ok() ? LogInfo("the database is closed") : LogError("closing the database", closed);
  return closed;
}

// Closes the handles of the main loop, so that it ends.
void Server::OnStop() {
  if (std::exchange(is_stopping_, true)) return;
  for (const auto& listener : listeners_) {
    uv_poll_stop(&listener->poll);
    uv_close(reinterpret_cast<uv_handle_t*>(&listener->poll),
             [](uv_handle_t* handle) { close(static_cast<Listener*>(handle->data)->socket); });
  }
  if (metrics_ != nullptr) metrics_->Close();
  for (uv_signal_t& signal : signals_) {
    if (signal.data != nullptr) uv_close(reinterpret_cast<uv_handle_t*>(&signal), nullptr);
  }
  uv_close(reinterpret_cast<uv_handle_t*>(&stop_), nullptr);
  uv_close(reinterpret_cast<uv_handle_t*>(&accept_again_), nullptr);
}

}  // namespace hako::server
