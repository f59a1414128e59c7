// Definitions of dbm/tree_dbm.h.
#pragma once

#include "hako/dbm/tree_dbm.h"

namespace hako {

template <File FileT, Comparator Compare, PageCodec Codec>
TreeDBM<FileT, Compare, Codec>::~TreeDBM() {
  (void)this->Close();
  if (this->writers_.IsInherited()) (void)space_.release();  // the threads and locks of the space belong to the parent process
}

template <File FileT, Comparator Compare, PageCodec Codec>
auto TreeDBM<FileT, Compare, Codec>::Open(const std::string& path, const TreeOptions& options, const FileOptions& file_options)
    -> StatusOr<std::unique_ptr<TreeDBM>>
requires PathFile<FileT> HAKO_TRY {
  HAKO_ASSIGN_OR_RETURN(auto dbm, Home::template OpenPath<TreeDBM>(path, options, file_options, LimitsFor(options).status()));
  // The condition is always true here; clang 14 compiles this for files without a path, too.
  if constexpr (PathFile<FileT>) {
    if (!dbm->IsWritable()) dbm->reopen_ = [path = CanonicalOf(path), options, file_options] { return Open(path, options, file_options); };
  }
  return dbm;
}
HAKO_OR_NO_MEMORY

template <File FileT, Comparator Compare, PageCodec Codec>
StatusOr<tree::PoolLimits> TreeDBM<FileT, Compare, Codec>::LimitsFor(const TreeOptions& options) {
  if (options.page_size < 128 || options.page_size > 8192) return absl::InvalidArgumentError("TreeOptions::page_size must be 128 to 8192");
  return Home::LimitsOf(options);
}

template <File FileT, Comparator Compare, PageCodec Codec>
auto TreeDBM<FileT, Compare, Codec>::Open(FileT file, LogPlace<LogFile> log, const TreeOptions& options)
    -> StatusOr<std::unique_ptr<TreeDBM>> HAKO_TRY {
  static_assert(Compare::kName.size() <= format::kComparatorNameMax, "the file has no room for the comparator's name");
  static_assert(Codec::kName.size() <= format::kCodecNameMax, "the file has no room for the codec's name");
  HAKO_ASSIGN_OR_RETURN(tree::PoolLimits limits, LimitsFor(options));
  using Store = tree::PageStore<FileT>;
  HAKO_ASSIGN_OR_RETURN(
      auto store, Store::Open(std::move(file), Compare::kName, Codec::kName, options.page_size, Store::kKind, Expiry::FirstClock(options)));
  Home::WatchReaders(*store, log, options);
  const bool is_new = store->super().root == 0;
  if (!is_new) HAKO_RETURN_IF_ERROR(CheckContent(store->super().type, options));
  limits.order = tree::PageView<Compare>::kOrder;
  const auto checkpointed = std::make_shared<std::atomic<Home*>>(nullptr);
  HAKO_ASSIGN_OR_RETURN(auto space, Home::MakeSpace(std::move(store), limits, checkpointed));
  const std::uint32_t page_size = space->store().super().page_size;
  std::unique_ptr<TreeDBM> dbm(new TreeDBM(std::move(space), page_size, options, checkpointed));
  dbm->log_place_ = std::move(log);
  dbm->tree().captures().SetLimit(options.snapshot_bytes);
  HAKO_RETURN_IF_ERROR(dbm->KeepTimes(options, dbm->space_->store().super().clock, dbm->space_->store().super().first_expiry));
  if (dbm->expiry() != nullptr) dbm->CallAfterUpdates();
  if (is_new) {
    if (options.type) dbm->BeginType(*options.type);
    HAKO_RETURN_IF_ERROR(dbm->tree().Create());
    dbm->space_->SetRoot(dbm->tree().root_id());
  } else {
    const format::TreeSuperBlock& super = dbm->space_->store().super();
    dbm->tree().Attach(super.root, super.num_records, super.applied_index);
  }
  HAKO_RETURN_IF_ERROR(dbm->Begin(options, options.sync_interval, is_new));
  return dbm;
}
HAKO_OR_NO_MEMORY

template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::VerifyPinned(const typename Home::Pinned& pinned) {
  HAKO_ASSIGN_OR_RETURN(const auto space, this->OpenPinned(pinned));
  tree::PageTree<typename Home::PinnedSpace, Compare> view(*space, pinned.super.page_size);
  view.Attach(pinned.super.root, pinned.super.num_records);
  return view.Verify(pinned.super.num_records);
}

template <File FileT, Comparator Compare, PageCodec Codec>
Inspection TreeDBM<FileT, Compare, Codec>::Inspect() HAKO_TRY {
  Inspection pairs = this->InspectAs("TreeDBM");
  if (this->IsClosed()) return pairs;
  pairs.emplace_back("comparator", std::string(Compare::kName));
  pairs.emplace_back("codec", std::string(Codec::kName));
  return pairs;
}
HAKO_CATCH_NO_MEMORY(return {};)

}  // namespace hako
