// The parser of requests: RESP arrays of bulk strings, and inline commands, as clients of Redis send them.
//
// Each call gets all unconsumed bytes of the connection. The parser remembers how far it has read,
// so a request that arrives in many pieces costs as much as one that arrives at once. It copies
// nothing: the words of a request are views of the caller's bytes, except those of an inline
// command, which are unescaped into strings that the parser owns.
//
// Invariants
//   1. The requests do not depend on the pieces in which the bytes arrive.
//   2. Between two calls the caller only appends bytes, or moves all of them: positions are kept as
//      offsets from the first byte of the request.
//   3. Nothing is reserved for words or bytes that have not arrived, whatever a length claims.
//   4. After an error the caller closes the connection.
//
// Limits and texts of errors are those of Redis 7.0 (processMultibulkBuffer in its networking.c), except
// that a line beyond its limit is refused even if it arrives at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/inline_words.h"
#include "server/number_text.h"

namespace hako::server {

// The limits of a request. They are smaller for a client that has not authenticated.
struct RequestLimits {
  std::size_t line = std::size_t{64} << 10;     // bytes of an inline command, or of a line with a length
  std::int64_t words = std::int64_t{1} << 20;   // words of one request
  std::int64_t bulk = std::int64_t{512} << 20;  // bytes of one word
  std::size_t request = std::size_t{1} << 30;   // bytes of one request
  bool is_authenticated = true;
};

// Not thread-safe.
class RequestParser {
 public:
  enum class Result {
    kIncomplete,  // needs more bytes
    kRequest,     // words() is a request; a request without words needs no reply
    kError,       // error() has the reason
  };

  // Parses the next request. `bytes` begins with the first byte that is not consumed.
  Result Parse(std::string_view bytes, const RequestLimits& limits);

  // The words of the request that Parse has found, and the number of bytes that the caller must
  // consume now. The words are valid as long as the bytes, until the next Parse.
  const std::vector<std::string_view>& words() const { return words_; }
  std::size_t consumed() const { return consumed_; }
  // Whether the request was an inline command.
  bool is_inline() const { return is_inline_; }
  // Drops what was read of an incomplete request. The caller must pass its bytes again.
  void Reset() {
    state_ = State::kBegin;
    at_ = searched_ = 0;
    places_.clear();
  }
  // Whether no part of a request has been read.
  bool is_at_begin() const { return state_ == State::kBegin && searched_ == 0; }
  // The text of the error, without "-ERR ".
  const std::string& error() const { return error_; }
  // At least how many more bytes the request needs; a hint for the buffer.
  std::size_t missing() const { return missing_; }

 private:
  enum class State { kBegin, kLength, kBulk };
  struct Place {
    std::size_t offset, size;
  };

  Result Fail(std::string text) {
    error_ = "Protocol error: " + std::move(text);
    return Result::kError;
  }
  Result NeedMore(std::size_t bytes) {
    missing_ = bytes;
    return Result::kIncomplete;
  }
  Result Finish(std::size_t consumed) {
    consumed_ = consumed;
    Reset();
    return Result::kRequest;
  }
  // Finds the end of the line that begins at at_; sets searched_.
  bool FindLine(std::string_view bytes, char end, std::size_t* size);
  Result ParseInline(std::string_view bytes, const RequestLimits& limits);
  Result ParseCount(std::string_view bytes, const RequestLimits& limits);
  Result ParseBulks(std::string_view bytes, const RequestLimits& limits);
  Result ParseLength(std::string_view bytes, const RequestLimits& limits);

  State state_ = State::kBegin;
  std::size_t at_ = 0;        // the first byte that was not read
  std::size_t searched_ = 0;  // there is no end of line before this
  std::int64_t left_ = 0;     // number of words that have not arrived
  std::size_t bulk_ = 0;      // size of the next word
  std::vector<Place> places_;
  std::vector<std::string> inline_words_;
  std::vector<std::string_view> words_;
  bool is_inline_ = false;
  std::size_t consumed_ = 0, missing_ = 0;
  std::string error_;
};

inline bool RequestParser::FindLine(std::string_view bytes, char end, std::size_t* size) {
  const std::size_t found = bytes.find(end, searched_ > at_ ? searched_ : at_);
  searched_ = found == std::string_view::npos ? bytes.size() : found;
  *size = searched_ - at_;
  return found != std::string_view::npos;
}

inline RequestParser::Result RequestParser::Parse(std::string_view bytes, const RequestLimits& limits) {
  words_.clear();
  is_inline_ = false;
  if (bytes.empty()) return NeedMore(1);
  if (state_ == State::kBegin) {
    if (bytes[0] != '*') return ParseInline(bytes, limits);
    const Result result = ParseCount(bytes, limits);
    if (result != Result::kRequest || state_ == State::kBegin) return result;
  }
  return ParseBulks(bytes, limits);
}

inline RequestParser::Result RequestParser::ParseInline(std::string_view bytes, const RequestLimits& limits) {
  std::size_t size = 0;
  const bool found = FindLine(bytes, '\n', &size);
  if (size > limits.line) return Fail("too big inline request");
  if (!found) return NeedMore(1);
  const std::size_t consumed = size + 1;
  if (size > 0 && bytes[size - 1] == '\r') --size;
  is_inline_ = true;
  inline_words_.clear();
  if (!SplitInlineWords(bytes.substr(0, size), &inline_words_)) return Fail("unbalanced quotes in request");
  words_.assign(inline_words_.begin(), inline_words_.end());
  return Finish(consumed);
}

inline RequestParser::Result RequestParser::ParseCount(std::string_view bytes, const RequestLimits& limits) {
  std::size_t size = 0;
  at_ = 0;
  const bool found = FindLine(bytes, '\r', &size);
  if (size > limits.line) return Fail("too big mbulk count string");
  if (!found) return NeedMore(1);
  if (size + 2 > bytes.size()) return NeedMore(1);
  const auto count = ParseInteger(bytes.substr(1, size - 1));
  if (!count || *count > limits.words) return Fail("invalid multibulk length");
  if (*count > 10 && !limits.is_authenticated) return Fail("unauthenticated multibulk length");
  if (*count <= 0) return Finish(size + 2);
  at_ = searched_ = size + 2;
  left_ = *count;
  state_ = State::kLength;
  return Result::kRequest;
}

inline RequestParser::Result RequestParser::ParseLength(std::string_view bytes, const RequestLimits& limits) {
  std::size_t size = 0;
  const bool found = FindLine(bytes, '\r', &size);
  if (size > limits.line) return Fail("too big bulk count string");
  if (!found) return NeedMore(1);
  if (at_ + size + 2 > bytes.size()) return NeedMore(1);
  if (bytes[at_] != '$') return Fail(std::string("expected '$', got '") + bytes[at_] + "'");
  const auto length = ParseInteger(bytes.substr(at_ + 1, size - 1));
  if (!length || *length < 0 || *length > limits.bulk) return Fail("invalid bulk length");
  if (*length > 16384 && !limits.is_authenticated) return Fail("unauthenticated bulk length");
  bulk_ = static_cast<std::size_t>(*length);
  at_ += size + 2;
  if (at_ + bulk_ > limits.request) return Fail("too big request");
  state_ = State::kBulk;
  return Result::kRequest;
}

inline RequestParser::Result RequestParser::ParseBulks(std::string_view bytes, const RequestLimits& limits) {
  while (left_ > 0) {
    if (state_ == State::kLength) {
      if (const Result result = ParseLength(bytes, limits); result != Result::kRequest) return result;
    }
    if (bytes.size() - at_ < bulk_ + 2) return NeedMore(bulk_ + 2 - (bytes.size() - at_));
    places_.push_back({at_, bulk_});
    at_ += bulk_ + 2;
    searched_ = at_;
    state_ = State::kLength;
    --left_;
  }
  words_.reserve(places_.size());
  for (const Place& place : places_) words_.push_back(bytes.substr(place.offset, place.size));
  return Finish(at_);
}

}  // namespace hako::server
