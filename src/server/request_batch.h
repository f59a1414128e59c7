// RequestBatch: the next few requests of a pipeline, parsed before they run, so that the memory of their
// records is loaded while the first of them run.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "server/request_parser.h"

namespace hako::server {

class RequestBatch {
 public:
  static constexpr std::size_t kMax = 16;

  // Parses up to `count` requests, which are views of `bytes`. Returns the last result of the
  // parser, which is kRequest if there may be more requests.
  RequestParser::Result Fill(RequestParser& parser, std::string_view bytes, const RequestLimits& limits, std::size_t count) {
    words_.clear();
    requests_.clear();
    std::size_t end = 0;
    while (requests_.size() < count) {
      const RequestParser::Result result = parser.Parse(bytes.substr(end), limits);
      if (result != RequestParser::Result::kRequest) return result;
      end += parser.consumed();
      requests_.push_back({words_.size(), parser.words().size(), end});
      words_.insert(words_.end(), parser.words().begin(), parser.words().end());
      if (parser.is_inline()) break;  // the parser owns its words until the next Parse
    }
    return RequestParser::Result::kRequest;
  }

  std::size_t size() const { return requests_.size(); }
  std::span<const std::string_view> words(std::size_t i) const { return {words_.data() + requests_[i].first_word, requests_[i].num_words}; }
  // The total size of the first `count` requests, in bytes.
  std::size_t consumed(std::size_t count) const { return count == 0 ? 0 : requests_[count - 1].end; }

 private:
  struct Request {
    std::size_t first_word, num_words, end;
  };
  std::vector<std::string_view> words_;
  std::vector<Request> requests_;
};

}  // namespace hako::server
