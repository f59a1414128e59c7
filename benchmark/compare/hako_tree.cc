// hako's TreeDBM on a memory-mapped file, with 256 MiB for pages, which is its default, and a log, or
// without one with HAKO_NO_LOG. Checkpoints run beside the phases in which they fall due; the last
// one is a part of close.
#include "driver.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako_engine.h"

namespace hako::compare {

class HakoTreeEngine : public HakoEngine<TreeDBM<MemoryMapParallelFile>> {
 public:
  static constexpr std::string_view kName = kDurability == Durability::kNone ? "hako_tree_none" : "hako_tree";
  static constexpr bool kOnDisk = true;

  bool Open(const std::string& path, std::uint64_t) {
    FileOptions file_options;
    file_options.mode = OpenMode::kCreate;
    TreeOptions options;
    options.durability = kDurability;
    options.cache_bytes = std::uint64_t{256} << 20;
    return Take(TreeDBM<MemoryMapParallelFile>::Open(path, options, file_options));
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::HakoTreeEngine>(argc, argv); }
