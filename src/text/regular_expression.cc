// The search, as the header describes it. The states are made by regular_expression_parser.cc and _compiler.cc.
#include "hako/text/regular_expression.h"

#include <utility>

#include "absl/strings/ascii.h"

namespace hako::text {

void RegularExpression::LinkBackwards() {
  const auto for_each_edge = [this](auto&& visit) {
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const State& state = states_[i];
      if (state.kind == Kind::kAccept) continue;
      visit(i, state.next);
      if (state.kind == Kind::kSplit) visit(i, state.other);
    }
  };
  begins_.assign(states_.size() + 1, 0);
  for_each_edge([this](std::size_t, std::size_t to) { ++begins_[to + 1]; });
  for (std::size_t i = 0; i < states_.size(); ++i) begins_[i + 1] += begins_[i];
  before_.resize(begins_.back());
  std::vector<std::uint32_t> ends = begins_;
  for_each_edge([this, &ends](std::size_t from, std::size_t to) { before_[ends[to]++] = static_cast<Number>(from); });
}

class RegularExpression::Searcher {
 public:
  Searcher(const RegularExpression& regex, std::string_view text) : regex_(regex), text_(text), noted_at_(regex.states_.size(), kNever) {}

  std::optional<bool> Run(FunctionRef<bool()> goes_on) {
    steps_ = regex_.states_.size();
    for (std::size_t position = text_.size();; --position) {
      position_ = position;
      if (regex_.has_look_ahead_) Advance(ahead_, kAheadMatch);
      Advance(main_, kMatch);
      if (IsNoted(regex_.start_)) return true;
      if (position == 0) return false;
      for (; steps_ >= kStepsAtOnce; steps_ -= kStepsAtOnce) {
        if (!goes_on()) return std::nullopt;
      }
    }
  }

 private:
  static constexpr std::size_t kNever = ~std::size_t{0};
  struct States {  // from which the text matches, from the last position and from this one
    std::vector<Number> last, now;
  };

  bool IsNoted(std::size_t state) const { return noted_at_[state] == position_; }
  void Note(States& states, Number state) {
    if (IsNoted(state)) return;
    noted_at_[state] = position_;
    states.now.push_back(state);
  }
  // Moves the states on by the byte at the position, and then by all that takes no byte.
  void Advance(States& states, Number accept) {
    std::swap(states.last, states.now);
    states.now.clear();
    Note(states, accept);
    if (position_ < text_.size()) {
      const auto byte = static_cast<unsigned char>(text_[position_]);
      for (const Number state : states.last) {
        ForEachBefore(state, [&](Number before) {
          const State& its = regex_.states_[before];
          if (its.kind == Kind::kByte && regex_.sets_[its.other][byte]) Note(states, before);
        });
      }
    }
    for (std::size_t i = 0; i < states.now.size(); ++i) {
      ForEachBefore(states.now[i], [&](Number before) {
        if (Passes(regex_.states_[before])) Note(states, before);
      });
    }
  }
  template <class Visit>
  void ForEachBefore(Number state, Visit visit) {
    const std::uint32_t begin = regex_.begins_[state], end = regex_.begins_[state + std::size_t{1}];
    steps_ += 1 + end - begin;
    for (std::uint32_t i = begin; i < end; ++i) visit(regex_.before_[i]);
  }
  // Whether a state lies before the next one without a byte between them.
  bool Passes(const State& state) const {
    switch (state.kind) {
      case Kind::kSplit:
        return true;
      case Kind::kBegin:
        return position_ == 0;
      case Kind::kEnd:
        return position_ == text_.size();
      case Kind::kBorder:
      case Kind::kNoBorder:
        return (IsWord(position_ - 1) != IsWord(position_)) == (state.kind == Kind::kBorder);
      case Kind::kAhead:
      case Kind::kNotAhead:
        return IsNoted(state.other) == (state.kind == Kind::kAhead);
      default:
        return false;
    }
  }
  bool IsWord(std::size_t at) const {
    return at < text_.size() && (absl::ascii_isalnum(static_cast<unsigned char>(text_[at])) || text_[at] == '_');
  }

  const RegularExpression& regex_;
  const std::string_view text_;
  std::vector<std::size_t> noted_at_;  // by state: the position
  States main_, ahead_;
  std::size_t position_ = 0;
  std::uint64_t steps_ = 0;
};

std::optional<bool> RegularExpression::Search(std::string_view text, FunctionRef<bool()> goes_on) const {
  return Searcher(*this, text).Run(goes_on);
}

}  // namespace hako::text
