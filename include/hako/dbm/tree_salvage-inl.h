// Definitions of dbm/salvage.h: of a TreeDBM.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "hako/dbm/salvage.h"
#include "hako/storage/damaged_file.h"
#include "hako/tree/page_salvage.h"
#include "hako/tree/page_store.h"
#include "hako/tree/page_view.h"

namespace hako::internal {

template <File FileT, Comparator Compare, PageCodec Codec, File From>
class SalvageSource<TreeDBM<FileT, Compare, Codec>, From> {
  using Database = TreeDBM<FileT, Compare, Codec>;
  using Source = storage::DamagedFile<From>;

 public:
  using Target = FileT;
  static StatusOr<SalvageSource> Open(const From& file, SalvageReport& report) {
    Source source(file, report);
    HAKO_ASSIGN_OR_RETURN(const auto found, storage::SalvageSuperBlock<format::TreeSuperBlock>(source, tree::PageStore<Source>::kKind));
    HAKO_RETURN_IF_ERROR(tree::PageStore<Source>::CheckNames(found.block, Compare::kName, Codec::kName));
    source.Claim(found.block.end * format::kTreeUnit);
    if (found.may_be_older) report.notes.emplace_back("one superblock is lost: it may have named a later checkpoint than the other");
    return SalvageSource(std::move(source), found.block);
  }
  StatusOr<std::unique_ptr<Database>> Create(FileT file) const {
    TreeOptions options;
    options.page_size = super_.page_size;
    options.durability = Durability::kNone;  // until it is closed
    return Database::Open(std::move(file), options);
  }
  template <class Take>
  Status Run(Take&& take) {
    return tree::PageSalvage<From, Codec>(file_, super_, tree::PageView<Compare>::kOrder).Run(take);
  }

  const format::TreeSuperBlock& super() const { return super_; }
  std::optional<std::uint64_t> num_expected() const { return super_.num_records; }
  std::uint64_t applied_index() const { return super_.applied_index; }
  bool NeedsLog() const { return log::NamedLogOf(super_).IsNeeded(); }

 private:
  SalvageSource(Source file, const format::TreeSuperBlock& super) : file_(std::move(file)), super_(super) {}

  Source file_;
  format::TreeSuperBlock super_;
};

}  // namespace hako::internal
