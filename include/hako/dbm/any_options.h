// Which database to open and how, chosen at run time, and the one string that can say it all.
//
//   "casket.hkh"                                a hash table in a file, by the ending
//   "casket.hkh?num_records=1m,file=pos"        with options, after the last question mark
//   "casket.hkt?cache_bytes=64mi"               a B+ tree in a file
//   "casket.db?dbm=hash"                        where the ending does not tell
//   "casket.hks"                                a hash table in memory, loaded from a snapshot and saved to it
//   "?dbm=tiny"                                 a hash table in memory and nowhere else
//   "?dbm=baby", "casket.hks?dbm=baby"          the same with a B+ tree: a snapshot is of no kind, and either can load it
//
// Options are key=value, separated by commas; numbers may have a suffix (base/parse_number.h):
//   dbm          hash (.hkh), tree (.hkt), tiny (.hks), baby or auto, by the ending
//   file         mmap or pos: how the file is accessed (dbm=hash, tree)
//   mode         read, write (the file must exist), create or truncate
//   wait         how long to wait for another holder of the file, in seconds
//   num_records, align_pow, seed                as in dbm/options.h (dbm=hash, tiny)
//   page_size                                   as in dbm/options.h (dbm=tree, baby)
//   max_bytes                                   as in dbm/options.h (dbm=baby)
//   cache_bytes, checkpoint_bytes               as in dbm/options.h (dbm=tree)
//   order, codec the names of a comparator and of a page codec, as Inspect tells them (dbm=tree): those of the file unless given, in a new
//                file bytewise and none. Others must have been added by the program (dbm/any_tree.h); they are accessed as file=pos.
//   direct, huge_pages, block_cache_bytes       as in FileOptions, file/file.h; direct implies file=pos, and alone means direct=true
//   durability   process or power, sync_interval in milliseconds (dbm=hash, tree): as in dbm/options.h
//   reclaim_bytes                               as in dbm/options.h (dbm=hash)
//   reserve_bytes, grow_min, grow_max           as in FileOptions, file/file.h
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/options.h"
#include "hako/file/file.h"

namespace hako {

struct AnyOptions {
  static constexpr std::string_view kAuto = "auto";  // by the ending of `path`
  static constexpr std::string_view kHash = "hash";
  static constexpr std::string_view kTree = "tree";
  static constexpr std::string_view kTiny = "tiny";
  static constexpr std::string_view kBaby = "baby";
  static constexpr std::array kKinds = {kAuto, kHash, kTree, kTiny, kBaby};

  std::string path = {};        // empty: in memory only, for a kind that can
  std::string kind = "auto";    // one of kKinds
  std::string device = "mmap";  // AnyFile::kMemoryMap or kPositional
  std::uint64_t num_records = 0;
  std::optional<int> align_pow = {};
  std::uint64_t seed = 0;
  std::optional<unsigned> page_size = {};
  std::optional<std::uint64_t> max_bytes = {};
  std::optional<std::uint64_t> cache_bytes = {};
  std::optional<std::uint64_t> checkpoint_bytes = {};
  std::optional<std::uint64_t> reclaim_bytes = {};
  std::string order = {};  // of a tree's keys; empty = that of the file, bytewise in a new one
  std::string codec = {};  // of a tree's pages, likewise; none in a new one
  Durability durability = Durability::kProcess;
  std::chrono::milliseconds sync_interval{0};
  FileOptions file = {};

  // `kind`, or what the ending of `path` tells where that is kAuto; empty where it tells nothing.
  std::string_view ResolvedKind() const;
};

TreeOptions TreeOptionsOf(const AnyOptions& options);

// The options that `name` says, and for the rest `defaults`. InvalidArgument names the option that is wrong and what there is.
StatusOr<AnyOptions> ParseAnyOptions(std::string_view name, AnyOptions defaults = {});

}  // namespace hako
