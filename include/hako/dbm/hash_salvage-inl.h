// Definitions of dbm/salvage.h for HashDBM.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "hako/dbm/salvage.h"
#include "hako/hash/file/heap_salvage.h"

namespace hako::internal {

template <File FileT, File From>
class SalvageSource<HashDBM<FileT>, From> {
 public:
  using Target = FileT;
  static StatusOr<SalvageSource> Open(const From& file, SalvageReport& report) {
    HAKO_ASSIGN_OR_RETURN(auto heap, hash::HeapSalvage<From>::Open(file, &report));
    return SalvageSource(std::move(heap));
  }
  StatusOr<std::unique_ptr<HashDBM<FileT>>> Create(FileT file) const {
    HashOptions options;
    options.num_records = std::min<std::uint64_t>(super().num_records, heap_->EndOfBytes() / 8);
    options.align_pow = static_cast<int>(std::uint32_t{super().align_pow});
    options.durability = Durability::kNone;  // until it is closed
    options.expiry = super().clock != 0;
    options.clock = &Expiry::FirstTime;
    return HashDBM<FileT>::Open(std::move(file), options);
  }
  template <class Take>
  Status Run(Take&& take) {
    return heap_->Run(take);
  }

  const format::HashSuperBlock& super() const { return heap_->super(); }
  std::optional<std::uint64_t> num_expected() const { return heap_->num_expected(); }
  std::uint64_t applied_index() const { return heap_->applied_index(); }
  std::uint64_t clock() const { return heap_->clock(); }
  bool NeedsLog() const { return heap_->NeedsLog(); }

 private:
  explicit SalvageSource(std::unique_ptr<hash::HeapSalvage<From>> heap) : heap_(std::move(heap)) {}

  std::unique_ptr<hash::HeapSalvage<From>> heap_;
};

}  // namespace hako::internal
