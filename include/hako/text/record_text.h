// The text formats of dbm/transfer.h, as streams: none needs more memory than its longest record takes.
//
//   tsv    key, tab, value, line feed; \\ \t \n \r \0 \xHH stand for bytes that would get in the way. The value reaches to the end of
//          the line, further tabs included. Empty lines are skipped, here and in jsonl.
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

#include "hako/base/key_value.h"
#include "hako/base/status.h"

namespace hako {

enum class TextFormat { kTsv, kJsonLines, kDump };

// "tsv", "jsonl" or "dump"; or by the ending of a file name: .tsv, .jsonl, .dump.
std::optional<TextFormat> TextFormatOfName(std::string_view name);
std::optional<TextFormat> TextFormatOfPath(std::string_view path);

// Where text comes from: fills as much of the buffer as it likes and returns how much, 0 at the end.
using TextSource = std::function<StatusOr<std::size_t>(std::span<char> buffer)>;

// Lines of a source, read in blocks. What is handed out lies in the block itself, and may be changed there: nothing is copied, and what a
// line stands for, which is never longer, is decoded in its place.
class LineReader {
 public:
  using Line = std::span<char>;  // without its line feed
  static constexpr std::uint64_t kLineMax = std::uint64_t{256} << 20;

  // A line longer than `line_max`, and than the buffer of 256 KiB, is InvalidArgument. A byte order mark at the beginning is skipped.
  explicit LineReader(TextSource source, std::uint64_t line_max = kLineMax)
      : source_(std::move(source)), line_max_(line_max), buffer_(kBufferSize, '\0') {}

  // Hands out the next lines.size() lines and returns how many there were: fewer only at the end of the text, where a last line without a
  // line feed counts. Lines handed out before are no longer valid.
  StatusOr<std::size_t> Next(std::span<Line> lines) { return Find(lines, /*reads=*/true); }
  // The same where all of these lines are here already; otherwise 0. Lines handed out before stay valid.
  std::size_t NextHere(std::span<Line> lines) { return *Find(lines, /*reads=*/false); }
  bool NextHere(Line* line) {
    char* const from = buffer_.data() + begin_;
    const std::size_t size = std::string_view(from, end_ - begin_).find('\n');
    if (size == std::string_view::npos) return false;
    *line = Line(from, size);
    begin_ += size + 1;
    ++line_number_;
    return true;
  }

  std::uint64_t line_number() const { return line_number_; }          // of the line last handed out, from 1
  std::uint64_t consumed() const { return read_ - (end_ - begin_); }  // bytes

 private:
  static constexpr std::size_t kBufferSize = 256 << 10;

  StatusOr<std::size_t> Find(std::span<Line> lines, bool reads);
  StatusOr<bool> ReadMore();

  TextSource source_;
  const std::uint64_t line_max_;
  std::string buffer_;               // grows where a line, or those asked for, are longer
  std::size_t begin_ = 0, end_ = 0;  // what of the buffer is not handed out yet
  std::uint64_t line_number_ = 0;
  std::uint64_t read_ = 0;  // bytes of the source
};

// Records from lines.
class RecordReader {
 public:
  // `escapes`: whether backslashes mean something in TSV.
  static std::unique_ptr<RecordReader> Make(TextFormat format, bool escapes, LineReader* lines);
  virtual ~RecordReader() = default;

  // Reads the next records, as many as are here and fit, but waits for one; 0 = the end. They are valid until the next call. A malformed
  // line is InvalidArgument, and names the line; the records before it are returned first.
  virtual StatusOr<std::size_t> Read(std::span<KeyValue> records) = 0;
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
