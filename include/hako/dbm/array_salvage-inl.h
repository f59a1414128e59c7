// Definitions of dbm/salvage.h for ArrayDBM.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "hako/array/array_salvage.h"
#include "hako/dbm/array_dbm.h"
#include "hako/dbm/page_salvage_source.h"
#include "hako/dbm/salvage.h"

namespace hako::internal {

template <File FileT, File From>
class SalvageSource<ArrayDBM<FileT>, From> : public PageSalvageSource<From> {
  using Base = PageSalvageSource<From>;

 public:
  using Target = FileT;
  static StatusOr<SalvageSource> Open(const From& file, SalvageReport& report) {
    HAKO_ASSIGN_OR_RETURN(Base found, Base::Find(file, report, array::kArrayFileKind, RecordKeyComparator::kName, NoCodec::kName));
    HAKO_RETURN_IF_ERROR(array::CheckWidth(found.super().page_size));
    return SalvageSource(std::move(found));
  }
  StatusOr<std::unique_ptr<ArrayDBM<FileT>>> Create(FileT file) const {
    // The new database keeps no log until it is closed.
    return ArrayDBM<FileT>::Open(std::move(file), {.width = this->super_.page_size, .durability = Durability::kNone});
  }
  template <class Take>
  Status Run(Take&& take) {
    return array::ArraySalvage<From>(this->file_, this->super_).Run(take);
  }
  std::uint64_t clock() const { return 0; }

 private:
  explicit SalvageSource(Base&& found) : Base(std::move(found)) {}
};

}  // namespace hako::internal
