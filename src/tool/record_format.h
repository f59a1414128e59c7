// The text formats of import and export, as streams: no format needs more memory than its longest record.
//
//   tsv    key, tab, value, line feed; \\ \t \n \r \0 \xHH stand for bytes that would get in the way. The value reaches to the end of
//          the line, further tabs included.
//   jsonl  one object a line, {"key":"...","value":"..."}; bytes that are not UTF-8 are {"b64":"..."} instead of a string
//   dump   what mdb_dump and db_dump write and mdb_load and db_load read: a header up to HEADER=END, then a line for each key and each
//          value, a space before it, in hexadecimal (format=bytevalue) or as text with \HH escapes (format=print), up to DATA=END
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "hako/base/status.h"
#include "tool/output.h"

namespace hako::tool {

enum class RecordFormat { kTsv, kJsonl, kDump };

// By name, or by the ending of a file name: .tsv, .jsonl, .dump.
std::optional<RecordFormat> FormatOfName(std::string_view name);
std::optional<RecordFormat> FormatOfPath(std::string_view path);

// Lines from a file descriptor. Before it waits for more input it asks `wait(fd)`, whose error (Cancelled, say) ends the stream.
class LineReader {
 public:
  LineReader(int fd, std::function<Status(int)> wait) : fd_(fd), wait_(std::move(wait)), buffer_(kBufferSize, '\0') {}

  // The next line without its line feed, valid until the next call; nullopt at the end. A last line without a line feed counts.
  StatusOr<std::optional<std::string_view>> Next();

  std::uint64_t line_number() const { return line_number_; }  // of the line last returned, from 1
  std::uint64_t consumed() const { return consumed_; }        // bytes

 private:
  static constexpr std::size_t kBufferSize = 256 << 10;

  StatusOr<bool> Fill();

  int fd_;
  std::function<Status(int)> wait_;
  std::string buffer_;
  std::size_t begin_ = 0, end_ = 0;  // what of the buffer is not handed out yet
  std::string line_;                 // a line that lies in several buffers
  std::uint64_t line_number_ = 0;
  std::uint64_t consumed_ = 0;
};

// Records from lines. A malformed line is InvalidArgument, and names the line.
class RecordReader {
 public:
  // `escapes`: whether backslashes mean something in TSV.
  static std::unique_ptr<RecordReader> Make(RecordFormat format, bool escapes, LineReader* lines);
  virtual ~RecordReader() = default;

  // Reads the next record; false at the end.
  virtual StatusOr<bool> Next(std::string* key, std::string* value) = 0;
};

struct WriterOptions {
  RecordFormat format = RecordFormat::kTsv;
  bool print = false;  // dump: format=print instead of bytevalue
};

void AppendHeader(const WriterOptions& options, std::string* out);
void AppendRecord(const WriterOptions& options, std::string_view key, std::string_view value, std::string* out);
void AppendFooter(const WriterOptions& options, std::string* out);

}  // namespace hako::tool
