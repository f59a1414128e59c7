// A hako-server that a test has started, on a port that the system chose. It is killed at the end.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "server/resp_client.h"

namespace hako {

#ifdef HAKO_SERVER_PATH
inline constexpr const char* kServerPath = HAKO_SERVER_PATH;
#else
inline constexpr const char* kServerPath = "";  // it is not built
#endif

class ServerProcess {
 public:
  // Starts it, and returns once it listens.
  explicit ServerProcess(std::vector<std::string> options) {
    options.insert(options.begin(), {kServerPath, "--port", "0"});
    int log[2];
    if (pipe2(log, O_CLOEXEC) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // it ends with the test, however that ends
      dup2(log[1], STDERR_FILENO);
      std::vector<char*> arguments;
      for (std::string& option : options) arguments.push_back(option.data());
      arguments.push_back(nullptr);
      execv(kServerPath, arguments.data());
      _exit(127);
    }
    close(log[1]);
    log_ = log[0];
    for (std::string line = ReadLogLine(); !line.empty(); line = ReadLogLine()) {
      first_lines_ += line;
      Learn(line, "listening on 127.0.0.1:", &port_);
      Learn(line, "listening with TLS on 127.0.0.1:", &tls_port_);
      Learn(line, "metrics on http://127.0.0.1:", &metrics_port_);
      if (line.find("ready") != std::string::npos) return;
    }
    port_ = tls_port_ = 0;
  }
  ServerProcess(const ServerProcess&) = delete;
  ~ServerProcess() {
    Kill();
    if (log_ >= 0) close(log_);
  }

  std::uint16_t port() const { return port_; }  // 0: it did not start
  std::uint16_t tls_port() const { return tls_port_; }
  std::uint16_t metrics_port() const { return metrics_port_; }
  const std::string& first_lines() const { return first_lines_; }  // of the log, until it is ready
  // The next line of the log, which must come within a minute; "" if it does not, or the server has ended.
  std::string ReadLogLine() {
    for (;;) {
      if (const std::size_t end = log_bytes_.find('\n'); end != std::string::npos) {
        const std::string line = log_bytes_.substr(0, end + 1);
        log_bytes_.erase(0, end + 1);
        return line;
      }
      pollfd wait = {.fd = log_, .events = POLLIN, .revents = 0};
      char bytes[4096];
      const ssize_t size = poll(&wait, 1, 60'000) > 0 ? read(log_, bytes, sizeof(bytes)) : 0;
      if (size <= 0) return "";
      log_bytes_.append(bytes, static_cast<std::size_t>(size));
    }
  }
  RespClient Connect() const { return RespClient(port_); }
  // kill -9.
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    Wait();
  }
  // SIGTERM; the exit code, or -1 - the signal that ended it.
  int Stop() {
    kill(pid_, SIGTERM);
    return Wait();
  }
  int Wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1 - WTERMSIG(status);
  }
  pid_t pid() const { return pid_; }
  // Bytes of memory that it has, and of addresses.
  std::size_t ResidentBytes() const { return Number("statm", "%*u %lu") * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
  std::size_t VirtualBytes() const { return Number("statm", "%lu") * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
  // The time that its main thread has run.
  std::uint64_t ProcessorMilliseconds() const { return Number("schedstat", "%lu") / 1'000'000; }

 private:
  // A number in a file of /proc; 0 if it is not there.
  std::size_t Number(const std::string& name, const char* format) const {
    unsigned long number = 0;
    std::FILE* const file = std::fopen(("/proc/" + std::to_string(pid_) + "/" + name).c_str(), "r");
    if (file == nullptr || std::fscanf(file, format, &number) != 1) number = 0;
    if (file != nullptr) std::fclose(file);
    return number;
  }
  // Takes the port behind these words.
  static void Learn(const std::string& line, const std::string& words, std::uint16_t* port) {
    if (const std::size_t at = line.find(words); at != std::string::npos)
      *port = static_cast<std::uint16_t>(std::atoi(line.c_str() + at + words.size()));
  }

  pid_t pid_ = -1;
  std::string first_lines_;
  std::uint16_t port_ = 0, tls_port_ = 0, metrics_port_ = 0;
  int log_ = -1;
  std::string log_bytes_;  // that were read, and not shown yet
};

}  // namespace hako
