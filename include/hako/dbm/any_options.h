// The kind and options of a database, chosen at run time, and their form as one string:
//
//   "casket.hkh"                          a hash table in a file, by the suffix
//   "casket.hkh?num_records=1m,file=pos"  with options, after the last question mark
//   "casket.hkt?cache_bytes=64mi"         a B+ tree in a file
//   "casket.hka?width=8"                  an array of records of 8 bytes, by number, in a file
//   "casket.db?dbm=hash"                  with the kind, because the suffix names none
//   "casket.hks"                          a hash table in memory with a snapshot file and a log
//   "?dbm=tiny"                           a hash table in memory only
//   "?dbm=baby", "casket.hks?dbm=baby"    the same with a B+ tree; either kind loads any snapshot
//
// Options are key=value, separated by commas and applied in order. Numbers may have a suffix
// (base/parse_number.h).
//   dbm          hash (.hkh), tree (.hkt, and .hktb with the option raw), array (.hka), tiny (.hks),
//                baby, or auto: by the suffix
//   file         mmap or pos: how the file is accessed (dbm=hash, tree, array; others map it)
//   mode         read, write (the file must exist), create or truncate
//   wait         how long to wait for another holder of the file, in seconds
//   num_records, align_pow, seed           HashOptions, TinyOptions (dbm=hash, tiny)
//   page_size                              TreeOptions, BabyOptions (dbm=tree, baby)
//   max_bytes                              BabyOptions (dbm=baby)
//   capacity_bytes, capacity_records       TinyOptions, BabyOptions (dbm=tiny, baby)
//   width                                  ArrayOptions (dbm=array); keys are record numbers in decimal
//   cache_bytes, checkpoint_bytes, reader_bytes  TreeOptions, ArrayOptions (dbm=tree, array)
//   reader_age                             the same, in milliseconds
//   snapshot_bytes                         TreeOptions, ArrayOptions, BabyOptions (dbm=tree, array, baby)
//   raw                                    TreeOptions (dbm=tree): raw alone means raw=true
//   log_bytes, log_archive                 the options of each kind; log_archive=none ends the history
//   expiry       true: records may expire (dbm/expiry.h); of a new database; not of an array
//   order, codec  names of a comparator and a page codec, as Inspect shows them (dbm=tree; an error
//                 otherwise). Default: those of the file; bytewise and none for a new file. Others
//                 must have been added by the program (dbm/any_tree.h); they are accessed as
//                 file=pos.
//   direct, huge_pages, block_cache_bytes  FileOptions (file/file.h); direct alone means
//                                          direct=true and implies file=pos; with file=mmap it is
//                                          an error
//   durability   none, process or power; power is an error without a file name
//   sync_interval  in milliseconds (dbm=hash, tree, array; an error otherwise)
//   reclaim_bytes  HashOptions (dbm=hash)
//   unproven     accept or drop: HashOptions::unproven_updates (dbm=hash)
//   reserve_bytes, grow_min, grow_max      FileOptions (file/file.h)
// An option that the kind does not have is an error. Every kind accepts file, block_cache_bytes,
// huge_pages, reserve_bytes, grow_min and grow_max, which apply to its file, if there is one.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/options.h"
#include "hako/file/file.h"

namespace hako {

// The options: see the head of this header.
struct AnyOptions {
  static constexpr std::string_view kAuto = "auto";  // by the suffix of `path`
  // The kinds HashDBM, TreeDBM, ArrayDBM, TinyDBM and BabyDBM; and all values of `kind`.
  static constexpr std::string_view kHash = "hash";
  static constexpr std::string_view kTree = "tree";
  static constexpr std::string_view kArray = "array";
  static constexpr std::string_view kTiny = "tiny";
  static constexpr std::string_view kBaby = "baby";
  static constexpr std::array kKinds = {kAuto, kHash, kTree, kArray, kTiny, kBaby};

  std::string path = {};        // empty: in memory only (tiny, baby)
  std::string kind = "auto";    // one of kKinds
  std::string device = "mmap";  // AnyFile::kMemoryMap or kPositional
  // The options with the same names of the kind (dbm/options.h); nullopt = the default.
  std::uint64_t num_records = 0;
  std::optional<int> align_pow = {};
  std::uint64_t seed = 0;
  std::optional<unsigned> page_size = {};
  std::optional<unsigned> width = {};
  std::optional<std::uint64_t> max_bytes = {};
  std::optional<std::uint64_t> cache_bytes = {};
  std::optional<std::uint64_t> checkpoint_bytes = {};
  std::optional<std::uint64_t> reader_bytes = {};
  std::chrono::milliseconds reader_age{0};
  std::optional<std::uint64_t> log_bytes = {};
  std::optional<std::uint64_t> snapshot_bytes = {};
  std::string log_archive = {};  // empty, or kNoLogArchive: none
  bool expiry = false;
  Expiry::Clock clock = nullptr;
  bool raw = false;
  bool keep_log = false;  // see HashOptions; the text form has no option for it
  std::optional<std::uint64_t> reclaim_bytes = {};
  UnprovenUpdates unproven_updates = UnprovenUpdates::kRefuse;
  std::uint64_t capacity_bytes = 0;
  std::uint64_t capacity_records = 0;
  std::string order = {};  // comparator of a tree; empty = that of the file, bytewise for a new one
  std::string codec = {};  // codec of a tree; empty = that of the file, none for a new one
  // See the options of each kind.
  Durability durability = Durability::kProcess;
  std::chrono::milliseconds sync_interval{0};
  FileOptions file = {};  // see file/file.h

  // Returns `kind`, or for kAuto the kind that the suffix of `path` names; empty if it names none.
  std::string_view ResolvedKind() const;
  // Returns OK, or InvalidArgument if AnyDBM::Open would refuse the kind or one of the options.
  // Reads no file.
  Status Check() const;

 private:
  Status CheckKinds() const;
};

// Return the options of a kind among `options`, which must outlive the call of Open.
TreeOptions TreeOptionsOf(const AnyOptions& options);
HashOptions HashOptionsOf(const AnyOptions& options);
ArrayOptions ArrayOptionsOf(const AnyOptions& options);

namespace internal {

// Assigns the common options that this kind has.
template <class Options>
void TakeSharedOptions(const AnyOptions& options, Options* of_kind) {
  of_kind->durability = options.durability;
  of_kind->log_bytes = options.log_bytes.value_or(of_kind->log_bytes);
  of_kind->log_archive = options.log_archive;
  if constexpr (requires { of_kind->sync_interval; }) of_kind->sync_interval = options.sync_interval;
  if constexpr (requires { of_kind->expiry; }) {
    of_kind->expiry = options.expiry;
    of_kind->clock = options.clock;
  }
  if constexpr (requires { of_kind->snapshot_bytes; }) of_kind->snapshot_bytes = options.snapshot_bytes.value_or(of_kind->snapshot_bytes);
  if constexpr (requires { of_kind->cache_bytes; }) {
    of_kind->cache_bytes = options.cache_bytes.value_or(of_kind->cache_bytes);
    of_kind->reader_bytes = options.reader_bytes.value_or(of_kind->reader_bytes);
    of_kind->reader_age = options.reader_age;
    of_kind->checkpoint_bytes = options.checkpoint_bytes.value_or(of_kind->checkpoint_bytes);
  }
}

}  // namespace internal

// Parses `name`, with `defaults` for the options that it does not contain. Returns InvalidArgument,
// which names the option, if an option is unknown or has a wrong value.
StatusOr<AnyOptions> ParseAnyOptions(StringArg name, AnyOptions defaults = {});

}  // namespace hako
