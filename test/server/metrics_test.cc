// The metrics for Prometheus, and the log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/resp_client.h"
#include "server/server_process.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// Everything that the server sends in reply to these bytes, until it closes the connection.
std::string Exchange(std::uint16_t port, std::string_view bytes) {
  RespClient client(port);
  client.Send(bytes);
  return client.ReadAll();
}

// A reader of the text format 0.0.4, which refuses what its description does not allow.
class Exposition {
 public:
  explicit Exposition(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      if (end == text.npos) {
        Refuse(text, "no line feed at the end");
        break;
      }
      const std::string line(text.substr(0, end));
      text.remove_prefix(end + 1);
      line.starts_with("# ") ? ReadComment(line) : ReadSample(line);
    }
    for (const auto& [labels, count] : last_bucket_) {
      if (values_[labels] != count) Refuse(labels, "its bucket +Inf is not its count");
    }
  }
  const std::string& mistake() const { return mistake_; }
  // The value of a sample, by its name and labels as they are written; -1 if there is none.
  double At(const std::string& sample) const {
    const auto found = values_.find(sample);
    return found != values_.end() ? found->second : -1;
  }

 private:
  void Refuse(std::string_view line, const char* why) { mistake_.append(line).append(": ").append(why).append("\n"); }

  void ReadComment(const std::string& line) {
    const std::size_t name = 7, name_end = line.find(' ', name);
    if (name_end == line.npos) return Refuse(line, "a comment is HELP or TYPE, a name, and more");
    const std::string of = line.substr(name, name_end - name), rest = line.substr(name_end + 1);
    if (line.starts_with("# HELP ")) {
      if (!families_.insert(of).second) Refuse(line, "the family is there twice");
      family_ = of;
      type_.clear();
    } else if (line.starts_with("# TYPE ")) {
      if (of != family_ || !type_.empty()) Refuse(line, "TYPE belongs behind HELP");
      if (rest != "counter" && rest != "gauge" && rest != "histogram") Refuse(line, "unknown type");
      type_ = rest;
      if (rest == "counter" && !of.ends_with("_total")) Refuse(line, "the name of a counter ends with _total");
    } else {
      Refuse(line, "unknown comment");
    }
  }

  void ReadSample(const std::string& line) {
    std::size_t at = line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:");
    if (at == 0 || at == line.npos) return Refuse(line, "no name");
    const std::string name = line.substr(0, at);
    std::string limit, others;
    if (line[at] == '{' && !ReadLabels(line, &at, &limit, &others)) return Refuse(line, "malformed labels");
    char* end = nullptr;
    const double value = std::strtod(line.c_str() + at, &end);
    if (line[at] != ' ' || end == line.c_str() + at || *end != '\0') return Refuse(line, "no number");
    const bool is_family =
        type_ == "histogram" ? name == family_ + "_bucket" || name == family_ + "_sum" || name == family_ + "_count" : name == family_;
    if (!is_family || type_.empty()) return Refuse(line, "a sample outside its family");
    if (!values_.emplace(line.substr(0, at), value).second) return Refuse(line, "the sample is there twice");
    if (name != family_ + "_bucket" || type_ != "histogram") return;
    const std::string series = family_ + "_count{" + others + "}";
    if (limit == "+Inf") last_bucket_[series] = value;
    double& before = buckets_[series];
    if (value < before) Refuse(line, "fewer than in the bucket before");
    before = value;
  }

  // Moves *at behind the labels; *limit is the label le, *others are the other labels.
  static bool ReadLabels(const std::string& line, std::size_t* at, std::string* limit, std::string* others) {
    for (++*at; *at < line.size() && line[*at] != '}';) {
      const std::size_t begin = *at, equals = line.find("=\"", begin);
      if (equals == line.npos) return false;
      const std::string name = line.substr(begin, equals - begin);
      for (*at = equals + 2; *at < line.size() && line[*at] != '"'; ++*at) {
        if (line[*at] == '\\' && (++*at == line.size() || std::string_view("\\\"n").find(line[*at]) == std::string_view::npos))
          return false;
      }
      if (*at == line.size()) return false;
      ++*at;
      const std::string label = line.substr(begin, *at - begin);
      if (name == "le")
        *limit = line.substr(equals + 2, *at - equals - 3);
      else
        others->append(others->empty() ? "" : ",").append(label);
      if (line[*at] == ',') ++*at;
    }
    if (*at == line.size()) return false;
    ++*at;
    return true;
  }

  std::string mistake_, family_, type_;
  std::set<std::string> families_;
  std::map<std::string, double> values_, buckets_, last_bucket_;
};

class MetricsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (*kServerPath == 0) GTEST_SKIP() << "hako-server is not built";
  }
  static std::string Get(const ServerProcess& server) {
    return Exchange(server.metrics_port(), "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
  }
  TempDir dir_;
};

TEST_F(MetricsTest, CountInTheFormatOfPrometheus) {
  const std::string file = dir_.File("a\"b\\c\n.hkt");
  ServerProcess server({"--db", file, "--appendfsync", "always", "--metrics-port", "any", "--threads", "2"});
  RespClient a = server.Connect(), b = server.Connect();
  for (RespClient* const client : {&a, &b}) {
    EXPECT_EQ(client->Run({"set", "key", "value"}), "+OK\r\n");
    client->Run({"get", "key"});
    client->Run({"get", "none"});
    client->Run({"incr", "key"});
    client->Run({"get"});
  }
  const std::string reply = Get(server);
  const std::size_t head = reply.find("\r\n\r\n");
  ASSERT_NE(head, reply.npos) << reply;
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  const std::string body = reply.substr(head + 4);
  EXPECT_THAT(reply.substr(0, head), HasSubstr("Content-Length: " + std::to_string(body.size())));
  const Exposition metrics(body);
  EXPECT_EQ(metrics.mistake(), "");
  EXPECT_EQ(metrics.At("hako_commands_total{cmd=\"get\"}"), 4);
  EXPECT_EQ(metrics.At("hako_commands_rejected_total{cmd=\"get\"}"), 2);
  EXPECT_EQ(metrics.At("hako_commands_failed_total{cmd=\"incr\"}"), 2);
  EXPECT_EQ(metrics.At("hako_command_seconds_count{cmd=\"get\"}"), 4);
  EXPECT_EQ(metrics.At("hako_command_seconds_bucket{cmd=\"get\",le=\"+Inf\"}"), 4);
  EXPECT_EQ(metrics.At("hako_connected_clients"), 2);
  EXPECT_EQ(metrics.At("hako_keyspace_hits_total"), 2);
  EXPECT_EQ(metrics.At("hako_keyspace_misses_total"), 2);
  EXPECT_EQ(metrics.At("hako_records"), 1);
  EXPECT_EQ(metrics.At("hako_healthy"), 1);
  EXPECT_GT(metrics.At("hako_received_bytes_total"), 100);
  EXPECT_GT(metrics.At("hako_database_bytes"), 0);
  EXPECT_GT(metrics.At("hako_log_bytes"), 0);
  EXPECT_GT(metrics.At("hako_log_last_lsn"), 0);
  EXPECT_EQ(metrics.At("hako_log_last_lsn"), metrics.At("hako_log_durable_lsn"));
  EXPECT_THAT(body, HasSubstr("hako_database_info{db=\"" + dir_.path() + "/a\\\"b\\\\c\\n.hkt\"} 1\n"));
}

// Whatever else comes gets an error and the end of the connection.
TEST_F(MetricsTest, RefuseOtherRequests) {
  ServerProcess server({"--metrics-port", "any"});
  const std::uint16_t port = server.metrics_port();
  const std::string bad = "HTTP/1.1 400 Bad Request\r\n", host = "Host: a\r\n";
  for (const std::string& request : std::vector<std::string>{
           "\r\n", "*1\r\n$4\r\nPING\r\n", "GET /metrics\r\n\r\n", "GET  /metrics HTTP/1.1\r\n" + host + "\r\n",
           "GET /metrics HTTP/2.0\r\n" + host + "\r\n", "GET /metrics HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02",
           "GET /metrics HTTP/1.1\r\n" + host + "Content-Length: 3\r\n\r\n", "GET /metrics HTTP/1.1\r\n" + host + "x\r\n\r\n",
           "GET /metrics HTTP/1.1 more\r\n" + host + "\r\n", "GET /metrics HTTP/1.1\r\n" + host + std::string(9000, 'x')}) {
    EXPECT_THAT(Exchange(port, request), AllOf(StartsWith(bad), EndsWith("\r\n\r\n"))) << request;
  }
  EXPECT_THAT(Exchange(port, "GET / HTTP/1.1\r\n" + host + "\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Exchange(port, "GET /metrics/x HTTP/1.1\r\n" + host + "\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Exchange(port, "POST /metrics HTTP/1.1\r\n" + host + "Content-Length: 3\r\n\r\nabc"), StartsWith("HTTP/1.1 405 "));
  std::vector<RespClient> silent;
  for (int i = 0; i < 16; ++i) silent.emplace_back(port);
  EXPECT_EQ(Get(server), "") << "the limit of connections";
  silent.clear();
  std::string reply;
  for (int i = 0; i < 1000 && reply.empty(); ++i) reply = Get(server);  // once the server has seen that they are gone
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(server.Stop(), 0);
}

TEST_F(MetricsTest, LogLevelChangesAtRunTime) {
  ServerProcess server({"--log-format", "json"});
  RespClient client = server.Connect();
  EXPECT_EQ(client.Run({"config", "set", "loglevel", "loud"}).substr(0, 27), "-ERR CONFIG SET failed (pos");
  EXPECT_EQ(client.Run({"config", "set", "loglevel", "debug"}), "+OK\r\n");
  EXPECT_EQ(server.Connect().Run({"quit"}), "+OK\r\n");
  EXPECT_THAT(server.ReadLogLine(), AllOf(StartsWith("{\"time\":\"20"),
                                          HasSubstr("\",\"level\":\"debug\",\"message\":\"client connected\",\"client\":\"127.0.0.1:"),
                                          EndsWith("\",\"tls\":\"no\"}\n")));
  EXPECT_THAT(server.ReadLogLine(), HasSubstr("client disconnected"));
  EXPECT_EQ(client.Run({"config", "set", "loglevel", "warning"}), "+OK\r\n");
  EXPECT_EQ(client.Run({"config", "get", "loglevel"}), "*2\r\n$8\r\nloglevel\r\n$7\r\nwarning\r\n");
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_EQ(server.ReadLogLine(), "") << "all others are of the level info";
}

// A name with special characters cannot end a line of the log, nor its string.
TEST_F(MetricsTest, LogEscapesWhatItShows) {
  const std::string name = dir_.File("none/a\"b\n\x1b[2J\xff.hkh");
  const ServerProcess json({"--log-format", "json", "--db", name}), text({"--db", name});
  EXPECT_THAT(json.first_lines(), AllOf(HasSubstr(R"("level":"error","message":"start","error":")"),
                                        HasSubstr(R"(/none/a\"b\\n\\x1b[2J\\xff.hkh)"), EndsWith("\"}\n")));
  EXPECT_THAT(text.first_lines(), HasSubstr(R"(/none/a"b\n\x1b[2J\xff.hkh)"));
  for (const ServerProcess* const server : {&json, &text}) EXPECT_EQ(server->first_lines().find('\n'), server->first_lines().size() - 1);
}

}  // namespace
}  // namespace hako
