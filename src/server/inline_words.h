// Divides an inline command into words, as Redis does (sdssplitargs in its sds.c): words are separated
// by blanks; "..." takes the escapes \n \r \t \b \a \xHH and \ before any other byte; '...' takes only
// \' as an escape. A closing quote must be followed by a blank or the end. Unlike in Redis, a zero
// byte does not end the line: DEL a\0b must not remove a.
#pragma once

#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hako::server {

namespace internal {

inline int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
inline bool IsBlank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// Reads the word that begins at *at, and moves *at after it. Returns false if its quotes are not
// balanced.
class WordReader {
 public:
  WordReader(std::string_view line, std::size_t* at) : line_(line), at_(*at) {}

  bool Read(std::string* word) {
    for (; at_ < line_.size() && !IsBlank(line_[at_]); ++at_) {
      if (line_[at_] == '"' || line_[at_] == '\'') return ReadQuoted(line_[at_], word);
      word->push_back(line_[at_]);
    }
    return true;
  }

 private:
  bool ReadQuoted(char quote, std::string* word) {
    for (++at_; at_ < line_.size(); ++at_) {
      if (line_[at_] == quote) {
        ++at_;
        return at_ == line_.size() || IsBlank(line_[at_]);
      }
      if (line_[at_] != '\\')
        word->push_back(line_[at_]);
      else
        ReadEscape(quote, word);
    }
    return false;
  }
  char Ahead(std::size_t n) const { return at_ + n < line_.size() ? line_[at_ + n] : '\0'; }
  void ReadEscape(char quote, std::string* word) {
    const char next = Ahead(1);
    if (quote == '\'') {
      if (next == '\'') ++at_;
      return word->push_back(line_[at_]);
    }
    if (next == 'x' && HexDigit(Ahead(2)) >= 0 && HexDigit(Ahead(3)) >= 0) {
      word->push_back(static_cast<char>(HexDigit(Ahead(2)) * 16 + HexDigit(Ahead(3))));
      at_ += 3;
      return;
    }
    if (at_ + 1 == line_.size()) return word->push_back('\\');
    ++at_;
    static constexpr std::string_view kNames = "nrtba", kBytes = "\n\r\t\b\a";
    const std::size_t known = kNames.find(next);
    word->push_back(known == std::string_view::npos ? next : kBytes[known]);
  }

  std::string_view line_;
  std::size_t& at_;
};

}  // namespace internal

// Appends the words of the line. Returns false if quotes are not balanced.
inline bool SplitInlineWords(std::string_view line, std::vector<std::string>* words) {
  for (std::size_t at = 0;;) {
    while (at < line.size() && internal::IsBlank(line[at])) ++at;
    if (at == line.size()) return true;
    if (!internal::WordReader(line, &at).Read(&words->emplace_back())) return false;
  }
}

}  // namespace hako::server
