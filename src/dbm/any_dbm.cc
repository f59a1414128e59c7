#include "hako/dbm/any_dbm.h"

#include <mutex>

#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/options.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/path.h"
#include "hako/file/positional_parallel_file.h"

namespace hako {

// A TinyDBM with a file. The file is open, and so locked, from Open to Close; saving puts another in its place while both are locked.
class AnyDBM::SnapshotModel final : public Model<TinyDBM<PositionalParallelFile>> {
  using Database = TinyDBM<PositionalParallelFile>;

 public:
  SnapshotModel(std::unique_ptr<Database> db, PositionalParallelFile file, const AnyOptions& options)
      : Model(std::move(db)), file_(std::move(file)), writable_(file_.IsWritable()), path_(options.path), file_options_(options.file) {}
  ~SnapshotModel() override { (void)SnapshotModel::Close(); }

  // On error nothing of the file is changed, now or later.
  Status Load() {
    const Status loaded = file_.Size() == 0 ? absl::OkStatus() : db_->Load(file_);
    closed_ = !loaded.ok();
    return loaded;
  }

  Status Process(std::string_view key, Update visitor) override { return IsWritable() ? Model::Process(key, visitor) : Refuse(); }
  Status Process(std::string_view key, BlindUpdate visitor) override { return IsWritable() ? Model::Process(key, visitor) : Refuse(); }
  Status Process(std::string_view key, Look visitor) override { return Model::Process(key, visitor); }
  Status Append(std::string_view key, std::string_view value, std::string_view delimiter) override {
    return IsWritable() ? Model::Append(key, value, delimiter) : Refuse();
  }
  Status ProcessMulti(Keys keys, MultiUpdate visitor) override { return IsWritable() ? Model::ProcessMulti(keys, visitor) : Refuse(); }
  Status ProcessMulti(Keys keys, MultiLook visitor) override { return Model::ProcessMulti(keys, visitor); }
  Status Clear() override { return IsWritable() ? Model::Clear() : Refuse(); }
  bool IsWritable() const override { return writable_; }

  Status Synchronize(SyncMode mode) override {
    const std::lock_guard lock(mutex_);
    return mode == SyncMode::kHard && IsWritable() ? Save() : absl::OkStatus();
  }

  Status Close() override {
    const std::lock_guard lock(mutex_);
    if (closed_) return absl::OkStatus();
    closed_ = true;
    const Status saved = IsWritable() ? Save() : absl::OkStatus();
    const Status closed = file_.Close();
    return saved.ok() ? closed : saved;
  }

 private:
  static Status Refuse() { return absl::FailedPreconditionError("the database is open read-only"); }

  // As ReplaceFile, but the new file stays open.
  Status Save() {
    FileOptions options = file_options_;
    options.mode = OpenMode::kTruncate;
    const std::string beside = absl::StrCat(path_, ".tmp");
    HAKO_ASSIGN_OR_RETURN(PositionalParallelFile file, PositionalParallelFile::Open(beside, options));
    Status status = db_->Save(file);
    if (status.ok()) status = file.Resize(file.Size());
    if (status.ok()) status = file.Sync();
    if (status.ok()) status = RenameDurably(beside, path_);
    if (!status.ok()) {
      (void)RemoveFile(beside);
      return status;
    }
    std::swap(file_, file);
    return file.Close();
  }

  std::mutex mutex_;  // one save at a time
  PositionalParallelFile file_;
  const bool writable_;  // not asked of the file, which a save exchanges
  const std::string path_;
  const FileOptions file_options_;
  bool closed_ = false;
};

namespace {

HashOptions HashOptionsOf(const AnyOptions& options) {
  HashOptions hash;
  hash.num_records = options.num_records;
  hash.align_pow = options.align_pow.value_or(hash.align_pow);
  hash.seed = options.seed;
  hash.durability = options.durability;
  hash.sync_interval = options.sync_interval;
  return hash;
}

template <class FileT>
StatusOr<std::unique_ptr<AnyDBM>> OpenHash(const AnyOptions& options) {
  HAKO_ASSIGN_OR_RETURN(auto db, HashDBM<FileT>::Open(options.path, HashOptionsOf(options), options.file));
  return std::make_unique<AnyDBM>(std::move(db));
}

TinyOptions TinyOptionsOf(const AnyOptions& options) {
  TinyOptions tiny;
  tiny.num_records = options.num_records;
  tiny.align_pow = options.align_pow.value_or(tiny.align_pow);
  tiny.seed = options.seed;
  return tiny;
}

}  // namespace

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::Open(const AnyOptions& options) {
  const std::string_view kind = options.ResolvedKind();
  if (kind == AnyOptions::kHash) {
    if (options.path.empty()) return absl::InvalidArgumentError("a database of kind hash needs a file name");
    if (options.device == "mmap") return OpenHash<MemoryMapParallelFile>(options);
    if (options.device == "pos") return OpenHash<PositionalParallelFile>(options);
    return absl::InvalidArgumentError(absl::StrCat("there is no file type \"", options.device, "\""));
  }
  if (kind == AnyOptions::kTiny) {
    if (options.durability != Durability::kProcess || options.sync_interval.count() != 0) {
      return absl::InvalidArgumentError("a database of kind tiny is saved as a whole: durability and sync_interval are for kind hash");
    }
    HAKO_ASSIGN_OR_RETURN(auto db, TinyDBM<PositionalParallelFile>::Open(TinyOptionsOf(options)));
    if (options.path.empty()) return std::make_unique<AnyDBM>(std::move(db));
    HAKO_ASSIGN_OR_RETURN(PositionalParallelFile file, PositionalParallelFile::Open(options.path, options.file));
    auto model = std::make_unique<SnapshotModel>(std::move(db), std::move(file), options);
    if (const Status loaded = model->Load(); !loaded.ok()) return Status(loaded.code(), absl::StrCat(options.path, ": ", loaded.message()));
    return std::unique_ptr<AnyDBM>(new AnyDBM(std::unique_ptr<Interface>(std::move(model))));
  }
  if (!kind.empty()) return absl::InvalidArgumentError(absl::StrCat("there is no kind of database \"", ToAbsl(kind), "\""));
  return absl::InvalidArgumentError(
      absl::StrCat(options.path, ": the ending does not tell the kind of database: .hkh hash, .hks tiny; or say dbm=hash"));
}

}  // namespace hako
