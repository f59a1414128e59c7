// hako's TreeDBM on a positional file, or a mapped one.
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "large_hako.h"

namespace hako::compare {

template <class FileT>
class LargeHakoTree : public LargeHakoEngine<TreeDBM<FileT>> {
 public:
  static constexpr std::string_view kName = "hako_tree";

  bool Open(const LargeOptions& options, bool create) {
    TreeOptions tree;
    tree.page_size = static_cast<unsigned>(options.page_size);
    tree.cache_bytes = options.buffer_pool_bytes;
    return this->Take(this->OpenFile(options, create, tree));
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) {
  using namespace hako;
  return compare::LargeMain<compare::LargeHakoTree<PositionalParallelFile>, compare::LargeHakoTree<MemoryMapParallelFile>>(argc, argv);
}
