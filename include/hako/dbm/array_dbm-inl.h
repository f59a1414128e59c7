// Definitions of dbm/array_dbm.h.
#pragma once

#include "hako/dbm/array_dbm.h"

namespace hako {

template <File FileT>
ArrayDBM<FileT>::~ArrayDBM() {
  (void)this->Close();
  if (this->writers_.IsInherited()) {  // the threads and locks of the space belong to the parent process
    (void)space_.release();
    (void)pages_.release();
  }
}

template <File FileT>
auto ArrayDBM<FileT>::Open(const std::string& path, const ArrayOptions& options, const FileOptions& file_options)
    -> StatusOr<std::unique_ptr<ArrayDBM>>
requires PathFile<FileT> HAKO_TRY {
  Status checked = LimitsFor(options).status();
  if (checked.ok() && file_options.mode == OpenMode::kTruncate && options.width == 0) checked = NoWidthError();
  HAKO_ASSIGN_OR_RETURN(auto dbm, Home::template OpenPath<ArrayDBM>(path, options, file_options, checked));
  // The condition is always true here; clang 14 compiles this for files without a path, too.
  if constexpr (PathFile<FileT>) {
    if (!dbm->IsWritable()) dbm->reopen_ = [path = CanonicalOf(path), options, file_options] { return Open(path, options, file_options); };
  }
  return dbm;
}
HAKO_OR_NO_MEMORY

template <File FileT>
StatusOr<tree::PoolLimits> ArrayDBM<FileT>::LimitsFor(const ArrayOptions& options) {
  if (options.width > kRecordWidthMax)
    return absl::InvalidArgumentError(absl::StrCat("ArrayOptions::width must be 1 to ", kRecordWidthMax));
  return Home::LimitsOf(options);
}
template <File FileT>
Status ArrayDBM<FileT>::NoWidthError() {
  return absl::InvalidArgumentError("a new array needs ArrayOptions::width, the bytes of each record");
}

template <File FileT>
auto ArrayDBM<FileT>::Open(FileT file, LogPlace<LogFile> log, const ArrayOptions& options) -> StatusOr<std::unique_ptr<ArrayDBM>> HAKO_TRY {
  HAKO_ASSIGN_OR_RETURN(tree::PoolLimits limits, LimitsFor(options));
  if (options.width == 0) {
    HAKO_ASSIGN_OR_RETURN(const bool blank, storage::IsBlankFile(file, array::kArrayFileKind));
    if (blank) return NoWidthError();
  }
  HAKO_ASSIGN_OR_RETURN(auto store, tree::PageStore<FileT>::Open(std::move(file), RecordKeyComparator::kName, NoCodec::kName, options.width,
                                                                 array::kArrayFileKind));
  Home::WatchReaders(*store, log, options);
  const format::TreeSuperBlock super = store->super();
  const unsigned width = super.page_size;
  HAKO_RETURN_IF_ERROR(array::CheckWidth(width));
  if (options.width != 0 && options.width != width)
    return absl::InvalidArgumentError(absl::StrCat("the records of the file have ", width, " bytes, not ", options.width));
  auto pages = std::make_unique<array::ArrayPages>(width);
  limits.kind = pages.get();
  const auto checkpointed = std::make_shared<std::atomic<Home*>>(nullptr);
  HAKO_ASSIGN_OR_RETURN(auto space, Home::MakeSpace(std::move(store), limits, checkpointed));
  std::unique_ptr<ArrayDBM> dbm(new ArrayDBM(std::move(space), std::move(pages), options, checkpointed));
  dbm->log_place_ = std::move(log);
  dbm->array().captures().SetLimit(options.snapshot_bytes);
  const bool is_new = super.root == 0;
  if (is_new) {
    HAKO_RETURN_IF_ERROR(dbm->array().Create());
    dbm->space_->SetRoot(dbm->array().root_id());
  } else {
    HAKO_RETURN_IF_ERROR(dbm->array().Attach(super.root, super.num_records, super.applied_index));
  }
  HAKO_RETURN_IF_ERROR(dbm->Begin(options, options.sync_interval, is_new));
  return dbm;
}
HAKO_OR_NO_MEMORY

template <File FileT>
Status ArrayDBM<FileT>::VerifyPinned(const typename Home::Pinned& pinned) {
  HAKO_ASSIGN_OR_RETURN(const auto space, this->OpenPinned(pinned));
  array::PageArray<typename Home::PinnedSpace> view(*space, array().shape());
  HAKO_RETURN_IF_ERROR(view.Attach(pinned.super.root, pinned.super.num_records));
  return view.Verify(pinned.super.num_records);
}

template <File FileT>
Inspection ArrayDBM<FileT>::Inspect() HAKO_TRY {
  Inspection pairs = this->InspectAs("ArrayDBM");
  if (this->IsClosed()) return pairs;
  pairs.emplace_back("comparator", std::string(RecordKeyComparator::kName));
  pairs.emplace_back("width", absl::StrCat(array().width()));
  pairs.emplace_back("records_per_page", absl::StrCat(array().shape().per_leaf));
  return pairs;
}
HAKO_CATCH_NO_MEMORY(return {};)

}  // namespace hako
