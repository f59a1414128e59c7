// AnyDBM over hash tables in files.
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/positional_hash_dbm.h"

namespace hako {

namespace {

HashOptions HashOptionsOf(const AnyOptions& options) {
  HashOptions hash;
  internal::TakeSharedOptions(options, &hash);
  hash.num_records = options.num_records;
  hash.align_pow = options.align_pow.value_or(hash.align_pow);
  hash.seed = options.seed;
  hash.keep_log = options.keep_log;
  hash.unproven_updates = options.unproven_updates;
  hash.reclaim_bytes = options.reclaim_bytes.value_or(hash.reclaim_bytes);
  return hash;
}

}  // namespace

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenHashFile(const AnyOptions& options) {
  return OpenInFile<HashDBM<>, HashDBM<PositionalParallelFile>>(options, HashOptionsOf(options));
}

}  // namespace hako
