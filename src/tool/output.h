// Output to stdout: buffered bytes, and records in the chosen style. By default a terminal gets
// escaped text, so that a record cannot control it, and a pipe gets the raw bytes.
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "hako/base/status.h"

namespace hako::tool {

// Writes bytes to a file descriptor, gathered into large writes. After a failed write it drops the
// rest, and Flush returns the error.
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
  // Writes the rest. Returns the first error.
  Status Flush();
  bool ok() const { return status_.ok(); }

 private:
  static constexpr std::size_t kBufferSize = 64 << 10;
  int fd_;
  std::string buffer_;
  Status status_;
};

enum class RecordStyle {
  kPrintable,  // escaped for display
  kRaw,        // raw bytes, with a tab between key and value and a line feed at the end
  kTsv,        // as kRaw, with tabs, line feeds and backslashes escaped: the format of import
  kJson,       // {"key":"...","value":"..."}; bytes that are not UTF-8 as {"b64":"..."}
  kHex,
  kNul,  // raw bytes, with a zero byte after the key and after the value
};

class StyleOptions {
 public:
  void AddTo(CLI::App* app);
  RecordStyle style() const;
  bool is_raw() const { return raw_; }
  // Appends a record in this style. With --number, a value of 8 bytes, as `set --incr` stores it,
  // appears in decimal.
  void Append(std::optional<std::string_view> key, std::optional<std::string_view> value, std::string* out) const;
  void AppendValue(std::string_view value, std::string* out) const;  // without anything after it

 private:
  std::string_view Shown(std::string_view value, std::string* digits) const;
  bool number_ = false;
  bool escape_ = false, raw_ = false, tsv_ = false, json_ = false, hex_ = false, nul_ = false;
};

// The option --unescape: keys and values on the command line contain escapes, because an argument
// cannot hold all bytes.
class UnescapeOption {
 public:
  static constexpr std::string_view kMalformed = "--unescape: invalid escape, none of \\\\ \\t \\n \\r \\0 \\xHH";
  void AddTo(CLI::App* app);
  bool is_given() const { return is_given_; }
  // Decodes all texts if the option is given. Returns false if one of them is malformed.
  bool Apply(std::initializer_list<std::string*> texts) const;

 private:
  bool is_given_ = false;
};

// Appends a record with its end. Leaves out the key or the value if it is nullopt. Colours keys on
// a terminal with colours.
void AppendRecord(RecordStyle style, std::optional<std::string_view> key, std::optional<std::string_view> value, std::string* out);

}  // namespace hako::tool
