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
  file.direct = direct_io;
  file.sync = sync_io;
  file.padding = padding;
  file.batching = !no_batching;
  if (block_size > 1) file.block_size = static_cast<std::uint64_t>(block_size);
  if (file_cache >= 0) {
    file.cache_bytes = static_cast<std::uint64_t>(file_cache);
  } else if (direct_io && !pagecache) {
    file.cache_bytes = 0;
  }
  return file;
}

std::uint64_t PerfAccess::MinReadSize(std::uint64_t least) const {
  if (no_speculation) return least;
  return min_read_size > 0 ? static_cast<std::uint64_t>(min_read_size) : 0;
}

void AddAccessOptions(CLI::App* app, PerfAccess* access) {
  AddChoice(app, "--file", &access->device, {"mmap-para", "pos-para", "mmap", "pos", "mmap-atom", "pos-atom", "std"},
            "How the file is accessed: mmap-para unless given");
  app->add_flag("--direct_io", access->direct_io, "Past the system's page cache; needs --file pos-para, and a file system that has it");
  AddNumber(app, "--block_size", &access->block_size,
            "Direct I/O: bytes of a block, a power of two from 512 to 64Ki; unless given, or 1, what the device asks for, at least 4096", 1,
            kBlockSizeMost);
  app->add_flag("--padding", access->padding, "Direct I/O: the file is a whole number of blocks long when it is closed");
  app->add_flag("--pagecache", access->pagecache, "Direct I/O: this process caches blocks, 64Mi unless --file_cache says how much");
  AddNumber(app, "--file_cache", &access->file_cache, "Direct I/O: bytes of that cache; implies --pagecache", 0, std::int64_t{1} << 50);
  app->add_flag("--sync_io", access->sync_io, "Each write to the file is durable when it returns; needs --file pos-para");
  CLI::Option* min_read_size =
      AddNumber(app, "--min_read_size", &access->min_read_size,
                "Bytes that the first read of a record or page takes, with --file pos-para; unless given, or up to 0, what records have "
                "lately been found to take (hash), what the page takes (tree)",
                -1, 1 << 30);
  app->add_flag("--no_batching", access->no_batching,
                "Direct I/O: each block is a transfer of its own; only to measure what batching is worth");
  app->add_flag("--no_speculation", access->no_speculation,
                "As --min_read_size 16 for hash, that is the header of a record first and then the rest, and 512 for tree; only to measure "
                "what guessing or knowing sizes is worth")
      ->excludes(min_read_size);
}

std::string MistakeIn(const PerfAccess& access) {
  if (!access.direct_io) return "";
  if (access.IsMapped())
    return absl::StrCat("--direct_io needs --file pos-para: with ", access.device, " the file is used through the system's page cache");
  const std::int64_t block = access.block_size;
  const bool is_usable = block <= 1 || (block >= kBlockSizeLeast && std::has_single_bit(static_cast<std::uint64_t>(block)));
  if (!is_usable)
    return absl::StrCat("--block_size ", block, ": direct I/O takes a power of two from ", kBlockSizeLeast, " to ", kBlockSizeMost);
  return "";
}

void NoteUnused(const PerfAccess& access, bool is_in_file, std::string_view command) {
  struct Flag {
    const char* name;
    bool is_given, is_of_direct_io;
  };
  const Flag flags[] = {{"--direct_io", access.direct_io, false},
                        {"--sync_io", access.sync_io, false},
                        {"--min_read_size", access.min_read_size > 0, false},
                        {"--no_speculation", access.no_speculation, false},
                        {"--block_size", access.block_size > 1, true},
                        {"--padding", access.padding, true},
                        {"--pagecache", access.pagecache, true},
                        {"--file_cache", access.file_cache >= 0, true},
                        {"--no_batching", access.no_batching, true}};
  for (const Flag& flag : flags) {
    if (!flag.is_given) continue;
    if (!is_in_file) {
      Note(absl::StrCat(flag.name, " has no meaning here: the database is in memory"), command);
    } else if (flag.is_of_direct_io ? !access.direct_io : access.IsMapped()) {
      Note(absl::StrCat(flag.name, " has no meaning without ", flag.is_of_direct_io ? "--direct_io" : "--file pos-para"), command);
    }
  }
}

}  // namespace hako::tool
