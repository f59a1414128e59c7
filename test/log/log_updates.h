// For tests of the record log: updates as values, and a log that is opened and read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hako/log/record_log.h"
#include "support/random.h"

namespace hako::log {

using format::LogOp;

inline constexpr DatabaseId kDatabase = {std::byte{7}};
inline constexpr std::uint64_t kSecret = 42;

struct Update {
  LogOp op;
  std::string key, value;
  friend bool operator==(const Update&, const Update&) = default;
};
using Updates = std::vector<Update>;

template <class FileT>
StatusOr<Lsn> AppendRun(RecordLog<FileT>& log, const Updates& run) {
  std::vector<LogEntry> entries;
  for (const Update& update : run) entries.push_back({update.op, update.key, update.value});
  return log.Append(entries);
}

// Opens a log and reads it from `from` on; it takes updates afterwards.
template <class FileT>
StatusOr<std::unique_ptr<RecordLog<FileT>>> Recover(FileT file, Position from, std::vector<Updates>* runs, Position keep = {}) {
  HAKO_ASSIGN_OR_RETURN(auto log, RecordLog<FileT>::Open(std::move(file), kDatabase, kSecret));
  HAKO_RETURN_IF_ERROR(log->Replay(from, [runs](std::span<const LogEntry> entries, Position) {
    Updates& run = runs->emplace_back();
    for (const LogEntry& entry : entries) run.push_back({entry.op, std::string(entry.key), std::string(entry.value)});
    return absl::OkStatus();
  }));
  HAKO_RETURN_IF_ERROR(log->Begin(keep));
  return log;
}

inline std::string RandomBytes(Random& random, std::uint64_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random.Below(256));
  return bytes;
}

inline Updates RandomRun(Random& random, std::uint64_t size_max) {
  Updates run(random.Below(4) == 0 ? 1 + random.Below(40) : 1);
  for (Update& update : run) {
    update = {random.Below(3) == 0 ? LogOp::kRemove : LogOp::kSet, RandomBytes(random, random.Below(20)), ""};
    if (update.op == LogOp::kSet) update.value = RandomBytes(random, random.Below(random.Below(20) == 0 ? size_max : 100));
  }
  return run;
}

}  // namespace hako::log
