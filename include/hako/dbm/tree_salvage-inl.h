// Definitions of dbm/salvage.h for TreeDBM.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "hako/dbm/page_salvage_source.h"
#include "hako/dbm/salvage.h"
#include "hako/tree/file/page_salvage.h"
#include "hako/tree/file/page_store.h"
#include "hako/tree/page_view.h"

namespace hako::internal {

template <File FileT, Comparator Compare, PageCodec Codec, File From>
class SalvageSource<TreeDBM<FileT, Compare, Codec>, From> : public PageSalvageSource<From> {
  using Base = PageSalvageSource<From>;
  using Database = TreeDBM<FileT, Compare, Codec>;

 public:
  static constexpr bool kMayBeTable = true;
  using Target = FileT;
  static StatusOr<SalvageSource> Open(const From& file, SalvageReport& report) {
    HAKO_ASSIGN_OR_RETURN(Base found, Base::Find(file, report, tree::PageStore<From>::kKind, Compare::kName, Codec::kName));
    return SalvageSource(std::move(found));
  }
  StatusOr<std::unique_ptr<Database>> Create(FileT file) const {
    TreeOptions options;
    options.page_size = this->super_.page_size;
    options.durability = Durability::kNone;  // until it is closed
    options.expiry = this->super_.clock != 0;
    options.clock = &Expiry::FirstTime;
    return Database::Open(std::move(file), options);
  }
  template <class Take>
  Status Run(Take&& take) {
    return tree::PageSalvage<From, Codec>(this->file_, this->super_, tree::PageView<Compare>::kOrder).Run(take);
  }
  std::uint64_t clock() const { return this->super_.clock; }

 private:
  explicit SalvageSource(Base&& found) : Base(std::move(found)) {}
};

}  // namespace hako::internal
