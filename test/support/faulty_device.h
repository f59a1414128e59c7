// A device whose content outlives its files, and the two ways in which a database may use it, each
// with a plan of what fails.
#pragma once

#include <memory>
#include <utility>

#include "hako/file/any_file.h"
#include "hako/file/memory_file.h"
#include "support/fault_file.h"
#include "support/test_file.h"

namespace hako {

struct FaultyMapped {
  using FileType = FaultFile<MemoryFile>;
  static FileType Open(const MemoryFile& device, std::shared_ptr<FaultPlan> plan) { return FileType(device.Share(), std::move(plan)); }
};
struct FaultyPositional {
  using FileType = TestFile;
  static FileType Open(const MemoryFile& device, std::shared_ptr<FaultPlan> plan) {
    return FaultFile(AnyFile(device.Share()), std::move(plan));
  }
};

}  // namespace hako
