// The parser: recursive descent, a function for each rule of the grammar.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "hako/text/regular_expression_tree.h"

namespace hako::text {
namespace {

using Bytes = RegularExpressionTree::Bytes;
using Kind = RegularExpressionTree::Kind;
using Node = RegularExpressionTree::Node;

constexpr const char* kMalformed = "is not a regular expression (ECMAScript)";

template <class Has>
Bytes BytesThat(Has has) {
  Bytes bytes;
  for (unsigned byte = 0; byte < 128; ++byte) bytes[byte] = has(static_cast<unsigned char>(byte));
  return bytes;
}

bool IsWordByte(unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; }

// The bytes of \d, \D and so on.
std::optional<Bytes> BytesOfEscape(char c) {
  switch (c) {
    case 'd':
      return BytesThat(absl::ascii_isdigit);
    case 's':
      return BytesThat(absl::ascii_isspace);
    case 'w':
      return BytesThat(IsWordByte);
    case 'D':
    case 'S':
    case 'W':
      return ~*BytesOfEscape(absl::ascii_tolower(static_cast<unsigned char>(c)));
    default:
      return std::nullopt;
  }
}

std::optional<Bytes> BytesOfClass(std::string_view name) {
  static constexpr std::pair<std::string_view, bool (*)(unsigned char)> kClasses[] = {
      {"alnum", absl::ascii_isalnum}, {"alpha", absl::ascii_isalpha}, {"blank", absl::ascii_isblank},
      {"cntrl", absl::ascii_iscntrl}, {"digit", absl::ascii_isdigit}, {"graph", absl::ascii_isgraph},
      {"lower", absl::ascii_islower}, {"print", absl::ascii_isprint}, {"punct", absl::ascii_ispunct},
      {"space", absl::ascii_isspace}, {"upper", absl::ascii_isupper}, {"xdigit", absl::ascii_isxdigit},
      {"d", absl::ascii_isdigit},     {"s", absl::ascii_isspace},     {"w", IsWordByte}};
  for (const auto& [its_name, has] : kClasses) {
    if (its_name == name) return BytesThat(has);
  }
  return std::nullopt;
}

class Parser {
 public:
  Parser(std::string_view pattern, RegularExpressionTree* tree) : rest_(pattern), tree_(*tree) {}

  const char* Parse() {
    tree_.root = ParseAlternatives();
    if (!rest_.empty()) Fail(kMalformed);
    return error_;
  }

 private:
  // Notes the first error, and ends the parsing.
  std::size_t Fail(const char* why) {
    if (error_ == nullptr) error_ = why;
    rest_ = {};
    return 0;
  }
  bool Take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  char TakeByte() {
    const char c = rest_[0];
    rest_.remove_prefix(1);
    return c;
  }

  // ---- the tree ----
  std::size_t Add(Node node) {
    if (error_ != nullptr) return 0;
    for (const std::size_t child : node.children) node.height = std::max(node.height, tree_.nodes[child].height + 1);
    if (tree_.nodes.size() == RegularExpressionTree::kNodesMax || node.height > RegularExpressionTree::kHeightMax)
      return Fail(RegularExpressionTree::kTooLarge);
    tree_.nodes.push_back(std::move(node));
    return tree_.nodes.size() - 1;
  }
  std::size_t AddState(Kind kind, std::vector<std::size_t> children = {}) {
    return Add({.type = Node::Type::kState, .kind = kind, .children = std::move(children)});
  }
  std::size_t AddBytes(const Bytes& bytes) {
    tree_.sets.push_back(bytes);
    return Add({.type = Node::Type::kState, .kind = Kind::kByte, .set = static_cast<std::uint32_t>(tree_.sets.size() - 1)});
  }
  std::size_t AddByte(char c) { return AddBytes(Bytes().set(static_cast<unsigned char>(c))); }

  std::size_t ParseAlternatives() {
    Node node{.type = Node::Type::kAlternatives};
    do node.children.push_back(ParseSequence());
    while (Take("|"));
    return Add(std::move(node));
  }
  std::size_t ParseSequence() {
    Node node{.type = Node::Type::kSequence};
    while (!rest_.empty() && rest_[0] != '|' && rest_[0] != ')') node.children.push_back(ParseTerm());
    return Add(std::move(node));
  }
  std::size_t ParseTerm() {
    if (Take("^")) return AddState(Kind::kBegin);
    if (Take("$")) return AddState(Kind::kEnd);
    if (Take("\\b")) return AddState(Kind::kBorder);
    if (Take("\\B")) return AddState(Kind::kNoBorder);
    if (Take("(?=")) return ParseLookAhead(Kind::kAhead);
    if (Take("(?!")) return ParseLookAhead(Kind::kNotAhead);
    std::size_t atom = ParseAtom();
    while (error_ == nullptr && ParseQuantifier(&atom)) {
    }
    return atom;
  }
  std::size_t ParseLookAhead(Kind kind) {
    if (in_look_ahead_) return Fail("has a look-ahead in a look-ahead");
    in_look_ahead_ = tree_.has_look_ahead = true;
    const std::size_t body = ParseGroup();
    in_look_ahead_ = false;
    return AddState(kind, {body});
  }
  std::size_t ParseGroup() {
    if (++depth_ > RegularExpressionTree::kGroupDepthMax) return Fail("has too many parentheses within each other");
    const std::size_t body = ParseAlternatives();
    --depth_;
    return Take(")") ? body : Fail(kMalformed);
  }
  std::size_t ParseAtom() {
    if (Take("(?:")) return ParseGroup();
    if (rest_.starts_with("(?")) return Fail(kMalformed);
    const char c = TakeByte();
    switch (c) {
      case '(':
        return ParseGroup();
      case '.':
        return AddBytes(~Bytes().set('\n').set('\r'));
      case '[':
        return ParseClass();
      case '\\':
        return ParseEscape();
      case '*':
      case '+':
      case '?':
      case '{':
        return Fail(kMalformed);
      default:
        return AddByte(c);
    }
  }
  bool ParseQuantifier(std::size_t* atom) {
    Node node{.type = Node::Type::kRepeat, .least = 0, .most = RegularExpressionTree::kUnbounded, .children = {*atom}};
    if (Take("+")) {
      node.least = 1;
    } else if (Take("?")) {
      node.most = 1;
    } else if (Take("{")) {
      node.least = node.most = TakeNumber();
      if (Take(",")) node.most = rest_.starts_with("}") ? RegularExpressionTree::kUnbounded : TakeNumber();
      if (!Take("}") || node.most < node.least) Fail(kMalformed);
    } else if (!Take("*")) {
      return false;
    }
    Take("?");
    *atom = Add(std::move(node));
    return true;
  }
  // Large ones are as good as kNodesMax.
  std::uint32_t TakeNumber() {
    std::uint32_t number = 0;
    if (rest_.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(rest_[0]))) Fail(kMalformed);
    while (!rest_.empty() && absl::ascii_isdigit(static_cast<unsigned char>(rest_[0])))
      number = std::min<std::uint32_t>(10 * number + static_cast<std::uint32_t>(TakeByte() - '0'), RegularExpressionTree::kNodesMax);
    return number;
  }

  // ---- escapes and classes ----
  std::size_t ParseEscape() {
    if (rest_.empty()) return Fail(kMalformed);
    if (const auto bytes = BytesOfEscape(rest_[0])) return TakeByte(), AddBytes(*bytes);
    const std::uint32_t point = TakeEscapedCharacter();
    if (!is_utf8_ || point < 0x80) return AddByte(static_cast<char>(point));
    Node node{.type = Node::Type::kSequence};
    if (point >= 0x800) node.children.push_back(AddByte(static_cast<char>(0xe0 | point >> 12)));
    node.children.push_back(AddByte(static_cast<char>(point < 0x800 ? 0xc0 | point >> 6 : 0x80 | (point >> 6 & 63))));
    node.children.push_back(AddByte(static_cast<char>(0x80 | (point & 63))));
    return Add(std::move(node));
  }
  // A byte, or with is_utf8_ a character.
  std::uint32_t TakeEscapedCharacter() {
    is_utf8_ = false;
    const char c = TakeByte();
    if (c >= '1' && c <= '9') return Fail("has a back-reference, which is not supported"), 0;
    if (c == 'x') return TakeHex(2);
    if (c == 'u') return is_utf8_ = true, TakeHex(4);
    if (c == 'c') {
      if (rest_.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(rest_[0]))) return Fail(kMalformed), 0;
      return static_cast<unsigned char>(TakeByte()) % 32;
    }
    static constexpr std::string_view kNames = "0fnrtv", kCodes("\0\f\n\r\t\v", 6);
    const std::size_t at = kNames.find(c);
    return static_cast<unsigned char>(at == kNames.npos ? c : kCodes[at]);
  }
  std::uint32_t TakeHex(std::size_t digits) {
    std::uint32_t number = 0;
    for (; digits > 0; --digits) {
      if (rest_.empty() || !absl::ascii_isxdigit(static_cast<unsigned char>(rest_[0]))) return Fail(kMalformed), 0;
      const char c = absl::ascii_tolower(static_cast<unsigned char>(TakeByte()));
      number = 16 * number + static_cast<std::uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return number;
  }
  std::size_t ParseClass() {
    const bool is_negated = Take("^");
    Bytes bytes;
    while (error_ == nullptr && !Take("]")) {
      Bytes lows = TakeClassItem();
      if (rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']' && byte_) {
        const std::size_t low = *byte_;
        TakeByte();
        const Bytes highs = TakeClassItem();
        if (byte_) {
          if (low > *byte_) return Fail(kMalformed);
          for (std::size_t byte = low; byte <= *byte_; ++byte) bytes.set(byte);
          continue;
        }
        lows |= highs;
        lows.set('-');
      }
      bytes |= lows;
    }
    return AddBytes(is_negated ? ~bytes : bytes);
  }
  Bytes OneByte(std::uint32_t byte) {
    byte_ = byte;
    return Bytes().set(byte);
  }
  // The bytes of a part of a class; byte_ has it if it is a single one, which may begin or end a range.
  Bytes TakeClassItem() {
    byte_.reset();
    if (rest_.empty()) return Fail(kMalformed), Bytes();
    if (Take("[:")) {
      const std::size_t end = rest_.find(":]");
      const auto bytes = end == rest_.npos ? std::nullopt : BytesOfClass(rest_.substr(0, end));
      if (!bytes) return Fail(kMalformed), Bytes();
      rest_.remove_prefix(end + 2);
      return *bytes;
    }
    for (const char kind : {'=', '.'}) {  // [=a=] and [.a.] are the byte
      if (rest_.size() < 5 || rest_[0] != '[' || rest_[1] != kind || rest_[3] != kind || rest_[4] != ']') continue;
      const char c = rest_[2];
      rest_.remove_prefix(5);
      return OneByte(static_cast<unsigned char>(c));
    }
    const char c = TakeByte();
    if (c != '\\') return OneByte(static_cast<unsigned char>(c));
    if (rest_.empty()) return Fail(kMalformed), Bytes();
    if (Take("b")) return OneByte('\b');
    if (const auto bytes = BytesOfEscape(rest_[0])) return TakeByte(), *bytes;
    const std::uint32_t point = TakeEscapedCharacter();
    if (point > (is_utf8_ ? 0x7f : 0xff)) return Fail(kMalformed), Bytes();
    return OneByte(point);
  }

  std::string_view rest_;
  RegularExpressionTree& tree_;
  const char* error_ = nullptr;
  std::size_t depth_ = 0;
  bool in_look_ahead_ = false;
  bool is_utf8_ = false;
  std::optional<std::uint32_t> byte_;
};

}  // namespace

const char* RegularExpressionTree::Parse(std::string_view pattern) {
  *this = {};
  return Parser(pattern, this).Parse();
}

}  // namespace hako::text
