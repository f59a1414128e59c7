// How the bucket engine logs its updates, where its space has a log (log/update_log.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>

#include "hako/base/inline.h"
#include "hako/base/status.h"
#include "hako/format/log_format.h"

namespace hako::hash {

// A space whose updates may be logged.
template <class S>
concept LoggingRecordSpace = requires(S& s, typename S::WriterState& writer, std::span<const format::LogEntry> run) {
  { s.log().is_on() } -> std::same_as<bool>;
  { s.log().Append(run, &writer.lsn) } -> std::same_as<Status>;
  { s.log().Append(run.front(), &writer.lsn) } -> std::same_as<Status>;
  { s.log().Append(&writer.logged_ahead, &writer.lsn) } -> std::same_as<Status>;
  s.log().AppendAhead(run.front(), &writer.logged_ahead);
  s.log().Abandon(&writer.logged_ahead);
};

template <class Space>
HAKO_INLINE bool IsLogged(Space& space) {
  if constexpr (LoggingRecordSpace<Space>)
    return space.log().is_on();
  else
    return false;
}
// `index` must stay valid until the entry is appended.
inline format::LogEntry AppliedIndexEntry(const Le<std::uint64_t>& index) {
  return {format::LogOp::kAppliedIndex, {}, {reinterpret_cast<const char*>(&index), sizeof(index)}};
}
// Append an update, or several that take effect together, if the space logs them: with their
// buckets locked, as the last step that can fail. An error leaves the log as it was.
template <class Space>
Status LogUpdate(Space& space, typename Space::WriterState& writer, const format::LogEntry& entry) {
  if constexpr (LoggingRecordSpace<Space>) {
    if (!space.log().is_on()) return absl::OkStatus();
    if (writer.logged_ahead.is_open()) [[unlikely]]
      return space.log().Append(&writer.logged_ahead, &writer.lsn);
    return space.log().Append(entry, &writer.lsn);
  }
  return absl::OkStatus();
}
template <class Space>
Status LogUpdates(Space& space, typename Space::WriterState& writer, std::span<const format::LogEntry> run) {
  if constexpr (LoggingRecordSpace<Space>) {
    if (space.log().is_on() && !run.empty())
      return run.size() == 1 ? space.log().Append(run.front(), &writer.lsn) : space.log().Append(run, &writer.lsn);
  }
  return absl::OkStatus();
}
// Appends a long value to the log before its bucket is locked, so that others need not wait for the
// bytes. The next LogUpdate of the writer must be that of this value, and adds the rest.
template <class Space>
class LoggedAhead {
 public:
  LoggedAhead(Space& space, typename Space::WriterState& writer, std::string_view key, std::string_view value)
      : space_(space), writer_(writer) {
    if constexpr (LoggingRecordSpace<Space>) {
      if (space.log().is_on()) space.log().AppendAhead({format::LogOp::kSet, key, value}, &writer.logged_ahead);
    }
  }
  LoggedAhead(const LoggedAhead&) = delete;
  ~LoggedAhead() {
    if constexpr (LoggingRecordSpace<Space>) {
      if (writer_.logged_ahead.is_open()) space_.log().Abandon(&writer_.logged_ahead);
    }
  }

 private:
  [[maybe_unused]] Space& space_;
  [[maybe_unused]] typename Space::WriterState& writer_;
};

}  // namespace hako::hash
