// The decisions of a batch on its keys, made before it changes anything. Calls for equal keys
// concern one record: each sees the earlier decisions, and the last one counts. It is stored with
// the first of the equal keys; the others decide nothing.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hako/base/status.h"

namespace hako::update {

// The decision on one key. An engine derives a class from it, and adds what it finds out about the
// key.
template <class ActionT>
struct Decision {
  ActionT action = ActionT::Keep();
  std::uint32_t first = 0;  // the index of the first of the keys that are equal to this one

  bool Keeps() const { return action.kind() == ActionT::Kind::kKeep; }
  bool Removes() const { return action.kind() == ActionT::Kind::kRemove; }
  bool Sets() const { return action.kind() == ActionT::Kind::kSet; }
  // Replaces the decision by that of a later call for key i, which equals this one.
  void Replace(std::size_t, const ActionT& by) { action = by; }
};

// Finds the first of equal keys in sorted keys: index_at(n) is the index of the n-th key, and equal
// keys are adjacent, in the order of their indices. is_repeated(n): whether the n-th key equals the
// one before.
template <class D, class IndexAt, class IsRepeated>
void JoinSorted(std::span<D> decisions, IndexAt&& index_at, IsRepeated&& is_repeated) {
  for (std::size_t n = 0; n < decisions.size(); ++n)
    decisions[index_at(n)].first = n > 0 && is_repeated(n) ? decisions[index_at(n - 1)].first : index_at(n);
}
// Finds the first of equal keys by their hashes: is_same(a, b) compares two keys with the same
// hash.
template <class D, class HashOf, class IsSame>
void JoinHashed(std::span<D> decisions, HashOf&& hash_of, IsSame&& is_same) {
  static constexpr std::size_t kFew = 16;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  const auto are_same = [&](std::size_t a, std::size_t b) { return hash_of(a) == hash_of(b) && is_same(a, b); };
  const auto size = static_cast<std::uint32_t>(decisions.size());
  if (size <= kFew) {
    for (std::uint32_t i = 0; i < size; ++i) {
      std::uint32_t first = 0;
      while (first != i && !are_same(first, i)) ++first;
      decisions[i].first = first;
    }
    return;
  }
  std::vector<std::uint32_t> firsts(std::bit_ceil(2 * decisions.size()), kNone);  // by hash, with linear probing
  for (std::uint32_t i = 0; i < size; ++i) {
    std::size_t at = hash_of(i) & (firsts.size() - 1);
    while (firsts[at] != kNone && !are_same(firsts[at], i)) at = (at + 1) & (firsts.size() - 1);
    if (firsts[at] == kNone) firsts[at] = i;
    decisions[i].first = firsts[at];
  }
}

// Calls visit(index, value) for each key, in order, and stores its decisions. Returns Aborted if
// visit returns none. `show(index, decision, &value, &status)` sets the value that the record has
// before the batch, if it exists; on an error it sets the status and returns false. It is called
// for each key on which there is no decision yet, so at least for the first of equal keys.
template <class D, class V, class Show>
Status Decide(std::span<D> decisions, V&& visit, Show&& show) {
  Status status;
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    D& decision = decisions[decisions[i].first];
    std::optional<std::string_view> value;
    if (decision.Sets())
      value = decision.action.value();
    else if (decision.Keeps() && !show(i, decision, &value, &status)) [[unlikely]]
      return status;
    const auto action = visit(i, value);
    if (!action) return MismatchError();
    if (action->kind() != decltype(decision.action)::Kind::kKeep) decision.Replace(i, *action);
  }
  return absl::OkStatus();
}

}  // namespace hako::update
