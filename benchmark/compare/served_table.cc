// The load of a table and of a hash database over the network: one thread that keeps requests of several
// clients in flight, on a hako-server of this machine. served_table.py starts the server and runs the phases.
//
//   served_table --port=6379 --phase=put --clients=50 --depth=1 --n=1000000 --ops=1000000
//   served_table --port=6379 --phase=set --clients=50 --rate=200000  # so many a second, whatever the server does
//
// Phases: index (makes the two indices), put, get and search of the table, whose rows are those of table.h;
// set (new keys, from `first` on), update (keys below n, at random), expiring (as update, with a time of
// `expire` milliseconds) and fetch of the other database, of keys and values of 8 bytes, or of `size` bytes.
// Prints a line of JSON: phase, clients, depth (requests of one client in flight), ops, ops_per_s, and the
// median, the 99th and 99.9th percentile and the longest of the microseconds from a request to its reply.
// With `rate` the time counts from when a request was due, and latest_s is when the longest was.
//
// Phase pauses measures the machine alone: how long a thread that reads the clock for `seconds` is stopped.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>

#include "table.h"

namespace hako::compare {

using Clock = std::chrono::steady_clock;

std::string Request(const std::vector<std::string>& words) {
  std::string bytes = "*" + std::to_string(words.size()) + "\r\n";
  for (const std::string& word : words) bytes += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
  return bytes;
}

// Counts the replies in a stream of RESP 2, which arrives in any pieces.
class ReplyCounter {
 public:
  // Returns the number of replies that end in these bytes.
  std::uint64_t Count(std::string_view bytes) {
    std::uint64_t replies = 0;
    while (!bytes.empty()) {
      if (to_skip_ > 0) {
        const std::size_t skipped = std::min(to_skip_, bytes.size());
        bytes.remove_prefix(skipped);
        to_skip_ -= skipped;
        if (to_skip_ > 0) break;
        replies += EndValue();
        continue;
      }
      const std::size_t end = bytes.find('\n');
      line_.append(bytes.substr(0, end));
      if (end == bytes.npos) break;
      bytes.remove_prefix(end + 1);
      const char type = line_[0];
      const long long number = std::atoll(line_.c_str() + 1);
      if (type == '-') errors_.push_back(line_);
      line_.clear();
      if (type == '$' && number >= 0)
        to_skip_ = static_cast<std::size_t>(number) + 2;
      else if (type == '*' && number > 0)
        values_left_ += static_cast<std::uint64_t>(number) - 1;
      else
        replies += EndValue();
    }
    return replies;
  }
  const std::vector<std::string>& errors() const { return errors_; }

 private:
  std::uint64_t EndValue() {
    if (values_left_ == 0) return 1;
    --values_left_;
    return 0;
  }

  std::string line_;
  std::size_t to_skip_ = 0;
  std::uint64_t values_left_ = 0;  // of the present reply, behind the one that is being read
  std::vector<std::string> errors_;
};

struct Connection {
  int socket = -1;
  ReplyCounter replies;
  std::string output;
  std::deque<Clock::time_point> sent;
};

struct Load {
  std::string phase = "put";
  std::uint64_t port = 6379, clients = 1, depth = 1, rate = 0, n = 1'000'000, ops = 1'000'000;
  std::uint64_t first = 0, expire = 1000, size = 8, seed = 0, seconds = 10;
};

std::string ValueOf(const Load& load, std::uint64_t i) {
  std::string value = TableData::Key(i);
  value.resize(load.size, 'v');
  return value;
}
std::string RequestOf(const Load& load, std::uint64_t i) {
  const TableData data(load.n);
  const std::uint64_t random = workload::Mix(i + 99 + (load.seed << 40)) % load.n;
  if (load.phase == "get") return Request({"hako.table", "get", TableData::Key(random)});
  if (load.phase == "search") return Request({"hako.table", "query_ro", "select * where str = '" + TableData::Str(random) + "'"});
  if (load.phase == "set") return Request({"set", TableData::Key(load.first + i), ValueOf(load, i)});
  if (load.phase == "update") return Request({"set", TableData::Key(random), ValueOf(load, i)});
  if (load.phase == "expiring") return Request({"set", TableData::Key(random), ValueOf(load, i), "px", std::to_string(load.expire)});
  if (load.phase == "fetch") return Request({"get", TableData::Key(random)});
  const TableRow row = data.Row(i % load.n);
  return Request({"hako.table", "put", row.key, "str", row.str, "num", row.num, "a", row.a, "b", row.b});
}

int Connect(std::uint64_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int made = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? made : -1;
}

class LoadRun {
 public:
  explicit LoadRun(const Load& load) : load_(load), connections_(load.clients) {}

  bool Run() {
    // Requests are made before, so that only the server and the sockets are measured.
    requests_.reserve(load_.ops);
    for (std::uint64_t i = 0; i < load_.ops; ++i) requests_.push_back(RequestOf(load_, i));
    microseconds_.reserve(load_.ops);
    const int poll = epoll_create1(0);
    for (Connection& connection : connections_) {
      connection.socket = Connect(load_.port);
      if (connection.socket < 0) return false;
      epoll_event event{.events = EPOLLIN, .data = {.ptr = &connection}};
      epoll_ctl(poll, EPOLL_CTL_ADD, connection.socket, &event);
    }
    const auto begin = begun_ = Clock::now();
    if (load_.rate == 0) {
      for (Connection& connection : connections_) Send(connection, load_.depth);
    }
    while (microseconds_.size() < load_.ops) {
      if (load_.rate > 0) SendDue(begin);
      epoll_event events[64];
      const int ready = epoll_wait(poll, events, 64, load_.rate > 0 ? 0 : 10'000);
      if (ready < 0 || (ready == 0 && load_.rate == 0)) return false;
      for (int i = 0; i < ready; ++i) {
        if (!Receive(*static_cast<Connection*>(events[i].data.ptr))) return false;
      }
    }
    Print(std::chrono::duration<double>(Clock::now() - begin).count());
    return true;
  }

 private:
  void Send(Connection& connection, std::uint64_t count) {
    connection.output.clear();
    const auto now = Clock::now();
    for (; count > 0 && next_ < load_.ops; --count) {
      connection.output += requests_[next_++];
      connection.sent.push_back(now);
    }
    Flush(connection);
  }
  // Sends the requests whose time has come, each client in turn. Their times count from then.
  void SendDue(Clock::time_point begin) {
    const std::uint64_t first = next_;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    for (; next_ < load_.ops && static_cast<double>(next_) <= seconds * static_cast<double>(load_.rate); ++next_) {
      Connection& connection = connections_[next_ % connections_.size()];
      connection.output += requests_[next_];
      connection.sent.push_back(begin + std::chrono::nanoseconds(next_ * 1'000'000'000 / load_.rate));
    }
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(next_ - first, connections_.size()); ++i) {
      Connection& connection = connections_[(first + i) % connections_.size()];
      Flush(connection);
      connection.output.clear();
    }
  }
  static void Flush(const Connection& connection) {
    for (std::string_view left = connection.output; !left.empty();) {
      const ssize_t size = send(connection.socket, left.data(), left.size(), MSG_NOSIGNAL);
      if (size <= 0) break;
      left.remove_prefix(static_cast<std::size_t>(size));
    }
  }
  bool Receive(Connection& connection) {
    char buffer[64 << 10];
    const ssize_t size = recv(connection.socket, buffer, sizeof(buffer), 0);
    if (size <= 0) return false;
    const std::uint64_t replies = connection.replies.Count({buffer, static_cast<std::size_t>(size)});
    if (!connection.replies.errors().empty()) {
      std::fprintf(stderr, "%s: %s\n", load_.phase.c_str(), connection.replies.errors()[0].c_str());
      return false;
    }
    const auto now = Clock::now();
    for (std::uint64_t i = 0; i < replies; ++i) {
      const auto took = now - connection.sent.front();
      if (took > longest_) {
        longest_ = took;
        latest_ = now;
      }
      microseconds_.push_back(std::chrono::duration<float, std::micro>(took).count());
      connection.sent.pop_front();
    }
    if (load_.rate == 0) Send(connection, replies);
    return true;
  }
  void Print(double seconds) {
    std::sort(microseconds_.begin(), microseconds_.end());
    const auto count = [](std::uint64_t number) { return static_cast<unsigned long long>(number); };
    std::printf("{\"phase\": \"%s\", \"clients\": %llu, \"depth\": %llu, \"ops\": %llu, \"ops_per_s\": %.0f, \"p50_us\": %.1f, ",
                load_.phase.c_str(), count(load_.clients), count(load_.depth), count(load_.ops), static_cast<double>(load_.ops) / seconds,
                microseconds_[load_.ops / 2]);
    std::printf("\"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, \"latest_s\": %.3f}\n",
                microseconds_[load_.ops - load_.ops / 100 - 1], microseconds_[load_.ops - load_.ops / 1000 - 1], microseconds_.back(),
                std::chrono::duration<double>(latest_ - begun_).count());
  }

  const Load& load_;
  std::vector<Connection> connections_;
  std::vector<std::string> requests_;
  std::uint64_t next_ = 0;
  std::vector<float> microseconds_;
  Clock::time_point begun_, latest_;
  Clock::duration longest_{0};
};

// Sends requests and waits for their replies.
bool MakeIndices(std::uint64_t port) {
  const int connected = Connect(port);
  std::string all = Request({"hako.table", "index", "create", "", "on", "str", "ordered"}) +
                    Request({"hako.table", "index", "create", "", "on", "num", "numeric"});
  if (send(connected, all.data(), all.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(all.size())) return false;
  ReplyCounter replies;
  for (std::uint64_t count = 0; count < 2;) {
    char buffer[1024];
    const ssize_t size = recv(connected, buffer, sizeof(buffer), 0);
    if (size <= 0) return false;
    count += replies.Count({buffer, static_cast<std::size_t>(size)});
  }
  close(connected);
  return replies.errors().empty();
}

// The longest and the sum of the pauses of more than 50 us in a thread that reads the clock.
void MeasurePauses(std::uint64_t seconds) {
  const auto begin = Clock::now();
  Clock::duration longest{0}, sum{0};
  for (auto last = begin, now = begin; now - begin < std::chrono::seconds(seconds); last = now) {
    now = Clock::now();
    longest = std::max(longest, now - last);
    if (now - last > std::chrono::microseconds(50)) sum += now - last;
  }
  const auto micro = [](Clock::duration took) { return std::chrono::duration<double, std::micro>(took).count(); };
  std::printf("{\"phase\": \"pauses\", \"max_us\": %.1f, \"sum_us\": %.1f}\n", micro(longest), micro(sum));
}

}  // namespace hako::compare

int main(int argc, char** argv) {
  hako::compare::Load load;
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    const std::string_view value = text.substr(std::min(text.size(), text.find('=') + 1));
    if (text.starts_with("--phase=")) load.phase = value;
    for (const auto& [name, number] : {std::pair("--port=", &load.port),
                                       {"--clients=", &load.clients},
                                       {"--depth=", &load.depth},
                                       {"--rate=", &load.rate},
                                       {"--n=", &load.n},
                                       {"--ops=", &load.ops},
                                       {"--first=", &load.first},
                                       {"--expire=", &load.expire},
                                       {"--size=", &load.size},
                                       {"--seed=", &load.seed},
                                       {"--seconds=", &load.seconds}}) {
      if (text.starts_with(name)) std::from_chars(value.data(), value.data() + value.size(), *number);
    }
  }
  if (load.phase == "pauses") return hako::compare::MeasurePauses(load.seconds), 0;
  if (load.phase == "index") return hako::compare::MakeIndices(load.port) ? 0 : 1;
  return hako::compare::LoadRun(load).Run() ? 0 : 1;
}
