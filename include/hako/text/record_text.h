// The text formats of dbm/transfer.h, as streams. None needs more memory than its longest record.
//
//   tsv    key, tab, value, line feed; \\ \t \n \r \0 \xHH escape special bytes. The value extends
//          to the end of the line, including further tabs. Empty lines are skipped, as in jsonl. With
//          TsvOptions::times there is another field between key and value: the time at which the
//          record expires, in milliseconds since 1970, or nothing.
//   jsonl  one object per line, {"key":"...","value":"..."}; bytes that are not UTF-8 are
//          {"b64":"..."} instead of a string; "expire_at":N is the time of a record that expires
//   dump   the format that mdb_dump and db_dump write and mdb_load and db_load read: a header up to
//          HEADER=END, then one line per key and per value, each after a space, in hexadecimal
//          (format=bytevalue) or as text with \HH escapes (format=print), up to DATA=END. mdb_dump
//          -p does not escape backslashes (LMDB 0.9.24), so its output is ambiguous: dump without
//          -p. It has no times. The reader refuses dumps that hako cannot represent: several values
//          for a key (duplicates, dupsort, dupfixed, or one key twice in a row), orders that are
//          not bytewise (integerkey, reversekey), and a second database after DATA=END.
//
// Lines of tsv and dump end with LF or CR LF; a line that does not end like the first one is an
// error. In TSV without escapes a CR is a byte of the value. A byte order mark at the beginning of
// a text is skipped.
//
// Errors: malformed text is InvalidArgument and names the line. One thread per object. See text/csv.h for CSV.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/key_value.h"
#include "hako/base/status.h"

namespace hako {

// The formats: see the head of this header.
enum class TextFormat { kTsv, kJsonLines, kDump };

// Parses "tsv", "jsonl" or "dump", or the suffix of a file name: .tsv, .jsonl, .dump.
std::optional<TextFormat> TextFormatOfName(std::string_view name);
std::optional<TextFormat> TextFormatOfPath(std::string_view path);

// A source of text: fills a part of the buffer and returns its size in bytes; 0 at the end.
using TextSource = std::function<StatusOr<std::size_t>(std::span<char> buffer)>;

// Reads lines of a source in blocks. The lines returned lie in the block and may be changed:
// nothing is copied, and a line can be decoded in place, because the decoded content is never
// longer.
class LineReader {
 public:
  using Line = std::span<char>;                                        // without the line feed
  static constexpr std::uint64_t kLineMax = std::uint64_t{256} << 20;  // bytes

  // Next returns InvalidArgument for a line longer than both `line_max` bytes and the buffer of 256
  // KiB. A byte order mark at the beginning is skipped.
  explicit LineReader(TextSource source, std::uint64_t line_max = kLineMax)
      : source_(std::move(source)), line_max_(line_max), buffer_(kBufferSize, '\0') {}

  // Returns the next lines.size() lines and their number, which is less only at the end of the
  // text. A last line without a line feed counts. Invalidates lines returned before.
  StatusOr<std::size_t> Next(std::span<Line> lines) { return Find(lines, /*reads=*/true); }
  // As Next if all these lines are buffered; otherwise returns 0. Lines returned before stay valid.
  std::size_t NextBuffered(std::span<Line> lines) { return *Find(lines, /*reads=*/false); }
  bool NextBuffered(Line* line) {
    char* const from = buffer_.data() + begin_;
    const std::size_t size = std::string_view(from, end_ - begin_).find('\n');
    if (size == std::string_view::npos) return false;
    *line = Line(from, size);
    begin_ += size + 1;
    ++line_number_;
    has_line_feed_ = true;
    return true;
  }

  std::uint64_t line_number() const { return line_number_; }          // of the last line returned, from 1
  bool has_line_feed() const { return has_line_feed_; }               // whether the last line returned ended with one
  std::uint64_t consumed() const { return read_ - (end_ - begin_); }  // bytes of the source that were returned as lines

 private:
  static constexpr std::size_t kBufferSize = 256 << 10;

  StatusOr<std::size_t> Find(std::span<Line> lines, bool reads);
  StatusOr<bool> ReadMore();

  TextSource source_;
  const std::uint64_t line_max_;
  std::string buffer_;               // grows for a longer line or a larger request
  std::size_t begin_ = 0, end_ = 0;  // the part of the buffer not yet returned
  std::uint64_t line_number_ = 0;
  bool has_line_feed_ = true;
  std::uint64_t read_ = 0;  // bytes read from the source
};

// Options of the format tsv.
struct TsvOptions {
  bool escapes = true;  // whether the reader decodes backslash escapes
  bool times = false;   // see the head of this header
};

// Reads records from lines.
class RecordReader {
 public:
  // Makes a reader of this format; `tsv` applies to TSV.
  static std::unique_ptr<RecordReader> Make(TextFormat format, const TsvOptions& tsv, LineReader* lines);
  virtual ~RecordReader() = default;

  // Reads the next records that are buffered, up to records.size() of them, and waits for at least
  // one. Returns 0 at the end. The records are valid until the next call. InvalidArgument names a
  // malformed line; the records before it are returned first.
  virtual StatusOr<std::size_t> Read(std::span<KeyValue> records) = 0;
};

// Options of the format dump.
struct DumpOptions {
  bool print = false;         // format=print instead of bytevalue
  std::uint64_t mapsize = 0;  // bytes; 0 = no header line "mapsize", which mdb_load needs above 1 MiB, and db_load rejects
};

// Appends records to a string as text.
class RecordWriter {
 public:
  // Makes a writer of this format; `dump` applies to dumps, `tsv` to TSV.
  explicit RecordWriter(TextFormat format, const DumpOptions& dump = {}, const TsvOptions& tsv = {})
      : format_(format), dump_(dump), tsv_(tsv) {}

  // Whether the text has the times at which records expire.
  bool HasTimes() const { return format_ == TextFormat::kJsonLines || (format_ == TextFormat::kTsv && tsv_.times); }
  // Append the beginning of the text, a record, and the end of the text.
  void Begin(std::string* out) const;
  void Add(const KeyValue& record, std::string* out) const;
  void End(std::string* out) const;

 private:
  TextFormat format_;
  DumpOptions dump_;
  TsvOptions tsv_;
};

}  // namespace hako
