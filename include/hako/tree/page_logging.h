// How the page engine logs its updates, where its space has a log (log/update_log.h).
#pragma once

#include <concepts>
#include <span>
#include <string_view>

#include "hako/base/inline.h"
#include "hako/base/status.h"
#include "hako/base/visitor_ref.h"
#include "hako/format/log_format.h"

namespace hako::tree {

// A space whose updates may be logged.
template <class S>
concept LoggingPageSpace = requires(S& s, typename S::WriterState& writer, std::span<const format::LogEntry> run) {
  { s.log().is_on() } -> std::same_as<bool>;
  { s.log().Append(run, &writer.lsn) } -> std::same_as<Status>;
  { s.log().Append(run.front(), &writer.lsn) } -> std::same_as<Status>;
  { s.log().TryAppend(run.front(), &writer.lsn) } -> std::same_as<bool>;
  { s.log().Append(&writer.logged_ahead, &writer.lsn) } -> std::same_as<Status>;
  s.log().AppendAhead(run.front(), &writer.logged_ahead);
  s.log().Abandon(&writer.logged_ahead);
  { s.Poison(writer.error) } -> std::same_as<void>;
};

// Whether an update is logged whose visitor is a V. A database in memory that has a log passes its
// visitors by reference (EngineOperations::Process), so that without one an inlined update need not ask.
template <class Space, class V>
inline constexpr bool kMayLog = LoggingPageSpace<Space> && (!Space::kResident || kIsFunctionRef<V>);

// The error of a call that has no other way to return one; a resident space without a log has none.
template <class WriterState>
Status ErrorOf(const WriterState& writer) {
  if constexpr (requires { writer.error; })
    return writer.error;
  else
    return absl::OkStatus();
}

template <class Space>
HAKO_INLINE bool IsLogged(Space& space) {
  if constexpr (LoggingPageSpace<Space>)
    return space.log().is_on();
  else
    return false;
}
// After an error that left a part of an update undone: opening the database again restores the state
// before it or, if it was logged, after it.
template <class Space>
void RefuseUpdates(Space& space, const Status& why) {
  if constexpr (LoggingPageSpace<Space>) space.Poison(why);
}
// Append several updates that take effect together, or one, if the space logs them. False if that
// fails; writer.error says why.
template <class Space>
bool LogUpdates(Space& space, typename Space::WriterState& writer, std::span<const format::LogEntry> run) {
  if constexpr (LoggingPageSpace<Space>) {
    if (!space.log().is_on() || run.empty()) return true;
    writer.error = space.log().Append(run, &writer.lsn);
    return writer.error.ok();
  }
  return true;
}
template <class Space>
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
template <class Space>
HAKO_INLINE bool LogUpdate(Space& space, typename Space::WriterState& writer, format::LogOp op, std::string_view key,
                           std::string_view value = {}) {
  if constexpr (LoggingPageSpace<Space>) return !space.log().is_on() || AppendUpdate(space, writer, op, key, value);
  return true;
}
// Logs the eviction of a record. False on error. The writer may have an open run for the update that it
// is making.
template <class Space>
bool LogEviction(Space& space, typename Space::WriterState& writer, std::string_view key) {
  if constexpr (LoggingPageSpace<Space>) {
    if (space.log().is_on()) return space.log().Append(format::LogEntry{format::LogOp::kRemove, key, {}}, &writer.lsn).ok();
  }
  return true;
}
// Appends a long value to the log before its leaf is locked, so that others need not wait for the
// bytes. The next LogUpdate of the writer must be that of this value, and adds the rest.
template <class Space>
class LoggedAhead {
 public:
  LoggedAhead(Space& space, typename Space::WriterState& writer, std::string_view key, std::string_view value)
      : space_(space), writer_(writer) {
    if (space.log().is_on()) space.log().AppendAhead({format::LogOp::kSet, key, value}, &writer.logged_ahead);
  }
  LoggedAhead(const LoggedAhead&) = delete;
  ~LoggedAhead() {
    if (writer_.logged_ahead.is_open()) space_.log().Abandon(&writer_.logged_ahead);
  }

 private:
  Space& space_;
  typename Space::WriterState& writer_;
};

}  // namespace hako::tree
