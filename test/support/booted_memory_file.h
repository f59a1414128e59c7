// A memory file with a boot id: opened again under the same boot it looks as after a process kill,
// with all stores; under another boot as after a machine crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "hako/file/file.h"
#include "hako/file/memory_file.h"

namespace hako {

inline FileIdentity IdentityOfBoot(std::uint8_t boot) { return {.boot_id = {std::byte{boot}}, .device = 1, .inode = 2}; }

class BootedMemoryFile : public MemoryFile {
 public:
  BootedMemoryFile(MemoryFile file, std::uint8_t boot) : MemoryFile(std::move(file)), boot_(boot) {}
  FileIdentity Identity() const { return IdentityOfBoot(boot_); }

 private:
  std::uint8_t boot_;
};

static_assert(MappedFile<BootedMemoryFile> && KernelBackedFile<BootedMemoryFile>);

}  // namespace hako
