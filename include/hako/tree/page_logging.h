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
  { s.Poison(writer.error) } -> std::same_as<void>;
};

// Whether an update is logged whose visitor is a V. A database in memory that has a log passes its
// visitors by reference (EngineOperations::Process), so that without one an inlined update need not ask.
template <class Space, class V>
inline constexpr bool kMayLog = LoggingPageSpace<Space> && (!Space::kResident || kIsFunctionRef<V>);

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
[[gnu::noinline]] bool LogUpdates(Space& space, typename Space::WriterState& writer, std::span<const format::LogEntry> run) {
  if constexpr (LoggingPageSpace<Space>) {
    if (!space.log().is_on() || run.empty()) return true;
    writer.error = run.size() == 1 ? space.log().Append(run.front(), &writer.lsn) : space.log().Append(run, &writer.lsn);
    return writer.error.ok();
  }
  return true;
}
template <class Space>
HAKO_INLINE bool LogUpdate(Space& space, typename Space::WriterState& writer, format::LogOp op, std::string_view key,
                           std::string_view value = {}) {
  if (!IsLogged(space)) [[likely]]
    return true;
  const format::LogEntry entry{op, key, value};
  return LogUpdates(space, writer, std::span(&entry, 1));
}

}  // namespace hako::tree
