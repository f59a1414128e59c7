#include "hako/table/words.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "hako/text/text_encoding.h"

namespace hako::table {
namespace {

// What each byte is to a word: the end of it, a part of a character that is not ASCII, or else a
// letter, which is folded.
constexpr char kEnds = 0, kOther = 1;
constexpr std::array<char, 256> kFolded = [] {
  std::array<char, 256> folded{};
  for (char c = '0'; c <= '9'; ++c) folded[static_cast<std::size_t>(c)] = c;
  for (char c = 'a'; c <= 'z'; ++c) {
    folded[static_cast<std::size_t>(c)] = c;
    folded[static_cast<std::size_t>(c - 'a' + 'A')] = c;
  }
  folded['_'] = '_';
  for (std::size_t byte = 0x80; byte < 0x100; ++byte) folded[byte] = kOther;
  return folded;
}();
char Folded(char c) { return kFolded[static_cast<unsigned char>(c)]; }

// Whether the byte is a continuation byte of UTF-8.
bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

enum class CharacterKind { kLetter, kMark, kIgnored, kEnd };

CharacterKind KindOf(std::uint32_t point) {
  if (point == 0x200b) return CharacterKind::kEnd;  // zero-width space
  const utf8proc_property_t& property = *utf8proc_get_property(static_cast<utf8proc_int32_t>(point));
  if (property.ignorable) return CharacterKind::kIgnored;
  const auto category = property.category;
  if (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME) return CharacterKind::kMark;
  // Before PC, connecting punctuation, are: not assigned, letters, marks, numbers.
  const bool is_letter = category <= UTF8PROC_CATEGORY_PC || category == UTF8PROC_CATEGORY_CO;
  return is_letter ? CharacterKind::kLetter : CharacterKind::kEnd;
}

// Whether canonical order may move the iota below a letter, which folds to a letter.
bool MayHaveIotaBelow(std::uint32_t point) { return point == 0x345 || (point >= 0x1f80 && point <= 0x1ffc); }

}  // namespace

bool WordReader::Next() {
  const char* at = at_;
  const char* const end = end_;
  for (;;) {
    while (at != end && Folded(*at) == kEnds) ++at;
    if (at == end) return false;
    const char* const begin = at;
    std::size_t size = 0;
    char c = kEnds;
    for (; at != end && (c = Folded(*at)) > kOther; ++at) {
      if (size < kWordMax) word_[size++] = c;
    }
    size_ = size;
    if (at != end && c == kOther) {
      at = ReadShortRun(begin);
      if (at == nullptr) at = ReadRun(begin);
    }
    if (size_ == 0) continue;
    at_ = at;
    ++num_read_;
    return true;
  }
}

// The foldings of letters of two bytes to one letter of at most two bytes; 0 for other characters.
// Such letters are folded one by one, as none of them is joined with the letter before it.
const std::array<std::uint16_t, 0x800>& WordReader::ShortFoldings() {
  static const std::array<std::uint16_t, 0x800> foldings = [] {
    std::array<std::uint16_t, 0x800> made{};
    for (std::uint32_t point = 0x80; point < made.size(); ++point) {
      if (KindOf(point) != CharacterKind::kLetter) continue;
      const char character[] = {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 0x3f))};
      WordReader reader({});
      reader.AppendFolded({character, 2}, false);
      const std::string_view folded(reader.word_, reader.size_);
      if (folded.size() <= 2 && folded.size() == text::Utf8Length(folded))
        made[point] = static_cast<std::uint16_t>(text::CodePoint(folded));
    }
    return made;
  }();
  return foldings;
}

// Reads the run at `begin` if it has only such letters and ASCII ones, and returns its end. Otherwise
// returns nullptr.
const char* WordReader::ReadShortRun(const char* begin) {
  const std::array<std::uint16_t, 0x800>& foldings = ShortFoldings();
  std::size_t size = 0, room = kWordMax;
  for (const char* at = begin;; ++at) {
    const char c = at == end_ ? kEnds : Folded(*at);
    if (c == kEnds) {
      size_ = size;
      return at;
    }
    std::uint32_t point = static_cast<unsigned char>(c);
    if (c == kOther) {
      if (text::Utf8Length({at, std::min<std::size_t>(2, static_cast<std::size_t>(end_ - at))}) != 2) return nullptr;
      point = foldings[text::CodePoint({at, 2})];
      if (point == 0) return nullptr;
      ++at;
    }
    const std::size_t length = point < 0x80 ? 1 : 2;
    if (length > room) room = 0;
    if (room == 0) continue;
    room -= length;
    if (length == 2) word_[size++] = static_cast<char>(0xc0 | point >> 6);
    word_[size++] = static_cast<char>(length == 1 ? point : 0x80 | (point & 0x3f));
  }
}

// Reads the run at `begin`, which is empty if it does not begin with a letter, and returns where to
// go on.
const char* WordReader::ReadRun(const char* begin) {
  size_ = 0;
  const char* const limit = begin + std::min(kRunMax, static_cast<std::size_t>(end_ - begin));
  const char* unfolded = begin;  // from here on, up to `at`, are well-formed characters
  const char* at = begin;
  bool is_begun = false, has_iota = false;
  const auto fold = [&] {
    const char* to = std::min(at, limit);
    while (to > unfolded && to < at && IsContinuation(*to)) --to;
    if (to > unfolded) AppendFolded({unfolded, static_cast<std::size_t>(to - unfolded)}, has_iota);
  };
  while (at != end_) {
    const std::string_view rest(at, static_cast<std::size_t>(end_ - at));
    const std::size_t size = text::Utf8Length(rest);
    if (size == 0) {
      fold();
      if (at < limit && size_ < kWordMax) word_[size_++] = *at;
      unfolded = ++at;
      is_begun = true;
      continue;
    }
    const std::uint32_t point = text::CodePoint(rest.substr(0, size));
    const CharacterKind kind = KindOf(point);
    if (kind == CharacterKind::kEnd || (kind == CharacterKind::kMark && !is_begun)) {
      if (at == begin) return at + size;
      break;
    }
    is_begun = is_begun || kind == CharacterKind::kLetter;
    has_iota = has_iota || MayHaveIotaBelow(point);
    at += size;
  }
  fold();
  return at;
}

// Appends well-formed characters, at most kRunMax bytes, folded, as far as there is room.
void WordReader::AppendFolded(std::string_view characters, bool has_iota) {
  constexpr std::size_t kPointsMax = 6 * kRunMax;       // U+FDFA becomes 18 characters, and has 3 bytes
  std::array<utf8proc_int32_t, kPointsMax + 1> points;  // utf8proc_reencode adds a zero
  std::array<char, 3 * kRunMax> canonical;              // U+0390 becomes 6 bytes, and has 2
  const auto convert = [&points](std::string_view from, int what) -> std::string_view {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | what);
    const auto* const bytes = reinterpret_cast<const utf8proc_uint8_t*>(from.data());
    const utf8proc_ssize_t count =
        utf8proc_decompose(bytes, static_cast<utf8proc_ssize_t>(from.size()), points.data(), kPointsMax, options);
    if (count < 0 || count > static_cast<utf8proc_ssize_t>(kPointsMax)) return from;  // not in any version of Unicode so far
    const utf8proc_ssize_t size = utf8proc_reencode(points.data(), count, options);
    return {reinterpret_cast<const char*>(points.data()), static_cast<std::size_t>(size)};
  };
  if (has_iota) {
    const std::string_view decomposed = convert(characters, UTF8PROC_DECOMPOSE);
    HAKO_DCHECK(decomposed.size() <= canonical.size());
    characters = {canonical.data(), decomposed.copy(canonical.data(), canonical.size())};
  }
  // NFKC_Casefold. The iota apart, it gives the same with and without a canonical decomposition before it.
  const std::string_view folded = convert(characters, UTF8PROC_COMPOSE | UTF8PROC_COMPAT | UTF8PROC_CASEFOLD | UTF8PROC_IGNORE);
  std::size_t size = std::min(folded.size(), kWordMax - size_);
  while (size > 0 && size < folded.size() && IsContinuation(folded[size])) --size;
  size_ += folded.copy(word_ + size_, size);
}

std::vector<std::string> WordsOf(std::string_view text) {
  std::vector<std::string> words;
  for (WordReader reader(text); reader.Next();) words.emplace_back(reader.word());
  return words;
}

const std::string& WordTables() {
  static const std::string tables = absl::StrCat("Unicode ", utf8proc_unicode_version(), ", utf8proc ", utf8proc_version());
  return tables;
}

std::string_view WithoutCutCharacters(std::string_view substring) {
  while (!substring.empty() && IsContinuation(substring[0])) substring.remove_prefix(1);
  std::size_t last = substring.size();  // index of the last byte that begins a character
  while (last > 0 && IsContinuation(substring[--last])) continue;
  if (last < substring.size() && text::Utf8Length(substring.substr(last)) == 0) return substring.substr(0, last);
  return substring;
}

void ForEachGramBeginning(std::string_view text, unsigned q, FunctionRef<void(std::string_view gram)> visit) {
  for (;;) {
    const std::string_view part = text.substr(0, text.find('\0'));
    std::size_t begin = 0, end = 0;
    for (unsigned i = 0; i < q && end < part.size(); ++i) end += text::CharacterLength(part.substr(end));
    while (begin < part.size()) {
      visit(part.substr(begin, end - begin));
      begin += text::CharacterLength(part.substr(begin));
      if (end < part.size()) end += text::CharacterLength(part.substr(end));
    }
    if (part.size() == text.size()) return;
    text.remove_prefix(part.size() + 1);
  }
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
