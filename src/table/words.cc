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

// The length of the character at the beginning of `text`: 1 for a byte that begins no well-formed
// one. Overlong forms are not looked for: they only make other words.
std::size_t CharacterLength(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const std::size_t size = lead < 0xc2 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 1;
  if (size > text.size()) return 1;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 1;
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
