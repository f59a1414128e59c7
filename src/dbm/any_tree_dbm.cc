// AnyDBM over trees in files, and the trees of other orders and codecs that programs add.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include "hako/dbm/any_dbm.h"
#include "hako/dbm/restore.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/damaged_file.h"
#include "hako/storage/superblock_slots.h"
#include "hako/sync/mutex.h"

namespace hako {

namespace {

using Names = std::pair<std::string, std::string>;  // the names of an order and a codec

Names NamesOf(const format::TreeSuperBlock& block) {
  const auto name = [](const auto& chars) { return std::string(chars.data(), strnlen(chars.data(), chars.size())); };
  return {name(block.comparator), name(block.codec)};
}

// Returns the order and the codec of an existing tree's file, or empty names if there is no such
// file. Both are fixed when a file is created.
Names NamesInTreeFile(const AnyOptions& options) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(options.path, error)) return {};  // a pipe would wait
  std::ifstream file(options.path, std::ios::binary);                     // without a lock, because the names never change
  format::TreeSuperBlock block;
  for (int slot = 0; slot < 2; ++slot) {
    file.clear();
    file.seekg(static_cast<std::streamoff>(static_cast<std::uint64_t>(slot) * storage::kSlotDistance));
    if (!file.read(reinterpret_cast<char*>(&block), sizeof(block))) continue;
    if (block.magic != format::kTreeFileMagic || block.check != format::CheckOf(block)) continue;
    return NamesOf(block);
  }
  return {};
}

// As above, for a file whose superblocks may be damaged.
StatusOr<Names> NamesInDamaged(const std::string& path, std::chrono::milliseconds lock_timeout) {
  FileOptions reading;
  reading.mode = OpenMode::kReadOnly;
  reading.lock_timeout = lock_timeout;
  HAKO_ASSIGN_OR_RETURN(const PositionalParallelFile file, PositionalParallelFile::Open(path, reading));
  SalvageReport unused;
  storage::DamagedFile source(file, unused);
  const auto found = storage::SalvageSuperBlock<format::TreeSuperBlock>(source, tree::PageStore<PositionalParallelFile>::kKind);
  if (!found.ok()) return Status(found.status().code(), absl::StrCat(path, ": ", found.status().message()));
  return NamesOf(found->block);
}

// Trees of other orders and codecs, by their names.
struct OtherTrees {
  struct Functions {
    AnyDBM::OpenTree open = nullptr;
    AnyDBM::SalvageTree salvage = nullptr;
    AnyDBM::RestoreTree restore = nullptr;
  };
  sync::Mutex mutex;
  std::map<Names, Functions> functions ABSL_GUARDED_BY(mutex);

  // Returns InvalidArgument, which names the file at `path`, if no such tree was added.
  StatusOr<Functions> Find(const Names& names, const std::string& path) {
    const sync::MutexLock lock(mutex);
    if (const auto found = functions.find(names); found != functions.end()) return found->second;
    std::string known;
    for (const auto& [other, unused] : functions) absl::StrAppend(&known, ", ", other.first, " with ", other.second);
    return absl::InvalidArgumentError(absl::StrCat(path, ": no tree of order ", names.first, " with codec ", names.second,
                                                   " is registered; there are bytewise with none", known, " (dbm/any_tree.h)"));
  }

  // Never destroyed, because destructors of static objects may open databases.
  static OtherTrees& Get() {
    static OtherTrees& trees = *new OtherTrees;
    return trees;
  }
};

}  // namespace

void AnyDBM::AddTree(StringArg order, StringArg codec, OpenTree open, SalvageTree salvage, RestoreTree restore) {
  OtherTrees& trees = OtherTrees::Get();
  const sync::MutexLock lock(trees.mutex);
  trees.functions[{std::string(order), std::string(codec)}] = {open, salvage, restore};
}

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenTreeFile(AnyOptions options) {
  const auto [order, codec] = options.path.empty() || options.file.mode == OpenMode::kTruncate ? Names() : NamesInTreeFile(options);
  const auto or_else = [](const std::string& name, std::string_view other) { return name.empty() ? std::string(other) : name; };
  options.order = or_else(options.order, or_else(order, BytewiseComparator::kName));
  options.codec = or_else(options.codec, or_else(codec, NoCodec::kName));
  if (options.order == BytewiseComparator::kName && options.codec == NoCodec::kName)
    return OpenInFile<TreeDBM<>>(options, TreeOptionsOf(options));
  HAKO_ASSIGN_OR_RETURN(const OtherTrees::Functions tree, OtherTrees::Get().Find({options.order, options.codec}, options.path));
  return tree.open(options);
}

StatusOr<SalvageReport> AnyDBM::SalvageTreeFile(const std::string& from, const std::string& to, const FileOptions& options,
                                                SalvageTree bytewise) {
  HAKO_ASSIGN_OR_RETURN(const Names names, NamesInDamaged(from, options.lock_timeout));
  if (names == Names(BytewiseComparator::kName, NoCodec::kName)) return bytewise(from, to, options);
  HAKO_ASSIGN_OR_RETURN(const OtherTrees::Functions tree, OtherTrees::Get().Find(names, from));
  return tree.salvage(from, to, options);
}

StatusOr<RestoreReport> AnyDBM::RestoreTreeFile(const std::string& copy, const std::string& archive, const std::string& to,
                                                const RestoreOptions& options) {
  HAKO_ASSIGN_OR_RETURN(const Names names, NamesInDamaged(copy, options.lock_timeout));
  if (names == Names(BytewiseComparator::kName, NoCodec::kName)) return hako::Restore<TreeDBM<>>(copy, archive, to, options);
  HAKO_ASSIGN_OR_RETURN(const OtherTrees::Functions tree, OtherTrees::Get().Find(names, copy));
  return tree.restore(copy, archive, to, options);
}

}  // namespace hako
