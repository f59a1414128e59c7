// What goes to stdout: bytes, buffered, and records in the style that was asked for.
//
// Without an option, a terminal is shown escaped text, so that a record cannot play tricks with it, and a pipe gets the raw bytes.
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "hako/base/status.h"

namespace hako::tool {

// Bytes to a file descriptor, gathered into large writes. After a failed write the rest is dropped and Flush tells.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // The buffer to append to; call MaybeFlush after each record.
  std::string* buffer() { return &buffer_; }
  void MaybeFlush() {
    if (buffer_.size() >= kBufferSize) (void)Flush();
  }
  // Writes out what is left; the first error there was.
  Status Flush();
  bool ok() const { return status_.ok(); }

 private:
  static constexpr std::size_t kBufferSize = 64 << 10;
  int fd_;
  std::string buffer_;
  Status status_;
};

enum class RecordStyle {
  kPrintable,  // escaped for the eye
  kRaw,        // bytes as they are, a tab between key and value, a line feed after
  kTsv,        // as raw, with tabs, line feeds and backslashes escaped: import reads it back
  kJson,       // {"key":"...","value":"..."}; what is not UTF-8 as {"b64":"..."}
  kHex,
  kNul,  // bytes as they are, NUL after the key and after the value
};

class StyleOptions {
 public:
  void AddTo(CLI::App* app);
  RecordStyle style() const;
  bool is_raw() const { return raw_; }
  // A record in this style. With --number a value of 8 bytes, as `set --incr` stores them, is its decimal digits.
  void Append(std::optional<std::string_view> key, std::optional<std::string_view> value, std::string* out) const;
  void AppendValue(std::string_view value, std::string* out) const;  // alone, without an end

 private:
  std::string_view Shown(std::string_view value, std::string* digits) const;
  bool number_ = false;
  bool escape_ = false, raw_ = false, tsv_ = false, json_ = false, hex_ = false, nul_ = false;
};

// Keys and values of the command line as they are printed escaped: how to say those that no argument can hold.
class UnescapeOption {
 public:
  static constexpr std::string_view kMalformed = "--unescape: invalid escape, none of \\\\ \\t \\n \\r \\0 \\xHH";
  void AddTo(CLI::App* app);
  bool is_given() const { return is_given_; }
  // Decodes them all if the option is given; false where one is malformed.
  bool Apply(std::initializer_list<std::string*> texts) const;

 private:
  bool is_given_ = false;
};

// One record, with its end; without a value or without a key where that is nullopt. On a terminal that shows colour, keys are coloured.
void AppendRecord(RecordStyle style, std::optional<std::string_view> key, std::optional<std::string_view> value, std::string* out);

}  // namespace hako::tool
