#include "absl/strings/str_cat.h"
#include "hako/dbm/record_text.h"
#include "hako/format/json_record.h"
#include "hako/format/text_encoding.h"

namespace hako {

StatusOr<std::optional<std::string_view>> LineReader::Next() {
  line_.clear();
  while (true) {
    const std::string_view rest(buffer_.data() + begin_, end_ - begin_);
    if (const std::size_t size = rest.find('\n'); size != rest.npos) {
      begin_ += size + 1;
      consumed_ += size + 1;
      ++line_number_;
      if (line_.empty()) return rest.substr(0, size);
      line_.append(rest.substr(0, size));
      return line_;
    }
    line_.append(rest);
    consumed_ += rest.size();
    begin_ = end_ = 0;
    HAKO_ASSIGN_OR_RETURN(end_, source_(std::span(buffer_)));
    if (end_ != 0) continue;
    if (line_.empty()) return std::nullopt;
    ++line_number_;
    return line_;
  }
}

namespace {

Status Malformed(const LineReader& lines, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", lines.line_number(), ": ", ToAbsl(what)));
}

class TsvReader : public RecordReader {
 public:
  TsvReader(bool escapes, LineReader* lines) : escapes_(escapes), lines_(lines) {}

  StatusOr<bool> Next(std::string* key, std::string* value) override {
    HAKO_ASSIGN_OR_RETURN(const auto line, lines_->Next());
    if (!line) return false;
    const std::size_t tab = line->find('\t');
    if (tab == line->npos) return Malformed(*lines_, "no tab between key and value");
    if (!Decode(line->substr(0, tab), key) || !Decode(line->substr(tab + 1), value))
      return Malformed(*lines_, "a backslash that is none of \\\\ \\t \\n \\r \\0 \\xHH (--no_escape takes them literally)");
    return true;
  }

 private:
  bool Decode(std::string_view field, std::string* out) const {
    out->clear();
    if (escapes_) return format::DecodeEscapes(field, out);
    out->assign(field);
    return true;
  }

  bool escapes_;
  LineReader* lines_;
};

class JsonReader : public RecordReader {
 public:
  explicit JsonReader(LineReader* lines) : lines_(lines) {}

  StatusOr<bool> Next(std::string* key, std::string* value) override {
    HAKO_ASSIGN_OR_RETURN(const auto line, lines_->Next());
    if (!line) return false;
    if (!format::JsonRecordParser(*line).Parse(key, value))
      return Malformed(*lines_, "not of the form {\"key\":..., \"value\":...}, each a string or {\"b64\":\"...\"}");
    return true;
  }

 private:
  LineReader* lines_;
};

class DumpReader : public RecordReader {
 public:
  explicit DumpReader(LineReader* lines) : lines_(lines) {}

  StatusOr<bool> Next(std::string* key, std::string* value) override {
    if (!has_header_) HAKO_RETURN_IF_ERROR(ReadHeader());
    has_header_ = true;
    HAKO_ASSIGN_OR_RETURN(const bool has_key, ReadData(key));
    if (!has_key) {
      HAKO_ASSIGN_OR_RETURN(const auto line, lines_->Next());
      if (line) return Malformed(*lines_, "something follows DATA=END: dump one database at a time");
      return false;
    }
    HAKO_ASSIGN_OR_RETURN(const bool has_value, ReadData(value));
    if (!has_value) return Malformed(*lines_, "the last key has no value");
    return true;
  }

 private:
  Status ReadHeader() {
    while (true) {
      HAKO_ASSIGN_OR_RETURN(const auto line, lines_->Next());
      if (!line) return Malformed(*lines_, "no HEADER=END: not a whole dump of mdb_dump, db_dump or hako");
      const std::size_t equals = line->find('=');
      if (equals == line->npos) return Malformed(*lines_, "not a line of a dump's header");
      const std::string_view name = line->substr(0, equals);
      const std::string_view setting = line->substr(equals + 1);
      if (name == "HEADER" && setting == "END") return absl::OkStatus();
      if (name == "VERSION" && setting != "2" && setting != "3") return Malformed(*lines_, "a dump of another version than 3");
      if (name == "format" && setting != "bytevalue" && setting != "print") return Malformed(*lines_, "neither format=bytevalue nor print");
      if (name == "format") is_print_ = setting == "print";
      if (name == "type" && setting != "btree" && setting != "hash") return Malformed(*lines_, "neither type=btree nor type=hash");
      if (name == "duplicates" && setting == "1") return Malformed(*lines_, "a dump with several values for a key cannot be imported");
    }
  }

  // One data line; false at DATA=END.
  StatusOr<bool> ReadData(std::string* out) {
    HAKO_ASSIGN_OR_RETURN(const auto line, lines_->Next());
    if (!line) return Malformed(*lines_, "the dump ends without DATA=END: it is not whole");
    if (*line == "DATA=END") return false;
    if (!line->starts_with(' ')) return Malformed(*lines_, "a data line begins with a space");
    const std::string_view data = line->substr(1);
    out->clear();
    if (is_print_ ? !DecodePrint(data, out) : !format::DecodeHex(data, out))
      return Malformed(*lines_, is_print_ ? "a backslash without two hexadecimal digits (mdb_dump -p writes such: dump without -p)"
                                          : "not pairs of hexadecimal digits");
    return true;
  }

  static bool DecodePrint(std::string_view data, std::string* out) {
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (data[i] != '\\') {
        out->push_back(data[i]);
      } else if (data.substr(i + 1).starts_with('\\')) {
        out->push_back('\\');
        i += 1;
      } else {
        if (data.size() - i < 3 || !format::DecodeHex(data.substr(i + 1, 2), out)) return false;
        i += 2;
      }
    }
    return true;
  }

  LineReader* lines_;
  bool has_header_ = false;
  bool is_print_ = false;
};

}  // namespace

std::unique_ptr<RecordReader> RecordReader::Make(TextFormat format, bool escapes, LineReader* lines) {
  switch (format) {
    case TextFormat::kJsonLines:
      return std::make_unique<JsonReader>(lines);
    case TextFormat::kDump:
      return std::make_unique<DumpReader>(lines);
    case TextFormat::kTsv:
      break;
  }
  return std::make_unique<TsvReader>(escapes, lines);
}

}  // namespace hako
