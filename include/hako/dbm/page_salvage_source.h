// PageSalvageSource: the common part of SalvageSource (dbm/salvage.h) for the files of TreeDBM and
// ArrayDBM.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/tree_file_format.h"
#include "hako/log/update_log.h"
#include "hako/storage/damaged_file.h"
#include "hako/storage/salvage_report.h"
#include "hako/tree/file/page_store.h"

namespace hako::internal {

template <File From>
class PageSalvageSource {
  using Source = storage::DamagedFile<From>;

 public:
  const format::TreeSuperBlock& super() const { return super_; }
  std::optional<std::uint64_t> num_expected() const { return super_.num_records; }
  std::uint64_t applied_index() const { return super_.applied_index; }
  bool NeedsLog() const { return log::NamedLogOf(super_).IsNeeded(); }

 protected:
  // Chooses the superblock. Returns an error if the file has another kind, comparator or codec.
  static StatusOr<PageSalvageSource> Find(const From& file, SalvageReport& report, const storage::FileKind& kind,
                                          std::string_view comparator, std::string_view codec) {
    Source source(file, report);
    HAKO_ASSIGN_OR_RETURN(const auto found, storage::SalvageSuperBlock<format::TreeSuperBlock>(source, kind));
    HAKO_RETURN_IF_ERROR(tree::PageStore<Source>::CheckNames(found.block, comparator, codec));
    source.Claim(found.block.end * format::kTreeUnit);
    if (found.may_be_older) report.notes.emplace_back("one superblock is lost: it may have named a later checkpoint than the other");
    return PageSalvageSource(std::move(source), found.block);
  }

  PageSalvageSource(Source file, const format::TreeSuperBlock& super) : file_(std::move(file)), super_(super) {}

  Source file_;
  format::TreeSuperBlock super_;
};

}  // namespace hako::internal
