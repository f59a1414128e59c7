// hako's HashDBM on a memory-mapped file; grown from default options, or with HAKO_PRESIZED told
// how many records to expect; with HAKO_NO_LOG of durability kNone.
#include "driver.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako_engine.h"

namespace hako::compare {

class HakoHashEngine : public HakoEngine<HashDBM<MemoryMapParallelFile>> {
 public:
  static constexpr std::string_view kName = kPresized                          ? "hako_hash_presized"
                                            : kDurability == Durability::kNone ? "hako_hash_none"
                                                                               : "hako_hash";
  static constexpr bool kOnDisk = true;

  bool Open(const std::string& path, std::uint64_t n) {
    FileOptions file_options;
    file_options.mode = OpenMode::kCreate;
    auto file = MemoryMapParallelFile::Open(path, file_options);
    if (!file.ok()) return Good(file.status());
    HashOptions options;
    options.durability = kDurability;
    if (kPresized) options.num_records = n;
    return Take(HashDBM<MemoryMapParallelFile>::Open(*std::move(file), options));
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::HakoHashEngine>(argc, argv); }
