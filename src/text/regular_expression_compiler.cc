// The states of a regular expression, from its tree.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/text/regular_expression.h"
#include "hako/text/regular_expression_tree.h"
#include "hako/text/text_encoding.h"

namespace hako::text {

class RegularExpressionCompiler {
 public:
  // Makes the states. False if they are too many.
  bool Compile(RegularExpressionTree& tree, RegularExpression* regex) {
    tree_ = std::move(tree);
    regex_.sets_ = std::move(tree_.sets);
    regex_.has_look_ahead_ = tree_.has_look_ahead;
    regex_.start_ = Emit(tree_.root, RegularExpression::kMatch);
    if (is_too_large_) return false;
    regex_.LinkBackwards();
    *regex = std::move(regex_);
    return true;
  }

 private:
  using Kind = RegularExpression::Kind;
  using Number = RegularExpression::Number;
  using Type = RegularExpressionTree::Node::Type;

  Number New(Kind kind, Number next, std::uint32_t other) {
    if (regex_.states_.size() == RegularExpression::kStatesMax) return is_too_large_ = true, Number{0};
    regex_.states_.push_back({kind, next, other});
    return static_cast<Number>(regex_.states_.size() - 1);
  }
  // The first state of a node, behind which `next` follows.
  Number Emit(std::size_t index, Number next) {
    static constexpr std::size_t kEmitsMax = 8 * RegularExpression::kStatesMax;  // a repetition of nothing has no states
    if (++num_emits_ > kEmitsMax) is_too_large_ = true;
    if (is_too_large_) return 0;
    const RegularExpressionTree::Node& node = tree_.nodes[index];
    switch (node.type) {
      case Type::kSequence:
        for (std::size_t i = node.children.size(); i-- > 0;) next = Emit(node.children[i], next);
        return next;
      case Type::kAlternatives: {
        Number entry = Emit(node.children.back(), next);
        for (std::size_t i = node.children.size() - 1; i-- > 0;) entry = New(Kind::kSplit, Emit(node.children[i], next), entry);
        return entry;
      }
      case Type::kRepeat:
        return EmitRepeat(node, next);
      case Type::kState:
        break;
    }
    if (node.children.empty()) return New(node.kind, next, node.set);
    const Number body = Emit(node.children[0], RegularExpression::kAheadMatch);
    return New(node.kind, next, body);
  }
  Number EmitRepeat(const RegularExpressionTree::Node& node, Number next) {
    const std::size_t child = node.children[0];
    Number entry = next;
    if (node.most == RegularExpressionTree::kUnbounded) {
      entry = New(Kind::kSplit, next, next);
      const Number body = Emit(child, entry);
      if (!is_too_large_) regex_.states_[entry].other = body;
    } else {
      for (std::uint32_t i = node.least; i < node.most && !is_too_large_; ++i) entry = New(Kind::kSplit, next, Emit(child, entry));
    }
    for (std::uint32_t i = 0; i < node.least && !is_too_large_; ++i) entry = Emit(child, entry);
    return entry;
  }

  RegularExpressionTree tree_;
  RegularExpression regex_;
  std::size_t num_emits_ = 0;
  bool is_too_large_ = false;
};

StatusOr<RegularExpression> RegularExpression::Compile(std::string_view pattern) {
  RegularExpressionTree tree;
  RegularExpression regex;
  const char* error = tree.Parse(pattern);
  if (error == nullptr && !RegularExpressionCompiler().Compile(tree, &regex)) error = RegularExpressionTree::kTooLarge;
  if (error == nullptr) return regex;
  std::string quoted;
  AppendPrintable(pattern.substr(0, 64), &quoted);
  return absl::InvalidArgumentError(absl::StrCat("'", quoted, pattern.size() > 64 ? "...' " : "' ", error));
}

}  // namespace hako::text
