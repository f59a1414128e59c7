// Ranks in the order of the locks of a HashDBM, which section 3 of include/hako/README.md describes;
// the numbers here are its numbers. Clang checks the order where one function takes several of these
// mutexes (sync/mutex.h): a mutex comes before the rank after it and after the rank before it.
#pragma once

#include "hako/sync/mutex.h"

namespace hako::hash {

inline sync::LockRank kInnermostLocks;                                       // between 12 and 13
inline sync::LockRank kFileLocks ABSL_ACQUIRED_BEFORE(kInnermostLocks);      // between 11 and 12
inline sync::LockRank kPoolLocks ABSL_ACQUIRED_BEFORE(kFileLocks);           // between 10 and 11
inline sync::LockRank kIndexLocks ABSL_ACQUIRED_BEFORE(kPoolLocks);          // between 9 and 10
inline sync::LockRank kExtentLocks ABSL_ACQUIRED_BEFORE(kIndexLocks);        // between 8 and 9
inline sync::LockRank kHeapLocks ABSL_ACQUIRED_BEFORE(kExtentLocks);         // between 7 and 8
inline sync::LockRank kBucketLocks ABSL_ACQUIRED_BEFORE(kHeapLocks);         // between 3 and 7: where buckets are locked
inline sync::LockRank kMaintenanceLocks ABSL_ACQUIRED_BEFORE(kBucketLocks);  // between 2 and 3

}  // namespace hako::hash
