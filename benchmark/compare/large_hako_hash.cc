// hako's HashDBM on a positional file, or a mapped one; grown from default options.
#include "hako/dbm/hash_dbm.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "large_hako.h"

namespace hako::compare {

template <class FileT>
class LargeHakoHash : public LargeHakoEngine<HashDBM<FileT>> {
 public:
  static constexpr std::string_view kName = "hako_hash";

  bool Open(const LargeOptions& options, bool create) {
    HashOptions hash;
    hash.min_read_size = options.FirstRead(16);
    return this->Take(this->OpenFile(options, create, hash));
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) {
  using namespace hako;
  return compare::LargeMain<compare::LargeHakoHash<PositionalParallelFile>, compare::LargeHakoHash<MemoryMapParallelFile>>(argc, argv);
}
