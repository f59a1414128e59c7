#include "tool/record_format.h"
#include "tool/text.h"

namespace hako::tool {
namespace {

// A line of a dump. Backslashes go out as \5c, which every reader of the format knows; not all know \\ .
void AppendDumpLine(bool print, std::string_view data, std::string* out) {
  out->push_back(' ');
  if (!print) {
    AppendHex(data, out);
  } else {
    for (const char& c : data) {
      if (c >= 0x20 && c < 0x7f && c != '\\') {
        out->push_back(c);
      } else {
        out->push_back('\\');
        AppendHex({&c, 1}, out);
      }
    }
  }
  out->push_back('\n');
}

}  // namespace

std::optional<RecordFormat> FormatOfName(std::string_view name) {
  if (name == "tsv") return RecordFormat::kTsv;
  if (name == "jsonl") return RecordFormat::kJsonl;
  if (name == "dump") return RecordFormat::kDump;
  return std::nullopt;
}

std::optional<RecordFormat> FormatOfPath(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == path.npos ? std::nullopt : FormatOfName(path.substr(dot + 1));
}

void AppendHeader(const WriterOptions& options, std::string* out) {
  if (options.format != RecordFormat::kDump) return;
  // type=btree whatever the kind of database: mdb_load knows no other.
  out->append("VERSION=3\n").append(options.print ? "format=print\n" : "format=bytevalue\n").append("type=btree\nHEADER=END\n");
}

void AppendRecord(const WriterOptions& options, std::string_view key, std::string_view value, std::string* out) {
  switch (options.format) {
    case RecordFormat::kTsv:
      return AppendRecord(RecordStyle::kTsv, key, value, out);
    case RecordFormat::kJsonl:
      return AppendRecord(RecordStyle::kJson, key, value, out);
    case RecordFormat::kDump:
      AppendDumpLine(options.print, key, out);
      AppendDumpLine(options.print, value, out);
  }
}

void AppendFooter(const WriterOptions& options, std::string* out) {
  if (options.format == RecordFormat::kDump) out->append("DATA=END\n");
}

}  // namespace hako::tool
