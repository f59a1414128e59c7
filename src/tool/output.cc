#include "tool/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "hako/text/json_record.h"
#include "hako/text/text_encoding.h"
#include "tool/command.h"
#include "tool/terminal.h"

namespace hako::tool {

Status Output::Flush() {
  std::string_view rest = buffer_;
  while (status_.ok() && !rest.empty()) {
    const ssize_t size = write(fd_, rest.data(), rest.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      status_ = WriteError(errno);
    } else {
      rest.remove_prefix(static_cast<std::size_t>(size));
    }
  }
  buffer_.clear();
  return status_;
}

void StyleOptions::AddTo(CLI::App* app) {
  const auto styles = app->add_option_group("Output", "How records are printed; default escaped on a terminal, raw in a pipe");
  styles->add_flag("--json", json_, "JSON Lines; bytes that are not UTF-8 as {\"b64\":\"...\"}");
  styles->add_flag("--tsv", tsv_, "Tab-separated, with tabs, line feeds and backslashes escaped");
  styles->add_flag("--hex", hex_, "Hexadecimal digits");
  styles->add_flag("--escape", escape_, "Escaped text, in a pipe too");
  styles->add_flag("--raw", raw_, "The bytes unchanged, on a terminal too; 'get' then adds no line feed");
  styles->add_flag("-0", nul_, "The bytes unchanged, each key and value followed by NUL");
  styles->require_option(0, 1);
  app->add_flag("--number", number_, "Values of 8 bytes as numbers, as 'set --incr' stores them");
}

std::string_view StyleOptions::Shown(std::string_view value, std::string* digits) const {
  if (!number_ || value.size() != sizeof(std::uint64_t)) return value;
  std::uint64_t number = 0;
  for (const char c : value) number = number << 8 | static_cast<unsigned char>(c);
  return *digits = std::to_string(static_cast<std::int64_t>(number));
}

void StyleOptions::Append(std::optional<std::string_view> key, std::optional<std::string_view> value, std::string* out) const {
  std::string digits;
  AppendRecord(style(), key, value ? std::optional(Shown(*value, &digits)) : std::nullopt, out);
}

void StyleOptions::AppendValue(std::string_view value, std::string* out) const {
  std::string digits;
  out->append(Shown(value, &digits));
}

RecordStyle StyleOptions::style() const {
  if (json_) return RecordStyle::kJson;
  if (tsv_) return RecordStyle::kTsv;
  if (hex_) return RecordStyle::kHex;
  if (nul_) return RecordStyle::kNul;
  if (raw_) return RecordStyle::kRaw;
  return escape_ || isatty(STDOUT_FILENO) == 1 ? RecordStyle::kPrintable : RecordStyle::kRaw;
}

void UnescapeOption::AddTo(CLI::App* app) {
  app->add_flag("--unescape", is_given_, "Decode escapes in keys and values, as --escape prints them: \\\\ \\t \\n \\r \\0 \\xHH");
}

bool UnescapeOption::Apply(std::initializer_list<std::string*> texts) const {
  if (!is_given_) return true;
  return std::all_of(texts.begin(), texts.end(), [](std::string* text) {
    const std::optional<std::size_t> size = text::DecodeEscapes(*text, text->data());
    if (size) text->resize(*size);
    return size.has_value();
  });
}

void AppendRecord(RecordStyle style, std::optional<std::string_view> key, std::optional<std::string_view> value, std::string* out) {
  if (style == RecordStyle::kJson) {
    out->push_back('{');
    if (key) out->append("\"key\":"), text::AppendJsonBytes(*key, out);
    if (key && value) out->push_back(',');
    if (value) out->append("\"value\":"), text::AppendJsonBytes(*value, out);
    out->append("}\n");
    return;
  }
  const auto append = [style, out](std::string_view bytes) {
    switch (style) {
      case RecordStyle::kPrintable:
        return text::AppendPrintable(bytes, out);
      case RecordStyle::kTsv:
        return text::AppendTsvField(bytes, out);
      case RecordStyle::kHex:
        return text::AppendHex(bytes, out);
      default:
        out->append(bytes);
    }
  };
  const char end = style == RecordStyle::kNul ? '\0' : '\n';
  static const bool has_color = WantsColor(STDOUT_FILENO);
  const bool is_marked = key && value && has_color && style == RecordStyle::kPrintable;
  if (is_marked) out->append(kKeyColor);
  if (key) append(*key);
  if (is_marked) out->append(kNoColor);
  if (key && value) out->push_back(style == RecordStyle::kNul ? '\0' : '\t');
  if (value) append(*value);
  out->push_back(end);
}

}  // namespace hako::tool
