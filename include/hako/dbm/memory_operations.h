// What the databases in memory, TinyDBM and BabyDBM, do alike: there is no file behind them, but snapshots of them can be saved and loaded
// (storage/snapshot.h).
//
// Such a class D inherits MemoryOperations<D, FileT> publicly (CRTP) and provides MakeIterator, Clear, Set, CheckIdle and kKeySizeMax. A
// snapshot is of no kind: what one database saved, another one can load.
//
// Threads: Save and Load from any. Save does not stop writers: each record is saved with a value that it had during the call. Load is many
// updates, and others may see each of them.
#pragma once

#include <string>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/file/file.h"
#include "hako/file/replace_file.h"
#include "hako/storage/snapshot.h"

namespace hako {

template <class D, File FileT>
class MemoryOperations {
 public:
  // Writes all records to `file`, which is emptied first, and syncs it.
  Status Save(FileT& file) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    return storage::SaveSnapshot(file, self().MakeIterator());
  }
  HAKO_OR_NO_MEMORY
  // Replaces the file at `path` (file/replace_file.h), or leaves it as it is.
  Status Save(const std::string& path) requires PathFile<FileT> HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    return ReplaceFile<FileT>(path, [this](FileT& file) { return Save(file); });
  }
  HAKO_OR_NO_MEMORY

  // Replaces all records by those of a snapshot. Nothing is changed if the snapshot does not validate or has a key longer than
  // D::kKeySizeMax; if memory runs out half-way the database is left empty.
  Status Load(FileT& file) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    return storage::LoadSnapshot(file, self());
  }
  HAKO_OR_NO_MEMORY
  Status Load(const std::string& path) requires PathFile<FileT> HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    return storage::LoadSnapshot<FileT>(path, self());
  }
  HAKO_OR_NO_MEMORY

  // There is no file to synchronize with, and none that could fail or be read-only.
  Status Synchronize(SyncMode) { return self().CheckIdle(); }
  bool IsWritable() const { return true; }
  Status GetHealth() const { return self().CheckIdle(); }

 private:
  D& self() { return static_cast<D&>(*this); }
  const D& self() const { return static_cast<const D&>(*this); }
};

}  // namespace hako
