#include "absl/strings/str_cat.h"
#include "hako/text/json_record.h"
#include "hako/text/record_text.h"
#include "hako/text/text_encoding.h"

namespace hako {
namespace {

// Backslashes go out as \5c, which every reader of the format knows; not all know \\ .
constexpr text::SpecialBytes kPrintSpecial = {.below = 0x20, .one = '\\', .other = 0x7f, .high = true};

// Appends a key or value as a line of a dump.
void AppendDumpLine(bool print, std::string_view data, std::string* out) {
  out->push_back(' ');
  if (!print) {
    text::AppendHex(data, out);
    return out->push_back('\n');
  }
  for (std::size_t i = 0;; ++i) {
    const std::size_t plain = text::PlainLength<kPrintSpecial>(data, i);
    out->append(data.data() + i, plain);
    i += plain;
    if (i == data.size()) break;
    out->push_back('\\');
    text::AppendHex(data.substr(i, 1), out);
  }
  out->push_back('\n');
}

}  // namespace

std::optional<TextFormat> TextFormatOfName(std::string_view name) {
  if (name == "tsv") return TextFormat::kTsv;
  if (name == "jsonl") return TextFormat::kJsonLines;
  if (name == "dump") return TextFormat::kDump;
  return std::nullopt;
}

std::optional<TextFormat> TextFormatOfPath(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == path.npos ? std::nullopt : TextFormatOfName(path.substr(dot + 1));
}

void RecordWriter::Begin(std::string* out) const {
  if (format_ != TextFormat::kDump) return;
  // type=btree for every kind of database: mdb_load supports no other.
  out->append("VERSION=3\n").append(dump_.print ? "format=print\n" : "format=bytevalue\n").append("type=btree\n");
  if (dump_.mapsize != 0) absl::StrAppend(out, "mapsize=", dump_.mapsize, "\n");
  out->append("HEADER=END\n");
}

void RecordWriter::Add(const KeyValue& record, std::string* out) const {
  std::string_view key = record.key;
  switch (format_) {
    case TextFormat::kTsv:
      if (key.starts_with(text::kByteOrderMark)) {  // a reader would skip it in the first line
        text::AppendByteEscape(key[0], out);
        key.remove_prefix(1);
      }
      text::AppendTsvField(key, out);
      out->push_back('\t');
      if (tsv_.times) {
        if (record.expire_at != 0) absl::StrAppend(out, record.expire_at);
        out->push_back('\t');
      }
      text::AppendTsvField(record.value, out);
      out->push_back('\n');
      return;
    case TextFormat::kJsonLines:
      return text::AppendJsonRecord(key, record.value, out, record.expire_at);
    case TextFormat::kDump:
      AppendDumpLine(dump_.print, key, out);
      AppendDumpLine(dump_.print, record.value, out);
  }
}

void RecordWriter::End(std::string* out) const {
  if (format_ == TextFormat::kDump) out->append("DATA=END\n");
}

}  // namespace hako
