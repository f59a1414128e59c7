// hako perf: how a file is accessed. The flags are those of tkrzw_dbm_perf for positional files
// with direct I/O, and a few more to measure the effect of a part of the engine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hako/file/file.h"

namespace CLI {
class App;
}

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
  std::uint64_t MinReadSize() const;  // for HashOptions::min_read_size
};

void AddAccessOptions(CLI::App* app, PerfAccess* access);

// The error in the flags for a database in a file; empty if there is none.
std::string MistakeIn(const PerfAccess& access);

// Notes each flag given without effect on a database of this kind, and its requirement.
void NoteUnused(const PerfAccess& access, std::string_view kind, std::string_view command);

}  // namespace hako::tool
