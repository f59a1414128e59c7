// hako perf: the options that say how a file is accessed.
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
  std::string device = "mmap";
  bool direct_io = false, sync_io = false, padding = false, pagecache = false;
  std::int64_t block_size = -1;  // -1 = what the device prefers
  std::int64_t file_cache = -1;
  std::int64_t min_read_size = 0;

  bool IsMapped() const { return device == "mmap"; }
  FileOptions ToFileOptions() const;
};

void AddAccessOptions(CLI::App* app, PerfAccess* access);

// Returns the error in the flags for a database in a file; empty if there is none.
std::string MistakeIn(const PerfAccess& access);

// Prints each given flag that has no effect on a database of this kind, and what it requires.
void NoteUnused(const PerfAccess& access, std::string_view kind, std::string_view command);

}  // namespace hako::tool
