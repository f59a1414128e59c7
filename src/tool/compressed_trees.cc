// The codecs whose libraries were installed when the tool was built.
#include "hako/dbm/any_tree.h"
#include "tool/other_trees.h"

#ifdef HAKO_TOOL_HAS_LZ4
#include "hako/base/lz4_codec.h"
#endif
#ifdef HAKO_TOOL_HAS_ZSTD
#include "hako/base/zstd_codec.h"
#endif

namespace hako::tool {

void AddCompressedTrees() {
#ifdef HAKO_TOOL_HAS_LZ4
  AddTreeToAnyDBM<BytewiseComparator, Lz4Codec>();
#endif
#ifdef HAKO_TOOL_HAS_ZSTD
  AddTreeToAnyDBM<BytewiseComparator, ZstdCodec<>>();
#endif
}

}  // namespace hako::tool
