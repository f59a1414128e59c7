// hako's ArrayDBM with default options, by its path, so with a log; with HAKO_NO_LOG without one; with
// HAKO_IN_MEMORY a MemoryArrayDBM without a path.
#include "array.h"
#include "hako/dbm/array_dbm.h"
#include "hako/dbm/memory_array_dbm.h"

namespace hako::compare {

class ArrayHako {
 public:
#if defined(HAKO_IN_MEMORY)
  using Database = MemoryArrayDBM<>;
  static constexpr std::string_view kName = "hako_memory_array";
#elif defined(HAKO_NO_LOG)
  using Database = ArrayDBM<>;
  static constexpr std::string_view kName = "hako_array_none";
#else
  using Database = ArrayDBM<>;
  static constexpr std::string_view kName = "hako_array";
#endif

  bool Open([[maybe_unused]] const std::string& path, std::uint64_t width, std::uint64_t) {
#if defined(HAKO_IN_MEMORY)
    MemoryArrayOptions options;
    options.width = static_cast<unsigned>(width);
    auto opened = Database::Open(options);
#else
    ArrayOptions options;
    options.width = static_cast<unsigned>(width);
#if defined(HAKO_NO_LOG)
    options.durability = Durability::kNone;
#endif
    auto opened = Database::Open(path, options);
#endif
    if (opened.ok()) db_ = *std::move(opened);
    return db_ != nullptr;
  }
  bool Set(std::uint64_t id, std::string_view value) { return db_->Set(id, value).ok(); }
  bool Get(std::uint64_t id, char* out) { return db_->Get(id, std::span(out, 4096)).ok(); }
  std::uint64_t Append(std::string_view value) { return db_->Append(value).value_or(0); }
  template <class Visit>
  bool Scan(Visit visit) {
    auto it = db_->MakeIterator();
    for (it.First(); it.Valid(); it.Next()) visit(it.id(), it.value());
    return it.status().ok();
  }
  bool Close() { return db_->Close().ok(); }

 private:
  std::unique_ptr<Database> db_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::ArrayMain<hako::compare::ArrayHako>(argc, argv); }
