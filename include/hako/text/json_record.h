// A record as a line of JSON: {"key":"...","value":"..."}. Bytes that are not UTF-8 become
// {"b64":"..."} instead of a string, so that every record round-trips. A record that expires has a
// third member, "expire_at": milliseconds since 1970.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "hako/base/key_value.h"
#include "hako/text/text_encoding.h"

namespace hako::text {

inline constexpr SpecialBytes kJsonSpecial = {.below = 0x20, .one = '"', .other = '\\'};

// Appends a JSON string, or {"b64":"..."} for bytes that are not UTF-8.
inline void AppendJsonBytes(std::string_view bytes, std::string* out) {
  if (!IsUtf8(bytes)) {
    out->append("{\"b64\":\"");
    AppendBase64(bytes, out);
    out->append("\"}");
    return;
  }
  out->push_back('"');
  for (std::size_t i = 0;; ++i) {
    const std::size_t plain = PlainLength<kJsonSpecial>(bytes, i);
    out->append(bytes.data() + i, plain);
    i += plain;
    if (i == bytes.size()) break;
    constexpr std::string_view kShort = "\"\"\\\\\bb\ff\nn\rr\tt";  // pairs of a byte and the letter of its escape
    std::size_t j = 0;
    while (j < kShort.size() && kShort[j] != bytes[i]) j += 2;
    if (j < kShort.size()) {
      out->append({'\\', kShort[j + 1]});
    } else {
      out->append("\\u00");
      AppendHex(bytes.substr(i, 1), out);
    }
  }
  out->push_back('"');
}

inline void AppendJsonRecord(std::string_view key, std::string_view value, std::string* out, std::uint64_t expire_at = 0) {
  out->append("{\"key\":");
  AppendJsonBytes(key, out);
  out->append(",\"value\":");
  AppendJsonBytes(value, out);
  if (expire_at != 0) out->append(",\"expire_at\":").append(std::to_string(expire_at));
  out->append("}\n");
}

// Writes a character in up to 4 bytes and returns their number.
inline std::size_t EncodeUtf8(std::uint32_t code, char* out) {
  const auto tail = [code](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return out[0] = static_cast<char>(code), 1;
  if (code < 0x800) return out[0] = static_cast<char>(0xc0 | code >> 6), out[1] = tail(0), 2;
  if (code < 0x10000) return out[0] = static_cast<char>(0xe0 | code >> 12), out[1] = tail(6), out[2] = tail(0), 3;
  return out[0] = static_cast<char>(0xf0 | code >> 18), out[1] = tail(12), out[2] = tail(6), out[3] = tail(0), 4;
}

// Parses an object that is a record, in any layout and order of its members. It is not a general
// JSON parser, which would build values that are not used. Strings are decoded in place: the line
// is changed, and the results are views of it.
class JsonRecordParser {
 public:
  explicit JsonRecordParser(std::span<char> line) : at_(line.data()), end_(line.data() + line.size()) {}

  // Returns false if the line is not a record; *record is then unspecified.
  bool Parse(KeyValue* record) {
    record->expire_at = 0;
    if (!Take('{')) return false;
    do {
      if (!ParseMember(record)) return false;
    } while (Take(','));
    if (!Take('}')) return false;
    SkipSpace();
    return at_ == end_ && has_key_ && has_value_;
  }

 private:
  void SkipSpace() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || *at_ == '\n')) ++at_;
  }
  bool IsNext(char c) const { return at_ != end_ && *at_ == c; }
  bool Take(char c) {
    SkipSpace();
    const bool is_next = IsNext(c);
    if (is_next) ++at_;
    return is_next;
  }

  // Each member may occur only once.
  bool ParseMember(KeyValue* record) {
    std::string_view name;
    if (!ParseString(&name) || !Take(':')) return false;
    if (name == "key") return !std::exchange(has_key_, true) && ParseBytes(&record->key);
    if (name == "value") return !std::exchange(has_value_, true) && ParseBytes(&record->value);
    return name == "expire_at" && !std::exchange(has_time_, true) && ParseTime(&record->expire_at);
  }

  // Parses a time of decimal digits.
  bool ParseTime(std::uint64_t* time) {
    SkipSpace();
    const auto [end, error] = std::from_chars(at_, end_, *time);
    if (error != std::errc() || (*at_ == '0' && end != at_ + 1)) return false;
    at_ += end - at_;
    return true;
  }

  bool ParseBytes(std::string_view* out) {
    SkipSpace();
    if (!IsNext('{')) return ParseString(out);
    std::string_view name;
    std::string_view coded;
    if (!Take('{') || !ParseString(&name) || name != "b64" || !Take(':')) return false;
    SkipSpace();
    char* const begin = at_;
    if (!ParseString(&coded) || !Take('}')) return false;
    const std::optional<std::size_t> size = DecodeBase64(coded, begin);
    if (size) *out = {begin, *size};
    return size.has_value();
  }

  bool ParseString(std::string_view* out) {
    if (!Take('"')) return false;
    char* const begin = at_;
    char* to = begin;
    while (true) {
      const std::string_view rest(at_, static_cast<std::size_t>(end_ - at_));
      const std::size_t plain = PlainLength<kJsonSpecial>(rest, 0);
      if (plain == rest.size() || static_cast<unsigned char>(rest[plain]) < 0x20 || !IsUtf8(rest.substr(0, plain))) return false;
      if (to != at_) std::memmove(to, at_, plain);
      to += plain;
      at_ += plain + 1;
      if (rest[plain] == '"') break;
      if (!ParseEscape(&to)) return false;
    }
    *out = {begin, static_cast<std::size_t>(to - begin)};
    return true;
  }

  // Writes the character to *to, which is before the read position: no escape is shorter than its
  // character.
  bool ParseEscape(char** to) {
    if (at_ == end_) return false;
    const char letter = *at_++;
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    if (const std::size_t i = kLetters.find(letter); i != kLetters.npos) return *(*to)++ = "\"\\/\b\f\n\r\t"[i], true;
    std::uint32_t code = 0;
    if (letter != 'u' || !ParseUnit(&code)) return false;
    if (code >= 0xd800 && code < 0xe000) {  // a surrogate: valid only in a pair
      std::uint32_t low = 0;
      if (code >= 0xdc00 || !std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with("\\u")) return false;
      at_ += 2;
      if (!ParseUnit(&low) || low < 0xdc00 || low >= 0xe000) return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *to += EncodeUtf8(code, *to);
    return true;
  }

  bool ParseUnit(std::uint32_t* unit) {
    char bytes[2];
    if (end_ - at_ < 4 || !DecodeHex(std::string_view(at_, 4), bytes)) return false;
    *unit = static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[0]) << 8 | static_cast<unsigned char>(bytes[1]));
    at_ += 4;
    return true;
  }

  char* at_;
  char* end_;
  bool has_key_ = false;
  bool has_value_ = false;
  bool has_time_ = false;
};

}  // namespace hako::text
