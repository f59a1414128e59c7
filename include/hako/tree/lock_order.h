// The order in which the threads of a TreeDBM take locks: ascending numbers. *Tried* means that a
// thread never waits for the lock. "I/O" here means calls of the file; an access to a mapped file
// can always be a page fault.
//
//   1. PageHolds::mutex. A ProcessMulti of many pages (HeldPages) holds it to its end, while
//      it loads pages and while it waits for a checkpoint. No thread holds it with 2.
//   2. PoolHome::scrub_mutex_, which a Scrub holds through its reads, or DatabaseHome::setter_mutex_,
//      then maintenance_mutex_. One checkpoint, one step of Rebuild, Pin, Unpin, CutFile and the choice
//      of a Scrub each hold it through their I/O. Rebuild yields to checkpoints between steps.
//   3. WriteGate::mutex_. The body of a checkpoint does no I/O; that of Clear loads pages.
//   4. Page lines, by VersionLock: leaves in the order of their keys, then upwards. Every other
//      line is only tried. A writer holds a leaf for one look-up, the visitor and one change, and
//      the parent for a split or a join. No I/O is done under a page's lock, except in Clear, which
//      locks from the root down and keeps the pages above locked while it loads one; no writer runs
//      then. The line of an evicted page is locked and no thread owns the lock.
//      PageTree::applied_mutex_ is taken with all leaves of an update locked, and held while the log
//      takes the update.
//   5. PageStates::mutex: the states of pages and the lists for eviction. Under it page lines are
//      only tried. It is never held during I/O.
//   6. PageArena::mutex_, also inside 5, then storage::Arena::mutex_.
//   7. Innermost, one at a time, and not inside 5: DirtyPages::mutex_, LongValues::mutex_, and
//      CheckpointProgress::mutex_, inside which BackgroundThread::mutex_ is taken to ask for a
//      checkpoint; DatabaseHome::metadata_mutex_; PoolHome::retry_mutex_.
//   8. SharedPageMap::mutex_, then SharedPageMap::cut_mutex_. The first is released during I/O; the
//      second is held shared while an image is read. CutFile holds both, the second exclusively,
//      while it makes the file shorter.
//   9. PageReadAhead::mutex_, with no other lock held.
//  10. In the file: see include/hako/README.md.
//
// Clang checks the order in functions that take several of these mutexes (sync/mutex.h). A rank
// stands between two numbers: the mutexes of the lower number are acquired before it, those of the
// higher number after it.
#pragma once

#include "hako/sync/mutex.h"

namespace hako::tree {

inline sync::LockRank kPoolLocks;                                          // between 5 and 6
inline sync::LockRank kMaintenanceLocks ABSL_ACQUIRED_BEFORE(kPoolLocks);  // between 2 and 5

}  // namespace hako::tree
