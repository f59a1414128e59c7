// Helpers shared by the DBMs.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/options.h"
#include "hako/file/file.h"

namespace hako {

// The smallest value of HashOptions::log_bytes.
inline constexpr std::uint64_t kLogBytesMin = 64 << 10;

inline Status CheckNotNegative(const char* option, std::uint64_t value) {
  if (value <= std::numeric_limits<std::int64_t>::max()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(option, " is negative, or above 2^63 - 1: ", static_cast<std::int64_t>(value)));
}

// Checks the options that several kinds of database share.
template <class Options>
Status CheckSharedOptions(const Options& options) {
  if (options.log_bytes < kLogBytesMin) return absl::InvalidArgumentError(absl::StrCat("log_bytes must be at least ", kLogBytesMin));
  if constexpr (requires { options.sync_interval; }) {
    if (options.sync_interval.count() < 0) return absl::InvalidArgumentError("sync_interval is negative");
  }
  // A negative size, such as the result of a subtraction, would become a very large one.
  if constexpr (requires { options.cache_bytes; }) HAKO_RETURN_IF_ERROR(CheckNotNegative("cache_bytes", options.cache_bytes));
  if constexpr (requires { options.min_read_size; }) HAKO_RETURN_IF_ERROR(CheckNotNegative("min_read_size", options.min_read_size));
  if constexpr (requires { options.num_records; }) HAKO_RETURN_IF_ERROR(CheckNotNegative("num_records", options.num_records));
  if (options.durability == Durability::kNone && !options.log_archive.empty() && options.log_archive != kNoLogArchive)
    return absl::InvalidArgumentError("log_archive requires a log, which Durability::kNone does without");
  if constexpr (requires { options.keep_log; }) {
    if (options.keep_log && options.durability == Durability::kNone)
      return absl::InvalidArgumentError("keep_log requires a durability of more than kNone, which has no log");
  }
  return absl::OkStatus();
}

// Returns the file options of a database opened with `options`. Turns huge pages off if syncs are
// frequent, because a sync would write a whole huge page for every small page that changed.
template <class Options>
FileOptions FileOptionsFor(const Options& options, FileOptions file_options) {
  const bool syncs_often = options.durability == Durability::kPower || options.sync_interval.count() > 0;
  file_options.huge_pages = file_options.huge_pages && !syncs_often;
  return file_options;
}

// Checks whether a tree whose file has this type may be opened with these options.
[[gnu::cold]] inline Status CheckContent(std::uint32_t type, const TreeOptions& options) {
  if (options.type) {
    if (type == *options.type) return absl::OkStatus();
    return absl::InvalidArgumentError(*options.type == kTableType ? "the file is a plain tree, not a table: open it as a TreeDBM (dbm=tree)"
                                                                  : absl::StrCat("the file has type ", type, ", not ", *options.type));
  }
  if (type != kTableType || options.raw) return absl::OkStatus();
  return absl::InvalidArgumentError("the file is a table: open it with TableDBM or 'hako table', or as a plain tree with the option raw");
}

template <class FileT>
void AddDeviceCounters(const FileT& file, Stats* stats) {
  if constexpr (CountingFile<FileT>) {
    const FileCounters counters = file.counters();
    stats->device_reads = counters.reads;
    stats->device_read_bytes = counters.read_bytes;
    stats->device_writes = counters.writes;
    stats->device_written_bytes = counters.written_bytes;
  }
}

inline Inspection InspectionOf(std::string_view type, const Stats& stats) {
  Inspection pairs = {{"class", std::string(type)}};
  const auto add = [&](const char* name, std::uint64_t number) { pairs.emplace_back(name, absl::StrCat(number)); };
  add("num_records", stats.num_records);
  add("total_bytes", stats.total_bytes);
  add("record_bytes", stats.record_bytes);
  add("free_bytes", stats.free_bytes);
  add("index_bytes", stats.index_bytes);
  add("num_buckets", stats.num_buckets);
  add("num_overflow", stats.num_overflow);
  add("epoch", stats.epoch);
  if ((stats.capacity_bytes | stats.capacity_records) != 0) {
    add("capacity_bytes", stats.capacity_bytes);
    add("capacity_records", stats.capacity_records);
    add("hits", stats.hits);
    add("misses", stats.misses);
    add("evictions", stats.evictions);
  }
  if (stats.synced_at != 0) {  // in seconds, as date(1) prints it
    pairs.emplace_back("synced_at",
                       absl::StrCat(stats.synced_at / 1'000'000, ".", absl::Dec(stats.synced_at % 1'000'000, absl::kZeroPad6)));
  }
  return pairs;
}

}  // namespace hako
