// The runs of perf on one kind of database. One file for each kind includes it (perf_hash.cc,
// perf_tree.cc, perf_memory.cc), because each compiles all runs.
#pragma once

#include "tool/perf.h"
#include "tool/perf_parallel.h"
#include "tool/perf_sequence.h"
#include "tool/perf_stalls.h"
#include "tool/perf_target.h"
#include "tool/perf_wicked.h"

namespace hako::tool {

template <class Target>
int RunPerfOn(PerfRunKind run, const PerfOptions& options) {
  switch (run) {
    case PerfRunKind::kSequence:
      return Sequence<Target>(options).Run();
    case PerfRunKind::kParallel:
      return Parallel<Target>(options).Run();
    case PerfRunKind::kWicked:
      return Wicked<Target>(options).Run();
    default:
      return Stalls<Target>(options).Run();
  }
}

}  // namespace hako::tool
