#include "hako/table/words.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace hako::table {
namespace {

// 0 for a byte that ends a word, else the byte, folded; bytes from 0x80 on are looked at closer.
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

// Whether a byte of a character is not its first.
bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// The length of the character that this byte begins, if the text goes on as it says.
std::size_t LengthByLead(char byte) {
  const auto lead = static_cast<unsigned char>(byte);
  return lead < 0xc2 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 1;
}

// The length of the character at the beginning of `text`: 1 for a byte that begins no well-formed
// one. Overlong forms are not looked for: they only make other words.
std::size_t CharacterLength(std::string_view text) {
  const std::size_t size = LengthByLead(text[0]);
  if (size > text.size()) return 1;
  for (std::size_t i = 1; i < size; ++i) {
    if (!IsContinuation(text[i])) return 1;
  }
  return size;
}

bool IsPunctuation(std::string_view character) {
  const auto byte = [character](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 2) return byte(0) == 0xc2 && byte(1) >= 0xa0 && byte(1) <= 0xbf;
  if (character.size() != 3) return false;
  const std::uint32_t point = (byte(0) & 15u) << 12 | (byte(1) & 63u) << 6 | (byte(2) & 63u);
  return (point >= 0x2000 && point <= 0x206f) || (point >= 0x3000 && point <= 0x303f) || (point >= 0xff00 && point <= 0xff0f);
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
    const std::string_view character = text.substr(0, CharacterLength(text));
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
  std::size_t last = substring.size();  // the last byte that begins a character
  while (last > 0 && IsContinuation(substring[--last])) continue;
  if (last < substring.size() && LengthByLead(substring[last]) > substring.size() - last) return substring.substr(0, last);
  return substring;
}

void ForEachGram(std::string_view text, unsigned q, FunctionRef<void(std::string_view gram)> visit) {
  std::size_t begin = 0, end = 0;
  for (unsigned i = 0; i < q; ++i) {
    if (end == text.size()) return;
    end += CharacterLength(text.substr(end));
  }
  for (;;) {
    visit(text.substr(begin, end - begin));
    if (end == text.size()) return;
    begin += CharacterLength(text.substr(begin));
    end += CharacterLength(text.substr(end));
  }
}

}  // namespace hako::table
