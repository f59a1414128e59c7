// Words and q-grams of a text, as indices and conditions take them.
//
// A word is a longest run of ASCII letters, digits and underscores, and of characters from U+0080
// on, except the blanks and the punctuation of U+00A0 to U+00BF, U+2000 to U+206F, U+3000 to
// U+303F and U+FF00 to U+FF0F. ASCII letters are folded to lower case. A word of more than kWordMax bytes is cut there.
// Text in a language without blanks is one word up to the next punctuation: q-grams suit it better.
//
// A q-gram is q characters that follow each other. A byte that is no well-formed UTF-8 counts as a
// character.
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
// The words of a text in order, with repetitions.
std::vector<std::string> WordsOf(std::string_view text);

// Calls visit with each piece of q characters, in order: none if the text has fewer.
void ForEachGram(std::string_view text, unsigned q, FunctionRef<void(std::string_view gram)> visit);
// The part of a substring whose characters are those of every text that has it: without bytes at its
// begin and end that may belong to a character that it cuts.
std::string_view WithoutCutCharacters(std::string_view substring);

}  // namespace hako::table
