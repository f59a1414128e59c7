// A file in memory that tests fill again and again, where they open thousands of images: its pages stay
// mapped, which saves a page fault each, and to unmap them.
#pragma once

#include <cstddef>
#include <span>

#include "hako/base/assert.h"
#include "hako/file/memory_file.h"

namespace hako {

class RefilledFile {
 public:
  // The file with a copy of `bytes`, and nothing else. REQUIRES: the handles returned before are closed.
  MemoryFile With(std::span<const std::byte> bytes) {
    HAKO_ASSERT(file_.Resize(bytes.size()).ok() && file_.WriteAt(0, bytes).ok());
    return file_.Share();
  }

 private:
  MemoryFile file_;
};

}  // namespace hako
