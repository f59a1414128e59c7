#include "hako/dbm/write_batch.h"

#include <algorithm>
#include <numeric>
#include <queue>

#include "absl/strings/str_cat.h"
#include "hako/base/no_memory.h"

namespace hako {

void WriteBatch::Add(Operations* to, Kind kind, std::string_view key, std::string_view value) {
  if (!status_.ok()) return;
  HAKO_TRY {
    if (size_ == kSizeMax) {
      status_ = absl::OutOfRangeError(absl::StrCat("a batch of more than ", kSizeMax, " operations"));
      return;
    }
    const std::size_t before = bytes_.size(), rest = kBytesMax - before;
    if (key.size() > rest || value.size() > rest - key.size()) {
      status_ = TooLargeError("a batch", before + key.size() + value.size(), kBytesMax);
      return;
    }
    to->push_back({static_cast<std::uint32_t>(before), static_cast<std::uint32_t>(key.size()), static_cast<std::uint32_t>(value.size()),
                   static_cast<std::uint32_t>(operations_.size()), kind});
    HAKO_TRY {
      bytes_.append(key).append(value);
      ++size_;
    }
    HAKO_CATCH_NO_MEMORY({
      bytes_.resize(before);
      to->pop_back();
      status_ = NoMemoryError();
    })
  }
  HAKO_CATCH_NO_MEMORY(status_ = NoMemoryError();)
}

void WriteBatch::Set(StringArg key, StringArg value, IntegerArg<std::uint64_t> expire_at) {
  if (!status_.ok()) return;
  if (expire_at > Expiry::kTimeMax) {
    status_ = absl::InvalidArgumentError("the time of expiry is out of range");
    return;
  }
  Set(key, value);
  if (!status_.ok() || expire_at == Expiry::kNever) return;
  if (!TryResize(times_, operations_.size())) {
    status_ = NoMemoryError();
    return;
  }
  times_.back() = expire_at;
}

void WriteBatch::Expect(StringArg key, const hako::Expect& expected) {
  switch (expected.kind()) {
    case hako::Expect::Kind::kAbsent:
      return Add(&conditions_, Kind::kAbsent, key, {});
    case hako::Expect::Kind::kAny:
      return Add(&conditions_, Kind::kAny, key, {});
    case hako::Expect::Kind::kValue:
      return Add(&conditions_, Kind::kValue, key, expected.value());
  }
}

void WriteBatch::Clear() {
  size_ = 0;
  bytes_.clear();
  operations_.clear();
  ranges_.clear();
  conditions_.clear();
  times_.clear();
  applied_index_.reset();
  status_ = absl::OkStatus();
}

namespace internal {

Status BatchCall::Prepare(Order order) {
  HAKO_RETURN_IF_ERROR(batch_.status());
  if (!batch_.ranges_.empty() && order == nullptr)
    return absl::InvalidArgumentError("the batch removes a range of keys, but this kind of database is not ordered");
  keys_.reserve(batch_.conditions_.size() + batch_.operations_.size());
  for (const WriteBatch::Operation& condition : batch_.conditions_) keys_.push_back(batch_.KeyOf(condition));
  for (const WriteBatch::Operation& operation : batch_.operations_) keys_.push_back(batch_.KeyOf(operation));
  if (batch_.ranges_.empty()) return absl::OkStatus();
  JoinRanges(order);
  FindRemoved(order);
  return absl::OkStatus();
}

bool BatchCall::Holds(const WriteBatch::Operation& condition, std::optional<std::string_view> value) const {
  using Kind = WriteBatch::Kind;
  if (condition.kind == Kind::kAbsent) return Expect::Absent().Holds(value);
  return (condition.kind == Kind::kAny ? Expect::Any() : Expect::Value(batch_.ValueOf(condition))).Holds(value);
}

void BatchCall::JoinRanges(Order order) {
  for (const WriteBatch::Operation& range : batch_.ranges_) {
    const bool has_end = range.kind == WriteBatch::Kind::kRemoveRange;
    if (has_end && order(batch_.KeyOf(range), batch_.ValueOf(range)) >= 0) continue;  // empty
    ranges_.push_back({batch_.KeyOf(range), has_end ? std::optional(batch_.ValueOf(range)) : std::nullopt});
  }
  std::ranges::sort(ranges_, [order](const KeyRange& a, const KeyRange& b) { return order(a.from, b.from) < 0; });
  std::size_t last = 0;
  for (std::size_t i = 1; i < ranges_.size(); ++i) {
    const KeyRange& range = ranges_[i];
    std::optional<std::string_view>& end = ranges_[last].to;
    if (end && order(range.from, *end) > 0)
      ranges_[++last] = range;
    else if (end && (!range.to || order(*range.to, *end) > 0))
      end = range.to;
  }
  if (!ranges_.empty()) ranges_.resize(last + 1);
}

// Visits the operations in the order of their keys. A queue has the ranges that have begun; its top
// is the range that was added to the batch last.
void BatchCall::FindRemoved(Order order) {
  using Operation = WriteBatch::Operation;
  const auto below = [&](const Operation& a, const Operation& b) { return order(batch_.KeyOf(a), batch_.KeyOf(b)) < 0; };
  std::vector<std::uint32_t> by_key(batch_.operations_.size());
  std::iota(by_key.begin(), by_key.end(), 0u);
  std::ranges::sort(by_key, [&](std::uint32_t a, std::uint32_t b) { return below(batch_.operations_[a], batch_.operations_[b]); });
  std::vector<Operation> ranges = batch_.ranges_;
  std::ranges::sort(ranges, below);
  const auto is_earlier = [](const Operation& a, const Operation& b) { return a.before < b.before; };
  std::priority_queue<Operation, std::vector<Operation>, decltype(is_earlier)> begun(is_earlier);
  is_removed_.resize(by_key.size());
  std::size_t next = 0;
  for (const std::uint32_t i : by_key) {
    const std::string_view key = keys_[batch_.conditions_.size() + i];
    while (next < ranges.size() && order(batch_.KeyOf(ranges[next]), key) <= 0) begun.push(ranges[next++]);
    const auto has_ended = [&](const Operation& range) {
      return range.kind == WriteBatch::Kind::kRemoveRange && order(batch_.ValueOf(range), key) <= 0;
    };
    while (!begun.empty() && has_ended(begun.top())) begun.pop();
    is_removed_[i] = !begun.empty() && begun.top().before > i;
  }
}

}  // namespace internal

}  // namespace hako
