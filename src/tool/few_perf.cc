// Replaces perf_hash.cc, perf_tree.cc and perf_memory.cc in a tool that is built with
// HAKO_FEW_DATABASES: `hako perf sequence` on hash tables and trees in mapped files and on TinyDBM.
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "tool/message.h"
#include "tool/perf.h"
#include "tool/perf_sequence.h"
#include "tool/perf_target.h"

namespace hako::tool {

namespace {

int FailAbsent(const PerfOptions& options) {
  return FailUsage(options.command, "this run on this database is not in this build: build hako with -D HAKO_FEW_DATABASES=OFF");
}

template <class Target>
int RunSequence(PerfRunKind run, const PerfOptions& options) {
  return run == PerfRunKind::kSequence && options.access.IsMapped() ? Sequence<Target>(options).Run() : FailAbsent(options);
}

}  // namespace

int RunPerfOnHash(PerfRunKind run, const PerfOptions& options) { return RunSequence<FileTarget<HashDBM<>>>(run, options); }
int RunPerfOnTree(PerfRunKind run, const PerfOptions& options) { return RunSequence<FileTarget<TreeDBM<>>>(run, options); }
int RunPerfOnTiny(PerfRunKind run, const PerfOptions& options) { return RunSequence<MemoryTarget<TinyDBM<>>>(run, options); }
int RunPerfOnBaby(PerfRunKind, const PerfOptions& options) { return FailAbsent(options); }

}  // namespace hako::tool
