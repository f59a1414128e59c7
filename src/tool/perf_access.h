// hako perf: how a file is accessed. The flags are those of tkrzw_dbm_perf for positional files with direct I/O, and a few more, which are
// there to measure what a part of the engine is worth.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "hako/file/file.h"

namespace hako::tool {

struct PerfAccess {
  std::string device = "mmap-para";
  bool direct_io = false, sync_io = false, padding = false, pagecache = false;
  std::int64_t block_size = -1;  // 1, the default of tkrzw_dbm_perf: what the device asks for
  std::int64_t file_cache = -1;
  std::int64_t min_read_size = -1;
  bool no_batching = false, no_speculation = false;

  bool IsMapped() const { return device.starts_with("mmap"); }
  FileOptions ToFileOptions() const;
  // HashOptions::min_read_size and TreeOptions::min_read_size; `least` is what a first read without speculation takes.
  std::uint64_t MinReadSize(std::uint64_t least) const;
};

void AddAccessOptions(CLI::App* app, PerfAccess* access);

// What is wrong with the flags where the database is in a file; empty if nothing is.
std::string MistakeIn(const PerfAccess& access);

// Says of each flag that was given without effect what it would need.
void NoteUnused(const PerfAccess& access, bool is_in_file, std::string_view command);

}  // namespace hako::tool
