// Server: opens the database and the table, listens, and runs the loop threads until a signal or SHUTDOWN ends them.
//
// Threads: the main thread accepts clients, hands each to the next loop thread, answers requests for
// metrics, and waits for signals. The loop threads run commands. Once a second, the ticker calls
// LocalLog::Tick, removes expired records, and loads a renewed certificate.
//
// Order of a stop: the listening sockets are closed; each loop finishes its turn, with its commit and its
// replies, and closes its connections; the ticker ends; the database is closed, which makes everything
// durable.
#pragma once

#include <uv.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "hako/sync/mutex.h"
#include "server/command.h"
#include "server/loop_thread.h"
#include "server/metrics_server.h"
#include "server/settings.h"

namespace hako::server {

class Server {
 public:
  // Opens the database and the sockets. The settings must outlive the server.
  static StatusOr<std::unique_ptr<Server>> Open(Settings& settings);
  ~Server();
  Server(const Server&) = delete;

  // Serves until the server is stopped, then closes the database. Returns the status of Close.
  Status Run();

 private:
  Server(std::unique_ptr<AnyDBM> database, std::unique_ptr<TableDBM> table, Settings& settings);
  Status ListenOn(const std::string& addresses, int port, bool is_tls);
  Status Listen();
  struct Listener;
  void Accept(const Listener& listener);
  void PauseAccepting(const char* reason);
  void OnStop();
  void RunTicker();
  bool WaitForTick();
  void RemoveExpiredIfFew();
  void RefreshCertificate();

  const std::unique_ptr<AnyDBM> database_;
  const std::unique_ptr<TableDBM> table_;  // nullptr = the server has no table
  Settings& settings_;
  ServerState state_;
  std::vector<std::unique_ptr<LoopThread>> threads_;
  std::size_t next_thread_ = 0;

  struct Listener {
    int socket;
    bool is_tls;
    Server* server;
    uv_poll_t poll;
    void Start();
  };
  uv_loop_t loop_{};
  uv_async_t stop_{};
  uv_timer_t accept_again_{};
  uv_signal_t signals_[2] = {};
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::unique_ptr<MetricsServer> metrics_;
  bool is_stopping_ = false;

  std::thread ticker_;
  sync::Mutex ticker_mutex_;
  sync::ConditionVariable ticker_wakes_;
  bool ticker_stops_ ABSL_GUARDED_BY(ticker_mutex_) = false;
};

}  // namespace hako::server
