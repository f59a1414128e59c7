// Trees of other orders and codecs for AnyDBM, which knows trees in the order of bytes without a codec. A program adds those that it wants:
// each is code of its own, and codecs need their libraries.
//
//   AddTreeToAnyDBM<DecimalComparator>();
//   AddTreeToAnyDBM<BytewiseComparator, ZstdCodec<>>();  // base/zstd_codec.h
//   auto db = AnyDBM::Open("days.hkt?order=decimal");    // the name is needed only when the file is created
#pragma once

#include <memory>
#include <utility>

#include "hako/base/comparator.h"
#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/positional_parallel_file.h"

namespace hako {

// Thread-safe. The file is read and written by position, whatever `file` says.
template <Comparator Compare, PageCodec Codec = NoCodec>
void AddTreeToAnyDBM() {
  AnyDBM::AddTree(Compare::kName, Codec::kName, [](const AnyOptions& options) -> StatusOr<std::unique_ptr<AnyDBM>> {
    using Tree = TreeDBM<PositionalParallelFile, Compare, Codec>;
    HAKO_ASSIGN_OR_RETURN(auto tree, Tree::Open(options.path, TreeOptionsOf(options), options.file));
    return std::make_unique<AnyDBM>(std::move(tree));
  });
}

}  // namespace hako
