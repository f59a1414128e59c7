#include "tool/perf_access.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "tool/command.h"

namespace hako::tool {
namespace {

constexpr std::int64_t kBlockSizeLeast = 512, kBlockSizeMost = 64 << 10;

}  // namespace

FileOptions PerfAccess::ToFileOptions() const {
  FileOptions file;
  if (IsMapped()) return file;  // NoteUnused prints the options that were given
  file.direct = direct_io;
  file.sync = sync_io;
  file.padding = direct_io && padding;
  if (direct_io && block_size > 0) file.block_size = static_cast<std::uint64_t>(block_size);
  if (file_cache >= 0) {
    file.cache_bytes = static_cast<std::uint64_t>(file_cache);
  } else if (direct_io && !pagecache) {
    file.cache_bytes = 0;
  }
  return file;
}

void AddAccessOptions(CLI::App* app, PerfAccess* access) {
  AddChoice(app, "--file", &access->device, {"mmap", "pos"}, "How the file is accessed: mapped into memory, or by pread and pwrite");
  app->add_flag("--direct_io", access->direct_io, "Bypass the system's page cache; requires --file pos and a file system with direct I/O");
  AddNumber(app, "--block_size", &access->block_size,
            "Direct I/O: size of a block, a power of two from 512 to 64Ki; default the device's preference, at least 4096", kBlockSizeLeast,
            kBlockSizeMost);
  app->add_flag("--padding", access->padding, "Direct I/O: pad the file to whole blocks when it is closed");
  app->add_flag("--pagecache", access->pagecache, "Direct I/O: cache blocks in this process, 64Mi or as set by --file_cache");
  AddNumber(app, "--file_cache", &access->file_cache, "Direct I/O: size of that cache in bytes; implies --pagecache", 0,
            std::int64_t{1} << 50);
  app->add_flag("--sync_io", access->sync_io, "Each write to the file is durable when it returns; requires --file pos");
  AddNumber(app, "--min_read_size", &access->min_read_size,
            "Hash, with --file pos: size of the first read of a record; default 0, estimated from recent records", 0, 1 << 30);
}

std::string MistakeIn(const PerfAccess& access) {
  if (!access.direct_io) return "";
  if (access.IsMapped()) return "--direct_io requires --file pos; a mapped file uses the system's page cache";
  const std::int64_t block = access.block_size;
  if (block > 0 && !std::has_single_bit(static_cast<std::uint64_t>(block)))
    return absl::StrCat("--block_size ", block, ": direct I/O requires a power of two from ", kBlockSizeLeast, " to ", kBlockSizeMost);
  return "";
}

void NoteUnused(const PerfAccess& access, std::string_view kind, std::string_view command) {
  const bool is_in_file = kind == "hash" || kind == "tree";
  struct Flag {
    const char* name;
    bool is_given, is_of_direct_io, is_of_hash = false;
  };
  const Flag flags[] = {{"--direct_io", access.direct_io, false},
                        {"--sync_io", access.sync_io, false},
                        {"--min_read_size", access.min_read_size > 0, false, true},
                        {"--block_size", access.block_size > 0, true},
                        {"--padding", access.padding, true},
                        {"--pagecache", access.pagecache, true},
                        {"--file_cache", access.file_cache >= 0, true}};
  for (const Flag& flag : flags) {
    if (!flag.is_given) continue;
    if (!is_in_file) {
      Note(absl::StrCat(flag.name, " has no effect: the database is in memory"), command);
    } else if (flag.is_of_hash && kind == "tree") {
      Note(absl::StrCat(flag.name, " has no effect: a tree stores the size of each page"), command);
    } else if (flag.is_of_direct_io ? !access.direct_io : access.IsMapped()) {
      Note(absl::StrCat(flag.name, " has no effect without ", flag.is_of_direct_io ? "--direct_io" : "--file pos"), command);
    }
  }
}

}  // namespace hako::tool
