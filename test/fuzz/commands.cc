// Runs a pipeline of requests with the dispatcher of the server, on a database and a table in memory: each
// request has exactly one reply, which is well-formed, in RESP 2 and in RESP 3, and both protocols refuse the
// same requests. In the end both databases are whole.
//
// An input is a byte of modes, and a stream of requests, such as lines of inline commands.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.h"
#include "server/command_table.h"
#include "server/dispatcher.h"
#include "server/request_parser.h"

namespace hako::fuzz {
namespace {

using server::RequestParser;

constexpr std::size_t kNone = std::string_view::npos;
constexpr std::int64_t kBulkMax = 16 << 10;

// Where the value that begins at `at` ends; kNone if it is malformed, or no value of this protocol.
std::size_t EndOfValue(std::string_view bytes, std::size_t at, int protocol) {
  const std::size_t line = bytes.find("\r\n", at);
  if (at >= bytes.size() || line == kNone) return kNone;
  const char type = bytes[at];
  const std::string_view text = bytes.substr(at + 1, line - at - 1);
  std::size_t end = line + 2;
  if (text.find_first_of("\r\n") != kNone) return kNone;
  if (std::string_view("%~_,#=").find(type) != kNone && protocol == 2) return kNone;
  if (type == '+' || type == '-') return end;
  if (type == '_') return text.empty() ? end : kNone;
  if (type == '#') return text == "t" || text == "f" ? end : kNone;
  if (type == ',') return server::ParseFloat(text) ? end : kNone;
  const auto number = server::ParseInteger(text);
  if (!number) return kNone;
  if (type == ':') return end;
  if (*number < 0) return *number == -1 && protocol == 2 && (type == '$' || type == '*') ? end : kNone;
  if (type == '$' || type == '=') {
    end += static_cast<std::size_t>(*number) + 2;
    return end <= bytes.size() && bytes.substr(end - 2, 2) == "\r\n" ? end : kNone;
  }
  if (type != '*' && type != '%' && type != '~') return kNone;
  for (std::int64_t left = type == '%' ? 2 * *number : *number; left > 0 && end != kNone; --left) end = EndOfValue(bytes, end, protocol);
  return end;
}

// A server without sockets.
class Instance {
 public:
  Instance(unsigned mode, int protocol)
      : database_(Open(mode)),
        table_(*TableDBM::OpenInMemory()),
        state_(*database_, table_.get(), Prepare(mode), 1),
        thread_(&state_, 0, server::AllCommands().size()),
        dispatcher_(thread_) {
    state_.threads.push_back(&thread_);
    state_.stop = [] {};
    client_.protocol = protocol;
    client_.is_authenticated = !settings_.has_password();
    state_.clients.Add(&client_, 1, [](std::uint64_t) {});
  }
  ~Instance() {
    state_.watches.Remove(&client_.watched);
    state_.cursors.Clear();
  }

  // The replies to all requests of the stream.
  std::vector<std::string> Run(std::string_view stream) {
    std::vector<std::string> replies;
    RequestParser parser;
    while (!client_.closes) {
      settings_.bulk_max = kBulkMax;
      const auto result = parser.Parse(stream, {.bulk = kBulkMax, .request = 64 << 10});
      if (result != RequestParser::Result::kRequest) break;
      if (!parser.words().empty()) replies.push_back(Reply(parser.words()));
      stream.remove_prefix(parser.consumed());
    }
    return replies;
  }
  void Verify() {
    Status status = database_->Verify();
    Require(status.ok(), "the database is damaged:", status);
    status = table_->Verify();
    Require(status.ok(), "the table is damaged:", status);
  }

 private:
  static std::unique_ptr<AnyDBM> Open(unsigned mode) {
    AnyOptions options = *ParseAnyOptions(mode % 2 == 0 ? "?dbm=tiny,num_records=64" : "?dbm=baby");
    options.expiry = mode / 2 % 2 == 0;
    options.clock = [] { return std::uint64_t{1'700'000'000'000}; };
    return *AnyDBM::Open(options);
  }
  server::Settings& Prepare(unsigned mode) {
    settings_.database = mode / 4 % 8 == 0 ? "" : "?";  // or a table alone
    if (mode / 32 % 4 == 1) settings_.set_password("p");
    return settings_;
  }
  std::string Reply(std::span<const std::string_view> words) {
    server::OutputBuffer out;
    server::ReplyWriter reply(&out, client_.protocol);
    const bool was_muted = client_.replies != server::Client::Replies::kAll;
    state_.gate.Enter(0);
    dispatcher_.BeginTurn();
    dispatcher_.Execute(client_, reply, words);
    state_.gate.Leave(0);
    if (client_.work) std::exchange(client_.work, nullptr)(&out);
    std::string text(out.view());
    const std::string what = "the reply to " + std::string(words[0]) + " is malformed: " + text.substr(0, 200);
    // Neither SHUTDOWN has a reply, nor what CLIENT REPLY mutes.
    const bool may_be_empty = client_.closes || was_muted || client_.replies != server::Client::Replies::kAll;
    Require((text.empty() && may_be_empty) || EndOfValue(text, 0, client_.protocol) == text.size(), what);
    return text;
  }

  server::Settings settings_;
  const std::unique_ptr<AnyDBM> database_;
  const std::unique_ptr<TableDBM> table_;
  server::ServerState state_;
  server::CommandThread thread_;
  server::Dispatcher dispatcher_;
  server::Client client_;
};

void Run(std::string_view input) {
  Bytes bytes(input);
  const unsigned mode = bytes.Byte();
  const std::string_view stream = bytes.Take(input.size());
  Instance two(mode, 2), three(mode, 3);
  const std::vector<std::string> replies = two.Run(stream), others = three.Run(stream);
  Require(replies.size() == others.size(), "the protocols have other numbers of replies");
  for (std::size_t i = 0; i < replies.size(); ++i)
    Require(replies[i].starts_with('-') == others[i].starts_with('-'), "one protocol alone refuses: " + replies[i] + others[i]);
  two.Verify();
  three.Verify();
}

constexpr std::string_view kWords[] = {"a",
                                       "b",
                                       "c",
                                       "key",
                                       "\"\"",
                                       "0",
                                       "1",
                                       "-1",
                                       "10",
                                       "3.5",
                                       "1e300",
                                       "9223372036854775807",
                                       "1700000000001",
                                       "\"\\x00\\xff\\r\\n\"",
                                       "*",
                                       "?*",
                                       "ex",
                                       "px",
                                       "exat",
                                       "pxat",
                                       "keepttl",
                                       "persist",
                                       "nx",
                                       "xx",
                                       "gt",
                                       "lt",
                                       "get",
                                       "replace",
                                       "db",
                                       "ifeq",
                                       "skip",
                                       "bit",
                                       "user",
                                       "match",
                                       "count",
                                       "cursor",
                                       "type",
                                       "string",
                                       "rev",
                                       "limit",
                                       "keys",
                                       "async",
                                       "2",
                                       "3",
                                       "auth",
                                       "default",
                                       "p",
                                       "setname",
                                       "id",
                                       "addr",
                                       "on",
                                       "off",
                                       "s",
                                       "n",
                                       "t",
                                       "ordered",
                                       "numeric",
                                       "token",
                                       "qgram",
                                       "unique",
                                       "covering",
                                       "where",
                                       "create",
                                       "drop",
                                       "list",
                                       "set",
                                       "int64",
                                       "double",
                                       "not_null",
                                       "'words of a text'",
                                       "'select *'",
                                       "'select key order by n'",
                                       "'select * where n > 1 limit 2'",
                                       "'select count(*), sum(n), min(s) group by s'",
                                       "'update set n = 2, t = null where s is not null'",
                                       "'delete where n = 2'",
                                       "'select * where t all words'",
                                       "'n > 0'",
                                       "-.1.an",
                                       "3.1.bv2"};

std::string AnyCommand(Random& random) {
  const auto commands = server::AllCommands();
  std::string line = commands[random.Below(commands.size())].name;
  if (random.OneIn(3)) line = random.OneIn(2) ? "hako.table|put a n 1 s x" : "hako.table|query";
  if (random.OneIn(6)) line = random.OneIn(2) ? "multi" : "exec";
  std::replace(line.begin(), line.end(), '|', ' ');
  for (std::uint64_t left = random.Below(6); left > 0; --left) line.append(" ").append(kWords[random.Below(std::size(kWords))]);
  return line + "\n";
}

// Inserts, removes and repeats lines, replaces words, and sometimes changes bytes.
void Mutate(std::string& input, Random& random) {
  if (input.empty()) input.push_back(static_cast<char>(random.Next()));
  if (random.OneIn(8)) return MutateBytes(input, random);
  std::vector<std::size_t> lines = {1};
  for (std::size_t i = 1; i < input.size(); ++i) {
    if (input[i] == '\n') lines.push_back(i + 1);
  }
  const std::size_t at = lines[random.Below(lines.size())], end = std::min(input.size(), input.find('\n', at) + 1);
  switch (random.Below(5)) {
    case 0:
      input.erase(at, end > at ? end - at : 0);
      break;
    case 1:
      input.insert(lines[random.Below(lines.size())], input.substr(at, end > at ? end - at : 0));
      break;
    case 2: {
      const std::size_t blank = input.find(' ', at);
      if (blank == kNone) break;
      const std::size_t word_end = std::min(input.find_first_of(" \n", blank + 1), input.size());
      input.replace(blank + 1, word_end - blank - 1, kWords[random.Below(std::size(kWords))]);
      break;
    }
    default:
      input.insert(at, AnyCommand(random));
  }
}

std::vector<std::string> MakeSeeds() {
  const std::string plain(1, '\4'), tree(1, '\5'), table(1, '\0'), timeless(1, '\6'), locked(1, '\44');
  return {
      plain + "set a 1 ex 10\nget a\nincr a\nappend a x\ngetrange a 0 -1\nsetrange b 3 x\nmget a b c\nttl a\ndel a b\n",
      tree + "mset a 1 b 2 c 3\nhako.range a \"\" limit 2\nscan 0 count 1\nrename a d\ncopy b a replace\nkeys *\nrandomkey\ndbsize\n",
      plain + "watch a\nmulti\nset a 1\nincrbyfloat a 1.5\nflushall\nget a\nexec\ndiscard\nhello 3 setname x\ninfo\ncommand\n",
      timeless + "set a 1\nexpire a 10\nset a 1 px 5\nhako.cas a 1 2\nhako.stat\nhako.check\nobject encoding a\nmemory usage a\n",
      locked + "get a\nauth x\nauth p\nget a\nclient list\nclient setname x\nclient kill id 1\nconfig get *\nslowlog get\nreset\nget a\n",
      table +
          "hako.table put a n 1 s x\nhako.table put b n 2\nhako.table get a\nhako.table get a s key\nhako.table query 'select *'\nset a "
          "1\n" +
          "hako.table query 'select key order by n' count 1\nhako.table update a n 3\nhako.table append a s y\nhako.table count\n",
      plain + "hako.table index create i unique covering 1 s where 'n > 0' on n numeric\nhako.table index create w on t token\n" +
          "hako.table put a n 1 s x t 'words of a text'\nhako.table putkeep a n 1\nhako.table put b n 1\nhako.table index list\n" +
          "hako.table query 'update set n = n' \nhako.table query 'update set s = 2'\nhako.table index drop i\nhako.table del a b\n",
      plain + "hako.table column set n int64 not_null\nhako.table put a n 2\nhako.table put a n x\nhako.table column set d double\n" +
          "hako.table put b n 1 d 2.5\nhako.table query 'select count(*), sum(n), min(d) group by n'\nhako.table explain 'select *'\n" +
          "hako.table query_ro 'delete'\nmulti\nhako.table count\nexec\nhello 2\nhako.table column list\nhako.table stat\n"};
}

const Registration kTarget({.name = "commands", .run = Run, .mutate = Mutate, .make_seeds = MakeSeeds, .mutants = 150});

}  // namespace
}  // namespace hako::fuzz
