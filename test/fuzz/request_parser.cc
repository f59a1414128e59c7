// Reads a stream of requests in pieces: the requests do not depend on the pieces, and each one, written
// again as an array of bulks, is read as the same words.
#include "server/request_parser.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.h"

namespace hako::fuzz {
namespace {

using Requests = std::vector<std::vector<std::string>>;

Requests Read(std::string_view stream, std::size_t piece, const server::RequestLimits& limits) {
  server::RequestParser parser;
  std::string bytes;
  Requests requests;
  while (true) {
    switch (parser.Parse(bytes, limits)) {
      case server::RequestParser::Result::kError:
        requests.push_back({parser.error()});
        return requests;
      case server::RequestParser::Result::kRequest:
        Require(parser.consumed() > 0 && parser.consumed() <= bytes.size(), "a request consumes bytes that are there");
        requests.emplace_back(parser.words().begin(), parser.words().end());
        bytes.erase(0, parser.consumed());
        break;
      case server::RequestParser::Result::kIncomplete:
        if (stream.empty()) return requests;
        bytes.append(stream.substr(0, piece));
        stream.remove_prefix(std::min(piece, stream.size()));
    }
  }
}

void Run(std::string_view input) {
  Bytes bytes(input);
  const unsigned mode = bytes.Byte();
  const server::RequestLimits limits{.line = 64, .words = 1000, .bulk = 4096, .request = 8192, .is_authenticated = mode % 2 == 0};
  const std::string_view stream = bytes.Take(input.size());
  const Requests requests = Read(stream, stream.size() + 1, limits);
  Require(Read(stream, 1 + mode / 2, limits) == requests, "the pieces in which a stream arrives change its requests");
  for (const auto& request : requests) {
    std::string again = "*" + std::to_string(request.size()) + "\r\n";
    for (const std::string& word : request) again += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
    Require(Read(again, 7, {}) == Requests{request}, "a request changes when it is written again");
  }
}

std::vector<std::string> MakeSeeds() {
  return {std::string(1, '\0') + "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n*1\r\n$4\r\nPING\r\n",
          std::string(1, '\2') + "set \"a\\x00\" 'b'\r\nPING\n", "\3*3\r\n$3\r\nSET\r\n$0\r\n\r\n$12\r\n*1\r\n$4\r\nPING\r\n",
          "\7*-1\r\n*0\r\n\r\n*1\r\n:1\r\n"};
}

const Registration kTarget({.name = "request_parser", .run = Run, .make_seeds = MakeSeeds, .mutants = 2000});

}  // namespace
}  // namespace hako::fuzz
