// AnyDBM over trees in files, and the trees of other orders and codecs that programs add.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "hako/dbm/any_dbm.h"
#include "hako/dbm/positional_tree_dbm.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/superblock_slots.h"

namespace hako {

namespace {

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

}  // namespace

void AnyDBM::AddTree(std::string_view order, std::string_view codec, OpenTree open) {
  OtherTrees& trees = OtherTrees::Get();
  const std::lock_guard lock(trees.mutex);
  trees.openers[{std::string(order), std::string(codec)}] = open;
}

StatusOr<std::unique_ptr<AnyDBM>> AnyDBM::OpenTreeFile(AnyOptions options) {
  const auto [order, codec] =
      options.path.empty() || options.file.mode == OpenMode::kTruncate ? std::pair<std::string, std::string>() : NamesInTreeFile(options);
  const auto or_else = [](const std::string& name, std::string_view other) { return name.empty() ? std::string(other) : name; };
  options.order = or_else(options.order, or_else(order, BytewiseComparator::kName));
  options.codec = or_else(options.codec, or_else(codec, NoCodec::kName));
  if (options.order == BytewiseComparator::kName && options.codec == NoCodec::kName)
    return OpenInFile<TreeDBM<>, TreeDBM<PositionalParallelFile>>(options, TreeOptionsOf(options));
  OpenTree open = nullptr;
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

}  // namespace hako
