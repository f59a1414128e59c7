// ReplyWriter: writes replies in RESP 2 or RESP 3. Types that RESP 2 lacks are converted as Redis
// does: a map to an array of twice the size, a double to a bulk string, a set to an array.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "hako/base/assert.h"
#include "server/number_text.h"
#include "server/output_buffer.h"

namespace hako::server {

class ReplyWriter {
 public:
  ReplyWriter(OutputBuffer* out, int protocol) : out_(out), protocol_(protocol) {}

  void set_protocol(int protocol) { protocol_ = protocol; }
  int protocol() const { return protocol_; }
  OutputBuffer& out() { return *out_; }

  void Ok() { out_->Append("+OK\r\n"); }
  // REQUIRES: the text has no line end
  void Simple(std::string_view text) {
    HAKO_DCHECK(text.find_first_of("\r\n") == std::string_view::npos);
    Line('+', text);
  }
  // `text` begins with a code, such as "ERR ". Line ends become blanks; line ends at the end are
  // removed.
  void Error(std::string_view text);
  void Integer(std::int64_t value) { Line(':', IntegerText(value).view()); }
  void Bool(bool value) { out_->Append(value ? ":1\r\n" : ":0\r\n"); }
  // Write a value that is a bool, or a double given as text.
  void Truth(bool value) { protocol_ >= 3 ? out_->Append(value ? "#t\r\n" : "#f\r\n") : Bool(value); }
  void Double(std::string_view text) { protocol_ >= 3 ? Line(',', text) : Bulk(text); }
  void Null() { out_->Append(protocol_ >= 3 ? "_\r\n" : "$-1\r\n"); }
  void NullArray() { out_->Append(protocol_ >= 3 ? "_\r\n" : "*-1\r\n"); }
  void Array(std::size_t size) { Header('*', size); }
  void Map(std::size_t size) { protocol_ >= 3 ? Header('%', size) : Header('*', 2 * size); }
  void Set(std::size_t size) { Header(protocol_ >= 3 ? '~' : '*', size); }
  // Writes a text for people (a verbatim string in RESP 3).
  void Verbatim(std::string_view text);

  void Bulk(std::string_view bytes) {
    char* const begin = out_->Reserve(bytes.size() + kBulkExtra);
    char* end = PutHeader(begin, '$', bytes.size());
    if (!bytes.empty()) std::memcpy(end, bytes.data(), bytes.size());
    end += bytes.size();
    *end++ = '\r';
    *end++ = '\n';
    out_->Extend(static_cast<std::size_t>(end - begin));
  }
  // Begins a bulk of `size` bytes, and returns where the caller must write them. Another call
  // replaces the bulk; EndBulk completes it.
  char* BeginBulk(std::size_t size) {
    char* const begin = out_->Reserve(size + kBulkExtra);
    char* const bytes = PutHeader(begin, '$', size);
    begun_ = static_cast<std::size_t>(bytes - begin) + size;
    return bytes;
  }
  void EndBulk() {
    std::memcpy(out_->Reserve(2) + begun_, "\r\n", 2);
    out_->Extend(begun_ + 2);
  }

 private:
  static constexpr std::size_t kBulkExtra = 32;

  static char* PutHeader(char* at, char type, std::size_t size) {
    *at++ = type;
    at = std::to_chars(at, at + 20, size).ptr;
    *at++ = '\r';
    *at++ = '\n';
    return at;
  }
  void Header(char type, std::size_t size) {
    char* const begin = out_->Reserve(kBulkExtra);
    out_->Extend(static_cast<std::size_t>(PutHeader(begin, type, size) - begin));
  }
  void Line(char type, std::string_view text) {
    char* at = out_->Reserve(text.size() + 3);
    *at = type;
    std::memcpy(at + 1, text.data(), text.size());
    std::memcpy(at + 1 + text.size(), "\r\n", 2);
    out_->Extend(text.size() + 3);
  }

  OutputBuffer* out_;
  int protocol_;
  std::size_t begun_ = 0;
};

inline void ReplyWriter::Error(std::string_view text) {
  while (!text.empty() && (text.back() == '\r' || text.back() == '\n')) text.remove_suffix(1);
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\r' || c == '\n'; }, ' ');
  Line('-', line);
}

inline void ReplyWriter::Verbatim(std::string_view text) {
  if (protocol_ < 3) return Bulk(text);
  Header('=', text.size() + 4);
  out_->Append("txt:");
  out_->Append(text);
  out_->Append("\r\n");
}

}  // namespace hako::server
