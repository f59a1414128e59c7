// AnyDBM over hash tables in files.
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/positional_hash_dbm.h"

namespace hako {

namespace {

HashOptions HashOptionsOf(const AnyOptions& options) {
  HashOptions hash;
  hash.num_records = options.num_records;
  hash.align_pow = options.align_pow.value_or(hash.align_pow);
  hash.seed = options.seed;
  hash.durability = options.durability;
  hash.log_bytes = options.log_bytes.value_or(hash.log_bytes);
  hash.log_archive = options.log_archive;
  hash.sync_interval = options.sync_interval;
  hash.reclaim_bytes = options.reclaim_bytes.value_or(hash.reclaim_bytes);
  return hash;
}

}  // namespace

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenHashFile(const AnyOptions& options) {
  return OpenInFile<HashDBM<>, HashDBM<PositionalParallelFile>>(options, HashOptionsOf(options));
}

}  // namespace hako
