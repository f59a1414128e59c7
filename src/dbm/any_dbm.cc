#include "hako/dbm/any_dbm.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/options.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/file/replace_file.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/superblock_slots.h"

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
        path_(Canonical(file_.path())),
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

  Status Process(std::string_view key, Update visitor) override { return IsWritable() ? Base::Process(key, visitor) : Refuse(); }
  Status Process(std::string_view key, BlindUpdate visitor) override { return IsWritable() ? Base::Process(key, visitor) : Refuse(); }
  Status Process(std::string_view key, Look visitor) override { return Base::Process(key, visitor); }
  Status Append(std::string_view key, std::string_view value, std::string_view delimiter) override {
    return IsWritable() ? Base::Append(key, value, delimiter) : Refuse();
  }
  Status ProcessMulti(Keys keys, MultiUpdate visitor) override { return IsWritable() ? Base::ProcessMulti(keys, visitor) : Refuse(); }
  Status ProcessMulti(Keys keys, MultiLook visitor) override { return Base::ProcessMulti(keys, visitor); }
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

  static std::string Canonical(const std::string& path) {
    std::error_code error;
    const std::string canonical = std::filesystem::canonical(path, error).string();
    return error ? path : canonical;
  }

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

namespace {

HashOptions HashOptionsOf(const AnyOptions& options) {
  HashOptions hash;
  hash.num_records = options.num_records;
  hash.align_pow = options.align_pow.value_or(hash.align_pow);
  hash.seed = options.seed;
  hash.durability = options.durability;
  hash.sync_interval = options.sync_interval;
  hash.reclaim_bytes = options.reclaim_bytes.value_or(hash.reclaim_bytes);
  return hash;
}

template <class D, class Options>
StatusOr<std::unique_ptr<AnyDBM>> OpenFile(const AnyOptions& options, const Options& of_kind) {
  HAKO_ASSIGN_OR_RETURN(auto db, D::Open(options.path, of_kind, options.file));
  return std::make_unique<AnyDBM>(std::move(db));
}

template <class Mapped, class Positional, class Options>
StatusOr<std::unique_ptr<AnyDBM>> OpenInFile(const AnyOptions& options, const Options& of_kind) {
  if (options.path.empty())
    return absl::InvalidArgumentError(absl::StrCat("a database of kind ", ToAbsl(options.ResolvedKind()), " needs a file name"));
  if (options.device == "mmap") return OpenFile<Mapped>(options, of_kind);
  if (options.device == "pos") return OpenFile<Positional>(options, of_kind);
  return absl::InvalidArgumentError(absl::StrCat("unknown file type '", options.device, "'"));
}

// The order and the codec of an existing tree's file; empty names where there is none. Both are
// fixed when a file is created.
std::pair<std::string, std::string> NamesInTreeFile(const AnyOptions& options) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(options.path, error)) return {};  // a pipe would wait
  std::ifstream file(options.path, std::ios::binary);                     // without its lock: the names never change
  format::TreeSuperBlock block;
  for (int slot = 0; slot < 2; ++slot) {
    file.clear();
    file.seekg(static_cast<std::streamoff>(static_cast<std::uint64_t>(slot) * storage::kSlotDistance));
    if (!file.read(reinterpret_cast<char*>(&block), sizeof(block))) continue;
    if (block.magic != format::kTreeFileMagic || block.check != format::CheckOf(block)) continue;
    const auto name = [](const auto& chars) { return std::string(chars.data(), strnlen(chars.data(), chars.size())); };
    return {name(block.comparator), name(block.codec)};
  }
  return {};
}

// Trees of other orders and codecs, by their names.
struct OtherTrees {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, AnyDBM::OpenTree> openers;

  // Never destroyed: databases may be opened by destructors of static objects.
  static OtherTrees& Get() {
    static OtherTrees& trees = *new OtherTrees;
    return trees;
  }
};

StatusOr<std::unique_ptr<AnyDBM>> OpenTreeFile(AnyOptions options) {
  const auto [order, codec] =
      options.path.empty() || options.file.mode == OpenMode::kTruncate ? std::pair<std::string, std::string>() : NamesInTreeFile(options);
  const auto or_else = [](const std::string& name, std::string_view other) { return name.empty() ? std::string(other) : name; };
  options.order = or_else(options.order, or_else(order, BytewiseComparator::kName));
  options.codec = or_else(options.codec, or_else(codec, NoCodec::kName));
  if (options.order == BytewiseComparator::kName && options.codec == NoCodec::kName)
    return OpenInFile<TreeDBM<MemoryMapParallelFile>, TreeDBM<PositionalParallelFile>>(options, TreeOptionsOf(options));
  AnyDBM::OpenTree open = nullptr;
  std::string known;
  {
    OtherTrees& trees = OtherTrees::Get();
    const std::lock_guard lock(trees.mutex);
    for (const auto& [names, opener] : trees.openers) {
      absl::StrAppend(&known, ", ", names.first, " with ", names.second);
      if (names == std::pair(options.order, options.codec)) open = opener;
    }
  }
  if (open != nullptr) return open(options);
  return absl::InvalidArgumentError(absl::StrCat(options.path, ": no tree of order ", options.order, " with codec ", options.codec,
                                                 " is registered; there are bytewise with none", known, " (dbm/any_tree.h)"));
}

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

template <class D>
StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenInMemory(StatusOr<std::unique_ptr<D>> db, const AnyOptions& options) {
  HAKO_RETURN_IF_ERROR(db.status());
  if (options.durability != Durability::kProcess || options.sync_interval.count() != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a database of kind ", ToAbsl(options.ResolvedKind()),
                                                   " is saved as a whole: options durability and sync_interval require dbm=hash or tree"));
  }
  if (options.path.empty()) return std::make_unique<AnyDBM>(*std::move(db));
  HAKO_ASSIGN_OR_RETURN(PositionalParallelFile file, PositionalParallelFile::Open(options.path, options.file));
  auto model = std::make_unique<SnapshotModel<D>>(*std::move(db), std::move(file), options);
  if (const Status loaded = model->Load(); !loaded.ok()) return Status(loaded.code(), absl::StrCat(options.path, ": ", loaded.message()));
  return std::unique_ptr<AnyDBM>(new AnyDBM(std::unique_ptr<Interface>(std::move(model))));
}

void AnyDBM::AddTree(std::string_view order, std::string_view codec, OpenTree open) {
  OtherTrees& trees = OtherTrees::Get();
  const std::lock_guard lock(trees.mutex);
  trees.openers[{std::string(order), std::string(codec)}] = open;
}

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::Open(const AnyOptions& options) {
  const std::string_view kind = options.ResolvedKind();
  using Mapped = MemoryMapParallelFile;
  using Positional = PositionalParallelFile;
  if (kind == AnyOptions::kTree) return OpenTreeFile(options);
  if (!options.order.empty() || !options.codec.empty()) return absl::InvalidArgumentError("options order and codec require dbm=tree");
  if (kind == AnyOptions::kHash) return OpenInFile<HashDBM<Mapped>, HashDBM<Positional>>(options, HashOptionsOf(options));
  if (kind == AnyOptions::kTiny) return OpenInMemory(TinyDBM<PositionalParallelFile>::Open(TinyOptionsOf(options)), options);
  if (kind == AnyOptions::kBaby) return OpenInMemory(BabyDBM<PositionalParallelFile>::Open(BabyOptionsOf(options)), options);
  if (!kind.empty()) return absl::InvalidArgumentError(absl::StrCat("unknown kind of database '", ToAbsl(kind), "'"));
  return absl::InvalidArgumentError(
      absl::StrCat(options.path, ": unknown suffix; use .hkh (hash), .hkt (tree) or .hks (tiny), or set dbm=hash, tree, tiny or baby"));
}

}  // namespace hako
