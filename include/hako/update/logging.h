// How an engine logs its updates if its space has a log (log/update_log.h). Call each function with
// the buckets or leaves of the update locked, as the last step of the update that can fail. It does
// nothing if the log is off. An error leaves the log unchanged.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "hako/base/assert.h"
#include "hako/base/endian.h"
#include "hako/base/inline.h"
#include "hako/base/status.h"
#include "hako/base/visitor_ref.h"
#include "hako/format/log_format.h"

namespace hako::update {

// A space whose updates may be logged.
template <class S>
concept LoggingSpace = requires(S& s, typename S::WriterState& writer, std::span<const format::LogEntry> run) {
  { s.log().is_on() } -> std::same_as<bool>;
  { s.log().Append(run, &writer.lsn) } -> std::same_as<Status>;
  { s.log().Append(run.front(), &writer.lsn) } -> std::same_as<Status>;
  { s.log().TryAppend(run.front(), &writer.lsn) } -> std::same_as<bool>;
  { s.log().Append(&writer.logged_ahead, &writer.lsn) } -> std::same_as<Status>;
  s.log().AppendAhead(run.front(), &writer.logged_ahead);
  s.log().Abandon(&writer.logged_ahead);
  { writer.error } -> std::same_as<Status&>;
  s.Poison(writer.error);
};

// Whether an update with a visitor V may be logged, in a space of pages. A database in memory with
// a log passes its visitors by reference (EngineOperations::Process), so an inlined update need not
// check for a log.
template <class Space, class V>
inline constexpr bool kMayLog = LoggingSpace<Space> && (!Space::kResident || kIsFunctionRef<V>);

// Returns the error of a call that has no other way to return one. A space in memory without a log
// has none.
template <class WriterState>
Status ErrorOf(const WriterState& writer) {
  if constexpr (requires { writer.error; })
    return writer.error;
  else
    return absl::OkStatus();
}

template <class Space>
HAKO_INLINE bool IsLogged(Space& space) {
  if constexpr (LoggingSpace<Space>)
    return space.log().is_on();
  else
    return false;
}

// Call after an error that left an update incomplete. Opening the database again restores the state
// before the update or, if it was logged, after it.
template <class Space>
void RefuseUpdates(Space& space, const Status& why) {
  if constexpr (LoggingSpace<Space>) space.Poison(why);
}

template <LoggingSpace Space>
[[gnu::noinline]] bool AppendUpdate(Space& space, typename Space::WriterState& writer, format::LogOp op, std::string_view key,
                                    std::string_view value) {
  auto& log = space.log();
  const format::LogEntry entry{op, key, value};
  const bool is_ahead = writer.logged_ahead.is_open();
  if (!is_ahead && log.TryAppend(entry, &writer.lsn)) [[likely]]
    return true;
  writer.error = is_ahead ? log.Append(&writer.logged_ahead, &writer.lsn) : log.Append(entry, &writer.lsn);
  return writer.error.ok();
}
// Logs an update of one record or range. Returns false on an error, which ErrorOf returns.
template <class Space>
HAKO_INLINE bool LogUpdate(Space& space, typename Space::WriterState& writer, format::LogOp op, std::string_view key,
                           std::string_view value = {}) {
  if constexpr (LoggingSpace<Space>) return !space.log().is_on() || AppendUpdate(space, writer, op, key, value);
  return true;
}
// Logs the eviction of a record. Returns false on an error. LogUpdate cannot be used, because the
// writer may have an open run for the update that it is making.
template <class Space>
bool LogEviction(Space& space, typename Space::WriterState& writer, std::string_view key) {
  if constexpr (LoggingSpace<Space>) {
    if (space.log().is_on()) return space.log().Append(format::LogEntry{format::LogOp::kRemove, key, {}}, &writer.lsn).ok();
  }
  return true;
}

// Appends a long value to the log before its bucket or leaf is locked, so that other threads need
// not wait for the bytes. The next LogUpdate of the writer must be for this value, and appends the
// rest.
template <class Space>
class LoggedAhead {
 public:
  LoggedAhead(Space& space, typename Space::WriterState& writer, std::string_view key, std::string_view value)
      : space_(space), writer_(writer) {
    if constexpr (LoggingSpace<Space>) {
      if (space_.log().is_on()) space_.log().AppendAhead({format::LogOp::kSet, key, value}, &writer_.logged_ahead);
    }
  }
  LoggedAhead(const LoggedAhead&) = delete;
  ~LoggedAhead() {
    if constexpr (LoggingSpace<Space>) {
      if (writer_.logged_ahead.is_open()) space_.log().Abandon(&writer_.logged_ahead);
    }
  }

 private:
  Space& space_;
  typename Space::WriterState& writer_;
};

// The updates of a batch in the log, which take effect together. Keys and values must stay valid until
// they are appended.
class LogRun {
 public:
  // Reserves memory for `count` updates; a few need no allocation.
  explicit LogRun(std::size_t count) { entries_.reserve(count + 1); }
  LogRun(const LogRun&) = delete;

  // Adds the removal of [from, to), or of all records from `from` on if there is no `to`. REQUIRES:
  // ranges come before records, whose Sets they would remove (checked in RemoveRange)
  void RemoveRange(std::string_view from, std::optional<std::string_view> to) {
    HAKO_DCHECK(entries_.empty() || entries_.back().op == format::LogOp::kRemoveRange || entries_.back().op == format::LogOp::kRemoveFrom);
    entries_.push_back({to ? format::LogOp::kRemoveRange : format::LogOp::kRemoveFrom, from, to.value_or(std::string_view())});
  }
  void Set(std::string_view key, std::string_view value) { entries_.push_back({format::LogOp::kSet, key, value}); }
  void Remove(std::string_view key) { entries_.push_back({format::LogOp::kRemove, key, {}}); }
  void SetAppliedIndex(std::uint64_t index) {
    applied_index_ = index;
    entries_.push_back({format::LogOp::kAppliedIndex, {}, {reinterpret_cast<const char*>(&applied_index_), sizeof(applied_index_)}});
  }
  std::span<const format::LogEntry> entries() const { return entries_; }

 private:
  absl::InlinedVector<format::LogEntry, 17> entries_;
  Le<std::uint64_t> applied_index_ = 0;
};

// Logs a batch of about `count` updates: fill(run) adds its ranges, then its records.
template <class Space, class Fill>
Status LogBatch(Space& space, typename Space::WriterState& writer, std::size_t count, std::optional<std::uint64_t> applied_index,
                Fill&& fill) {
  if constexpr (LoggingSpace<Space>) {
    if (!space.log().is_on()) return absl::OkStatus();
    LogRun run(count);
    fill(run);
    if (applied_index) run.SetAppliedIndex(*applied_index);
    const auto entries = run.entries();
    if (!entries.empty())
      return entries.size() == 1 ? space.log().Append(entries.front(), &writer.lsn) : space.log().Append(entries, &writer.lsn);
  }
  return absl::OkStatus();
}

}  // namespace hako::update
