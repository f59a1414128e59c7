// Adds trees of other orders and codecs to AnyDBM, which by itself opens only trees in bytewise
// order without a codec. A program adds the combinations that it needs, because each one is
// compiled separately, and codecs need their libraries.
//
//   AddTreeToAnyDBM<DecimalComparator>();
//   AddTreeToAnyDBM<BytewiseComparator, ZstdCodec<>>();  // base/zstd_codec.h
//   auto db = AnyDBM::Open("days.hkt?order=decimal");    // order= is needed only for a new file
#pragma once

#include <memory>
#include <utility>

#include "hako/base/comparator.h"
#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/positional_tree_dbm.h"
#include "hako/dbm/restore.h"
#include "hako/dbm/salvage.h"

namespace hako {

// Makes AnyDBM::Open, AnyDBM::Salvage and AnyDBM::Restore accept trees of this order and codec.
// Thread-safe. Such files are always read and written by position, regardless of the option `file`.
template <Comparator Compare, PageCodec Codec = NoCodec>
void AddTreeToAnyDBM() {
  using Tree = TreeDBM<PositionalParallelFile, Compare, Codec>;
  const auto open = [](const AnyOptions& options) -> StatusOr<std::unique_ptr<AnyDBM>> {
    HAKO_ASSIGN_OR_RETURN(auto tree, Tree::Open(options.path, TreeOptionsOf(options), options.file));
    return std::make_unique<AnyDBM>(std::move(tree));
  };
  AnyDBM::AddTree(Compare::kName, Codec::kName, open, &Salvage<Tree>, &Restore<Tree>);
}

}  // namespace hako
