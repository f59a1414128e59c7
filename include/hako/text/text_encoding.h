// Bytes as text and back, for terminals, TSV, JSON Lines and dumps. Every Append function appends
// to `out`. Every Decode function writes the decoded bytes to `out` and returns their number, or
// nullopt if the text is malformed. The result is never longer than the text. If `out` is the
// beginning of the text, it is decoded in place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/language.h"

namespace hako::text {

// The byte order mark of UTF-8, with which a text may begin.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Returns the length of the UTF-8 sequence at the start of `text`, or 0 if it is not well-formed
// (RFC 3629: shortest form, no surrogates, up to U+10FFFF).
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

// Returns the length of the character at the start of `text`: 1 for a byte that does not begin a
// UTF-8 sequence.
// REQUIRES: !text.empty()
inline std::size_t CharacterLength(std::string_view text) {
  HAKO_DCHECK(!text.empty());
  return std::max<std::size_t>(Utf8Length(text), 1);
}

inline bool IsUtf8(std::string_view text) {
  while (true) {
    constexpr std::uint64_t kHighBits = 0x8080808080808080;  // ASCII has none
    for (std::uint64_t word; text.size() >= sizeof(word); text.remove_prefix(sizeof(word))) {
      std::memcpy(&word, text.data(), sizeof(word));
      if ((word & kHighBits) != 0) break;
    }
    if (text.empty()) return true;
    const std::size_t size = Utf8Length(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
}

// The bytes to escape: those below `below`, the bytes `one` and `other`, and, with `high`, those
// from 0x80 on.
struct SpecialBytes {
  unsigned char below, one, other;
  bool high = false;

  constexpr bool Has(char c) const {
    const auto byte = static_cast<unsigned char>(c);
    return byte < below || byte == one || byte == other || (high && byte >= 0x80);
  }
  // Whether one of the 8 bytes of a word is in the set (Hacker's Delight, 6-1).
  constexpr bool HasAny(std::uint64_t word) const {
    constexpr std::uint64_t kOnes = 0x0101010101010101;
    const auto zero_in = [](std::uint64_t w) { return (w - kOnes) & ~w; };
    const std::uint64_t found = ((word - kOnes * below) & ~word) | zero_in(word ^ kOnes * one) | zero_in(word ^ kOnes * other);
    return ((found | (high ? word : 0)) & (kOnes << 7)) != 0;
  }
};

// Returns the number of bytes from `begin` on that need no escape.
template <SpecialBytes kSpecial>
std::size_t PlainLength(std::string_view bytes, std::size_t begin) {
  std::size_t i = begin;
  for (std::uint64_t word; i + sizeof(word) <= bytes.size(); i += sizeof(word)) {
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    if (kSpecial.HasAny(word)) break;
  }
  while (i < bytes.size() && !kSpecial.Has(bytes[i])) ++i;
  return i - begin;
}

// Encode bytes as pairs of hexadecimal digits, in lower case, and decode them in either case. An
// odd number of digits or another character is malformed.
void AppendHex(std::string_view bytes, std::string* out);
std::optional<std::size_t> DecodeHex(std::string_view text, char* out);

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

// Appends a TSV field: escapes tab, line feed, carriage return and backslash.
inline void AppendTsvField(std::string_view bytes, std::string* out) {
  for (std::size_t i = 0;; ++i) {
    const std::size_t plain = PlainLength<SpecialBytes{.below = '\r' + 1, .one = '\\', .other = '\\'}>(bytes, i);
    out->append(bytes.data() + i, plain);
    i += plain;
    if (i == bytes.size()) return;
    const char c = bytes[i];
    c == '\t' || c == '\n' || c == '\r' || c == '\\' ? AppendByteEscape(c, out) : out->push_back(c);
  }
}

// Returns the code point of a well-formed UTF-8 sequence.
inline std::uint32_t CodePoint(std::string_view sequence) {
  const auto byte = [sequence](std::size_t i) { return static_cast<unsigned char>(sequence[i]); };
  if (sequence.size() == 1) return byte(0);
  std::uint32_t point = byte(0) & (0x7fu >> sequence.size());
  for (std::size_t i = 1; i < sequence.size(); ++i) point = point << 6 | (byte(i) & 0x3fu);
  return point;
}

// Whether a character reorders, breaks or hides the text around it: controls (C0, DEL, C1),
// bidirectional marks, line and paragraph separators, zero-width spaces, tags. The joiners U+200C
// and U+200D are not included, because scripts are written with them.
inline bool SteersText(std::uint32_t point) {
  constexpr std::pair<std::uint32_t, std::uint32_t> kRanges[] = {{0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},
                                                                 {0x180e, 0x180e}, {0x200b, 0x200b}, {0x200e, 0x200f}, {0x2028, 0x202e},
                                                                 {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [point](const auto& range) { return range.first <= point && point <= range.second; });
}

// Appends text for a terminal: printable ASCII and well-formed UTF-8 unchanged. Escapes each byte
// of characters that steer text, stray bytes and, if `escapes_backslash`, backslashes.
inline void AppendPrintable(std::string_view bytes, std::string* out, bool escapes_backslash = true) {
  while (!bytes.empty()) {
    const std::size_t size = Utf8Length(bytes);
    const std::string_view one = bytes.substr(0, CharacterLength(bytes));
    const bool is_escaped = size == 0 || SteersText(CodePoint(one)) || (escapes_backslash && one[0] == '\\');
    if (!is_escaped) out->append(one);
    for (const char c : is_escaped ? one : std::string_view()) AppendByteEscape(c, out);
    bytes.remove_prefix(one.size());
  }
}

// Decodes text with backslash escapes: decode(text after a backslash, byte) sets the byte and
// returns the number of characters used, or 0 if the escape is malformed.
template <class F>
std::optional<std::size_t> DecodeBackslashes(std::string_view text, char* out, F decode) {
  char* at = out;
  while (true) {
    const std::size_t plain = std::min(text.size(), text.find('\\'));
    if (plain != 0) std::memmove(at, text.data(), plain);
    at += plain;
    if (plain == text.size()) return static_cast<std::size_t>(at - out);
    text.remove_prefix(plain + 1);
    char byte = 0;
    const std::size_t taken = decode(text, &byte);
    if (taken == 0) return std::nullopt;
    *at++ = byte;
    text.remove_prefix(taken);
  }
}

// Decodes the output of AppendTsvField and AppendPrintable: \\ \t \n \r \0 and \xHH. Any other
// escape is malformed.
inline std::optional<std::size_t> DecodeEscapes(std::string_view text, char* out) {
  return DecodeBackslashes(text, out, [](std::string_view escape, char* byte) -> std::size_t {
    if (escape.empty()) return 0;
    if (escape[0] == 'x') return escape.size() >= 3 && DecodeHex(escape.substr(1, 2), byte) ? 3 : 0;
    constexpr std::string_view kLetters = "\\tnr0";
    constexpr std::string_view kBytes("\\\t\n\r\0", 5);
    const std::size_t i = kLetters.find(escape[0]);
    if (i == kLetters.npos) return 0;
    *byte = kBytes[i];
    return 1;
  });
}

// Base64 of RFC 4648, with padding. A text that AppendBase64 cannot have written is malformed.
void AppendBase64(std::string_view bytes, std::string* out);
std::optional<std::size_t> DecodeBase64(std::string_view text, char* out);

}  // namespace hako::text
