// The redis-server of Debian that a test has started. It is killed at the end.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "server/resp_client.h"

namespace hako {

// Debian's redis-tools has the program under another name, without a service that apt-get starts.
inline std::string FindRedis() {
  for (const char* const path : {"/usr/bin/redis-check-rdb", "/usr/bin/redis-server"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return "";
}

// redis-server, on a UNIX socket.
class RedisProcess {
 public:
  RedisProcess(const std::string& program, const std::string& directory) : socket_(directory + "/redis") {
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int null = open("/dev/null", O_WRONLY);
      dup2(null, STDOUT_FILENO);
      execl(program.c_str(), "redis-server", "--port", "0", "--unixsocket", socket_.c_str(), "--save", "", "--dir", directory.c_str(),
            nullptr);
      _exit(127);
    }
    for (int i = 0; i < 12'000 && !RespClient(socket_).is_open(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ~RedisProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  const std::string& socket() const { return socket_; }
  RespClient Connect() const { return RespClient(socket_); }

 private:
  std::string socket_;
  pid_t pid_;
};

}  // namespace hako
