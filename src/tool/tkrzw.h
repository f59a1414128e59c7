// The commands and options of tkrzw_dbm_util and tkrzw_dbm_perf that do not exist here with the
// same name and meaning: the counterpart of each, or why there is none. The man page prints all of
// it. `hako perf` accepts the flags and options below with a note, so that command lines of Tkrzw
// work.
#pragma once

#include <string_view>

namespace hako::tool {

struct TkrzwLine {
  std::string_view name;
  std::string_view line;
};

inline constexpr std::string_view kNoIndexRun = "none: indices are those of a table ('hako help table index'), which perf does not measure";

inline constexpr TkrzwLine kTkrzwCommands[] = {
    {"restore",
     "none: a file that opens is consistent; if verify finds damage, restore a copy, or save the rest by salvage (restore is something "
     "else here: it goes to a point in time)"},
    {"perf index", kNoIndexRun},
    {"get --multi, set --multi, remove --multi",
     "get --multi prints keys too; remove takes several keys without it; for many records use import"},
    {"set --incr N", "N is the difference, there the initial value; VALUE is not given"},
    {"list --move jumpupper, jumpupperinc", "begins at the same record, in ascending order; add --reverse for descending order, as there"},
    {"restore --auto, --end_offset, --class; rebuild --restore", "none, see restore"},
    {"inspect FILE ATTR", "the same; 'hako inspect FILE' lists the attributes"},
    {"create --buckets", "create --num_records; only a hint, as the table grows by itself"},
    {"create --max_cached_pages", "cache_bytes in the name whenever the file is opened, as in 'FILE.hkt?cache_bytes=64mi'"},
    {"create --max_branches, --page_update_write, --comparator", "none, see below"},
    {"merge --reducer", "the last record wins, or with --no_overwrite the first"},
    {"export, import --tsv --escape", "TSV is the default and always escaped; import --no_escape takes backslashes literally"},
    {"export --keys", "list --keys --items -1"},
    {"--dbm",
     "hash, tree, array, tiny and baby; for cache, tiny with capacity_bytes or capacity_records in the name; skip, stdhash, stdtree, poly, "
     "shard have no counterpart"},
    {"--file", "mmap for mmap-para and mmap-atom, pos for pos-para and pos-atom; perf takes the long names"},
    {"--path", "of perf: as there; elsewhere FILE"},
    {"--direct_io, --block_size, --padding, --pagecache, --sync_io, --min_read_size",
     "of perf: as there; elsewhere 'FILE?direct', the rest has no counterpart"},
    {"--sync_hard", "of perf and of the commands that change a database; the others have nothing to synchronize"},
    {"perf --cap_memsize", "spelt --cap_mem_size in the program itself; both are accepted"},
};

// Tuning flags and options without effect here. perf accepts them with a note.
inline constexpr TkrzwLine kTkrzwFlags[] = {
    {"no_wait", "an open waits only with --wait SECONDS"},
    {"no_lock", "a file is always locked: two writers would destroy it"},
    {"append", "records are always written out of place"},
    {"in_place", "records are always written out of place, so that a crash cannot tear one"},
    {"cache_buckets", "the directory of a positional file is always in memory"},
    {"page_update_write",
     "pages are written by checkpoints; --checkpoint_bytes sets how often, and durability=power in the name of a database "
     "makes each update durable"},
    {"insert_in_order", "it is for skip lists, which have no counterpart"},
    {"verbose", "everything is always reported"},
};
inline constexpr TkrzwLine kTkrzwOptions[] = {
    {"alloc_init", "files grow by an eighth of their size; 'FILE?grow_min=BYTES' sets the minimum"},
    {"alloc_inc", "files grow by an eighth of their size; 'FILE?grow_max=BYTES' sets the maximum"},
    {"ulog", "a database keeps its log by itself; 'FILE?log_archive=DIRECTORY' stores all of it for restore"},
    {"ulog_ids", "the segments of a log archive have no such numbers"},
    {"record_crc", "every record has a checksum, verified whenever it is read"},
    {"record_comp", "set 'FILE.hkt?codec=zstd' or lz4 when the file is created"},
    {"cipher_key", "there is no encryption yet"},
    {"offset_width", "set --align_pow for larger files"},
    {"fbp_cap", "all free space is tracked"},
    {"max_branches", "inner pages are as large as other pages"},
    {"comparator",
     "set 'FILE.hkt?order=decimal' when the file is created; hexadecimal, real, signed-big-endian, float-big-endian, case-insensitive"},
    {"step_unit", "it is for skip lists, which have no counterpart"},
    {"max_level", "it is for skip lists, which have no counterpart"},
    {"sort_mem_size", "it is for skip lists, which have no counterpart"},
    {"max_cached_records", "it is for skip lists, which have no counterpart"},
    {"reducer", "it is for skip lists, which have no counterpart"},
    {"cap_rec_num", "a database in memory is a cache with a limit: 'FILE.hks?capacity_records=1m'; perf measures none"},
    {"cap_mem_size", "a database in memory is a cache with a limit: 'FILE.hks?capacity_bytes=1m'; perf measures none"},
    {"cap_memsize", "a database in memory is a cache with a limit: 'FILE.hks?capacity_bytes=1m'; perf measures none"},
    {"params", "options are part of the name: 'FILE?num_records=1m,align_pow=4'"},
};

}  // namespace hako::tool
