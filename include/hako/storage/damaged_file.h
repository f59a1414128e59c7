// A damaged file of a database, as a salvage reads it: a read-only File whose reads never fail.
//
// Blocks that the device cannot read, and bytes after the end of a truncated file, read as zeros,
// which fail every check of the formats. Each such place is reported once. Reads of both slots
// return the superblock that SalvageSuperBlock has chosen, so the code that opens the file finds
// it.
//
// Not thread-safe. The file and the report must outlive the object.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/storage/salvage_report.h"
#include "hako/storage/superblock_slots.h"

namespace hako::storage {

template <File FileT>
class DamagedFile {
 public:
  DamagedFile(const FileT& file, SalvageReport& report)
      : file_(&file), report_(&report), end_(file.Size()), claimed_(end_), reported_(std::make_unique<std::set<std::uint64_t>>()) {}

  std::uint64_t Size() const { return claimed_; }
  bool IsWritable() const { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
    const std::uint64_t there = offset < end_ ? std::min<std::uint64_t>(out.size(), end_ - offset) : 0;
    std::ranges::fill(out.subspan(there), std::byte{0});
    ReadThere(offset, out.first(there));
    for (std::uint64_t slot = 0; slot < 2 && !super_.empty(); ++slot) {
      const std::uint64_t begin = slot * kSlotDistance, from = std::max(begin, offset);
      const std::uint64_t to = std::min(begin + super_.size(), offset + out.size());
      if (from < to) std::memcpy(out.data() + (from - offset), super_.data() + (from - begin), to - from);
    }
    return absl::OkStatus();
  }
  Status WriteAt(std::uint64_t, std::span<const std::byte>) { return ReadOnlyError(); }
  Status Resize(std::uint64_t) { return ReadOnlyError(); }
  Status Sync() { return absl::OkStatus(); }
  Status Close() { return absl::OkStatus(); }

  const FileT& file() const { return *file_; }
  SalvageReport& report() const { return *report_; }
  // The size of the damaged file.
  std::uint64_t end() const { return end_; }
  // Makes the file appear as long as its superblock says.
  void Claim(std::uint64_t size) {
    if (size <= claimed_) return;
    report_->Add(SalvageReport::Kind::kTruncated, end_, size - end_);
    claimed_ = size;
  }
  template <class Block>
  void ShowSuperBlock(const Block& block) {
    super_.assign(reinterpret_cast<const char*>(&block), sizeof(block));
  }

 private:
  static constexpr std::uint64_t kBlock = 4096;

  // Reads existing bytes in one call or, if that fails, block by block.
  void ReadThere(std::uint64_t offset, std::span<std::byte> out) const {
    if (out.empty() || file_->ReadAt(offset, out).ok()) return;
    for (std::uint64_t at = offset, size; at < offset + out.size(); at += size) {
      size = std::min(kBlock - at % kBlock, offset + out.size() - at);
      const std::span<std::byte> block = out.subspan(at - offset, size);
      if (file_->ReadAt(at, block).ok()) continue;
      std::ranges::fill(block, std::byte{0});
      if (reported_->insert(at / kBlock).second)
        report_->Add(SalvageReport::Kind::kUnreadable, at / kBlock * kBlock, std::min(kBlock, end_ - at / kBlock * kBlock));
    }
  }

  const FileT* file_;
  SalvageReport* report_;
  std::uint64_t end_, claimed_;
  std::string super_;
  std::unique_ptr<std::set<std::uint64_t>> reported_;  // blocks
};

// Tries to restore a block that fails its checksum, by trying all values of each byte. This
// succeeds if only one byte is damaged. The checksum has 64 bits, so a block that passes is the
// right one.
template <class Block>
bool RestoreBlock(Block* block) {
  auto* const bytes = reinterpret_cast<unsigned char*>(block);
  for (std::size_t i = 0; i < sizeof(Block); ++i) {
    const unsigned char before = bytes[i];
    do {
      ++bytes[i];
      if (block->check == CheckOf(*block)) return true;
    } while (bytes[i] != before);
  }
  return false;
}

// The superblock that a salvage continues from.
template <class Block>
struct SalvagedBlock {
  Block block;
  bool may_be_older = false;  // the other slot is lost, and may have been the newer one
};

// Finds the newer superblock, and restores a damaged slot if that is possible. Returns
// InvalidArgument for a file of another kind, and DataLoss if both slots are lost: without the
// secret that seeds all checks, valid bytes cannot be told from garbage.
template <class Block, File FileT>
StatusOr<SalvagedBlock<Block>> SalvageSuperBlock(DamagedFile<FileT>& file, const FileKind& kind) {
  const std::string name = absl::StrCat("hako ", ToAbsl(kind.name), " database");
  std::array<Block, 2> slots, found;
  std::array<bool, 2> valid, restored{}, blank{};
  for (unsigned i = 0; i < 2; ++i) {
    HAKO_RETURN_IF_ERROR(file.ReadAt(i * kSlotDistance, std::as_writable_bytes(std::span(&slots[i], 1))));
    found[i] = slots[i];
    blank[i] = std::ranges::all_of(std::as_bytes(std::span(&slots[i], 1)), [](std::byte byte) { return byte == std::byte{0}; });
    const auto is_valid = [&] { return slots[i].magic == kind.magic && slots[i].check == CheckOf(slots[i]); };
    valid[i] = is_valid();
    if (!valid[i] && !blank[i]) restored[i] = valid[i] = RestoreBlock(&slots[i]) && is_valid();
  }
  if (!valid[0] && !valid[1]) {
    const bool is_ours =
        found[0].magic == kind.magic || found[1].magic == kind.magic || (blank[0] && blank[1] && file.end() > 2 * kSlotDistance);
    if (!is_ours) return absl::InvalidArgumentError(absl::StrCat("not a ", name, ": bad magic at offset 0"));
    return absl::DataLossError(
        absl::StrCat("both superblocks of the ", name,
                     " are lost, and with them the secret of all its checksums: nothing can be salvaged; restore a copy"));
  }
  const unsigned newer = valid[0] && (!valid[1] || slots[0].sequence > slots[1].sequence) ? 0 : 1;
  SalvagedBlock<Block> result{slots[newer]};
  const std::uint32_t version = result.block.version;
  if (version > kind.newest || version < kind.oldest)
    return absl::UnimplementedError(absl::StrCat(ToAbsl(kind.name), " file format ", version, " is not one that this library reads"));
  const std::uint64_t sequence = result.block.sequence;
  for (unsigned i = 0; i < 2; ++i) {
    if (blank[i] && sequence == 1) continue;  // a new file, whose second slot was not written yet
    if (!valid[i] || restored[i]) file.report().Add(SalvageReport::Kind::kSuperBlock, i * kSlotDistance, sizeof(Block));
    const std::uint64_t lost = found[i].sequence;  // if it is still readable
    if (!valid[i]) result.may_be_older = lost > sequence || lost + 1 < sequence;
  }
  return result;
}

}  // namespace hako::storage
