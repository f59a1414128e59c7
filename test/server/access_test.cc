// Users and their roles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "server/resp_client.h"
#include "server/server_process.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kWrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
// Of the password "word".
const std::string kWordHash = "98c1eb4ee93476743763878fcb96a25fbc9a175074d64004779ecb5242f645e6";

std::string NoPerm(const std::string& command) { return "-NOPERM this user has no permissions to run the '" + command + "' command\r\n"; }
std::string Bulk(const std::string& text) { return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n"; }

class ServerAccessTest : public testing::Test {
 protected:
  void SetUp() override {
    if (*kServerPath == 0) GTEST_SKIP() << "hako-server is not built";
  }
  // The options of a server with one user of each role.
  static std::vector<std::string> Options() {
    return {"--requirepass", "top", "--user", "reader r1 read", "--user", "writer #" + kWordHash + " write", "--user", "chief c1 admin"};
  }
  TempDir dir_;
};

TEST_F(ServerAccessTest, EachRoleMayRunItsCommands) {
  ServerProcess server(Options());
  RespClient reader = server.Connect(), writer = server.Connect(), chief = server.Connect();
  EXPECT_EQ(reader.Run({"acl", "whoami"}), "-NOAUTH Authentication required.\r\n");
  EXPECT_EQ(reader.Run({"auth", "reader", "r1"}), "+OK\r\n");
  EXPECT_EQ(writer.Run({"auth", "writer", "word"}), "+OK\r\n");
  EXPECT_THAT(chief.Run({"hello", "3", "auth", "chief", "c1"}), StartsWith("%7\r\n"));
  EXPECT_EQ(writer.Run({"set", "a", "1"}), "+OK\r\n");
  EXPECT_EQ(reader.Run({"get", "a"}), "$1\r\n1\r\n");
  EXPECT_EQ(reader.Run({"set", "a", "2"}), NoPerm("set"));
  EXPECT_EQ(reader.Run({"FLUSHALL"}), NoPerm("flushall"));
  for (RespClient* const client : {&reader, &writer}) {
    EXPECT_EQ(client->Run({"config", "get", "*"}), NoPerm("config|get"));
    EXPECT_EQ(client->Run({"client", "kill", "id", "1"}), NoPerm("client|kill"));
    EXPECT_EQ(client->Run({"acl", "list"}), NoPerm("acl|list"));
    EXPECT_EQ(client->Run({"shutdown"}), NoPerm("shutdown"));
    EXPECT_EQ(client->Run({"hako.backup", "x"}), NoPerm("hako.backup"));
  }
  EXPECT_EQ(chief.Run({"config", "get", "port"}).substr(0, 4), "%1\r\n");
  EXPECT_EQ(reader.Run({"acl", "whoami"}), Bulk("reader"));
  EXPECT_THAT(chief.Run({"client", "list"}), AllOf(HasSubstr("user=reader"), HasSubstr("user=writer"), HasSubstr("user=chief")));
  EXPECT_EQ(chief.Run({"client", "kill", "user", "reader"}), ":1\r\n");
  EXPECT_EQ(reader.Read(), "");
  EXPECT_EQ(chief.Run({"client", "kill", "user", "nobody"}), "-ERR No such user 'nobody'\r\n");
}

TEST_F(ServerAccessTest, WrongPasswordsAndUnknownUsersGetTheSameError) {
  ServerProcess server(Options());
  RespClient client = server.Connect();
  const std::vector<std::vector<std::string>> wrong = {{"reader", "r2"},
                                                       {"reader", ""},
                                                       {"reader", "word"},
                                                       {"nobody", "r1"},
                                                       {"", ""},
                                                       {"default", ""},
                                                       {"writer", "#"},
                                                       {"READER", "r1"},
                                                       {"writer", "#" + kWordHash},
                                                       {"default", "r1"},
                                                       {"writer", kWordHash}};
  for (const auto& pair : wrong) {
    RespClient stranger = server.Connect();
    EXPECT_EQ(stranger.Run({"auth", pair[0], pair[1]}), kWrong) << pair[0];
    EXPECT_EQ(stranger.Run({"hello", "2", "auth", pair[0], pair[1]}), kWrong) << pair[0];
  }
  EXPECT_EQ(client.Run({"auth", "r1"}), kWrong);
  EXPECT_EQ(client.Run({"get", "a"}), "-NOAUTH Authentication required.\r\n");
  EXPECT_EQ(client.Run({"auth", "top"}), "+OK\r\n");
  EXPECT_EQ(client.Run({"acl", "whoami"}), Bulk("default"));
  EXPECT_EQ(client.Run({"auth", "reader", "x"}), kWrong);  // stays who it is
  EXPECT_EQ(client.Run({"acl", "whoami"}), Bulk("default"));
  EXPECT_EQ(client.Run({"auth", "reader", "r1"}), "+OK\r\n");
  EXPECT_EQ(client.Run({"config", "set", "requirepass", ""}), NoPerm("config|set"));
  EXPECT_EQ(client.Run({"reset"}), "+RESET\r\n");
  EXPECT_EQ(client.Run({"get", "a"}), "-NOAUTH Authentication required.\r\n");
}

TEST_F(ServerAccessTest, AConnectionIsClosedAfterFiveWrongPasswords) {
  ServerProcess server(Options());
  RespClient client = server.Connect(), other = server.Connect();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(client.Run({"auth", "reader", "x"}), kWrong);
    EXPECT_EQ(client.Run({"hello", "3", "auth", "reader", "x"}), kWrong);
    EXPECT_EQ(client.Run({"auth", "reader", "r1"}), "+OK\r\n");  // does not begin the count again
  }
  client.Run({"reset"});  // nor does this
  client.Send(RespClient::Encode({"auth", "reader", "x"}) + RespClient::Encode({"auth", "reader", "r1"}));
  EXPECT_EQ(client.ReadAll(), kWrong);
  EXPECT_EQ(other.Run({"auth", "reader", "r1"}), "+OK\r\n");
  EXPECT_EQ(server.Connect().Run({"auth", "top"}), "+OK\r\n");
}

TEST_F(ServerAccessTest, ATransactionWithAForbiddenCommandFails) {
  ServerProcess server(Options());
  RespClient client = server.Connect();
  EXPECT_EQ(client.Run({"exec"}), "-EXECABORT Transaction discarded because of: NOAUTH Authentication required.\r\n");
  client.Run({"auth", "reader", "r1"});
  client.Run({"multi"});
  EXPECT_EQ(client.Run({"get", "a"}), "+QUEUED\r\n");
  EXPECT_EQ(client.Run({"set", "a", "1"}), NoPerm("set"));
  EXPECT_EQ(client.Run({"auth", "top"}), "-ERR Command not allowed inside a transaction\r\n");
  EXPECT_EQ(client.Run({"exec"}), "-EXECABORT Transaction discarded because of previous errors.\r\n");
  client.Run({"auth", "top"});
  EXPECT_EQ(client.Run({"exists", "a"}), ":0\r\n");
  EXPECT_THAT(client.Run({"info", "all"}), HasSubstr("cmdstat_set:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0"));
}

TEST_F(ServerAccessTest, RolesHoldForTheTable) {
  std::vector<std::string> options = Options();
  options.insert(options.end(), {"--table", dir_.File("t.hktb")});
  ServerProcess server(options);
  RespClient reader = server.Connect(), writer = server.Connect();
  reader.Run({"auth", "reader", "r1"});
  writer.Run({"auth", "writer", "word"});
  EXPECT_EQ(writer.Run({"hako.table", "put", "a", "n", "1"}), "+OK\r\n");
  EXPECT_EQ(reader.Run({"hako.table", "count"}), ":1\r\n");
  EXPECT_EQ(reader.Run({"hako.table", "put", "b", "n", "1"}), NoPerm("hako.table|put"));
  EXPECT_EQ(reader.Run({"hako.table", "query", "delete"}), NoPerm("hako.table|query"));
  EXPECT_THAT(reader.Run({"hako.table", "query_ro", "delete"}), StartsWith("-ERR"));
  EXPECT_THAT(reader.Run({"hako.table", "query_ro", "select *"}), StartsWith("*1\r\n"));
  EXPECT_EQ(writer.Run({"hako.table", "index", "list"}), NoPerm("hako.table|index"));
  EXPECT_EQ(writer.Run({"hako.table", "query", "delete where n = 1"}), ":1\r\n");
}

TEST_F(ServerAccessTest, AclShowsUsersAndCategories) {
  ServerProcess server(Options());
  RespClient client = server.Connect();
  client.Run({"auth", "top"});
  EXPECT_EQ(client.Run({"acl", "users"}), "*4\r\n" + Bulk("default") + Bulk("reader") + Bulk("writer") + Bulk("chief"));
  const std::string list = client.Run({"acl", "list"});
  EXPECT_THAT(list, HasSubstr(Bulk("user writer on #" + kWordHash + " ~* &* -@all +@connection +@read +@write")));
  EXPECT_THAT(list, HasSubstr("user chief on #"));
  EXPECT_THAT(list, Not(HasSubstr("r1")));
  EXPECT_EQ(client.Run({"acl", "cat"}), "*4\r\n" + Bulk("connection") + Bulk("read") + Bulk("write") + Bulk("admin"));
  EXPECT_THAT(client.Run({"acl", "cat", "admin"}), AllOf(HasSubstr(Bulk("shutdown")), Not(HasSubstr(Bulk("get")))));
  EXPECT_EQ(client.Run({"acl", "cat", "foo"}), "-ERR Unknown category 'foo'\r\n");
  client.Run({"config", "set", "requirepass", ""});
  EXPECT_EQ(client.Run({"acl", "users"}), "*3\r\n" + Bulk("reader") + Bulk("writer") + Bulk("chief"));
  RespClient stranger = server.Connect();  // without requirepass there is no user default, but there are others
  EXPECT_EQ(stranger.Run({"get", "a"}), "-NOAUTH Authentication required.\r\n");
  EXPECT_EQ(stranger.Run({"auth", "default", ""}), kWrong);
  ServerProcess open({});
  EXPECT_EQ(open.Connect().Run({"acl", "list"}), "*1\r\n" + Bulk("user default on nopass ~* &* +@all"));
  EXPECT_EQ(open.Connect().Run({"auth", "default", "any"}), "+OK\r\n");
}

TEST_F(ServerAccessTest, PasswordsAreNotInTheSlowLog) {
  ServerProcess server(Options());
  RespClient client = server.Connect();
  client.Run({"auth", "top"});
  client.Run({"config", "set", "slowlog-log-slower-than", "0"});
  client.Run({"auth", "default", "top"});
  client.Run({"auth", "secret1"});
  client.Run({"hello", "2", "setname", "x", "auth", "chief", "secret2"});
  client.Run({"config", "set", "requirepass", "secret3", "timeout", "0"});
  const std::string log = client.Run({"slowlog", "get", "-1"});
  EXPECT_THAT(log, AllOf(Not(HasSubstr("secret")), Not(HasSubstr("$3\r\ntop")), HasSubstr("(redacted)"), HasSubstr(Bulk("timeout"))));
}

TEST_F(ServerAccessTest, UsersComeFromTheConfigurationFile) {
  const auto write = [&](const std::string& text) { std::ofstream(dir_.File("conf")) << text; };
  const auto reader_logs_in = [&] {
    ServerProcess server({"--config", dir_.File("conf")});
    return server.port() != 0 && server.Connect().Run({"auth", "reader", "r1"}) == "+OK\r\n";
  };
  write("user = \"reader r1 read\"\nuser = \"writer #" + kWordHash + " write\"\nmaxclients = \"20\"\n");
  EXPECT_TRUE(reader_logs_in());
  write("requirepass = \"a#b\"  # not a part of it\n");
  {
    ServerProcess server({"--config", dir_.File("conf")});
    EXPECT_EQ(server.Connect().Run({"auth", "a#b"}), "+OK\r\n");
  }
  for (const std::string_view bad : {"reader r1", "reader r1 all", "reader r1 READ", "default r1 read", "r#a r1 read", "reader #12 read",
                                     "reader r1 read\"\nuser = \"reader r2 write", ""}) {
    write("user = \"" + std::string(bad) + "\"\n");
    EXPECT_FALSE(reader_logs_in()) << bad;
  }
}

}  // namespace
}  // namespace hako
