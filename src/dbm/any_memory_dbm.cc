// AnyDBM over databases in memory, and their snapshots.
#include <mutex>
#include <string>
#include <utility>

#include "hako/dbm/any_dbm.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/file/path.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/file/replace_file.h"

namespace hako {

// A database in memory with a file. The file is open, and so locked, from Open to Close; saving
// replaces it while both are locked.
template <class D>
class AnyDBM::SnapshotModel final : public Model<D> {
  using Base = Model<D>;
  using Base::db_;

 public:
  SnapshotModel(std::unique_ptr<D> db, PositionalParallelFile file, const AnyOptions& options)
      : Base(std::move(db)),
        file_(std::move(file)),
        writable_(file_.IsWritable()),
        path_(CanonicalOf(file_.path())),
        file_options_(options.file) {}
  ~SnapshotModel() override {
    (void)SnapshotModel::Close();
    if (is_inherited_) new PositionalParallelFile(std::move(file_));  // never destroyed: the lock is the parent's
  }

  // On error nothing of the file is changed, now or later.
  Status Load() {
    const Status loaded = file_.Size() == 0 ? absl::OkStatus() : db_->Load(file_);
    closed_ = !loaded.ok();
    return loaded;
  }

  Status Process(std::string_view key, UpdateRef visitor) override { return IsWritable() ? Base::Process(key, visitor) : Refuse(); }
  Status Process(std::string_view key, BlindUpdateRef visitor) override { return IsWritable() ? Base::Process(key, visitor) : Refuse(); }
  Status Process(std::string_view key, ReadRef visitor) override { return Base::Process(key, visitor); }
  Status Append(std::string_view key, std::string_view value, std::string_view delimiter) override {
    return IsWritable() ? Base::Append(key, value, delimiter) : Refuse();
  }
  Status ProcessMulti(Keys keys, MultiUpdateRef visitor) override { return IsWritable() ? Base::ProcessMulti(keys, visitor) : Refuse(); }
  Status ProcessMulti(Keys keys, MultiReadRef visitor) override { return Base::ProcessMulti(keys, visitor); }
  Status Write(const WriteBatch& batch) override { return IsWritable() ? Base::Write(batch) : Refuse(); }
  StatusOr<std::uint64_t> RemoveRange(std::string_view from, std::optional<std::string_view> to) override {
    return IsWritable() ? Base::RemoveRange(from, to) : Refuse();
  }
  Status Clear() override { return IsWritable() ? Base::Clear() : Refuse(); }
  bool IsWritable() const override { return writable_; }

  Status Synchronize(SyncMode mode) override {
    HAKO_RETURN_IF_ERROR(db_->Synchronize(mode));
    const std::lock_guard lock(mutex_);
    return mode == SyncMode::kHard && IsWritable() ? Save() : absl::OkStatus();
  }

  Status WaitDurable(std::uint64_t) override { return Synchronize(SyncMode::kHard); }

  Status Close() override {
    if (closed_) return absl::OkStatus();
    closed_ = true;
    if (!db_->CheckOpen().ok()) {
      is_inherited_ = true;  // by a forked child, which leaves the file to its parent
      return db_->Close();
    }
    const Status saved = IsWritable() ? Save() : absl::OkStatus();
    (void)db_->Close();
    const Status closed = file_.Close();
    return saved.ok() ? closed : saved;
  }

 private:
  static Status Refuse() { return ReadOnlyError(); }

  Status Save() {
    return ReplaceFile<PositionalParallelFile>(
        path_, [this](PositionalParallelFile& file) { return db_->Save(file); }, file_options_, &file_);
  }

  std::mutex mutex_;  // one save at a time
  PositionalParallelFile file_;
  const bool writable_;     // not asked of the file, which a save exchanges
  const std::string path_;  // neither a later chdir nor another link leads elsewhere
  const FileOptions file_options_;
  bool closed_ = false;
  bool is_inherited_ = false;
};

template <class D>
StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenInMemory(StatusOr<std::unique_ptr<D>> db, const AnyOptions& options) {
  HAKO_RETURN_IF_ERROR(db.status());
  if (options.durability == Durability::kPower || options.sync_interval.count() != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a database of kind ", ToAbsl(options.ResolvedKind()),
                                                   " is saved as a whole: options durability and sync_interval require dbm=hash or tree"));
  }
  if (options.path.empty()) return std::make_unique<AnyDBM>(*std::move(db));
  HAKO_ASSIGN_OR_RETURN(PositionalParallelFile file, PositionalParallelFile::Open(options.path, options.file));
  auto model = std::make_unique<SnapshotModel<D>>(*std::move(db), std::move(file), options);
  if (const Status loaded = model->Load(); !loaded.ok()) return Status(loaded.code(), absl::StrCat(options.path, ": ", loaded.message()));
  return std::unique_ptr<AnyDBM>(new AnyDBM(std::unique_ptr<Interface>(std::move(model))));
}

namespace {

TinyOptions TinyOptionsOf(const AnyOptions& options) {
  TinyOptions tiny;
  tiny.num_records = options.num_records;
  tiny.align_pow = options.align_pow.value_or(tiny.align_pow);
  tiny.seed = options.seed;
  return tiny;
}

BabyOptions BabyOptionsOf(const AnyOptions& options) {
  BabyOptions baby;
  baby.page_size = options.page_size.value_or(baby.page_size);
  baby.max_bytes = options.max_bytes.value_or(baby.max_bytes);
  return baby;
}

}  // namespace

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenTinyInMemory(const AnyOptions& options) {
  return OpenInMemory(TinyDBM<>::Open(TinyOptionsOf(options)), options);
}

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenBabyInMemory(const AnyOptions& options) {
  return OpenInMemory(BabyDBM<>::Open(BabyOptionsOf(options)), options);
}

}  // namespace hako
