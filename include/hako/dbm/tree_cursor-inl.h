// Definitions of dbm/tree_cursor.h: the moves.
#pragma once

#include "hako/dbm/tree_cursor.h"

namespace hako {

template <class D, class Tree, Comparator Compare>
void TreeCursor<D, Tree, Compare>::First() HAKO_TRY {
  if (!Load(tree::Seek::kFirst, {})) return Fail(tree::Seek::kFirst, false);
  at_ = 0;
  LookAhead(page_.count());
  StepForward();
}
HAKO_CATCH_NO_MEMORY(EndFor(NoMemoryError());)

template <class D, class Tree, Comparator Compare>
void TreeCursor<D, Tree, Compare>::Last() HAKO_TRY {
  if (!Load(tree::Seek::kLast, {})) return Fail(tree::Seek::kLast, true);
  at_ = page_.count();
  LookAhead(at_);
  StepBack();
}
HAKO_CATCH_NO_MEMORY(EndFor(NoMemoryError());)

template <class D, class Tree, Comparator Compare>
void TreeCursor<D, Tree, Compare>::JumpUpper(StringArg key, bool inclusive) HAKO_TRY {
  jumps_briefly_ = false;
  bound_.assign(key);  // copied first, because `key` may be a view of key() or value()
  if (!Load(tree::Seek::kAt, bound_)) return Fail(tree::Seek::kAt, false);
  const auto place = page_.FindByCall(bound_);
  at_ = place.index + (place.found && !inclusive ? 1 : 0);
  LookAhead(page_.count() - at_);
  StepForward();
}
HAKO_CATCH_NO_MEMORY(EndFor(NoMemoryError());)

template <class D, class Tree, Comparator Compare>
void TreeCursor<D, Tree, Compare>::JumpBriefly(StringArg key) HAKO_TRY {
  bound_.assign(key);
  if (!JumpInPlace()) JumpUpper(bound_, true);
  jumps_briefly_ = true;
}
HAKO_CATCH_NO_MEMORY(EndFor(NoMemoryError());)

// Searches from the current slot on in steps that double, then by halves, because most jumps are
// short.
template <class D, class Tree, Comparator Compare>
void TreeCursor<D, Tree, Compare>::JumpAhead(StringArg key) HAKO_TRY {
  HAKO_DCHECK(Valid());
  const unsigned prefix = page_.prefix_size();
  if (key.size() < prefix || !sync::EqualBytes(key.data(), key_.data(), prefix)) return JumpFar(key);
  if (copy_.is_in_place && ++moves_in_place_ > kMovesInPlace && !CopyFromPlace()) return JumpFar(key);
  if (!copy_.is_in_place && copy_.HasChanged()) return JumpFar(key);
  const std::int32_t sought = View::HeadOf(key, page_.prefix_size());
  const auto is_below = [&](unsigned i) {
    const std::int32_t head = page_.head(i);
    return head != sought ? head < sought : page_.Order(i, key) < 0;
  };
  const unsigned last = page_.count() - 1;
  if (is_below(last)) {
    if (copy_.is_in_place || !IsBelowLeafEnd(key)) return JumpFar(key);
    at_ = page_.count();
  } else if (is_below(at_)) {  // the current record is not above the key
    unsigned below = at_, end = at_ + 1;
    for (unsigned step = 1; end < last && is_below(end); step *= 2) below = std::exchange(end, end + step);
    end = std::min(end, last);
    while (below + 1 < end) {
      const unsigned middle = (below + end) / 2;
      (is_below(middle) ? below : end) = middle;
    }
    at_ = end;
  }
  if (!copy_.is_in_place) return StepForward();
  bound_.assign(key);
  if (!TakeInPlace()) JumpFar(bound_);
}
HAKO_CATCH_NO_MEMORY(EndFor(NoMemoryError());)

template <class D, class Tree, Comparator Compare>
void TreeCursor<D, Tree, Compare>::JumpLower(StringArg key, bool inclusive) HAKO_TRY {
  bound_.assign(key);
  const tree::Seek seek = inclusive ? tree::Seek::kAt : tree::Seek::kBefore;
  if (!Load(seek, bound_)) return Fail(seek, true);
  const auto place = page_.FindByCall(bound_);
  at_ = place.index + (place.found && inclusive ? 1 : 0);
  LookAhead(at_);
  StepBack();
}
HAKO_CATCH_NO_MEMORY(EndFor(NoMemoryError());)

template <class D, class Tree, Comparator Compare>
void TreeCursor<D, Tree, Compare>::Next() HAKO_TRY {
  if (!valid_) [[unlikely]]
    return;
  ++at_;
  if (copy_.HasChanged()) [[unlikely]] {
    if (copy_.is_in_place && NextInPlace()) return;
    if (copy_.HasChanged() && !Reload(tree::Seek::kAt)) [[unlikely]]
      return Fail(tree::Seek::kAt, false);
  }
  StepForwardInline();
}
HAKO_CATCH_NO_MEMORY(EndFor(NoMemoryError());)

template <class D, class Tree, Comparator Compare>
void TreeCursor<D, Tree, Compare>::Previous() HAKO_TRY {
  if (!valid_) [[unlikely]]
    return;
  if (copy_.HasChanged()) [[unlikely]] {
    if (!Reload(tree::Seek::kBefore)) return Fail(tree::Seek::kBefore, true);
  }
  StepBack();
}
HAKO_CATCH_NO_MEMORY(EndFor(NoMemoryError());)

template <class D, class Tree, Comparator Compare>
bool TreeCursor<D, Tree, Compare>::SkipDamage() {
  if (valid_ || !absl::IsDataLoss(status_)) return false;
  if (!failed_) {
    status_ = absl::OkStatus();
    if (!failed_downwards_) ++at_;
    failed_downwards_ ? StepBack() : StepForward();
    return true;
  }
  auto fence = tree_->FenceBeyond(*failed_, bound_, failed_downwards_);
  if (!fence.ok()) return false;
  status_ = absl::OkStatus();
  if (!*fence) {
    End();
    return true;
  }
  const bool has_bound = *failed_ == tree::Seek::kAt || *failed_ == tree::Seek::kBefore;
  if (has_bound) {  // damaged pages must not lead backwards, or the scan might not end
    const int order = Compare::Compare(**fence, bound_);
    const bool goes_on = failed_downwards_ ? order < 0 || (order == 0 && *failed_ == tree::Seek::kAt) : order > 0;
    if (!goes_on) return false;
  }
  bound_ = **std::move(fence);
  const tree::Seek seek = failed_downwards_ ? tree::Seek::kBefore : tree::Seek::kAt;
  if (!Load(seek, bound_)) {
    Fail(seek, failed_downwards_);
    return true;
  }
  at_ = page_.FindByCall(bound_).index;
  LookAhead(failed_downwards_ ? at_ : page_.count() - at_);
  failed_downwards_ ? StepBack() : StepForward();
  return true;
}

}  // namespace hako
