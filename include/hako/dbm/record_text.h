// The text formats of dbm/transfer.h, as streams: none needs more memory than its longest record takes.
//
//   tsv    key, tab, value, line feed; \\ \t \n \r \0 \xHH stand for bytes that would get in the way. The value reaches to the end of
//          the line, further tabs included.
//   jsonl  one object a line, {"key":"...","value":"..."}; bytes that are not UTF-8 are {"b64":"..."} instead of a string
//   dump   what mdb_dump and db_dump write and mdb_load and db_load read: a header up to HEADER=END, then a line for each key and each
//          value, a space before it, in hexadecimal (format=bytevalue) or as text with \HH escapes (format=print), up to DATA=END.
//          mdb_dump -p leaves backslashes as they are (LMDB 0.9.24), so that its text cannot be told from its escapes: dump without -p.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/status.h"

namespace hako {

enum class TextFormat { kTsv, kJsonLines, kDump };

// "tsv", "jsonl" or "dump"; or by the ending of a file name: .tsv, .jsonl, .dump.
std::optional<TextFormat> TextFormatOfName(std::string_view name);
std::optional<TextFormat> TextFormatOfPath(std::string_view path);

// Where text comes from: fills as much of the buffer as it likes and returns how much, 0 at the end.
using TextSource = std::function<StatusOr<std::size_t>(std::span<char> buffer)>;

// Lines of a source, read in blocks.
class LineReader {
 public:
  explicit LineReader(TextSource source) : source_(std::move(source)), buffer_(kBufferSize, '\0') {}

  // The next line without its line feed, valid until the next call; nullopt at the end. A last line without a line feed counts.
  StatusOr<std::optional<std::string_view>> Next();

  std::uint64_t line_number() const { return line_number_; }  // of the line last returned, from 1
  std::uint64_t consumed() const { return consumed_; }        // bytes

 private:
  static constexpr std::size_t kBufferSize = 256 << 10;

  TextSource source_;
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
  static std::unique_ptr<RecordReader> Make(TextFormat format, bool escapes, LineReader* lines);
  virtual ~RecordReader() = default;

  // Reads the next record; false at the end.
  virtual StatusOr<bool> Next(std::string* key, std::string* value) = 0;
};

struct DumpOptions {
  bool print = false;         // format=print instead of bytevalue
  std::uint64_t mapsize = 0;  // unless 0, a header line for mdb_load, which makes room for 1 MiB without it; db_load refuses the line
};

// Records to text, appended to a string.
class RecordWriter {
 public:
  explicit RecordWriter(TextFormat format, const DumpOptions& dump = {}) : format_(format), dump_(dump) {}

  void Begin(std::string* out) const;
  void Add(std::string_view key, std::string_view value, std::string* out) const;
  void End(std::string* out) const;

 private:
  TextFormat format_;
  DumpOptions dump_;
};

}  // namespace hako
