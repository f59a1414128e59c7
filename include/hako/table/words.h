// The words and q-grams of a text, for indices and conditions.
//
// A word is a longest run of ASCII letters, digits and underscores, and of characters from U+0080
// on, except the blanks and the punctuation of U+00A0 to U+00BF, U+2000 to U+206F, U+3000 to
// U+303F and U+FF00 to U+FF0F. ASCII letters are folded to lower case. A word is cut after kWordMax
// bytes. In a language without blanks, the text up to the next punctuation is one word; use q-grams
// there.
//
// A q-gram is q characters that follow each other. A byte that is not part of well-formed UTF-8
// counts as a character.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/function_ref.h"

namespace hako::table {

inline constexpr std::size_t kWordMax = 200;

// Calls visit with each word, folded, in order; the view is valid during the call.
void ForEachWord(std::string_view text, FunctionRef<void(std::string_view word)> visit);
// Returns the words of a text in order, with repetitions.
std::vector<std::string> WordsOf(std::string_view text);

// Calls visit with each run of q characters, in order. A text of fewer characters has none.
void ForEachGram(std::string_view text, unsigned q, FunctionRef<void(std::string_view gram)> visit);
// Returns the substring without the bytes at its beginning and end that may belong to characters
// which it cuts. Every text with the substring has the remaining characters.
std::string_view WithoutCutCharacters(std::string_view substring);

}  // namespace hako::table
