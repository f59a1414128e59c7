#include "hako/dbm/positional_hash_dbm.h"
#include "tool/perf_runs.h"

namespace hako::tool {

int RunPerfOnHash(PerfRunKind run, const PerfOptions& options) {
  return options.access.IsMapped() ? RunPerfOn<FileTarget<HashDBM<>>>(run, options)
                                   : RunPerfOn<FileTarget<HashDBM<PositionalParallelFile>>>(run, options);
}

}  // namespace hako::tool
