// Definitions of dbm/array_operations.h. Not inline, so that the library can instantiate them once for its
// databases (src/dbm).
#pragma once

#include "hako/dbm/array_operations.h"

namespace hako {

template <class D, class Space>
StatusOr<std::string> ArrayOperations<D, Space>::Get(RecordId id) {
  std::string value;
  HAKO_RETURN_IF_ERROR(Get(id, &value));
  return value;
}

template <class D, class Space>
StatusOr<bool> ArrayOperations<D, Space>::Contains(RecordId id) {
  const Status status = Get(id, std::span<char>()).status();
  if (absl::IsNotFound(status)) return false;
  if (!status.ok()) return status;
  return true;
}

template <class D, class Space>
Status ArrayOperations<D, Space>::Remove(RecordId id) {
  bool found = false;
  const auto remove = [&found](bool exists) {
    found = exists;
    return exists ? Action::Remove() : Action::Keep();
  };
  HAKO_RETURN_IF_ERROR(Process(id, BlindUpdateRef(remove)));
  return found ? absl::OkStatus() : AbsentError();
}

template <class D, class Space>
StatusOr<std::uint64_t> ArrayOperations<D, Space>::Append(StringArg value) HAKO_TRY {
  for (;;) {
    const std::optional<std::uint64_t> id = array().NextId();
    if (!id) {
      HAKO_RETURN_IF_ERROR(this->CheckIdle());
      HAKO_RETURN_IF_ERROR(this->RunExclusive([this] { return array().FindEnd(); }));
      continue;
    }
    if (*id > kRecordIdMax) return absl::OutOfRangeError(absl::StrCat("Append: the last record has the last number, ", kRecordIdMax));
    if (value.size() > width()) return TooLargeError("a value", value.size(), width());
    bool is_mine = false;
    const auto append = [&](bool exists) {
      is_mine = !exists && array().TakeEnd(*id);
      return is_mine ? Action::Set(value) : Action::Keep();
    };
    const Status status = Process(*id, BlindUpdateRef(append));
    if (!status.ok() && is_mine) array().ForgetEnd();
    HAKO_RETURN_IF_ERROR(status);
    if (is_mine) return *id;
  }
}
HAKO_OR_NO_MEMORY

template <class D, class Space>
StatusOr<std::uint64_t> ArrayOperations<D, Space>::AppendMulti(std::span<const std::string_view> values) {
  std::optional<std::uint64_t> first;
  for (const std::string_view value : values) {
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t id, Append(value));
    if (!first) first = id;
  }
  if (!first) return absl::InvalidArgumentError("AppendMulti: no values");
  return *first;
}

template <class D, class Space>
Status ArrayOperations<D, Space>::SetMulti(std::span<const NumberedValue> records) {
  static constexpr std::size_t kAhead = 8;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (i + kAhead < records.size() && records[i + kAhead].id <= kRecordIdMax) array().Prefetch(records[i + kAhead].id);
    HAKO_RETURN_IF_ERROR(Set(records[i].id, records[i].value));
  }
  return absl::OkStatus();
}

template <class D, class Space>
template <MultiReadVisitor V>
Status ArrayOperations<D, Space>::GetMulti(std::span<const std::uint64_t> ids, V&& visitor) HAKO_TRY {
  for (const std::uint64_t id : ids) {
    if (id > kRecordIdMax) return RefuseId(id);
  }
  std::string value(width(), '\0');
  return array().FetchMulti(
      writers_, ids, [&](std::size_t, std::size_t) { return value.data(); },
      [&](std::size_t index, bool found) { visitor(index, found ? std::optional<std::string_view>(value) : std::nullopt); });
}
HAKO_OR_NO_MEMORY

template <class D, class Space>
StatusOr<std::uint64_t> ArrayOperations<D, Space>::IdFrom(std::uint64_t from, bool upwards) {
  HAKO_RETURN_IF_ERROR(this->CheckReads());
  typename Array::Sought sought;
  HAKO_RETURN_IF_ERROR(array().Seek(from, upwards, &sought, [](std::size_t) -> char* { return nullptr; }));
  if (!sought.id) return AbsentError();
  return *sought.id;
}

template <class D, class Space>
StatusOr<std::uint64_t> ArrayOperations<D, Space>::CountRange(RecordId from, RecordId to) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckReads());
  if (from.IsNegative() || to.IsNegative()) return RecordIdError(from.IsNegative() ? from : to);
  to = std::min<std::uint64_t>(to, kRecordIdMax + 1);
  if (from >= to) return std::uint64_t{0};
  return array().CountRange(from, to);
}
HAKO_OR_NO_MEMORY

template <class D, class Space>
StatusOr<std::uint64_t> ArrayOperations<D, Space>::RemoveRange(RecordId from, RecordId to) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckReads());
  WriterState* const writer = writers_.Mine();
  if (writer == nullptr) return writers_.Refusal();
  HAKO_RETURN_IF_ERROR(self().MayRemove());
  if (from.IsNegative() || to.IsNegative()) return RecordIdError(from.IsNegative() ? from : to);
  to = std::min<std::uint64_t>(to, kRecordIdMax + 1);
  if (from >= to) return std::uint64_t{0};
  HAKO_ASSIGN_OR_RETURN(const std::uint64_t removed, array().RemoveRange(*writer, from, to));
  if (removed > 0 && self().HasAfterUpdate()) HAKO_RETURN_IF_ERROR(self().AfterUpdate());
  return removed;
}
HAKO_OR_NO_MEMORY

template <class D, class Space>
auto ArrayOperations<D, Space>::RangeOf(std::string_view from, std::optional<std::string_view> to) const -> StatusOr<array::IdRange> {
  array::IdRange range{0, kRecordIdMax + 1};
  HAKO_ASSIGN_OR_RETURN(range.from, BoundOf(from));
  if (to) {
    HAKO_ASSIGN_OR_RETURN(range.to, BoundOf(*to));
  }
  return range;
}

template <class D, class Space>
auto ArrayOperations<D, Space>::RangesOf(std::span<const KeyRange> ranges) const -> StatusOr<std::vector<array::IdRange>> {
  std::vector<array::IdRange> found;
  for (const KeyRange& range : ranges) {
    HAKO_ASSIGN_OR_RETURN(const array::IdRange ids, RangeOf(range.from, range.to));
    if (ids.from < ids.to) found.push_back(ids);  // not from "" to "0"
  }
  return found;
}

template <class D, class Space>
StatusOr<std::uint64_t> ArrayOperations<D, Space>::CountKeys(std::string_view from, std::optional<std::string_view> to) {
  HAKO_ASSIGN_OR_RETURN(const auto range, RangeOf(from, to));
  return CountRange(range.from, range.to);
}

template <class D, class Space>
StatusOr<std::uint64_t> ArrayOperations<D, Space>::RemoveKeys(std::string_view from, std::optional<std::string_view> to) {
  HAKO_ASSIGN_OR_RETURN(const auto range, RangeOf(from, to));
  return RemoveRange(range.from, range.to);
}

template <class D, class Space>
Status ArrayOperations<D, Space>::ProcessEach(EachRef visitor) HAKO_TRY {
  auto it = MakeIterator();
  for (it.First(); it.Valid(); it.Next()) visitor(it.key(), it.value());
  return it.status();
}
HAKO_OR_NO_MEMORY

template <class D, class Space>
Status ArrayOperations<D, Space>::ProcessEachParallel(unsigned num_threads, EachRef visitor) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckThreads(num_threads));
  const StatusOr<std::uint64_t> first = FirstId(), last = LastId();
  if (absl::IsNotFound(first.status()) || absl::IsNotFound(last.status())) return absl::OkStatus();
  HAKO_RETURN_IF_ERROR(first.status());
  HAKO_RETURN_IF_ERROR(last.status());
  const std::uint64_t parts = std::max(num_threads, 1u), step = (*last - std::min(*first, *last)) / parts + 1;
  return sync::RunParts(parts, [&](std::size_t part) -> Status {
    auto it = MakeIterator();
    const std::uint64_t end = part + 1 == parts ? kRecordIdMax + 1 : *first + (part + 1) * step;
    for (part == 0 ? it.First() : it.Jump(*first + part * step); it.Valid() && it.id() < end; it.Next()) visitor(it.key(), it.value());
    return it.status();
  });
}
HAKO_OR_NO_MEMORY

template <class D, class Space>
void ArrayOperations<D, Space>::Prefetch(std::span<const std::string_view> keys) const {
  if (this->IsClosed()) return;
  for (const std::string_view key : keys) {
    if (const auto id = RecordKey::Parse(key); id.ok()) array().Prefetch(*id);
  }
}

template <class D, class Space>
auto ArrayOperations<D, Space>::IdsOf(std::span<const std::string_view> keys) const -> StatusOr<Ids> {
  Ids ids(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    HAKO_ASSIGN_OR_RETURN(ids[i], IdOf(keys[i]));
  }
  return ids;
}

template <class D, class Space>
auto ArrayOperations<D, Space>::LoggedIdsOf(std::span<const std::string_view> keys) -> StatusOr<Ids> {
  Ids ids(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::optional<std::uint64_t> id = array::LogKey::Parse(keys[i]);
    if (!id || *id > kRecordIdMax) return absl::DataLossError("the log has a key that is not the number of a record");
    ids[i] = *id;
  }
  return ids;
}

template <class D, class Space>
auto ArrayOperations<D, Space>::LoggedRangesOf(std::span<const KeyRange> ranges) -> StatusOr<std::vector<array::IdRange>> {
  std::vector<array::IdRange> found;
  for (const KeyRange& range : ranges) {
    const auto from = array::LogKey::Parse(range.from), to = range.to ? array::LogKey::Parse(*range.to) : std::nullopt;
    if (!from || !to || *from >= *to || (!found.empty() && *from < found.back().to))
      return absl::DataLossError("the log has a batch with a range that is not one of record numbers");
    found.push_back({*from, *to});
  }
  return found;
}

template <class D, class Space>
Status ArrayOperations<D, Space>::Redo(const format::LogEntry& entry) {
  WriterState* const writer = writers_.Mine();
  if (writer == nullptr) return writers_.Refusal();
  const auto from = array::LogKey::Parse(entry.key), to = array::LogKey::Parse(entry.value);
  switch (entry.op) {
    case format::LogOp::kSet:
    case format::LogOp::kRemove: {
      if (!from || *from > kRecordIdMax) break;
      const Action action = entry.op == format::LogOp::kSet ? Action::Set(entry.value) : Action::Remove();
      return array().template Process<Action>(*writer, *from, BlindUpdateRef(action));
    }
    case format::LogOp::kRemoveRange:
      if (!from || !to || *from >= *to) break;
      return array().RemoveRange(*writer, *from, *to).status();
    case format::LogOp::kClear: {
      typename Space::Deferred deferred(*space_);
      return this->RunExclusive([&] { return this->RemoveAll(deferred); });
    }
    default:
      return this->RedoTogether(std::span(&entry, 1));
  }
  return absl::DataLossError("the log has a key that is not the number of a record");
}

template <class D, class Space>
Status ArrayOperations<D, Space>::RedoMulti(const Batch<Action>& batch) {
  WriterState* const writer = writers_.Mine();
  if (writer == nullptr) return writers_.Refusal();
  HAKO_ASSIGN_OR_RETURN(const Ids ids, LoggedIdsOf(batch.keys));
  HAKO_ASSIGN_OR_RETURN(const std::vector<array::IdRange> ranges, LoggedRangesOf(batch.removed_ranges));
  return array().ProcessMulti(*writer, IdBatchOf(batch, ids, ranges), ~std::size_t{0});
}

template <class D, class Space>
void ArrayOperations<D, Space>::LoadForRedo(std::span<const std::string_view> keys) {
  if (const auto ids = LoggedIdsOf(keys); ids.ok()) array().LoadLeaves(*ids);
}

template <class D, class Space>
void ArrayOperations<D, Space>::PrefetchForRedo(std::span<const std::string_view> keys) const {
  for (const std::string_view key : keys) {
    if (const auto id = array::LogKey::Parse(key); id && *id <= kRecordIdMax) array().Prefetch(*id);
  }
}

}  // namespace hako
