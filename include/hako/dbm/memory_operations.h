// Snapshots (storage/snapshot.h) and the remaining calls of every DBM for the databases in memory,
// TinyDBM and BabyDBM.
//
// Such a class D inherits MemoryOperations<D, FileT> publicly (CRTP) and provides MakeIterator,
// Clear, Set, CheckIdle and kKeySizeMax. A snapshot does not depend on the kind of database: either
// class loads a snapshot of the other.
//
// Threads: Save and Load from any thread. Save does not stop writers: it stores each record with a
// value that it had during the call. Load consists of many updates, and other threads may see each
// of them.
#pragma once

#include <string>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/write_batch.h"
#include "hako/file/file.h"
#include "hako/file/replace_file.h"
#include "hako/storage/snapshot.h"

namespace hako {

// The operations: see the head of this header.
template <class D, File FileT>
class MemoryOperations {
 public:
  // Empties `file`, of any type, writes all records to it, and syncs it. An error leaves its content
  // unspecified.
  template <File F>
  Status Save(F& file) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    return storage::SaveSnapshot(file, self().MakeIterator());
  }
  HAKO_OR_NO_MEMORY
  // Creates or replaces the file at `path` atomically and durably (file/replace_file.h). An error
  // leaves it unchanged.
  Status Save(const std::string& path) requires PathFile<FileT> HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    return ReplaceFile<FileT>(path, [this](FileT& file) { return Save(file); });
  }
  HAKO_OR_NO_MEMORY

  // Replaces all records by those of a snapshot. DataLoss if the snapshot does not validate;
  // nothing is changed then, nor if it has a key longer than D::kKeySizeMax (OutOfRange). A later
  // failure, such as a lack of memory, leaves the database empty. A snapshot has no applied index: it
  // is 0 afterwards.
  template <File F>
  Status Load(F& file) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    HAKO_RETURN_IF_ERROR(storage::LoadSnapshot(file, self()));
    return ForgetAppliedIndex();
  }
  HAKO_OR_NO_MEMORY
  Status Load(const std::string& path) requires PathFile<FileT> HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    HAKO_RETURN_IF_ERROR(storage::LoadSnapshot<FileT>(path, self()));
    return ForgetAppliedIndex();
  }
  HAKO_OR_NO_MEMORY

  // There is no file to synchronize, to fail or to be read-only. OK while the database can be used.
  Status Synchronize(SyncMode) { return self().CheckIdle(); }
  static std::uint64_t LastLsn() { return 0; }
  Status WaitDurable(std::uint64_t) { return self().CheckIdle(); }
  bool IsWritable() const { return true; }
  Status GetHealth() const { return self().CheckIdle(); }

 protected:
  // For EngineOperations: no update is refused, and none is followed by a call.
  static constexpr bool AcceptsUpdates() { return true; }
  static constexpr bool HasAfterUpdate() { return false; }
  static Status MayUpdate() { return absl::OkStatus(); }
  static Status MayRemove() { return absl::OkStatus(); }
  static Status AfterUpdate() { return absl::OkStatus(); }

 private:
  Status ForgetAppliedIndex() {
    WriteBatch batch;
    batch.SetAppliedIndex(0);
    return self().Write(batch);
  }
  D& self() { return static_cast<D&>(*this); }
  const D& self() const { return static_cast<const D&>(*this); }
};

}  // namespace hako
