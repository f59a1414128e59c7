// TLS: the session by itself, split at every byte; and the server with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "server/certificates.h"
#include "server/resp_client.h"
#include "server/server_process.h"
#include "server/tls_client.h"
#include "server/tls_context.h"
#include "server/tls_session.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using server::OutputBuffer;
using server::TlsContext;
using server::TlsOptions;
using server::TlsSession;
using testing::HasSubstr;
using testing::StartsWith;

// The certificates of all tests: a CA, a server and a client of it.
struct Authority {
  Certificate ca{"ca"}, server{"server", &ca}, client{"client", &ca};
  TempDir dir;

  Authority() {
    ca.Write(dir.File("ca"));
    server.Write(dir.File("server"));
  }
  std::string File(const char* name) const { return dir.File(name); }
  TlsOptions Options(const char* auth_clients = "no") const {
    return {.cert_file = File("server.crt"), .key_file = File("server.key"), .ca_cert_file = File("ca.crt"), .auth_clients = auth_clients};
  }
  std::vector<std::string> Arguments(const char* auth_clients = "no") const {
    return {"--tls-port",         "any",          "--tls-cert-file",    File("server.crt"), "--tls-key-file", File("server.key"),
            "--tls-ca-cert-file", File("ca.crt"), "--tls-auth-clients", auth_clients};
  }
};
const Authority& TheAuthority() {
  static const Authority authority;
  return authority;
}

// ---- the session ----

// A client in memory.
class MemoryClient {
 public:
  explicit MemoryClient(SSL_CTX* context) : ssl_(SSL_new(context)), in_(BIO_new(BIO_s_mem())), out_(BIO_new(BIO_s_mem())) {
    SSL_set_bio(ssl_, in_, out_);
    SSL_set_connect_state(ssl_);
  }
  MemoryClient(const MemoryClient&) = delete;
  ~MemoryClient() { SSL_free(ssl_); }
  SSL* ssl() { return ssl_; }
  // What it sends next, after these bytes of the server.
  std::string Step(TlsSession& session) {
    const std::string_view bytes = session.out().view();
    if (!bytes.empty()) BIO_write(in_, bytes.data(), static_cast<int>(bytes.size()));
    session.out().Consume(bytes.size());
    SSL_do_handshake(ssl_);
    return Sent();
  }
  std::string Sent() {
    std::string sent(BIO_ctrl_pending(out_), '\0');
    if (!sent.empty()) BIO_read(out_, sent.data(), static_cast<int>(sent.size()));
    return sent;
  }

 private:
  SSL* const ssl_;
  BIO *const in_, *const out_;
};

// The first flight of the client, split at every byte; those behind it, and a record, at their first ones;
// and all of them one byte at a time. HAKO_SPLITS: at every byte of all.
TEST(TlsSessionTest, HandshakeMayBeSplitAtEveryByte) {
  const std::size_t whole_max = std::getenv("HAKO_SPLITS") != nullptr ? 10'000 : 30;
  const auto context = TlsContext::Load(TheAuthority().Options("yes"));
  ASSERT_TRUE(context.ok()) << context.status();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const TlsClientContext of_client = MakeTlsClientContext(TheAuthority().ca, &TheAuthority().client, version);
    std::size_t longest = 1;  // flight so far
    for (std::size_t at = 0; at <= longest; ++at) {
      TlsSession session(**context);
      MemoryClient client(of_client.get());
      OutputBuffer plain;
      const auto send = [&](std::string_view bytes) {
        if (at == longest) {
          for (const char byte : bytes) session.Receive({&byte, 1}, &plain);
        } else {
          session.Receive(bytes.substr(0, std::min(at, bytes.size())), &plain);
          session.Receive(bytes.substr(std::min(at, bytes.size())), &plain);
        }
      };
      const std::string first = client.Step(session);
      longest = std::max(longest, first.size());
      send(first);
      ASSERT_EQ(session.state(), TlsSession::State::kHandshake) << at << session.error();
      ASSERT_FALSE(session.out().empty()) << at;
      if (at > whole_max && at != longest) continue;
      for (int flight = 0; flight < 2 && session.state() == TlsSession::State::kHandshake; ++flight) {
        const std::string bytes = client.Step(session);
        if (whole_max > 30) longest = std::max(longest, bytes.size());
        send(bytes);
      }
      ASSERT_EQ(session.state(), TlsSession::State::kOpen) << at << session.error();
      EXPECT_TRUE(plain.empty());
      client.Step(session);
      SSL_write(client.ssl(), "hello", 5);
      send(client.Sent());
      ASSERT_EQ(plain.view(), "hello") << at;
    }
  }
}

// Damage of any byte ends the session, with an alert and nothing decrypted.
TEST(TlsSessionTest, ADamagedRecordEndsTheSession) {
  const auto context = TlsContext::Load(TheAuthority().Options());
  const TlsClientContext of_client = MakeTlsClientContext(TheAuthority().ca);
  for (std::size_t at = 0; at < 27; ++at) {
    TlsSession session(**context);
    MemoryClient client(of_client.get());
    OutputBuffer plain;
    EXPECT_FALSE(session.Encrypt("early"));
    for (int flight = 0; flight < 2; ++flight) session.Receive(client.Step(session), &plain);
    client.Step(session);
    SSL_write(client.ssl(), "hello", 5);
    std::string record = client.Sent();
    record[at] = static_cast<char>(record[at] ^ 0x40);
    session.Receive(record, &plain);
    EXPECT_TRUE(plain.empty());
    if (at == 3 || at == 4) continue;  // the length: it waits for more, or has less
    EXPECT_EQ(session.state(), TlsSession::State::kFailed) << at;
    EXPECT_FALSE(session.out().empty());
    EXPECT_FALSE(session.Encrypt("late"));
  }
}

// ---- the server ----

class TlsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (*kServerPath == 0) GTEST_SKIP() << "hako-server is not built";
  }
  const Authority& of_ = TheAuthority();
  TempDir dir_;
};

TEST_F(TlsTest, ServesRequestsAndEndsTheSessionInOrder) {
  ServerProcess server(of_.Arguments());
  EXPECT_EQ(server.port(), 0) << "port 0 is no port beside tls-port";
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const TlsClientContext context = MakeTlsClientContext(of_.ca, nullptr, version);
    TlsClient client(server.tls_port(), context.get());
    ASSERT_TRUE(client.is_open());
    EXPECT_EQ(SSL_version(client.ssl()), version);
    EXPECT_EQ(client.Run({"set", "a", "b"}), "+OK\r\n");
    EXPECT_EQ(client.Run({"config", "get", "tls-auth-clients"}), "*2\r\n$16\r\ntls-auth-clients\r\n$2\r\nno\r\n");
    SSL_set_options(client.ssl(), SSL_OP_LEGACY_SERVER_CONNECT);
    EXPECT_EQ(client.Run({"quit"}), "+OK\r\n");
    EXPECT_EQ(client.Read(), "");
    EXPECT_NE(SSL_get_shutdown(client.ssl()) & SSL_RECEIVED_SHUTDOWN, 0) << "close_notify";
  }
  const TlsClientContext context = MakeTlsClientContext(of_.ca);
  TlsClient client(server.tls_port(), context.get());
  client.Send(RespClient::Encode({"echo", "last"}));
  SSL_shutdown(client.ssl());  // sends no more, and reads the reply
  EXPECT_EQ(client.Read(), "$4\r\nlast\r\n");
  EXPECT_EQ(client.Read(), "");
  TlsClient stays(server.tls_port(), context.get());
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_EQ(stays.Read(), "");
  EXPECT_NE(SSL_get_shutdown(stays.ssl()) & SSL_RECEIVED_SHUTDOWN, 0) << "close_notify";
}

TEST_F(TlsTest, ChecksTheCertificatesOfClients) {
  const Certificate other_ca("ca"), of_other("client", &other_ca), expired("client", &of_.ca, -2 * Certificate::kDay, -Certificate::kDay);
  ServerProcess server(of_.Arguments("yes"));
  const auto try_with = [&](const Certificate* certificate, int version) {
    const TlsClientContext context = MakeTlsClientContext(of_.ca, certificate, version);
    TlsClient client(server.tls_port(), context.get());
    return client.Run({"ping"});
  };
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    EXPECT_EQ(try_with(&of_.client, version), "+PONG\r\n");
    EXPECT_EQ(try_with(nullptr, version), "");
    EXPECT_THAT(server.ReadLogLine(), HasSubstr("reason=\"peer did not return a certificate\""));
    EXPECT_EQ(try_with(&of_other, version), "");
    EXPECT_THAT(server.ReadLogLine(), HasSubstr("certificate signature failure"));
  }
  EXPECT_EQ(try_with(&expired, 0), "");
  EXPECT_THAT(server.ReadLogLine(), HasSubstr("certificate verify failed: certificate has expired"));
  ServerProcess lenient(of_.Arguments("optional"));
  const TlsClientContext without = MakeTlsClientContext(of_.ca), with_other = MakeTlsClientContext(of_.ca, &of_other);
  EXPECT_EQ(TlsClient(lenient.tls_port(), without.get()).Run({"ping"}), "+PONG\r\n");
  EXPECT_EQ(TlsClient(lenient.tls_port(), with_other.get()).Run({"ping"}), "");
}

// Without TLS no byte of a command's reply comes from that port.
TEST_F(TlsTest, APlainClientIsRefused) {
  ServerProcess server(of_.Arguments());
  RespClient plain(server.tls_port());
  plain.Send("*1\r\n$4\r\nPING\r\n");
  EXPECT_EQ(plain.Read(), "");
  EXPECT_THAT(server.ReadLogLine(), HasSubstr("the client may not use TLS"));
  const TlsClientContext old = MakeTlsClientContext(of_.ca, nullptr, TLS1_1_VERSION);
  SSL_CTX_set_security_level(old.get(), 0);
  EXPECT_FALSE(TlsClient(server.tls_port(), old.get()).is_open());
  EXPECT_THAT(server.ReadLogLine(), HasSubstr("TLS handshake failed"));
}

// Neither a client that is silent nor one that has begun keeps its socket.
TEST_F(TlsTest, AStalledHandshakeIsEnded) {
  std::vector<std::string> arguments = of_.Arguments();
  arguments.insert(arguments.end(), {"--tls-handshake-timeout", "1"});
  ServerProcess server(arguments);
  RespClient silent(server.tls_port()), slow(server.tls_port());
  slow.Send("\x16\x03\x01");
  EXPECT_EQ(silent.Read(), "");
  EXPECT_EQ(slow.Read(), "");
  EXPECT_THAT(server.ReadLogLine(), HasSubstr("it took longer than tls-handshake-timeout"));
}

TEST_F(TlsTest, LargeValuesAndPipelinesComeWhole) {
  ServerProcess server(of_.Arguments());
  const TlsClientContext context = MakeTlsClientContext(of_.ca);
  TlsClient client(server.tls_port(), context.get());
  std::string value(std::size_t{64} << 20, '\0');
  for (std::size_t i = 0; i < value.size(); i += 4096) value.replace(i, 8, std::to_string(10'000'000 + i / 4096));
  EXPECT_EQ(client.Run({"set", "big", value}), "+OK\r\n");
  client.Send(RespClient::Encode({"get", "big"}));
  EXPECT_TRUE(client.Read() == "$" + std::to_string(value.size()) + "\r\n" + value + "\r\n");
  static constexpr int kCount = 5'000;  // more than a turn runs
  std::string bytes;
  for (int i = 0; i < kCount; ++i) bytes += RespClient::Encode({"echo", std::to_string(10'000 + i)});
  client.Send(bytes);
  SSL_shutdown(client.ssl());  // its requests are still run
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) wrong += client.Read() != "$5\r\n" + std::to_string(10'000 + i) + "\r\n";
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(client.Read(), "");
}

TEST_F(TlsTest, ASlowReaderTakesBoundedMemoryAndStopsNobody) {
  ServerProcess server(of_.Arguments());
  const TlsClientContext context = MakeTlsClientContext(of_.ca);
  TlsClient slow(server.tls_port(), context.get()), other(server.tls_port(), context.get());
  other.Run({"set", "big", std::string(100'000, 'x')});
  const std::size_t before = server.ResidentBytes();
  std::string gets;
  for (int i = 0; i < 2000; ++i) gets += RespClient::Encode({"get", "big"});
  slow.SendWithoutReading(gets);
  EXPECT_FALSE(slow.is_open()) << "the server reads on";
  EXPECT_EQ(other.Run({"strlen", "big"}), ":100000\r\n");
  EXPECT_LT(server.ResidentBytes(), before + (std::size_t{16} << 20));
  EXPECT_EQ(other.Run({"config", "set", "client-output-buffer-limit", "90kb"}), "+OK\r\n");
  EXPECT_THAT(other.Run({"get", "big"}), testing::StartsWith("-ERR the reply exceeds"));
}

TEST_F(TlsTest, ARenewedCertificateServesNewClients) {
  std::vector<std::string> arguments = {
      "--tls-port", "any", "--tls-cert-file", dir_.File("a.crt"), "--tls-key-file", dir_.File("a.key"), "--tls-auth-clients", "no"};
  of_.server.Write(dir_.File("a"));
  ServerProcess server(arguments);
  const TlsClientContext context = MakeTlsClientContext(of_.ca);
  TlsClient first(server.tls_port(), context.get());
  const Certificate renewed("renewed", &of_.ca);
  std::ofstream(dir_.File("a.crt")) << "damaged";
  EXPECT_THAT(server.ReadLogLine(), HasSubstr("the present certificate stays"));
  EXPECT_EQ(TlsClient(server.tls_port(), context.get()).Run({"ping"}), "+PONG\r\n");
  renewed.Write(dir_.File("a"));
  std::string line = server.ReadLogLine();
  // It may have seen half of what was written.
  while (line.find("the present certificate stays") != line.npos) line = server.ReadLogLine();
  EXPECT_THAT(line, HasSubstr("the certificate has changed"));
  TlsClient second(server.tls_port(), context.get());
  char name[64] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(SSL_get0_peer_certificate(second.ssl())), NID_commonName, name, sizeof(name));
  EXPECT_STREQ(name, "renewed");
  EXPECT_EQ(first.Run({"ping"}), "+PONG\r\n");
}

// --check-config says which file is wrong, and why.
TEST_F(TlsTest, CheckConfigChecksTheFiles) {
  const Certificate expired("old", &of_.ca, -2 * Certificate::kDay, -Certificate::kDay);
  expired.Write(dir_.File("old"));
  std::ofstream(dir_.File("text")) << "no certificate\n";
  const auto check = [&](const std::string& options) {
    const std::string command = std::string(kServerPath) + " --check-config --tls-port 7000 " + options + " 2>&1";
    std::FILE* const pipe = popen(command.c_str(), "r");
    char text[1024];
    std::string printed(text, std::fread(text, 1, sizeof(text), pipe));
    return printed + std::to_string(WEXITSTATUS(pclose(pipe)));
  };
  const std::string crt = " --tls-cert-file " + of_.File("server.crt"), key = " --tls-key-file " + of_.File("server.key"),
                    no = " --tls-auth-clients no";
  EXPECT_EQ(check(crt + key + no), "0");
  EXPECT_THAT(check(key + no), HasSubstr("tls-cert-file"));
  EXPECT_THAT(check(crt + key), HasSubstr("tls-ca-cert-file"));
  EXPECT_THAT(check(crt + key + " --tls-ca-cert-file " + dir_.File("none")), HasSubstr("none: No such file"));
  EXPECT_THAT(check(crt + " --tls-key-file " + of_.File("ca.key") + no), HasSubstr("ca.key: it is not the key of the certificate in "));
  EXPECT_THAT(check(" --tls-cert-file " + dir_.File("old.crt") + " --tls-key-file " + dir_.File("old.key") + no),
              HasSubstr("old.crt: the certificate expired at "));
  EXPECT_THAT(check(" --tls-cert-file " + dir_.File("text") + key + no), HasSubstr("text: no start line"));
  EXPECT_THAT(check(crt + " --tls-key-file " + dir_.File("none") + no), HasSubstr("none: No such file or directory"));
  EXPECT_THAT(check(crt + key + no + " --tls-protocols TLSv1.1"), HasSubstr("tls-protocols"));
}

}  // namespace
}  // namespace hako
