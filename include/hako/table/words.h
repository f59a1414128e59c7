// The words and q-grams of a text, for indices and conditions.
//
// A word is a run of letters, numbers and connecting punctuation such as _, each with the marks that
// follow it, by the general categories of Unicode; of characters for private use; of code points
// that Unicode has not assigned; and of bytes that are not part of well-formed UTF-8. Blanks,
// punctuation, symbols and controls end a word. Characters that Unicode ignores by default, such as
// the soft hyphen and the joiners, neither end a word nor belong to it; only the zero-width space
// ends it. In a language without blanks, the text up to the next punctuation is one word; use
// q-grams there.
//
// Words are folded, so that those which differ only in case or in how they are encoded are one word:
// STRASSE and Straße, é as one character and as e with an accent, half-width and full-width letters.
// Two words are one if they are a compatibility caseless match (Unicode, D146). Accents count, and no
// language has rules of its own: İ is i with a dot above. A byte that is not part of well-formed
// UTF-8 is only itself. A word is cut after kWordMax bytes, folded; only the first kRunMax bytes of
// the run are folded.
//
// The categories and foldings are those of the Unicode version of utf8proc, which the program loads:
// 15.0 in Debian 12. An index of words stores WordTables(), and is built again by an Open with other ones (table/index.h).
//
// A q-gram is q characters that follow each other, as they are. A byte that is not part of
// well-formed UTF-8 counts as a character.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/function_ref.h"

namespace hako::table {

inline constexpr std::size_t kWordMax = 200, kRunMax = 4 * kWordMax;

// Reads the words of a text in order, with repetitions, and allocates nothing.
class WordReader {
 public:
  // The text must outlive the reader.
  explicit WordReader(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}
  WordReader(const WordReader&) = delete;

  // Moves to the next word, first to the first one. Returns false if there is none.
  bool Next();
  // The word, folded. It is valid until Next.
  std::string_view word() const {
    HAKO_DCHECK(num_read_ > 0);
    return {word_, size_};
  }
  // How many words are before this one.
  std::size_t position() const {
    HAKO_DCHECK(num_read_ > 0);
    return num_read_ - 1;
  }

 private:
  static const std::array<std::uint16_t, 0x800>& ShortFoldings();
  const char* ReadShortRun(const char* begin);
  const char* ReadRun(const char* begin);
  void AppendFolded(std::string_view characters, bool has_iota);

  const char *at_, *end_;
  std::size_t size_ = 0, num_read_ = 0;
  char word_[kWordMax];
};

// Returns the words of a text in order, with repetitions.
std::vector<std::string> WordsOf(std::string_view text);
// Returns the versions of Unicode and of utf8proc: equal texts have equal words under equal ones.
const std::string& WordTables();

// Calls visit with the run of q characters that begins at each character of the text, or with a shorter
// one before the end of the text and before a zero byte. None begins with a zero byte.
void ForEachGramBeginning(std::string_view text, unsigned q, FunctionRef<void(std::string_view gram)> visit);
// Calls visit with each run of q characters, in order. A text of fewer characters has none.
void ForEachGram(std::string_view text, unsigned q, FunctionRef<void(std::string_view gram)> visit);
// Returns the substring without the bytes at its beginning and end that may belong to characters
// which it cuts. Every text with the substring has the remaining characters.
std::string_view WithoutCutCharacters(std::string_view substring);

}  // namespace hako::table
