// The same random commands to hako-server and to redis-server of Debian: their replies are the same bytes,
// in both protocols, and so are the records at the end. HAKO_COMMANDS sets the number of commands.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/redis_process.h"
#include "server/resp_client.h"
#include "server/server_process.h"
#include "support/random.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using Words = RespClient::Words;

// Makes commands over few keys, most of them right, some with wrong arguments.
class CommandMaker {
 public:
  explicit CommandMaker(std::uint64_t seed) : random_(seed) {}

  Words Next() {
    if (!next_.empty()) return std::exchange(next_, {});
    Words words = Right();
    if (!next_.empty()) return words;
    if (random_.OneIn(40)) words.pop_back();
    if (random_.OneIn(40)) words.push_back(Word());
    if (random_.OneIn(40) && words.size() > 2 && words[0] != "setbit")
      words[random_.Between(2, words.size() - 1)] = Word();  // not the first key
    if (words.empty()) words.push_back("ping");
    if (random_.OneIn(4)) std::ranges::transform(words[0], words[0].begin(), [](char c) { return static_cast<char>(std::toupper(c)); });
    return words;
  }

 private:
  std::string Pick(std::initializer_list<const char*> words) { return words.begin()[random_.Below(words.size())]; }
  // Times of keys "r" are relative, those of keys "a" absolute: the clocks of the two servers differ by little.
  std::string Key() { return "k" + std::to_string(random_.Below(20)); }
  std::string Relative() { return "r" + std::to_string(random_.Below(5)); }
  std::string Absolute() { return "a" + std::to_string(random_.Below(5)); }
  std::string Value() {
    return random_.OneIn(3) ? Number() : random_.OneIn(20) ? random_.Bytes(random_.Below(3000)) : random_.Bytes(random_.Below(12));
  }
  std::string Number() {
    return random_.OneIn(12) ? Pick({"9223372036854775807", "-9223372036854775808", "9223372036854775808", "1.5", "3e2", "-0", "0x10", " 1",
                                     "nan", "inf", "01", ""})
                             : std::to_string(static_cast<std::int64_t>(random_.Below(200)) - 100);
  }
  std::string Float() { return random_.OneIn(2) ? Number() : std::to_string(static_cast<double>(random_.Below(10000)) / 64); }
  std::string Word() { return Pick({"nx", "XX", "get", "KEEPTTL", "100000", "-1", "foo", "", "a\r\nb", "PERSIST", "0", "1000000000"}); }
  std::string Time(bool absolute) {
    if (random_.OneIn(15)) return Pick({"0", "-1", "9223372036854775807", "x", "-9223372036854775808"});
    return std::to_string((absolute ? 4'000'000'000 : 100'000) + random_.Below(1000) * 1000);
  }
  Words WithTime() {
    const bool absolute = random_.OneIn(2);
    const std::string key = absolute ? Absolute() : Relative(), time = Time(absolute);
    switch (random_.Below(9)) {
      case 0:
        return random_.OneIn(3) ? Words{"set", key, Value(), absolute ? "exat" : "ex", "x", absolute ? "EXAT" : "EX", time}
                                : Words{"set", key, Value(), absolute ? "exat" : "ex", time};
      case 1:
        return {"set", key, Value(), absolute ? "pxat" : "px", time + "000", Pick({"nx", "xx", "get"})};
      case 2:
        return {absolute ? "expireat" : "expire", key, time};
      case 3:
        return {absolute ? "pexpireat" : "pexpire", key, time + "000", Pick({"nx", "xx", "gt", "lt", "GT"})};
      case 4:
        return random_.OneIn(3) ? Words{"getex", key, absolute ? "exat" : "ex", "12", absolute ? "exat" : "ex", time}
                                : Words{"getex", key, absolute ? "exat" : "ex", time};
      case 5:
        return {absolute ? Pick({"expiretime", "pexpiretime"}) : "ttl", key};
      case 6:
        return {"persist", key};
      case 7:
        return {"getex", key, "persist"};
      default:
        return {Pick({"incr", "append", "getset", "get", "del", "setrange", "set", "mset"}), key, Number(), "v"};
    }
  }
  Words Right() {
    switch (random_.Below(43)) {
      case 0:
      case 1:
      case 2:
        return {"get", Key()};
      case 3:
      case 4:
        return {"set", Key(), Value()};
      case 5:
        return {"set", Key(), Value(), Pick({"nx", "xx", "get", "keepttl"})};
      case 6:
        return {"set", Key(), Value(), Pick({"nx", "xx", "get"}), Pick({"get", "nx", "xx", "keepttl"})};
      case 7:
        return {"setnx", Key(), Value()};
      case 8:
        return {"getset", Key(), Value()};
      case 9:
        return {"getdel", Key()};
      case 10:
        return {"mget", Key(), Key(), Key()};
      case 11:
        return {"mset", Key(), Value(), Key(), Value()};
      case 12:
        return {"msetnx", Key(), Value(), Key(), Value()};
      case 13:
        return {Pick({"del", "unlink", "exists", "touch"}), Key(), Key()};
      case 14:
        return {"strlen", Key()};
      case 15:
        return {"append", Key(), Value()};
      case 16:
        return {Pick({"getrange", "substr"}), Key(), Number(), Number()};
      case 17:
        return {"setrange", Key(), std::to_string(random_.Below(30)), Value()};
      case 18:
      case 19:
        return {Pick({"incr", "decr"}), Key()};
      case 20:
        return {Pick({"incrby", "decrby"}), Key(), Number()};
      case 21:
        return {"incrbyfloat", Key(), Float()};
      case 22:
        return {"type", Key()};
      case 23:
        return {Pick({"rename", "renamenx"}), Key(), Key()};
      case 24:
        return {"copy", Key(), Key(), "replace"};
      case 25:
        return {"copy", Key(), Key()};
      case 26:
        return {"setex", Relative(), Time(false), Value()};
      case 27:
        return {"expire", Key(), Pick({"-1", "0", "-100"})};
      case 28:
        return {"set", Key(), Value(), "exat", "1"};
      case 29:
        return {Pick({"multi", "exec", "exec", "discard"})};
      case 30:
        return {Pick({"watch", "watch", "unwatch", "exec"}), Key()};
      case 31:
        return {"echo", Value()};
      case 32:
        return {"ping"};
      case 33:
        return random_.OneIn(3) ? Words{"client", "kill", "id", Pick({"x", "0", "-4", "99999999"})}
                                : Words{Pick({"time2", "object", "client", "config", "foo"}), Word()};
      case 34:
        return random_.OneIn(2) ? Words{"object", Pick({"refcount2", "help2"}), Key()}
                                : Words{"memory", "usage", "no such key", Pick({"samples", "x"}), Pick({"abc", "-1", "5", "0"})};
      case 35:
        return {"scan", Pick({"0", "x", ""}), "count", Pick({"1000", "0", "x"}), "match", "zzz*"};
      case 36:
        return random_.OneIn(4)   ? Words{"foo", std::string(random_.Below(300), 'x'), Word(), Key()}
               : random_.OneIn(4) ? Words{"command", "getkeys", Pick({"ping", "get", "foo"})}
                                  : Words{"command", "getkeys", Pick({"get", "mset", "del", "rename", "ping", "foo"}), Key(), Value()};
      case 37:
        return random_.OneIn(50) ? Words{Pick({"flushall", "flushdb"})} : SizeAfterLooks();
      case 38:
        return {"setbit", Key(), Bit(), Pick({"0", "1", "1", "2"})};
      case 39:
        return {"getbit", Key(), random_.OneIn(9) ? "4294967295" : Bit()};
      case 40:
        return random_.OneIn(2) ? Words{"bitcount", Key()}
                                : Words{"bitcount", Key(), Number(), Number(), Pick({"bit", "byte", "BIT", "x"})};
      default:
        return WithTime();
    }
  }
  std::string Bit() { return random_.OneIn(12) ? Pick({"-1", "x", "01", "", "4294967296"}) : std::to_string(random_.Below(300)); }

  // Redis counts a record that has expired until a command looks for it.
  Words SizeAfterLooks() {
    Words looks = {"exists"};
    for (int i = 0; i < 20; ++i) looks.push_back("k" + std::to_string(i));
    for (int i = 0; i < 5; ++i) looks.insert(looks.end(), {"r" + std::to_string(i), "a" + std::to_string(i)});
    next_ = {"dbsize"};
    return looks;
  }

  Random random_;
  Words next_;  // not empty: the command that follows
};

// The elements of an array of bulks, sorted.
std::vector<std::string> SortedKeys(const std::string& reply) {
  std::vector<std::string> keys;
  std::size_t at = reply.find("\r\n") + 2;
  while (at < reply.size()) {
    const std::size_t size = static_cast<std::size_t>(std::atoi(reply.c_str() + at + 1));
    at = reply.find("\r\n", at) + 2;
    keys.push_back(reply.substr(at, size));
    at += size + 2;
  }
  std::ranges::sort(keys);
  return keys;
}

// Whether two integers differ by some seconds at most: the two servers run a command at different times.
bool IsNear(const std::string& a, const std::string& b) {
  return a[0] == ':' && b[0] == ':' && std::abs(std::atoll(a.c_str() + 1) - std::atoll(b.c_str() + 1)) <= 60;
}

// The number behind a name in the text of INFO.
std::int64_t NumberIn(const std::string& info, const std::string& name) {
  const std::size_t at = info.find(name);
  return at == std::string::npos ? -1 : std::atoll(info.c_str() + at + name.size());
}

std::string Printed(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += testing::PrintToString(word) + " ";
  return text;
}

struct Case {
  const char* name;
  const char* database;
  const char* protocol;
};

class ServerDifferentialTest : public testing::TestWithParam<Case> {};

TEST_P(ServerDifferentialTest, RepliesAreThoseOfRedis) {
  const std::string redis_path = FindRedis();
  if (*kServerPath == 0 || redis_path.empty()) GTEST_SKIP() << "needs hako-server and redis-server";
  const TempDir dir;
  const RedisProcess redis(redis_path, dir.path());
  const std::string file = GetParam().database;
  const ServerProcess server({"--db", file.starts_with("?") ? file : dir.File(file)});
  RespClient ours = server.Connect(), theirs = redis.Connect();
  ASSERT_TRUE(ours.is_open() && theirs.is_open());
  for (RespClient* const client : {&ours, &theirs}) client->Run({"hello", GetParam().protocol});
  const char* const given = std::getenv("HAKO_COMMANDS");
  const int count = given != nullptr ? std::atoi(given) : 6000;
  const char* const seed = std::getenv("HAKO_SEED");
  CommandMaker maker(seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1);
  Random random(2);
  for (int done = 0, differences = 0; done < count && differences < 10;) {
    std::vector<Words> pipeline(random.Between(1, 400));
    std::string bytes;
    for (Words& words : pipeline) {
      words = maker.Next();
      bytes += RespClient::Encode(words);
    }
    ours.Send(bytes);
    theirs.Send(bytes);
    for (const Words& words : pipeline) {
      const std::string expected = theirs.Read(), reply = ours.Read();
      const bool is_equal = reply == expected || ((words[0] == "ttl" || words[0] == "TTL") && IsNear(reply, expected));
      EXPECT_TRUE(is_equal) << "command " << done << ": " << Printed(words) << "\n  ours:   " << testing::PrintToString(reply)
                            << "\n  Redis': " << testing::PrintToString(expected);
      differences += is_equal ? 0 : 1;
      ++done;
    }
    ASSERT_TRUE(ours.is_open() && theirs.is_open());
  }
  for (RespClient* const client : {&ours, &theirs}) client->Run({"discard"});
  const std::vector<std::string> keys = SortedKeys(theirs.Run({"keys", "*"}));
  EXPECT_FALSE(keys.empty());
  EXPECT_EQ(SortedKeys(ours.Run({"keys", "*"})), keys);
  for (const std::string& key : keys) {
    EXPECT_EQ(ours.Run({"get", key}), theirs.Run({"get", key}));
    EXPECT_TRUE(IsNear(ours.Run({"ttl", key}), theirs.Run({"ttl", key})));
  }
  for (const char* const name : {"keyspace_hits:", "keyspace_misses:"})
    EXPECT_EQ(NumberIn(ours.Run({"info", "stats"}), name), NumberIn(theirs.Run({"info", "stats"}), name)) << name;
  EXPECT_EQ(ours.Run({"hako.check"}), "+OK\r\n");
}

INSTANTIATE_TEST_SUITE_P(Kinds, ServerDifferentialTest,
                         testing::Values(Case{"Tiny2", "?dbm=tiny", "2"}, Case{"Hash3", "a.hkh", "3"}, Case{"Direct2", "a.hkh?direct", "2"},
                                         Case{"Tree2", "a.hkt", "2"}, Case{"Baby3", "?dbm=baby", "3"}),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace hako
