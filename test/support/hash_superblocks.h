// Changes the superblocks of a hash file that no process has open.
#pragma once

#include <cstring>
#include <string>

#include "hako/base/assert.h"
#include "hako/format/hash_file_format.h"
#include "hako/storage/superblock_slots.h"
#include "support/file_system.h"

namespace hako {

// Calls change(superblock) for each valid one.
template <class F>
void ChangeHashSuperBlocks(const std::string& path, F&& change) {
  std::string bytes = ReadWhole(path);
  for (const std::size_t at : {std::size_t{0}, std::size_t{storage::kSlotDistance}}) {
    format::HashSuperBlock block;
    if (bytes.size() < at + sizeof(block)) continue;
    std::memcpy(static_cast<void*>(&block), bytes.data() + at, sizeof(block));
    if (block.magic != format::kHashFileMagic || block.check != format::CheckOf(block)) continue;
    change(block);
    block.check = format::CheckOf(block);
    std::memcpy(bytes.data() + at, &block, sizeof(block));
  }
  WriteWhole(path, bytes);
}

// As if the machine had been started since the file was mapped.
inline void MoveToAnotherBoot(const std::string& path) {
  ChangeHashSuperBlocks(path, [](format::HashSuperBlock& block) {
    if (block.map_identity != 0) block.map_identity = block.map_identity ^ 2;
    if (block.map_boot != 0) block.map_boot = block.map_boot ^ 2;
  });
}

}  // namespace hako
