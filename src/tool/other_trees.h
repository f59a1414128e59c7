// The trees of other orders and codecs that the tool opens beside those of AnyDBM itself. Each is a source file, as each takes the compiler
// some seconds.
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
