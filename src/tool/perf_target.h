// The target of perf: the kind of database under test. SetUp opens it for a phase, db() returns it,
// TearDown closes it. perf consists of templates over the target, so it measures the library
// without virtual calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "hako/base/status.h"
#include "hako/dbm/options.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/file/file.h"
#include "tool/perf.h"

namespace hako::tool {

// A database in a file, opened again for each phase.
template <class D>
class FileTarget {
 public:
  static constexpr bool kIsInFile = true;
  explicit FileTarget(const PerfOptions& options) : options_(options) {}

  Status SetUp(bool writable, bool truncate) {
    FileOptions file = options_.access.ToFileOptions();
    file.mode = !writable ? OpenMode::kReadOnly : truncate ? OpenMode::kTruncate : OpenMode::kCreate;
    HAKO_ASSIGN_OR_RETURN(db_, Open(file));
    is_writable_ = writable;
    return absl::OkStatus();
  }
  D& db() { return *db_; }
  Status MaybeRebuild() { return db_->ShouldBeRebuilt() ? db_->Rebuild() : absl::OkStatus(); }
  Status Rebuild() { return db_->Rebuild(); }
  Status Copy(const std::string& path) { return db_->CopyTo(path); }
  Status TearDown() {
    const Status synced = is_writable_ && options_.sync_hard ? db_->Synchronize(SyncMode::kHard) : absl::OkStatus();
    const Status closed = db_->Close();
    db_.reset();
    return synced.ok() ? closed : synced;
  }

 private:
  StatusOr<std::unique_ptr<D>> Open(const FileOptions& file_options) const { return D::Open(options_.path, OptionsOfKind(), file_options); }
  auto OptionsOfKind() const {
    if constexpr (OrderedDBM<D>) {
      TreeOptions tree;
      if (options_.max_page_size >= 0) tree.page_size = static_cast<unsigned>(options_.max_page_size);
      if (options_.cache_bytes >= 0) tree.cache_bytes = static_cast<std::uint64_t>(options_.cache_bytes);
      if (options_.checkpoint_bytes >= 0) tree.checkpoint_bytes = static_cast<std::uint64_t>(options_.checkpoint_bytes);
      return tree;
    } else {
      HashOptions hash;
      if (options_.num_buckets > 0) hash.num_records = static_cast<std::uint64_t>(options_.num_buckets);
      if (options_.align_pow >= 0) hash.align_pow = static_cast<int>(options_.align_pow);
      hash.min_read_size = static_cast<std::uint64_t>(options_.access.min_read_size);
      return hash;
    }
  }

  const PerfOptions& options_;
  std::unique_ptr<D> db_;
  bool is_writable_ = false;
};

// A database in memory, which lives through all phases. With --path it is loaded before each phase,
// and saved after each phase that writes.
template <class D>
class MemoryTarget {
 public:
  static constexpr bool kIsInFile = false;
  explicit MemoryTarget(const PerfOptions& options) : options_(options) {}

  Status SetUp(bool writable, bool truncate) {
    is_writable_ = writable;
    if (db_ != nullptr) return truncate ? db_->Clear() : absl::OkStatus();
    HAKO_ASSIGN_OR_RETURN(db_, Open());
    return options_.path.empty() || truncate ? absl::OkStatus() : db_->Load(options_.path);
  }
  D& db() { return *db_; }
  Status MaybeRebuild() { return absl::OkStatus(); }  // never needed
  Status Rebuild() { return absl::OkStatus(); }
  Status Copy(const std::string& path) { return db_->Save(path); }
  Status TearDown() {
    if (options_.path.empty()) return absl::OkStatus();
    const Status saved = is_writable_ ? db_->Save(options_.path) : absl::OkStatus();
    db_.reset();
    return saved;
  }

 private:
  StatusOr<std::unique_ptr<D>> Open() const {
    if constexpr (OrderedDBM<D>) {
      BabyOptions baby;
      if (options_.max_page_size >= 0) baby.page_size = static_cast<unsigned>(options_.max_page_size);
      return D::Open(baby);
    } else {
      TinyOptions tiny;
      if (options_.num_buckets > 0) tiny.num_records = static_cast<std::uint64_t>(options_.num_buckets);
      if (options_.align_pow >= 0) tiny.align_pow = static_cast<int>(options_.align_pow);
      return D::Open(tiny);
    }
  }

  const PerfOptions& options_;
  std::unique_ptr<D> db_;
  bool is_writable_ = false;
};

}  // namespace hako::tool
