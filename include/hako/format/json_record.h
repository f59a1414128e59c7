// A record as a line of JSON: {"key":"...","value":"..."}. Bytes that are not UTF-8 are {"b64":"..."} instead of a string, so that every
// record comes back as it was.
#pragma once

#include <string>
#include <string_view>

#include "hako/format/text_encoding.h"

namespace hako::format {

// A JSON string, or {"b64":"..."} for bytes that are not UTF-8.
inline void AppendJsonBytes(std::string_view bytes, std::string* out) {
  if (!IsUtf8(bytes)) {
    out->append("{\"b64\":\"");
    AppendBase64(bytes, out);
    out->append("\"}");
    return;
  }
  out->push_back('"');
  std::size_t begin = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto c = static_cast<unsigned char>(bytes[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out->append(bytes.substr(begin, i - begin));
    begin = i + 1;
    constexpr std::string_view kShort = "\"\"\\\\\bb\ff\nn\rr\tt";  // a byte, the letter of its escape
    std::size_t j = 0;
    while (j < kShort.size() && kShort[j] != bytes[i]) j += 2;
    if (j < kShort.size()) {
      out->append({'\\', kShort[j + 1]});
    } else {
      out->append("\\u00");
      AppendHex(bytes.substr(i, 1), out);
    }
  }
  out->append(bytes.substr(begin)).push_back('"');
}

inline void AppendJsonRecord(std::string_view key, std::string_view value, std::string* out) {
  out->append("{\"key\":");
  AppendJsonBytes(key, out);
  out->append(",\"value\":");
  AppendJsonBytes(value, out);
  out->append("}\n");
}

inline void AppendUtf8(std::uint32_t code, std::string* out) {
  const auto tail = [code](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->append({static_cast<char>(0xc0 | code >> 6), tail(0)});
  } else if (code < 0x10000) {
    out->append({static_cast<char>(0xe0 | code >> 12), tail(6), tail(0)});
  } else {
    out->append({static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0)});
  }
}

// Reads the one form of object that is a record, in any layout and order of its two members. A parser of all of JSON would have to build
// values that nobody looks at.
class JsonRecordParser {
 public:
  explicit JsonRecordParser(std::string_view line) : rest_(line) {}

  // false: the line is not a record, and what is in *key and *value is unspecified.
  bool Parse(std::string* key, std::string* value) {
    if (!Take('{') || !ParseMember(key, value) || !Take(',') || !ParseMember(key, value) || !Take('}')) return false;
    SkipSpace();
    return rest_.empty() && has_key_ && has_value_;
  }

 private:
  void SkipSpace() { rest_.remove_prefix(std::min(rest_.size(), rest_.find_first_not_of(" \t\r\n"))); }
  bool Take(char c) {
    SkipSpace();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool ParseMember(std::string* key, std::string* value) {
    std::string name;
    if (!ParseString(&name) || !Take(':')) return false;
    const bool is_key = name == "key";
    if (!is_key && name != "value") return false;
    (is_key ? has_key_ : has_value_) = true;
    return ParseBytes(is_key ? key : value);
  }

  bool ParseBytes(std::string* out) {
    SkipSpace();
    if (!rest_.starts_with('{')) return ParseString(out);
    std::string name;
    std::string coded;
    out->clear();
    return Take('{') && ParseString(&name) && name == "b64" && Take(':') && ParseString(&coded) && Take('}') && DecodeBase64(coded, out);
  }

  bool ParseString(std::string* out) {
    if (!Take('"')) return false;
    out->clear();
    while (true) {
      std::size_t plain = 0;
      while (plain < rest_.size() && rest_[plain] != '"' && rest_[plain] != '\\' && static_cast<unsigned char>(rest_[plain]) >= 0x20)
        ++plain;
      if (plain == rest_.size() || static_cast<unsigned char>(rest_[plain]) < 0x20 || !IsUtf8(rest_.substr(0, plain))) return false;
      out->append(rest_.substr(0, plain));
      const bool ends = rest_[plain] == '"';
      rest_.remove_prefix(plain + 1);
      if (ends) return true;
      if (!ParseEscape(out)) return false;
    }
  }

  bool ParseEscape(std::string* out) {
    if (rest_.empty()) return false;
    const char letter = rest_[0];
    rest_.remove_prefix(1);
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    if (const std::size_t i = kLetters.find(letter); i != kLetters.npos) return out->push_back("\"\\/\b\f\n\r\t"[i]), true;
    std::uint32_t code = 0;
    if (letter != 'u' || !ParseUnit(&code)) return false;
    if (code >= 0xd800 && code < 0xe000) {  // a surrogate: of a pair, or nothing
      std::uint32_t low = 0;
      if (code >= 0xdc00 || !rest_.starts_with("\\u")) return false;
      rest_.remove_prefix(2);
      if (!ParseUnit(&low) || low < 0xdc00 || low >= 0xe000) return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    AppendUtf8(code, out);
    return true;
  }

  bool ParseUnit(std::uint32_t* unit) {
    std::string bytes;
    if (rest_.size() < 4 || !DecodeHex(rest_.substr(0, 4), &bytes)) return false;
    *unit = static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[0]) << 8 | static_cast<unsigned char>(bytes[1]));
    rest_.remove_prefix(4);
    return true;
  }

  std::string_view rest_;
  bool has_key_ = false;
  bool has_value_ = false;
};

}  // namespace hako::format
