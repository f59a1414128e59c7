// The trees of other orders and codecs that the tool can open, in separate source files because
// each takes seconds to compile.
#pragma once

namespace hako::tool {

void AddNumberTrees();
void AddBinaryNumberTrees();
void AddTextTrees();
void AddCompressedTrees();

inline void AddOtherTrees() {
  AddNumberTrees();
  AddBinaryNumberTrees();
  AddTextTrees();
  AddCompressedTrees();
}

}  // namespace hako::tool
