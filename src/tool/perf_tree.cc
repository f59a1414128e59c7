#include "hako/dbm/positional_tree_dbm.h"
#include "tool/perf_runs.h"

namespace hako::tool {

int RunPerfOnTree(PerfRunKind run, const PerfOptions& options) {
  return options.access.IsMapped() ? RunPerfOn<FileTarget<TreeDBM<>>>(run, options)
                                   : RunPerfOn<FileTarget<TreeDBM<PositionalParallelFile>>>(run, options);
}

}  // namespace hako::tool
