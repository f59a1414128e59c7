#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "tool/perf_runs.h"

namespace hako::tool {

int RunPerfOnTiny(PerfRunKind run, const PerfOptions& options) { return RunPerfOn<MemoryTarget<TinyDBM<>>>(run, options); }
int RunPerfOnBaby(PerfRunKind run, const PerfOptions& options) { return RunPerfOn<MemoryTarget<BabyDBM<>>>(run, options); }

}  // namespace hako::tool
