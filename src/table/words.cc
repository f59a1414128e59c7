#include "hako/table/words.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "hako/text/text_encoding.h"

namespace hako::table {
namespace {

// For each ASCII byte: 0 if it ends a word, else the byte in lower case. Other bytes need a closer
// look.
constexpr std::array<char, 128> kFolded = [] {
  std::array<char, 128> folded{};
  for (char c = '0'; c <= '9'; ++c) folded[static_cast<std::size_t>(c)] = c;
  for (char c = 'a'; c <= 'z'; ++c) {
    folded[static_cast<std::size_t>(c)] = c;
    folded[static_cast<std::size_t>(c - 'a' + 'A')] = c;
  }
  folded['_'] = '_';
  return folded;
}();

// Whether the byte is a continuation byte of UTF-8.
bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

bool IsPunctuation(std::string_view character) {
  if (character.size() == 1) return false;  // a byte that is not a character
  const std::uint32_t point = text::CodePoint(character);
  return (point >= 0xa0 && point <= 0xbf) || (point >= 0x2000 && point <= 0x206f) || (point >= 0x3000 && point <= 0x303f) ||
         (point >= 0xff00 && point <= 0xff0f);
}

}  // namespace

void ForEachWord(std::string_view text, FunctionRef<void(std::string_view word)> visit) {
  char word[kWordMax];
  std::size_t size = 0;
  const auto end_word = [&] {
    if (size > 0) visit({word, size});
    size = 0;
  };
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text[0]);
    if (byte < 0x80) {
      if (kFolded[byte] == 0)
        end_word();
      else if (size < kWordMax)
        word[size++] = kFolded[byte];
      text.remove_prefix(1);
      continue;
    }
    const std::string_view character = text.substr(0, text::CharacterLength(text));
    if (IsPunctuation(character)) {
      end_word();
    } else if (size + character.size() <= kWordMax) {
      character.copy(word + size, character.size());
      size += character.size();
    }
    text.remove_prefix(character.size());
  }
  end_word();
}

std::vector<std::string> WordsOf(std::string_view text) {
  std::vector<std::string> words;
  ForEachWord(text, [&words](std::string_view word) { words.emplace_back(word); });
  return words;
}

std::string_view WithoutCutCharacters(std::string_view substring) {
  while (!substring.empty() && IsContinuation(substring[0])) substring.remove_prefix(1);
  std::size_t last = substring.size();  // index of the last byte that begins a character
  while (last > 0 && IsContinuation(substring[--last])) continue;
  if (last < substring.size() && text::Utf8Length(substring.substr(last)) == 0) return substring.substr(0, last);
  return substring;
}

void ForEachGram(std::string_view text, unsigned q, FunctionRef<void(std::string_view gram)> visit) {
  std::size_t begin = 0, end = 0;
  for (unsigned i = 0; i < q; ++i) {
    if (end == text.size()) return;
    end += text::CharacterLength(text.substr(end));
  }
  for (;;) {
    visit(text.substr(begin, end - begin));
    if (end == text.size()) return;
    begin += text::CharacterLength(text.substr(begin));
    end += text::CharacterLength(text.substr(end));
  }
}

}  // namespace hako::table
