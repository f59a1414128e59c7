// The trees of other orders and codecs that the tool can open, in separate source files because
// each takes seconds to compile.
#pragma once

namespace hako::tool {

void AddNumberTrees();
void AddBinaryNumberTrees();
void AddTextTrees();
void AddCompressedTrees();

// All of these (other_trees.cc); none in a tool that is built without them (no_other_trees.cc).
void AddOtherTrees();

}  // namespace hako::tool
