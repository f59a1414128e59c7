// Bytes as text and back: what terminals, TSV, JSON Lines and dumps need. Every Append function adds to `out`; every Decode function
// returns false where the text is malformed, and then `out` is unspecified.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hako::format {

inline constexpr std::string_view kHexDigits = "0123456789abcdef";

// The length of the UTF-8 sequence at the head of `text`, 0 if there is none that is well-formed (RFC 3629: shortest form, no
// surrogates, up to U+10FFFF).
inline std::size_t Utf8Length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return 0;
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t size = lead >= 0xc2 && lead <= 0xdf ? 2 : lead >= 0xe0 && lead <= 0xef ? 3 : lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
  if (size == 0 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f)) return 0;  // overlong, surrogate
  if ((lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) return 0;  // overlong, beyond Unicode
  return size;
}

inline bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = Utf8Length(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

inline void AppendHex(std::string_view bytes, std::string* out) {
  std::size_t at = out->size();
  out->resize(at + 2 * bytes.size());
  for (const char c : bytes) {
    (*out)[at++] = kHexDigits[static_cast<unsigned char>(c) >> 4];
    (*out)[at++] = kHexDigits[static_cast<unsigned char>(c) & 15];
  }
}

inline int HexDigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

inline bool DecodeHex(std::string_view text, std::string* out) {
  if (text.size() % 2 != 0) return false;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = HexDigitValue(text[i]);
    const int low = HexDigitValue(text[i + 1]);
    if (high < 0 || low < 0) return false;
    out->push_back(static_cast<char>(high << 4 | low));
  }
  return true;
}

inline void AppendByteEscape(char c, std::string* out) {
  switch (c) {
    case '\\':
      out->append("\\\\");
      return;
    case '\t':
      out->append("\\t");
      return;
    case '\n':
      out->append("\\n");
      return;
    case '\r':
      out->append("\\r");
      return;
    default:
      out->append("\\x"), AppendHex({&c, 1}, out);
  }
}

// For a TSV field: tab, line feed, carriage return and backslash escaped, every other byte as it is.
inline void AppendTsvField(std::string_view bytes, std::string* out) {
  while (true) {
    const std::size_t plain = std::min(bytes.size(), bytes.find_first_of("\\\t\n\r"));
    out->append(bytes.substr(0, plain));
    if (plain == bytes.size()) return;
    AppendByteEscape(bytes[plain], out);
    bytes.remove_prefix(plain + 1);
  }
}

// For a terminal: printable ASCII and well-formed UTF-8 as they are; control characters (C0, DEL, C1), backslashes and stray bytes escaped.
inline void AppendPrintable(std::string_view bytes, std::string* out) {
  while (!bytes.empty()) {
    const std::size_t size = Utf8Length(bytes);
    const auto lead = static_cast<unsigned char>(bytes[0]);
    const bool is_c1 = size == 2 && lead == 0xc2 && static_cast<unsigned char>(bytes[1]) < 0xa0;
    if (size > 1 && !is_c1) {
      out->append(bytes.substr(0, size));
      bytes.remove_prefix(size);
      continue;
    }
    if (lead >= 0x20 && lead < 0x7f && lead != '\\') {
      out->push_back(bytes[0]);
    } else {
      AppendByteEscape(bytes[0], out);
    }
    bytes.remove_prefix(1);
  }
}

// Undoes AppendTsvField and AppendPrintable: \\ \t \n \r \0 and \xHH; another escape is malformed.
inline bool DecodeEscapes(std::string_view text, std::string* out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t escape = std::min(text.size(), text.find('\\', i));
    out->append(text.substr(i, escape - i));
    if (escape == text.size()) break;
    i = escape + 1;
    if (i == text.size()) return false;
    switch (text[i]) {
      case '\\':
        out->push_back('\\');
        break;
      case 't':
        out->push_back('\t');
        break;
      case 'n':
        out->push_back('\n');
        break;
      case 'r':
        out->push_back('\r');
        break;
      case '0':
        out->push_back('\0');
        break;
      case 'x':
        if (text.size() - i < 3 || !DecodeHex(text.substr(i + 1, 2), out)) return false;
        i += 2;
        break;
      default:
        return false;
    }
  }
  return true;
}

// Base64 of RFC 4648, with padding.
inline constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

inline void AppendBase64(std::string_view bytes, std::string* out) {
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t size = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) group = group << 8 | (j < size ? static_cast<unsigned char>(bytes[i + j]) : 0);
    for (std::size_t j = 0; j < 4; ++j) out->push_back(j <= size ? kBase64Digits[group >> (18 - 6 * j) & 63] : '=');
  }
}

inline bool DecodeBase64(std::string_view text, std::string* out) {
  if (text.size() % 4 != 0) return false;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t group = 0;
    std::size_t padding = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const char c = text[i + j];
      const std::size_t digit = kBase64Digits.find(c);
      const bool is_padding = c == '=' && i + 4 == text.size() && j >= 2;
      if (is_padding ? false : digit == kBase64Digits.npos || padding > 0) return false;
      padding += is_padding ? 1 : 0;
      group = group << 6 | static_cast<std::uint32_t>(is_padding ? 0 : digit);
    }
    for (std::size_t j = 0; j < 3 - padding; ++j) out->push_back(static_cast<char>(group >> (16 - 8 * j) & 255));
    if ((padding == 1 && (group & 0xff) != 0) || (padding == 2 && (group & 0xffff) != 0)) return false;  // not what an encoder writes
  }
  return true;
}

}  // namespace hako::format
