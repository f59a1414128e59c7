#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "hako/base/assert.h"
#include "hako/text/json_record.h"
#include "hako/text/record_text.h"
#include "hako/text/text_encoding.h"

namespace hako {

// If a line is longer than the buffer, does not search the same bytes for a line feed again.
StatusOr<std::size_t> LineReader::Find(std::span<Line> lines, bool reads) {
  constexpr std::size_t kLinesMax = 2;
  HAKO_ASSERT(!lines.empty() && lines.size() <= kLinesMax);
  std::size_t ends[kLinesMax];  // ends of the lines found; all positions here count from begin_
  std::size_t found = 0;
  std::size_t searched = 0;
  bool is_cut = false;  // the last line has no line feed
  while (found < lines.size()) {
    const std::string_view rest(buffer_.data() + begin_, end_ - begin_);
    if (const std::size_t feed = rest.find('\n', searched); feed != rest.npos) {
      ends[found++] = feed;
      searched = feed + 1;
      continue;
    }
    if (!reads) return 0;
    searched = rest.size();
    if (rest.size() - (found == 0 ? 0 : ends[found - 1] + 1) > line_max_) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", line_number_ + found + 1, ": longer than ", line_max_, " bytes (--max_line raises the limit)"));
    }
    HAKO_ASSIGN_OR_RETURN(const bool more, ReadMore());
    if (more) continue;
    is_cut = rest.size() > (found == 0 ? 0 : ends[found - 1] + 1);
    if (is_cut) ends[found++] = rest.size();
    break;
  }
  std::size_t start = 0;
  for (std::size_t i = 0; i < found; ++i) {
    lines[i] = Line(buffer_.data() + begin_ + start, ends[i] - start);
    start = ends[i] + 1;
  }
  begin_ += is_cut ? start - 1 : start;
  if (line_number_ == 0 && found != 0 && std::string_view(lines[0].data(), lines[0].size()).starts_with(text::kByteOrderMark))
    lines[0] = lines[0].subspan(text::kByteOrderMark.size());
  line_number_ += found;
  has_line_feed_ = !is_cut;
  return found;
}

// Moves the unread rest to the front of the buffer and reads more after it. Returns false at the
// end of the text.
StatusOr<bool> LineReader::ReadMore() {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= std::exchange(begin_, 0);
  if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
  HAKO_ASSIGN_OR_RETURN(const std::size_t size, source_(std::span(buffer_).subspan(end_)));
  end_ += size;
  read_ += size;
  return size != 0;
}

namespace {

// The common part of the formats. A format F reads one record by bool ReadRecord(KeyValue*), which
// uses Take and Refuse and returns false if there is none.
template <class F>
class FormatReader : public RecordReader {
 public:
  explicit FormatReader(LineReader* lines) : lines_(lines) {}

  StatusOr<std::size_t> Read(std::span<KeyValue> records) final {
    std::size_t count = 0;
    while (status_.ok() && count < records.size()) {
      waits_ = count == 0;  // more data from the source would replace the earlier records
      if (!static_cast<F*>(this)->ReadRecord(&records[count])) break;
      ++count;
    }
    if (count == 0 && !status_.ok()) return status_;
    return count;
  }

 protected:
  using Line = LineReader::Line;

  // Takes lines and returns their number: fewer at the end of the text, and 0 if the buffer does
  // not have all of them and Read already has records to return.
  std::size_t Take(std::span<Line> lines) {
    if (!waits_) return lines_->NextBuffered(lines);
    const StatusOr<std::size_t> count = lines_->Next(lines);
    if (count.ok()) return *count;
    status_ = count.status();
    return 0;
  }
  bool TakeLine(Line* line) { return waits_ ? Take(std::span(line, 1)) != 0 : lines_->NextBuffered(line); }
  // Takes the next line that is not blank.
  bool TakeLineWithText(Line* line) {
    do {
      if (!TakeLine(line)) return false;
    } while (std::all_of(line->begin(), line->end(), F::IsBlank));
    return true;
  }
  // After Take has taken too few lines: whether the text has ended.
  bool IsAtEnd() const { return waits_ && status_.ok(); }

  // Removes the carriage return before the line feed if the first line had one: see the head of
  // text/record_text.h. `lines_before` as in Refuse.
  bool EndLine(Line* line, std::uint64_t lines_before = 0) {
    const bool has_return = !line->empty() && line->back() == '\r';
    if (lines_before == 0 && !lines_->has_line_feed()) return !has_return || Refuse("ends with a carriage return without a line feed");
    if (line_end_ == LineEnd::kUnknown) line_end_ = has_return ? LineEnd::kReturnAndFeed : LineEnd::kFeed;
    if (has_return != (line_end_ == LineEnd::kReturnAndFeed))
      return Refuse(has_return ? "ends with a carriage return, and the lines before do not (as a byte of the value it is \\r)"
                               : "ends without a carriage return, and the lines before have one",
                    lines_before);
    if (has_return) *line = line->first(line->size() - 1);
    return true;
  }

  // Reports that the line last taken, or one `lines_before` it, is malformed.
  bool Refuse(std::string_view what, std::uint64_t lines_before = 0) {
    status_ = absl::InvalidArgumentError(absl::StrCat("line ", lines_->line_number() - lines_before, ": ", ToAbsl(what)));
    return false;
  }

 private:
  enum class LineEnd { kUnknown, kFeed, kReturnAndFeed };

  LineReader* lines_;
  Status status_;
  bool waits_ = true;
  LineEnd line_end_ = LineEnd::kUnknown;
};

std::string_view ViewOf(std::span<const char> line) { return {line.data(), line.size()}; }

// Decodes a field in place. Returns false if it is malformed.
template <class Decode>
bool DecodeInPlace(std::span<char> field, Decode decode, std::string_view* bytes) {
  const std::optional<std::size_t> size = decode(ViewOf(field), field.data());
  if (size) *bytes = ViewOf(field.first(*size));
  return size.has_value();
}

class TsvReader final : public FormatReader<TsvReader> {
 public:
  TsvReader(const TsvOptions& options, LineReader* lines) : FormatReader(lines), options_(options) {}
  static bool IsBlank(char c) { return c == '\r'; }

  bool ReadRecord(KeyValue* record) {
    Line line;
    if (!TakeLineWithText(&line)) return false;
    if (options_.escapes && !EndLine(&line)) return false;
    const std::size_t tab = ViewOf(line).find('\t');
    if (tab == std::string_view::npos) return Refuse("no tab between key and value");
    const Line key = line.first(tab);
    Line value = line.subspan(tab + 1);
    std::uint64_t time = 0;
    if (options_.times && !TakeTime(&value, &time)) return Refuse("no time and tab between key and value, as --times expects");
    *record = {ViewOf(key), ViewOf(value), time};
    if (!options_.escapes || ViewOf(line).find('\\') == std::string_view::npos) return true;
    return (DecodeInPlace(key, text::DecodeEscapes, &record->key) && DecodeInPlace(value, text::DecodeEscapes, &record->value)) ||
           Refuse("invalid escape, none of \\\\ \\t \\n \\r \\0 \\xHH (--no_escape takes backslashes literally)");
  }

 private:
  // Removes the time and the tab after it from the beginning of a field.
  static bool TakeTime(Line* field, std::uint64_t* time) {
    const std::size_t tab = ViewOf(*field).find('\t');
    if (tab == std::string_view::npos) return false;
    const char* const end = field->data() + tab;
    if (tab != 0) {
      const auto parsed = std::from_chars(field->data(), end, *time);
      if (parsed.ec != std::errc() || parsed.ptr != end || *time == 0) return false;
    }
    *field = field->subspan(tab + 1);
    return true;
  }

  const TsvOptions options_;
};

class JsonReader final : public FormatReader<JsonReader> {
 public:
  using FormatReader::FormatReader;
  static bool IsBlank(char c) { return c == '\r' || c == ' ' || c == '\t'; }

  bool ReadRecord(KeyValue* record) {
    Line line;
    if (!TakeLineWithText(&line)) return false;
    return text::JsonRecordParser(line).Parse(record) ||
           Refuse("not of the form {\"key\":..., \"value\":...}, each a string or {\"b64\":\"...\"}, and perhaps \"expire_at\":N");
  }
};

class DumpReader final : public FormatReader<DumpReader> {
 public:
  using FormatReader::FormatReader;

  bool ReadRecord(KeyValue* record) {
    if (!has_header_ && !ReadHeader()) return false;
    has_header_ = true;
    Line lines[2];
    const std::size_t count = Take(lines);
    if (count == 0 && !IsAtEnd()) return false;
    for (std::size_t i = 0; i < count; ++i) {
      if (!EndLine(&lines[i], count - 1 - i)) return false;
    }
    if (count != 0 && ViewOf(lines[0]) == kEnd)
      return count == 2 ? Refuse("text after DATA=END, as of a dump of several databases: dump each by itself") : false;
    if (count < 2) return Refuse("the dump ends without DATA=END: it is incomplete");
    if (ViewOf(lines[1]) == kEnd) return Refuse("the last key has no value");
    if (!Decode(lines[0], &record->key, 1) || !Decode(lines[1], &record->value, 0)) return false;
    if (has_key_ && record->key == last_key_)
      return Refuse("the key of the record before again: the dump has several values for a key, and a database of hako has one", 1);
    last_key_ = record->key;
    has_key_ = true;
    return true;
  }

 private:
  static constexpr std::string_view kEnd = "DATA=END";
  // Settings that hako lacks: an import would lose values or the order of keys.
  static constexpr std::pair<std::string_view, std::string_view> kLost[] = {
      {"duplicates", "several values for a key"},
      {"dupsort", "several values for a key"},
      {"dupfixed", "several values for a key"},
      {"integerkey", "keys that are ordered as integers of the machine that wrote them"},
      {"reversekey", "keys that are ordered from their last byte on"},
  };

  bool ReadHeader() {
    while (true) {
      Line taken;
      if (!TakeLine(&taken)) return IsAtEnd() && Refuse("no HEADER=END: not a complete dump of mdb_dump, db_dump or hako");
      if (!EndLine(&taken)) return false;
      const std::string_view line = ViewOf(taken);
      const std::size_t equals = line.find('=');
      if (equals == line.npos) return Refuse("malformed header line of a dump");
      const std::string_view name = line.substr(0, equals);
      const std::string_view setting = line.substr(equals + 1);
      if (name == "HEADER" && setting == "END") return true;
      if (name == "VERSION" && setting != "2" && setting != "3") return Refuse("unsupported dump version; only 2 and 3 are");
      if (name == "format" && setting != "bytevalue" && setting != "print")
        return Refuse("unknown format; bytevalue and print are supported");
      if (name == "format") is_print_ = setting == "print";
      if (name == "type" && setting != "btree" && setting != "hash") return Refuse("unsupported type; btree and hash are");
      for (const auto& [lost, meaning] : kLost) {
        if (name == lost && setting != "0") return RefuseSetting(line, meaning);
      }
    }
  }
  bool RefuseSetting(std::string_view line, std::string_view meaning) {
    return Refuse(absl::StrCat(ToAbsl(line), ": dumps with ", ToAbsl(meaning),
                               " are not supported; without this line the keys and values are imported as bytes"));
  }

  bool Decode(Line line, std::string_view* bytes, std::uint64_t lines_before) {
    if (!ViewOf(line).starts_with(' ')) return Refuse("a data line must begin with a space", lines_before);
    const Line data = line.subspan(1);
    if (is_print_) {
      return DecodeInPlace(data, DecodePrint, bytes) ||
             Refuse("a backslash without two hexadecimal digits (mdb_dump -p writes these: dump without -p)", lines_before);
    }
    return DecodeInPlace(data, text::DecodeHex, bytes) || Refuse("not pairs of hexadecimal digits", lines_before);
  }

  static std::optional<std::size_t> DecodePrint(std::string_view data, char* out) {
    return text::DecodeBackslashes(data, out, [](std::string_view escape, char* byte) -> std::size_t {
      if (escape.starts_with('\\')) return *byte = '\\', 1;
      return escape.size() >= 2 && text::DecodeHex(escape.substr(0, 2), byte) ? 2 : 0;
    });
  }

  bool has_header_ = false;
  bool is_print_ = false;
  bool has_key_ = false;
  std::string last_key_;  // of the record before
};

}  // namespace

std::unique_ptr<RecordReader> RecordReader::Make(TextFormat format, const TsvOptions& tsv, LineReader* lines) {
  switch (format) {
    case TextFormat::kJsonLines:
      return std::make_unique<JsonReader>(lines);
    case TextFormat::kDump:
      return std::make_unique<DumpReader>(lines);
    case TextFormat::kTsv:
      break;
  }
  return std::make_unique<TsvReader>(tsv, lines);
}

}  // namespace hako
